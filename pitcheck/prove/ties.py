"""Comparisons of numbers that are equal, which residues drawn at random never are.

x > y and x >= y differ where x = y alone. So every comparison of drawn numbers is decided as if its
operands were equal in some draws, by chance and the same for the same difference.

>>> import numpy as np
>>> from pitcheck.algebra.residues.chains import chains_of
>>> algebra = TiesAlgebra(np, chains_of(1)[0], 1, range(64))
>>> x, y = algebra.fresh("x", ()), algebra.fresh("y", ())
>>> less, not_more = algebra.compare("lt", x, y), algebra.compare("le", x, y)
>>> 0 < int((less.data != not_more.data).sum()) < 32
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from fractions import Fraction

from pitcheck.algebra.interface import Comparison
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.weights import WeightedAlgebra
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import FINITE, Value
from pitcheck.ops.registry import BACKWARD, kinds_with
from pitcheck.ops.traits import Trait

SHARE = 4
"""One of so many differences is taken for 0."""


def tied_sites(compared: Iterable[str]) -> frozenset[str]:
    """Return those of some sites that compare at which ties are tried.

    The derivative at a tie is a convention. An operator that compares and does not step (abs) has
    one value there, and hands on a number that is 0 then and is not 0 as a residue: nothing can be
    said of a stage that has one.

    >>> sorted(tied_sites({"parallel 1 ge", "parallel 2 relu.backward"}))
    ['parallel 1 ge']
    >>> tied_sites({"parallel 1 ge", "parallel 2 abs"})
    frozenset()
    """
    steps = kinds_with(Trait.STEPS)
    kinds = {site: site.rpartition(" ")[2] for site in compared if not site.endswith(BACKWARD)}
    return frozenset(kinds) if all(kind in steps for kind in kinds.values()) else frozenset()


class Ties(ResidueAlgebra):
    """Residues of which some are compared as though they were equal, at some sites."""

    tied: Collection[str] | None = None
    """The sites of these comparisons; None: all."""

    def _compare_field(self, comparison: Comparison, a: Value, b: Value) -> Value:
        found = super()._compare_field(comparison, a, b)
        if self.tied is not None and self.site not in self.tied:
            return found
        first, second = (replace(self.plain(v), special=None, parts=()) for v in (a, b))
        hashed = self._hashed("tie", [self.subtract(first, second)], even=True)
        tie = hashed.data[:1] % SHARE == 0
        for v in (a, b):
            if v.special is not None:
                tie = tie & (aligned(v.special, hashed.rank) == FINITE)
        zero = self.constant(Fraction(0))
        equal = aligned(super()._compare_field(comparison, zero, zero).data, hashed.rank)
        return Value("bool", self.xp.where(tie, equal, found.data))


class TiesAlgebra(Ties):
    """The same, without weights."""


class TiesWeightedAlgebra(Ties, WeightedAlgebra):
    """The same, with weights for the places of reduced axes."""
