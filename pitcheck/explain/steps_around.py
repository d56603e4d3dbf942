"""The steps of both plans around a difference, as the report lists them side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pitcheck.explain.evidence import Evidence
from pitcheck.explain.expected_values import stated
from pitcheck.explain.observe import Located
from pitcheck.graph.graph import Graph
from pitcheck.report.coordinate_names import describe_ranks
from pitcheck.report.pictures import StageStep, StageSteps
from pitcheck.stage.batch import Step

MOST_BEFORE, MOST_AFTER = 24, 12
"""The most steps of a side that are listed up to the difference, and from it on."""
MOST_READS = 8
"""The most tensors that a step is said to read; a collective may read one for every member."""


def steps_around(evidence: Evidence, found: Located) -> StageSteps:
    """Return the steps nearest to a mistake from which the output that shows it is computed."""
    target = evidence.run.comparisons[found.number].target.cut
    parallel = _Side(evidence.second, evidence.batch.steps, target.value)
    reference = _Side(evidence.first, evidence.run.stage.reference.steps, target.reference)
    wrong = found.diagnosis.step
    at = parallel.writer(found.value) if wrong is None else parallel.place(wrong)
    due = _due(evidence, found.value, reference, parallel.behind(at))
    shown = parallel.near(at, found.value), reference.near(reference.writer(due), due)
    return StageSteps(
        reference=tuple(reference.step(n, n == reference.writer(due)) for n in shown[1]),
        parallel=tuple(_with_ranks(evidence, parallel, n, n == at) for n in shown[0]),
        reference_left_out=len(reference.cone) - len(shown[1]),
        parallel_left_out=len(parallel.cone) - len(shown[0]),
    )


def _due(evidence: Evidence, value: int, reference: _Side, behind: Iterable[int]) -> int:
    """Return the reference value that a wrong value should hold.

    It is the one that the plan states, or of which the value holds a multiple or terms. Else it is
    the first that no parallel value holds after all that the values ``behind`` hold, or the one
    that the output should be.
    """
    cut = stated(evidence, [value]).get(value) or evidence.cuts.get(value)
    if cut is not None and reference.writer(cut.reference) is not None:
        return cut.reference
    holds = (evidence.holds(each) for each in behind)
    writers = (reference.writer(held) for held in holds if held is not None)
    last = max((writer for writer in writers if writer is not None), default=-1)
    lost = (
        output
        for number in reference.cone
        for output in reference.outputs(number)
        if number > last and not evidence.holding(evidence.alike(output))
    )
    return next(lost, reference.target)


def _with_ranks(evidence: Evidence, side: _Side, number: int, differs: bool) -> StageStep:
    codes = np.flatnonzero(evidence.second.nodes[side.steps[number].node].mask)
    coordinates = evidence.second.coordinates
    ranks: list[int] = np.unique(codes // coordinates.microbatches).tolist()
    held = evidence.holds(side.outputs(number)[0]) if side.outputs(number) else None
    return side.step(
        number,
        differs,
        describe_ranks(ranks, coordinates.sizes),
        None if held is None else evidence.first.values[held].name,
    )


class _Side:
    """The steps of one plan from which a value ``target`` is computed.

    ``cone`` has their numbers in the order of the program.
    """

    def __init__(self, graph: Graph, steps: Sequence[Step], target: int) -> None:
        self.graph = graph
        self.steps = steps
        self.target = target
        self._writers: dict[int, list[int]] = {}
        self._readers: dict[int, list[int]] = {}
        for number in range(len(steps)):
            for output in self.outputs(number):
                self._writers.setdefault(output, []).append(number)
            for value in self.inputs(number):
                self._readers.setdefault(value, []).append(number)
        self.cone = sorted(_nearest(self._writers.get(target, ()), self._before, len(steps)))

    def inputs(self, number: int) -> list[int]:
        """Return the values that a step reads, each once."""
        return list(dict.fromkeys(argument.value for argument in self.steps[number].arguments))

    def outputs(self, number: int) -> list[int]:
        """Return the values that a step writes."""
        return [output for output in self.steps[number].outputs if output is not None]

    def writer(self, value: int) -> int | None:
        """Return the number of the last step that writes a value; None if none does."""
        return next(reversed(self._writers.get(value, [])), None)

    def place(self, step: Step) -> int | None:
        """Return the number of a step; None if it is not among the steps."""
        return next((n for n, each in enumerate(self.steps) if each is step), None)

    def behind(self, number: int | None) -> list[int]:
        """Return the values from which a step computes its results; none without a step."""
        start = [] if number is None else self._before(number)
        steps = _nearest(start, self._before, len(self.steps))
        return [output for each in steps for output in self.outputs(each)]

    def near(self, number: int | None, value: int) -> list[int]:
        """Return the steps of the cone nearest to a step, in the order of the program.

        Those that write the same ``value`` on other ranks are as near. Without a step they are
        those that read it, and what is computed from it.
        """
        cone = set(self.cone)
        beside = self._readers if number is None else self._writers
        start = [*([] if number is None else [number]), *beside.get(value, [])]
        before = _nearest(start, self._before, MOST_BEFORE)
        after = _nearest(start, lambda n: [r for r in self._after(n) if r in cone], MOST_AFTER)
        return sorted({n for n in (*before, *after) if n in cone})

    def step(
        self, number: int, differs: bool, ranks: str = "", holds: str | None = None
    ) -> StageStep:
        """Return a step as the report lists it."""
        step = self.steps[number]
        node = self.graph.nodes[step.node]
        return StageStep(
            operator=node.operator,
            kind=step.kind,
            reads=self._names(self.inputs(number)[:MOST_READS]),
            results=self._names(self.outputs(number)),
            source=node.source or None,
            ranks=ranks,
            holds=holds,
            differs=differs,
        )

    def _names(self, values: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.graph.values[value].name for value in values)

    def _before(self, number: int) -> list[int]:
        return [w for value in self.inputs(number) for w in self._writers.get(value, [])]

    def _after(self, number: int) -> list[int]:
        return [r for value in self.outputs(number) for r in self._readers.get(value, [])]


def _nearest(start: Iterable[int], beside: Callable[[int], list[int]], most: int) -> list[int]:
    """Return at most ``most`` numbers that are reached from some, the nearest first."""
    found = list(dict.fromkeys(start))[:most]
    seen = set(found)
    for number in found:  # grows while it is read
        for other in beside(number):
            if other not in seen and len(found) < most:
                seen.add(other)
                found.append(other)
    return found
