"""Formal roots: the square of the root of a value that cannot be negative is that value, exactly.

A residue q has the root y = q^((p+1)/4), whose square is q in half of all draws and -q in the other
half. For real numbers sqrt(q)^2 = q holds wherever the root exists. So the root of a value that is
known not to be negative (a sum of squares, say) remembers the value (``Value.square``) as long as
it is only moved. Its square is that value, and norms of norms are the norm of everything.

Products and quotients of two formal roots are formal roots of one value, as their residues are. For
any other use a formal root is *opened*: it is the residue y from then on, and is noted in
``roots``, because a bound has to see to the sign of y (:mod:`pitcheck.prove.legendre_symbols`). A
root that is only squared needs no such note.

Not everything that is true of roots follows: x / y / y divides by y^2 = q or -q, x / (y y) by q. A
caller that needs this can do without formal roots.

>>> import numpy as np
>>> from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
>>> from pitcheck.algebra.residues.chains import chains_of
>>> algebra = ResidueAlgebra(np, chains_of(1)[0], seed=1, trials=(0,))
>>> q = algebra.power(algebra.fresh("x", (3,)), 2)
>>> bool(algebra.differs(algebra.power(algebra.sqrt(q), 2), q).any()), len(algebra.roots)
(False, 0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pitcheck.algebra.discrete import Discrete
from pitcheck.algebra.value import NAN, NEGATIVE_INFINITY, Value
from pitcheck.errors import UnsupportedError


class Roots(Discrete):
    """sqrt over residues, and squares of roots."""

    arithmetic: Any
    chain: Any
    formal_roots: bool

    def __init__(self) -> None:
        super().__init__()
        self.guarded: list[tuple[str, str, Value]] = []
        """The (site, "div", "log" or "sqrt", operand) of every operation that is not defined for
        all real numbers.
        """
        self._opened: dict[int, tuple[Value, Value]] = {}
        self.squared_roots = False
        """True if a formal root was squared, so that it matters that there are any."""

    @property
    def roots(self) -> list[tuple[Value, Value]]:
        """The (argument, root) of every formal root that was used other than by its square."""
        return [
            (formal.square, root)
            for formal, root in self._opened.values()
            if formal.square is not None
        ]

    def multiply(self, a: Value, b: Value) -> Value:
        raise NotImplementedError

    def power(self, a: Value, exponent: int) -> Value:
        raise NotImplementedError

    def sqrt(self, a: Value) -> Value:
        """Return a square root, a formal one if ``a`` is known not to be negative.

        Raises:
            UnsupportedError: if a prime is not 3 modulo 4.
            ShapeError: if ``a`` is not a field value.
        """
        a = self.plain(a)
        if a.kind != "field":
            raise self._wrong_kind("sqrt", a, "field")
        wrong = next(
            (p for p in self.chain.primes[a.lowest : a.lowest + a.data.shape[0]] if p % 4 != 3),
            None,
        )
        if wrong is not None:
            raise UnsupportedError(
                f"square roots need primes that are 3 modulo 4, and {wrong} is not; choose "
                f"another chain"
            )
        a = self.guard("sqrt", a)
        special = (
            None
            if a.special is None
            else self.xp.where(a.special == NEGATIVE_INFINITY, np.uint8(NAN), a.special)
        )
        root = Value(
            "field", self.arithmetic.root(a.data, a.lowest), a.lowest, special, (), True, a
        )
        return root if a.nonnegative and self.formal_roots else self.opened(root)

    def guard(self, what: str, operand: Value) -> Value:
        """Note the operand of a partial operation, and return it."""
        self.guarded.append((self.site, what, operand))
        return operand

    def opened(self, a: Value) -> Value:
        """Return ``a`` as a residue; if it is a formal root, note it among ``roots``."""
        if a.square is None:
            return a
        # The formal root is kept, too, so that no other value can have its identity.
        _, root = self._opened.setdefault(id(a), (a, replace(a, square=None)))
        return root

    def square_of(self, a: Value, b: Value) -> Value | None:
        """Return the product of a formal root with itself, else None."""
        if (
            a.square is None
            or b.square is None
            or (a is not b and not self._same(a.square, b.square))
        ):
            return None
        self.squared_roots = True
        return a.square

    def power_of_root(self, a: Value, exponent: int) -> Value | None:
        """Return a power of a formal root, else None.

        It is a power of its argument for even exponents, times the root for odd ones above 1, or
        times its inverse for those below -1.
        """
        if a.square is None or exponent in (0, -1):
            return None
        if exponent == 1:
            return a
        self.squared_roots = True
        sign = 1 if exponent > 0 else -1
        even = self.power(a.square, sign * (abs(exponent) // 2))
        if exponent % 2 == 0:
            return even
        return self.multiply(even, self.power(self.opened(a), sign))

    def under_one_root(
        self, operation: Callable[[Value, Value], Value], a: Value, b: Value
    ) -> Value | None:
        """Return the argument under a product or quotient of two formal roots, else None."""
        return None if a.square is None or b.square is None else operation(a.square, b.square)

    def _same(self, a: Value, b: Value) -> bool:
        """Return True if two arguments are the same residues at the same levels.

        Then they are the same, but for the bound on equal formulas.
        """
        if (
            a.lowest != b.lowest
            or a.data.shape != b.data.shape
            or a.special is not None
            or b.special is not None
        ):
            return False
        return a.data is b.data or bool((a.data == b.data).all())
