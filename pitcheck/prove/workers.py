"""Proving large stages on other processes of the machine, while the caller cuts out more
of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from pitcheck.errors import UsageError
from pitcheck.forks import Forks, can_fork
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.stage import Stage

STEP = 20
"""How many rows a step costs beside its own."""
LARGE = 4000
"""Rows of stages (steps included) from which on a process of its own costs less than it saves:
about 0.1 s.
"""

Keys = dict[int, str]


class Workers:
    """At most ``jobs`` processes, this one among them until it waits, each of which proves one
    stage.

    Workers are forks, which inherit the stages; the numbers drawn do not depend on who draws them.
    Raises UsageError where the system cannot fork.
    """

    def __init__(self, jobs: int, settings: Settings) -> None:
        if not can_fork():
            raise UsageError("--jobs above 1 needs a system that can fork processes; leave it at 1")
        self._forks: Forks[str] = Forks()
        self._jobs = jobs
        self._settings = settings
        self._waiting: dict[str, tuple[Stage, Keys]] = {}
        self._proofs: dict[str, Proof] = {}
        self.refused = False
        """Whether some stage was not proven: the caller needs its values, and proves it again. So
        it does with what a worker that died left undone.
        """

    def give(self, key: str, stage: Stage, keys: Keys) -> None:
        """Prove a stage as soon as a process is free."""
        self._waiting[key] = (stage, keys)
        self.attend()

    def attend(self) -> None:
        """Take in what is done, and start what waits. Costs next to nothing."""
        self._receive(0)
        self._start(self._jobs - 1)

    def proofs(self) -> Mapping[str, Proof]:
        """The proofs of all stages that hold, once all are done, or some stage is not proven."""
        while (self._waiting or self._forks.running) and not self.refused:
            self._start(self._jobs)
            self._receive(None)
        self.stop()
        return self._proofs

    def stop(self) -> None:
        """End what runs."""
        self._waiting.clear()
        self._forks.stop()

    def _start(self, most: int) -> None:
        while self._waiting and len(self._forks.running) < most:
            key = max(self._waiting, key=lambda name: cost(self._waiting[name][0]))
            self._forks.start(key, _proven, key, *self._waiting.pop(key), self._settings)

    def _receive(self, timeout: float | None) -> None:
        for ended in self._forks.ended(timeout):
            if ended.answer is None:
                self.refused = True
            else:
                self._proofs[ended.key] = ended.answer


def cost(stage: Stage) -> int:
    """What proving a stage costs, roughly: its rows, and the calls of its steps."""
    return sum(
        step.count + STEP for batch in (stage.parallel, stage.reference) for step in batch.steps
    )


def _proven(statement: str, stage: Stage, keys: Keys, settings: Settings) -> Proof | None:
    proof = prove_stage(stage, keys, settings, statement)
    return proof if proof.outcome == "proven" else None
