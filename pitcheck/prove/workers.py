"""Workers: other processes that prove stages while the caller cuts out more of them.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> cost(Problem.of(plan, plan).whole_stage()) < LARGE  # not worth a process
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
STAGE = 1200
"""The rows that a smaller stage costs in addition: it is made smaller, and drawn several times."""
FEW = 20_000
"""The cost of the smaller stages that the caller proves itself before it gives others away: a small
plan needs no process, and tables that are made there are there for all.
"""
BUNDLE = 20_000
"""The cost of the smaller stages that a process proves together: about 0.5 s."""

Keys = dict[int, str]
Bundle = dict[str, tuple[Stage, Keys]]
Progress = Callable[..., None]
"""A function that is told (what, how many are done, how many are known)."""


class Workers:
    """At most ``jobs`` processes, each of which proves one large stage or a bundle of small ones.

    This process is one of them until it waits. Workers are forks, which inherit the stages. The
    numbers drawn do not depend on who draws them. ``all_needed``: True if the proofs of the others
    are of no use once one stage is not proven.

    Raises:
        UsageError: the system cannot fork.
    """

    def __init__(
        self,
        jobs: int,
        settings: Settings,
        progress: Progress | None = None,
        *,
        all_needed: bool = False,
    ) -> None:
        if not can_fork():
            raise UsageError(NO_FORK)
        self._forks: Forks[tuple[str, ...]] = Forks()
        self._jobs = jobs
        self._settings = settings
        self._progress = progress
        self._all_needed = all_needed
        self._kept = 0
        """The cost of the smaller stages that were left to the caller."""
        self._bundle: Bundle = {}
        self._waiting: list[tuple[int, Bundle]] = []
        self._given = 0
        self._proofs: dict[str, Proof] = {}
        self.refused = False
        """True if some stage was not proven, and no other proof is of use. The caller needs the
        values of one that is not proven and proves it again, as it does with what a dead worker
        left undone.
        """

    def takes(self, stage: Stage) -> bool:
        """Return True if a stage is worth a process, or a share of one."""
        rows = cost(stage)
        if rows < LARGE and self._kept < FEW:
            self._kept += rows + STAGE
            return False
        return True

    def give(self, key: str, stage: Stage, keys: Keys) -> None:
        """Prove a stage as soon as a process is free."""
        self._given += 1
        if cost(stage) >= LARGE:
            self._wait({key: (stage, keys)})
        else:
            self._bundle[key] = stage, keys
            if _cost(self._bundle) >= BUNDLE:
                self._close_bundle()
        self.attend()

    def attend(self) -> None:
        """Take in what is done, and start what waits. This takes next to no time."""
        self._receive(0)
        self._start(self._jobs - 1)

    def proofs(self) -> Mapping[str, Proof]:
        """Wait until all stages are looked at, and return the proofs by key."""
        self._close_bundle()
        while (self._waiting or self._forks.running) and not self.refused:
            self._start(self._jobs)
            self._receive(None)
            if self._progress is not None:
                self._progress("stages", len(self._proofs), self._given)
        self.stop()
        return self._proofs

    def stop(self) -> None:
        """End all processes, and forget what waits."""
        self._waiting.clear()
        self._bundle = {}
        self._forks.stop()

    def _close_bundle(self) -> None:
        """Let the small stages so far wait for a process together."""
        if self._bundle:
            self._wait(self._bundle)
            self._bundle = {}

    def _wait(self, bundle: Bundle) -> None:
        self._waiting.append((_cost(bundle), bundle))

    def _start(self, most: int) -> None:
        """Start what waits, the dearest first, until ``most`` processes run."""
        while self._waiting and len(self._forks.running) < most:
            dearest = max(range(len(self._waiting)), key=lambda n: self._waiting[n][0])
            _, bundle = self._waiting.pop(dearest)
            self._forks.start(tuple(bundle), _proven, bundle, self._settings, self._all_needed)

    def _receive(self, timeout: float | None) -> None:
        """Take in the proofs of processes that end within ``timeout`` seconds.

        None waits for the next one.
        """
        for ended in self._forks.ended(timeout):
            self._proofs.update(ended.answer or {})
            if self._all_needed and not self._proofs.keys() >= {*ended.key}:
                self.refused = True


def _cost(bundle: Bundle) -> int:
    return sum(cost(stage) + STAGE for stage, _ in bundle.values())


def cost(stage: Stage) -> int:
    """Return the rough cost of proving a stage: its rows, and the calls of its steps."""
    return sum(
        step.count + STEP for batch in (stage.parallel, stage.reference) for step in batch.steps
    )


def _proven(bundle: Bundle, settings: Settings, all_needed: bool) -> dict[str, Proof]:
    """Return the proofs of the stages that hold; if all are needed, of those before another."""
    found: dict[str, Proof] = {}
    for statement, (stage, keys) in bundle.items():
        proof = prove_stage(stage, keys, settings, statement)
        if proof.outcome == "proven":
            found[statement] = proof
        elif all_needed:
            break
    return found
