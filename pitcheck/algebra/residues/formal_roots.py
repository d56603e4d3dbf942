"""Formal roots: the square of the root of what cannot be negative is that itself, exactly.

A residue q has the root y = q^((p+1)/4), whose square is q in half of all draws and -q in the other
half. Of real numbers sqrt(q)^2 = q holds wherever the root exists. So the root of a value that is
known not to be negative (a sum of squares, say) remembers the value (``Value.square``) as long as
it is only moved: its square is that value, and norms of norms are the norm of everything. Products
and quotients of two such roots are roots of one, as their residues are. For any other use it is
*opened*: it is the residue y from then on, and is noted in ``roots``, because a bound has to see to
the sign of y (:mod:`pitcheck.prove.legendre_symbols`). What is only squared is a root of nothing in
the end.

Not everything that is true of roots follows: x / y / y divides by y^2 = q or -q, x / (y y) by q.
Whoever uses that can do without formal roots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.discrete import Discrete
from pitcheck.algebra.value import NAN, NEGATIVE_INFINITY, Value
from pitcheck.errors import UnsupportedError


class Roots(Discrete):
    """sqrt over residues, and what squares of roots are."""

    arithmetic: Any
    chain: Any
    formal_roots: bool

    def __init__(self) -> None:
        super().__init__()
        self.guarded: list[tuple[str, str, Value]] = []
        """(site, "div", "log" or "sqrt", operand) of everything that is not defined for all real
        numbers.
        """
        self.undefined: Mapping[int, NDArray[np.bool_]] = {}
        """Elements that are taken to have no value, of operands by their number in ``guarded``;
        axes: draws (one), instances, those of the operand.
        """
        self.left_behind = False
        """True once a choice or place that inputs decide may have left an ``undefined`` element
        behind: other inputs may keep it.
        """
        self._opened: dict[int, tuple[Value, Value]] = {}
        self.squared_roots = False
        """Whether a formal root was squared: whether it matters that there are any."""

    @property
    def roots(self) -> list[tuple[Value, Value]]:
        """Arguments of the roots that were used otherwise than by their squares, and the roots."""
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
        """A formal root where ``a`` is known not to be negative."""
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
        """Note the operand of a partial operation, and return it with NaN where it is taken to be
        ``undefined``.
        """
        without = self.undefined.get(len(self.guarded))
        self.guarded.append((self.site, what, operand))
        if without is None:
            return operand
        codes = np.uint8(0) if operand.special is None else operand.special
        return replace(
            operand, special=self.xp.where(self.xp.asarray(without)[None], np.uint8(NAN), codes)
        )

    def chooses(self, chooser: Any, *values: Value) -> None:
        """Note that ``chooser``, an array over draws, decides what becomes of elements of
        ``values``.
        """
        decides = bool(self.undefined) and (chooser.shape[1] > 1 or len(self.trials) == 1)
        if decides and any(
            v.special is not None and bool((v.special == NAN).any()) for v in values
        ):
            self.left_behind = True

    def opened(self, a: Value) -> Value:
        """``a`` as a residue, noted among ``roots`` if it is a formal root."""
        if a.square is None:
            return a
        # The formal root is kept, too, so that no other value can have its identity.
        _, root = self._opened.setdefault(id(a), (a, replace(a, square=None)))
        return root

    def square_of(self, a: Value, b: Value) -> Value | None:
        """The product of a formal root with itself, else None."""
        if (
            a.square is None
            or b.square is None
            or (a is not b and not self._same(a.square, b.square))
        ):
            return None
        self.squared_roots = True
        return a.square

    def power_of_root(self, a: Value, exponent: int) -> Value | None:
        """A power of a formal root: of its argument for even exponents, times the root for odd ones
        above 1; else None.
        """
        if a.square is None or exponent == 0:
            return None
        if exponent == 1:
            return a
        if exponent % 2 and exponent < 0:
            return None
        self.squared_roots = True
        even = self.power(a.square, exponent // 2)
        return self.multiply(even, self.opened(a)) if exponent % 2 else even

    def under_one_root(
        self, operation: Callable[[Value, Value], Value], a: Value, b: Value
    ) -> Value | None:
        """What the product or quotient of two formal roots is the root of; None where one of them
        is none.
        """
        return None if a.square is None or b.square is None else operation(a.square, b.square)

    def _same(self, a: Value, b: Value) -> bool:
        """Whether two arguments are the same residues at the same levels, and so, but for the bound
        on equal formulas, the same.
        """
        if (
            a.lowest != b.lowest
            or a.data.shape != b.data.shape
            or a.special is not None
            or b.special is not None
        ):
            return False
        return a.data is b.data or bool((a.data == b.data).all())
