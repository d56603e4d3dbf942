"""Labels through arithmetic: a result has a label where an operand has one.

>>> algebra = TaintArithmetic()
>>> zero, unwritten = algebra.constant(Fraction(0)), algebra.labelled(1, "field", (2,))
>>> algebra.multiply(unwritten, zero).labels is None
False
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from pitcheck.algebra.dependence.taint_mask import Labels, everywhere, merged, union
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.shape_checks import broadcast, check_matmul
from pitcheck.algebra.value import Value
from pitcheck.errors import ShapeError

MOST_KNOWN = 1 << 20
"""The number of elements above which integers are not computed."""


@dataclass(frozen=True)
class Tainted:
    """A value known by its labels (None: it has none), and by its numbers if they are known."""

    kind: Kind
    shape: tuple[int, ...]
    labels: Labels | None = None
    known: Value | None = None
    below: int | None = None
    """For integers whose numbers need not be known: a bound above them all, if none is negative."""


@dataclass(frozen=True)
class Misuse:
    """A label that decides more than a result: at ``site`` it is used as ``what``."""

    site: str
    label: int
    what: str


class TaintArithmetic:
    """Arithmetic on labels.

    ``misused`` lists the indices and integer divisors that have a label.
    """

    def __init__(self) -> None:
        self.site = ""
        self.seed = 0
        self.trials = (0,)
        self.misused: list[Misuse] = []
        self._numbers = RealAlgebra(np, 0, (0,))

    # --- making values
    def clean(self, kind: Kind, shape: Sequence[int]) -> Tainted:
        """Return a value without labels."""
        return Tainted(kind, tuple(shape))

    def labelled(self, label: int, kind: Kind, shape: Sequence[int]) -> Tainted:
        """Return a value whose every element has this label."""
        return Tainted(kind, tuple(shape), everywhere(label, shape))

    def constant(self, number: Fraction | float, kind: Kind = "field") -> Tainted:
        """Return a 0-d constant.

        A number that is not an integer is not remembered: float64 could decide differently.
        """
        whole = isinstance(number, int) or (
            isinstance(number, Fraction) and number.denominator == 1 and abs(number) < 2**53
        )
        return Tainted(kind, (), None, self._numbers.constant(number, kind) if whole else None)

    def extent(self, a: Tainted, axes: Sequence[int]) -> Tainted:
        """Return a 0-d constant."""
        return self.constant(Fraction(prod(a.shape[axis] for axis in axes)))

    def arange(self, like: Tainted, axis: int) -> Tainted:
        """Return positions, which are known."""
        shape = (like.shape[axis],)
        return Tainted(
            "int",
            shape,
            None,
            Value("int", np.arange(shape[0], dtype=np.int64)[None, None, None])
            if shape[0] <= MOST_KNOWN
            else None,
        )

    def boundary(self, like: Tainted, axis: int, offset: int) -> Tainted:  # noqa: ARG002  the operands of one algebra
        """Return a 0-d constant."""
        return self.constant(Fraction(int(offset)), "int")

    def shape(self, a: Tainted) -> tuple[int, ...]:
        """Return the sizes."""
        return a.shape

    def kind(self, a: Tainted) -> Kind:
        """Return "field", "int" or "bool"."""
        return a.kind

    # --- elementwise
    def _each(
        self, kind: Kind, operands: Sequence[Tainted], compute: Callable[..., Value] | None = None
    ) -> Tainted:
        """Return the labels of an elementwise, broadcast operation; ``compute`` gives its numbers.

        Raises:
            ShapeError: if the operands do not broadcast.
        """
        shape = broadcast(*(a.shape for a in operands))
        labels = _union([a.labels for a in operands], shape)
        return Tainted(
            kind,
            shape,
            labels,
            self._computed(shape, operands, compute) if labels is None else None,
        )

    def _computed(
        self,
        shape: Sequence[int],
        operands: Sequence[Tainted],
        compute: Callable[..., Value] | None,
    ) -> Value | None:
        """Return the numbers of a result; None unless those of all operands are known and few."""
        if compute is None or any(a.known is None for a in operands) or prod(shape) > MOST_KNOWN:
            return None
        return compute(*(a.known for a in operands))

    def _arithmetic(self, a: Tainted, b: Tainted, compute: Callable[..., Value]) -> Tainted:
        if a.kind != b.kind:
            raise ShapeError(f"operands of kinds {a.kind} and {b.kind} have no meaning together")
        return self._each(a.kind, (a, b), None if a.kind == "field" else compute)

    def add(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands."""
        return self._arithmetic(a, b, self._numbers.add)

    def subtract(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands."""
        return self._arithmetic(a, b, self._numbers.subtract)

    def multiply(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands, even if one is 0."""
        return self._arithmetic(a, b, self._numbers.multiply)

    def divide(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands."""
        return self._each("field", (a, b))

    def negate(self, a: Tainted) -> Tainted:
        """Return the labels of the operand."""
        return self._each(a.kind, (a,), None if a.kind == "field" else self._numbers.negate)

    def power(self, a: Tainted, exponent: int) -> Tainted:  # noqa: ARG002
        """Return the labels of the operand, even to the power of 0."""
        return self._each(a.kind, (a,))

    def exp(self, a: Tainted) -> Tainted:
        """Return the labels of the operand."""
        return self._each("field", (a,))

    log = exp
    sqrt = exp

    def function(self, name: str, *arguments: Tainted) -> Tainted:  # noqa: ARG002
        """Return the labels of all arguments."""
        return self._each("field", arguments)

    def draw(self, stream: str, index: Tainted) -> Tainted:  # noqa: ARG002
        """Return the labels of the index."""
        return self._each("field", (index,))

    def compare(self, comparison: Comparison, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands."""
        return self._each("bool", (a, b), lambda x, y: self._numbers.compare(comparison, x, y))

    def logical_and(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands."""
        return self._each("bool", (a, b), self._numbers.logical_and)

    def logical_or(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands."""
        return self._each("bool", (a, b), self._numbers.logical_or)

    def logical_not(self, a: Tainted) -> Tainted:
        """Return the labels of the operand."""
        return self._each("bool", (a,), self._numbers.logical_not)

    def maximum(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands."""
        return self._arithmetic(a, b, self._numbers.maximum)

    def minimum(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands."""
        return self._arithmetic(a, b, self._numbers.minimum)

    def floor_divide(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands.

        An integer divisor with a label is a misuse: it may be 0, which stops a program.
        """
        if b.kind == "int":
            self._note(b, "a divisor")
        return self._arithmetic(a, b, self._quotient(b, self._numbers.floor_divide))

    def remainder(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of both operands, as for ``floor_divide``."""
        if b.kind == "int":
            self._note(b, "a divisor")
        return self._arithmetic(a, b, self._quotient(b, self._numbers.remainder))

    def _quotient(self, b: Tainted, compute: Callable[..., Value]) -> Any:
        return None if b.known is None or not bool(b.known.data.all()) else compute

    def cast(self, a: Tainted, kind: Kind) -> Tainted:
        """Return the labels of the operand."""
        return self._each(kind, (a,), lambda x: self._numbers.cast(x, kind))

    # --- along axes
    def _over(
        self,
        kind: Kind,
        a: Tainted,
        axes: Sequence[int],
        compute: Callable[..., Value] | None = None,
    ) -> Tainted:
        shape = tuple(n for dim, n in enumerate(a.shape) if dim not in axes)
        labels = (
            None
            if a.labels is None
            else labels_or_none(merged(a.labels.largest(axes).without(axes)))
        )
        return Tainted(
            kind, shape, labels, self._computed(shape, (a,), compute) if labels is None else None
        )

    def sum(self, a: Tainted, axes: Sequence[int]) -> Tainted:
        """Return the labels of all terms."""
        return self._over(
            a.kind, a, axes, None if a.kind == "field" else lambda x: self._numbers.sum(x, axes)
        )

    def reduce_max(self, a: Tainted, axis: int) -> Tainted:
        """Return all labels along the axis."""
        return self._over(a.kind, a, (axis,))

    def reduce_min(self, a: Tainted, axis: int) -> Tainted:
        """Return all labels along the axis."""
        return self._over(a.kind, a, (axis,))

    def shift(self, a: Tainted, axis: int) -> Tainted:
        """Return all labels along the axis."""
        return self._over("field", a, (axis,))

    def order(self, a: Tainted, axis: int, descending: bool) -> Tainted:  # noqa: ARG002
        """Return all labels along the axis, in each of its places."""
        return Tainted(
            "int",
            a.shape,
            None if a.labels is None else a.labels.largest((axis,)).expanded(a.shape),
            below=a.shape[axis],
        )

    def matmul(self, a: Tainted, b: Tainted) -> Tainted:
        """Return the labels of a row and a column.

        Raises:
            ShapeError: if the operands are not (..., m, k) and (..., k, n).
        """
        check_matmul(a.shape, b.shape)
        row, column = len(a.shape) - 1, len(b.shape) - 2
        first = Tainted(
            "field", (*a.shape[:-1], 1), None if a.labels is None else a.labels.largest((row,))
        )
        second = Tainted(
            "field",
            (*b.shape[:-2], 1, b.shape[-1]),
            None if b.labels is None else b.labels.largest((column,)),
        )
        return self._each("field", (first, second))

    def _note(self, a: Tainted, what: str) -> None:
        if a.labels is not None:
            self.misused.append(Misuse(self.site, int(a.labels.cells.max()), what))


def labels_or_none(labels: Labels) -> Labels | None:
    """Return ``labels``; None if no element has one."""
    return labels if labels.cells.any() else None


def _union(several: Sequence[Labels | None], shape: tuple[int, ...]) -> Labels | None:
    present = [labels.expanded(shape) for labels in several if labels is not None]
    return union(present) if present else None
