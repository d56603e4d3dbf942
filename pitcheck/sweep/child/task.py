"""The orders of a process: a configuration, and the terms that all configurations share."""

from __future__ import annotations

import msgspec

from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import seed_of


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms on which all configurations of a sweep are checked, wherever that happens.

    ``seed`` is that of the sweep; ``fixed``: every check draws by it, and remembers no proof that
    was made with another one. Each has ``seconds`` of wall time, and ``jobs`` processes that prove
    its stages, with ``memory`` in bytes for each. ``backend`` is the array library.
    ``cache_directory`` is the folder of remembered proofs, None for none.
    """

    seed: int
    fixed: bool
    seconds: float
    memory: int
    cache_directory: str | None = None
    backend: str = "auto"
    jobs: int = 1

    def task(self, planned: Planned) -> Task:
        """Return the task that checks a configuration on these terms."""
        return Task(planned=planned, seed=seed_of(self.seed, planned.name), terms=self)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration with its own seed, and the terms of the sweep."""

    planned: Planned
    seed: int
    terms: Terms

    @property
    def draws_by_seed(self) -> bool:
        """True if the check draws by the seed of the task, and not by one of its own."""
        return self.terms.fixed or self.planned.probe
