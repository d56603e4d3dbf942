"""Progress of processes that wait for each other: the least fixpoint of running as far as possible.

A step is done as soon as its process has reached it and every process it needs has reached the
needed step. Reaching is monotone, so the order in which processes are advanced does not matter and
the final state is unique.
"""

from __future__ import annotations

from collections.abc import Sequence

Need = tuple[int, int]
"""A process, and the step that it must have reached."""


def run_to_fixpoint(needs: Sequence[Sequence[Sequence[Need]]]) -> list[int]:
    """Return the step at which every process ends.

    ``needs[p][i]`` are the needs of step i of process p. A process that finishes ends at its number
    of steps.
    """
    reached = [0] * len(needs)
    waiting: list[list[int]] = [[] for _ in needs]
    queue = list(range(len(needs)))
    while queue:
        process = queue.pop()
        steps = needs[process]
        start = reached[process]
        at = start
        while at < len(steps):
            # The place of a process counts as reached: it may need itself.
            reached[process] = at
            missing = next((other for other, step in steps[at] if reached[other] < step), None)
            if missing is not None:
                waiting[missing].append(process)
                break
            at += 1
        reached[process] = at
        if at > start:
            queue.extend(waiting[process])
            waiting[process].clear()
    return reached
