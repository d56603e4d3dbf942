"""Infinities whose signs residues do not tell.

Infinity times a drawn number has the sign of that number, and is NaN where the number is 0. A
residue says neither. Such results have a code all the same, but a plan may not need one that its
reference does not need.

>>> from fractions import Fraction
>>> import numpy as np
>>> from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
>>> from pitcheck.algebra.residues.chains import chains_of
>>> algebra = ResidueAlgebra(np, chains_of(1)[0], seed=1, trials=(0, 1))
>>> infinity = algebra.constant(float("inf"))
>>> _ = algebra.multiply(infinity, algebra.constant(Fraction(-2)))
>>> algebra.signless_infinity
False
>>> _ = algebra.multiply(infinity, algebra.fresh("x", (3,)))
>>> algebra.signless_infinity
True
"""

from __future__ import annotations

from typing import Any, Literal

from pitcheck.algebra.discrete import Discrete
from pitcheck.algebra.structure import aligned
from pitcheck.algebra.value import FINITE, NAN, Value

Cause = Literal["infinity", "zero"]
"""The cause of such a result: infinity and a drawn number, or a drawn number over 0."""
_SMALL_INTEGER = 1 << 9
"""A bound on integers whose signs the order of residues keeps."""


class SignlessInfinity(Discrete):
    """The signs of infinite products and quotients."""

    arithmetic: Any

    def __init__(self) -> None:
        super().__init__()
        self.signless_infinity = False
        """True if infinity was multiplied or divided by a drawn number, or such a number by 0."""

    def _with_signs(self, special: Any, a: Value, b: Value, *, quotient: bool = False) -> Any:
        """Return the codes of a product or quotient; note infinities whose signs are not known."""
        rank = max(a.rank, b.rank)
        for one, other in ((a, b),) if quotient else ((a, b), (b, a)):
            signless = None if one.special is None else self._signless(other)
            if signless is not None:
                met = aligned(one.special > NAN, rank) & aligned(signless, rank)
                special = self._noted(special, met, "infinity")
        signless = self._signless(a) if quotient else None
        if signless is not None:
            zero = (b.data == 0).all(axis=0, keepdims=True)
            zero = zero if b.special is None else zero & (b.special == FINITE)
            special = self._noted(special, aligned(zero, rank) & aligned(signless, rank), "zero")
        return special

    def _noted(self, special: Any, found: Any, cause: Cause) -> Any:
        """Return the codes of a result; bool ``found`` holds where signs are not known."""
        if special is None or not bool(found.any()):
            return special
        self.signless_infinity = True
        return self._signless_codes(special, found, cause)

    def _signless_codes(self, special: Any, found: Any, cause: Cause) -> Any:  # noqa: ARG002
        """Return the codes of a result with infinities whose signs are not known."""
        return special

    def _signless(self, a: Value) -> Any:
        """Return where ``a`` is a drawn number; None if it is a constant.

        Small integers count as constants, as they stand in their true order.
        """
        if a.data.shape[1] == 1 and len(self.trials) > 1:
            return None
        return self.arithmetic.signless(a.data, a.lowest, _SMALL_INTEGER, a.special)

    def _with_signs_of_sums(self, special: Any, a: Value, b: Value) -> Any:
        """Return the codes of a product of matrices; note infinities as for single products."""
        for one, other in ((a, b), (b, a)):
            if one.special is None or not bool((one.special > NAN).any()):
                continue
            signless = self._signless(other)
            if special is not None and signless is not None and bool(signless.any()):
                special = self._noted(special, special > NAN, "infinity")
        return special
