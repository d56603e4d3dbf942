"""Stages that are proven once all are known, so that it can be said what they take.

It stands in for :class:`pitcheck.prove.workers.Workers`. One process proves them one after the
other. Of several (:class:`pitcheck.prove.pool.Pool`) each proves one at a time, the dearest first,
and the proofs are those that one process would have made.

>>> import numpy as np
>>> waiting = InTurn(Settings(np, 1, -64.0, 1, True, 1 << 30), progress=None)
>>> waiting.refused, dict(waiting.proofs())
(False, {})
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from pitcheck.errors import BudgetError
from pitcheck.prove.full_shapes.forecast import Forecast, forecast, rounded, said_of, shared
from pitcheck.prove.pool import Pool, Stages, ahead_of
from pitcheck.prove.proof import MadeAhead, Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.prove.workers import Keys, cost
from pitcheck.stage.stage import Stage

Progress = Callable[..., None]
"""A function that is told (what, how many are done, how many are known, a sentence for people)."""


class InTurn:
    """The stages that wait for their proofs, and the forecasts of these.

    ``pool``: the processes that prove them; None: this one alone does.
    """

    def __init__(
        self, settings: Settings, progress: Progress | None, pool: Pool[Proof] | None = None
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._pool = pool
        self._places = 1 if pool is None else pool.places
        self._waiting: dict[str, tuple[Stage, Keys]] = {}

    @property
    def refused(self) -> bool:
        """Return False: no stage is proven, and so none refused, before all are known."""
        return False

    def takes(self, _: Stage) -> bool:
        """Return True: every stage waits."""
        return True

    def give(self, key: str, stage: Stage, keys: Keys) -> None:
        """Prove a stage once all are known."""
        self._waiting[key] = (stage, keys)

    def attend(self) -> None:
        """Do nothing: stages wait."""

    def stop(self) -> None:
        """Forget what waits."""
        self._waiting.clear()

    def proofs(self) -> Mapping[str, Proof]:
        """Say what the stages take, prove them until one is not proven, and return the proofs.

        What is known not to fit comes first. The proofs are the same for any number of processes:
        those up to the first stage, in this order, that is not proven.
        """
        if not self._waiting:
            return {}
        if not self._settings.in_pieces:
            work = {key: float(cost(stage)) for key, (stage, _) in self._waiting.items()}
            return self._until_refused(list(self._waiting), work)
        found = {key: forecast(stage, self._settings) for key, (stage, _) in self._waiting.items()}
        self._tell("stages", 0, self._said(found))
        order = sorted(self._waiting, key=lambda each: not found[each].refused)
        return self._until_refused(order, {key: each.seconds for key, each in found.items()})

    def _said(self, found: Mapping[str, Forecast]) -> str:
        return said_of(list(found.values()), self._settings.max_memory, self._places)

    def _until_refused(
        self, order: Sequence[str], work: Mapping[str, float]
    ) -> Mapping[str, Proof]:
        """Return the proofs of stages to the first, in their order, that is not proven.

        ``work``: the seconds of each stage; at reduced shapes any measure of them.
        """
        place = {key: number for number, key in enumerate(order)}
        last = len(order)
        proofs: dict[str, Proof] = {}
        left = dict(work)

        def wanted(key: str) -> bool:
            return place[key] <= last

        for key, proof in self._made(order, work, wanted):
            proofs[key] = proof
            del left[key]
            self._tell(self._step(left.values()), len(proofs))
            if proof.outcome != "proven":
                last = min(last, place[key])
        return {key: proofs[key] for key in order[: last + 1]}

    def _made(
        self, order: Sequence[str], work: Mapping[str, float], wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, Proof]]:
        """Yield the proofs of stages as they are made, as long as they are ``wanted``."""
        if self._pool is not None:
            self._pool.know(self._waiting)
            yield from self._pool.proofs(sorted(order, key=lambda k: -work[k]), wanted)
            return
        ahead = ahead_of(self._settings)
        try:
            made = _Ahead(ahead, self._waiting, order, wanted)
            for key in order:
                if not wanted(key):
                    return
                stage, keys = self._waiting[key]
                settings = replace(self._settings, made=made.of(key))
                yield key, prove_stage(stage, keys, settings, key)
        finally:
            if ahead is not None:
                ahead.stop()

    def _step(self, left: Collection[float]) -> str:
        """Return what is being done, with the seconds left if these are known."""
        if not self._settings.in_pieces:
            return "stages"
        return f"stages (about {rounded(shared(left, self._places))} left)"

    def _tell(self, what: str, done: int, said: str = "") -> None:
        if self._progress is not None:
            told = (said,) if said else ()
            self._progress(what, done, len(self._waiting), *told)


class _Ahead:
    """The proofs at reduced sizes that other processes make, in the order of the stages."""

    def __init__(
        self,
        pool: Pool[MadeAhead] | None,
        stages: Stages,
        order: Sequence[str],
        wanted: Callable[[str], bool],
    ) -> None:
        self._answers: Iterator[tuple[str, MadeAhead]] = iter(())
        self._known: dict[str, MadeAhead] = {}
        if pool is not None:
            pool.know(stages)
            self._answers = pool.proofs(order, wanted)

    def of(self, key: str) -> MadeAhead | None:
        """Return the proof of a stage once it is made; None if this process is to make it."""
        while key not in self._known:
            try:
                name, made = next(self._answers)
            except (StopIteration, BudgetError):
                return None
            self._known[name] = made
        return self._known.pop(key)
