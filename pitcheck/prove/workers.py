"""Workers: other processes that prove large stages while the caller cuts out more of them.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> cost(Problem.of(plan, plan).whole_stage()) < LARGE  # not worth a process
True
"""

from __future__ import annotations

from collections.abc import Mapping

from pitcheck.errors import UsageError
from pitcheck.forks import NO_FORK, Forks, can_fork
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.stage import Stage

STEP = 20
"""The rows that the call of a step costs in addition to those it has."""
LARGE = 4000
"""The rows of a stage (steps included) from which on a process costs less than it saves: about 0.1
s.
"""

Keys = dict[int, str]


class Workers:
    """At most ``jobs`` processes, each of which proves one stage.

    This process is one of them until it waits. Workers are forks, which inherit the stages. The
    numbers drawn do not depend on who draws them.

    Raises:
        UsageError: the system cannot fork.
    """

    def __init__(self, jobs: int, settings: Settings) -> None:
        if not can_fork():
            raise UsageError(NO_FORK)
        self._forks: Forks[str] = Forks()
        self._jobs = jobs
        self._settings = settings
        self._waiting: dict[str, tuple[Stage, Keys]] = {}
        self._proofs: dict[str, Proof] = {}
        self.refused = False
        """True if some stage was not proven. The caller needs its values and proves it again, as it
        does with what a dead worker left undone.
        """

    def takes(self, stage: Stage) -> bool:
        """Return True if a stage is worth a process."""
        return cost(stage) >= LARGE

    def give(self, key: str, stage: Stage, keys: Keys) -> None:
        """Prove a stage as soon as a process is free."""
        self._waiting[key] = (stage, keys)
        self.attend()

    def attend(self) -> None:
        """Take in what is done, and start what waits. This takes next to no time."""
        self._receive(0)
        self._start(self._jobs - 1)

    def proofs(self) -> Mapping[str, Proof]:
        """Wait until all stages are proven, or one is not, and return the proofs by key."""
        while (self._waiting or self._forks.running) and not self.refused:
            self._start(self._jobs)
            self._receive(None)
        self.stop()
        return self._proofs

    def stop(self) -> None:
        """End all processes, and forget what waits."""
        self._waiting.clear()
        self._forks.stop()

    def _start(self, most: int) -> None:
        """Start waiting stages, the dearest first, until ``most`` processes run."""
        while self._waiting and len(self._forks.running) < most:
            key = max(self._waiting, key=lambda name: cost(self._waiting[name][0]))
            self._forks.start(key, _proven, key, *self._waiting.pop(key), self._settings)

    def _receive(self, timeout: float | None) -> None:
        """Take in the proofs of processes that end within ``timeout`` seconds.

        None waits for the next one.
        """
        for ended in self._forks.ended(timeout):
            if ended.answer is None:
                self.refused = True
            else:
                self._proofs[ended.key] = ended.answer


def cost(stage: Stage) -> int:
    """Return the rough cost of proving a stage: its rows, and the calls of its steps."""
    return sum(
        step.count + STEP for batch in (stage.parallel, stage.reference) for step in batch.steps
    )


def _proven(statement: str, stage: Stage, keys: Keys, settings: Settings) -> Proof | None:
    """Return the proof of a stage if it holds, else None."""
    proof = prove_stage(stage, keys, settings, statement)
    return proof if proof.outcome == "proven" else None
