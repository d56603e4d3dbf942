"""A repair: one hypothesis about what an operator should do, and when it is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from pitcheck.errors import BudgetError, PitcheckError
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.rerun.changes import Override
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import Candidate, Site


class Scope(Enum):
    """The part of an operator that a repair changes."""

    OPERATOR = "operator"
    """The operator: tried once, however many results it has."""
    RESULT = "result"
    """One result of an operator."""


class Chain(Enum):
    """A choice among operators in a row that may all satisfy a repair.

    What is linear may be summed before or after: the first operator is meant.
    """

    SUMS = "sums"
    """The first value that is known to hold addends of a sum."""
    MEANS = "means"
    """The first value that is seen to hold addends of a mean."""


@dataclass(frozen=True)
class Repair:
    """One hypothesis.

    ``candidates`` yields changes of one operator, cheapest first; none if it has nothing to do with
    the operator. ``along`` and ``search``: the phases in which it is tried, along the program and
    back from an output; None: not at all. Within a phase the order is that of the table. ``chain``:
    which of several operators in a row is meant; None: the nearest. ``chance``: many other mistakes
    look like it, so it is believed after repairs that explain as much. ``ends``: tried at the
    operators that write outputs before any other operator is looked for.
    """

    name: str
    candidates: Callable[[Site], Iterator[Candidate]]
    scope: Scope = Scope.OPERATOR
    chain: Chain | None = None
    chance: bool = False
    ends: bool = False
    along: int | None = None
    search: int | None = None

    def of(self, site: Site) -> Iterator[Candidate]:
        """Yield the candidates at a site; none if an operator of it has no value.

        Raises BudgetError if too much was tried.
        """
        if not site.leads and self.scope is Scope.OPERATOR:
            return
        try:
            yield from self.candidates(site)
        except BudgetError:
            raise
        except PitcheckError:
            return


Arrangement = tuple[Diagnosis, Sequence[Override], Sequence[int]]
"""A mistake, what is given once it is mended, and the outputs that are right then."""


@dataclass(frozen=True)
class Placement:
    """One hypothesis about where given tensors lie.

    ``find`` takes the outputs that differ. At most ``most`` operators are evaluated for it.
    """

    name: str
    find: Callable[[Rerun, Sequence[int]], Arrangement | None]
    most: int


Phases = Sequence[Sequence[Repair]]
"""Repairs phase by phase, in the order of the table within each."""


def along_program(table: Sequence[Repair]) -> Phases:
    """Return the phases in which repairs are tried along the program."""
    return _phases(table, lambda repair: repair.along)


def from_outputs(table: Sequence[Repair]) -> Phases:
    """Return the phases in which repairs are tried from an output backwards."""
    return _phases(table, lambda repair: repair.search)


def _phases(table: Sequence[Repair], phase_of: Callable[[Repair], int | None]) -> Phases:
    numbers = sorted({number for repair in table if (number := phase_of(repair)) is not None})
    return [[repair for repair in table if phase_of(repair) == number] for number in numbers]
