"""Stages at full shapes that are proven once all are known, so that it can be said what they take.

It stands in for :class:`pitcheck.prove.workers.Workers`, and hands on to them if there are several
processes.

>>> import numpy as np
>>> waiting = InTurn(Settings(np, 1, -64.0, 1, True, 1 << 30), progress=None)
>>> waiting.refused, dict(waiting.proofs())
(False, {})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pitcheck.prove.full_shapes.forecast import Forecast, forecast, rounded, said_of
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.prove.workers import Keys, Workers
from pitcheck.stage.stage import Stage

Progress = Callable[..., None]
"""A function that is told (what, how many are done, how many are known, a sentence for people)."""


class InTurn:
    """The stages that wait for their proofs, and the forecasts of these.

    ``workers``: the processes that prove them; None: this one alone does.
    """

    def __init__(
        self, settings: Settings, progress: Progress | None, workers: Workers | None = None
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._workers = workers
        self._waiting: dict[str, tuple[Stage, Keys]] = {}

    @property
    def refused(self) -> bool:
        """True if some stage was not proven."""
        return self._workers is not None and self._workers.refused

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
        if self._workers is not None:
            self._workers.stop()

    def proofs(self) -> Mapping[str, Proof]:
        """Say what the stages take, prove them until one is not proven, and return the proofs."""
        if not self._waiting:
            return {}
        found = {key: forecast(stage, self._settings) for key, (stage, _) in self._waiting.items()}
        self._tell("stages", 0, said_of(list(found.values()), self._settings.max_memory))
        if self._workers is None:
            return self._proven(found)
        for key, (stage, keys) in self._waiting.items():
            self._workers.give(key, stage, keys)
        return self._workers.proofs()

    def _proven(self, found: Mapping[str, Forecast]) -> Mapping[str, Proof]:
        """Return the proofs to the first failure; what is known not to fit comes first."""
        proofs: dict[str, Proof] = {}
        left = sum(each.seconds for each in found.values())
        for key in sorted(self._waiting, key=lambda each: not found[each].refused):
            stage, keys = self._waiting[key]
            proofs[key] = prove_stage(stage, keys, self._settings, key)
            left -= found[key].seconds
            self._tell(f"stages (about {rounded(left)} left)", len(proofs))
            if proofs[key].outcome != "proven":
                break
        return proofs

    def _tell(self, what: str, done: int, said: str = "") -> None:
        if self._progress is not None:
            told = (said,) if said else ()
            self._progress(what, done, len(self._waiting), *told)
