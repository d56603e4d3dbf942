"""Values with arithmetic: the notation in which operators' formulas are written.

A :class:`Term` is a value together with its algebra, so that ``x * (1 - y)`` can be written instead
of nested calls. It adds nothing to the :class:`~pitcheck.algebra.interface.Algebra`: every method
is one or a few of its operations. Unlike there, negative axes count from the end.

Sizes are used as the algebra gives them and never passed through ``int``. In the algebra of axes
they remember the dimensions they come from, and a reshape to an equal shape may still tie
dimensions.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> x = Term(reals, reals.constant(3.0))
>>> ((1 - x) ** 2 / 8).value.data.item()
0.5
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from pitcheck.algebra.interface import Algebra, Comparison, Kind
from pitcheck.base.numbers import Literal, Root, parse_number
from pitcheck.errors import PlanError, ShapeError

Real = int | Fraction


@dataclass(frozen=True, eq=False)
class Term:
    """A value of an algebra.

    Plain numbers in formulas become constants of the other operand's kind.
    """

    algebra: Algebra[Any]
    value: Any

    # --- properties
    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the logical dimensions."""
        return self.algebra.shape(self.value)

    @property
    def ndim(self) -> int:
        """The number of logical dimensions."""
        return len(self.shape)

    @property
    def kind(self) -> Kind:
        """The kind: "field", "int" or "bool"."""
        return self.algebra.kind(self.value)

    def axis(self, axis: int) -> int:
        """Return the dimension ``axis`` counted from the front.

        Raises:
            ShapeError: if there is no such dimension.
        """
        return normalise(axis, self.ndim)

    def axes(self, axes: Sequence[int] | int | None) -> tuple[int, ...]:
        """Return several dimensions counted from the front; None is all of them.

        Raises:
            ShapeError: if one is missing or stands twice.
        """
        if axes is None:
            return tuple(range(self.ndim))
        result = tuple(self.axis(a) for a in ((axes,) if isinstance(axes, int) else axes))
        if len(set(result)) != len(result):
            raise ShapeError(f"an axis stands twice in {tuple(result)}")
        return result

    # --- arithmetic
    def _of(self, value: Any) -> Term:
        return Term(self.algebra, value)

    def _value(self, other: Term | Real) -> Any:
        return (
            other.value
            if isinstance(other, Term)
            else self.algebra.constant(Fraction(other), self.kind)
        )

    def constant(self, number: Fraction | float, kind: Kind = "field") -> Term:
        """Return a 0-d constant of the same algebra."""
        return self._of(self.algebra.constant(number, kind))

    def __add__(self, other: Term | Real) -> Term:
        return self._of(self.algebra.add(self.value, self._value(other)))

    def __radd__(self, other: Real) -> Term:
        return self._of(self.algebra.add(self._value(other), self.value))

    def __sub__(self, other: Term | Real) -> Term:
        return self._of(self.algebra.subtract(self.value, self._value(other)))

    def __rsub__(self, other: Real) -> Term:
        return self._of(self.algebra.subtract(self._value(other), self.value))

    def __mul__(self, other: Term | Real) -> Term:
        return self._of(self.algebra.multiply(self.value, self._value(other)))

    def __rmul__(self, other: Real) -> Term:
        return self._of(self.algebra.multiply(self._value(other), self.value))

    def __truediv__(self, other: Term | Real) -> Term:
        return self._of(self.algebra.divide(self.value, self._value(other)))

    def __rtruediv__(self, other: Real) -> Term:
        return self._of(self.algebra.divide(self._value(other), self.value))

    def __neg__(self) -> Term:
        return self._of(self.algebra.negate(self.value))

    def __pow__(self, exponent: int) -> Term:
        return self._of(self.algebra.power(self.value, exponent))

    def __matmul__(self, other: Term) -> Term:
        return self._of(self.algebra.matmul(self.value, other.value))

    def exp(self) -> Term:
        """Return e to the power of each element."""
        return self._of(self.algebra.exp(self.value))

    def log(self) -> Term:
        """Return the natural logarithm."""
        return self._of(self.algebra.log(self.value))

    def sqrt(self) -> Term:
        """Return the square root."""
        return self._of(self.algebra.sqrt(self.value))

    def function(self, name: str, *others: Term) -> Term:
        """Return the named function without algebra of this and ``others``."""
        return self._of(self.algebra.function(name, self.value, *(o.value for o in others)))

    def sigmoid(self) -> Term:
        """Return 1 / (1 + exp(-x))."""
        return 1 / (1 + (-self).exp())

    def tanh(self) -> Term:
        """Return 2 sigmoid(2x) - 1."""
        return 2 * (2 * self).sigmoid() - 1

    # --- reductions
    def sum(self, axes: Sequence[int] | int | None = None, keep: bool = False) -> Term:
        """Sum over ``axes`` (None: all), which disappear, or with ``keep`` stay with size 1."""
        over = self.axes(axes)
        if not over:
            return self
        return self._of(self.algebra.sum(self.value, over))._kept(self.shape, over, keep)

    def extent(self, axes: Sequence[int] | int | None = None) -> Term:
        """Return the number of elements along ``axes``, a field constant bound to dimensions."""
        return self._of(self.algebra.extent(self.value, self.axes(axes)))

    def mean(self, axes: Sequence[int] | int | None = None, keep: bool = False) -> Term:
        """Return the sum over ``axes`` divided by their extent."""
        return self.sum(axes, keep) / self.extent(axes)

    def maximum_over(
        self, axes: Sequence[int] | int | None = None, keep: bool = False, least: bool = False
    ) -> Term:
        """Return the maximum (with ``least``: minimum) over ``axes``."""
        reduce = self.algebra.reduce_min if least else self.algebra.reduce_max
        over = self.axes(axes)
        value = self.value
        for axis in sorted(over, reverse=True):
            value = reduce(value, axis)
        return self._of(value)._kept(self.shape, over, keep)

    def shift_over(self, axis: int) -> Term:
        """Return the algebra's shift along ``axis``, which keeps size 1."""
        over = self.axes(axis)
        return self._of(self.algebra.shift(self.value, over[0]))._kept(self.shape, over, True)

    def _kept(self, shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> Term:
        return (
            self.reshape(tuple(1 if i in axes else n for i, n in enumerate(shape)))
            if keep
            else self
        )

    # --- structure
    def reshape(self, shape: Sequence[int]) -> Term:
        """Return the same elements, row-major, in other sizes; one size may be -1."""
        return self._of(self.algebra.reshape(self.value, complete(tuple(shape), self.shape)))

    def permute(self, permutation: Sequence[int]) -> Term:
        """Return the term with dimension ``permutation[i]`` as dimension i.

        Raises:
            ShapeError: if ``permutation`` does not name each dimension once.
        """
        order = self.axes(permutation)
        if len(order) != self.ndim:
            raise ShapeError(
                f"the permutation {tuple(permutation)} does not name each of the {self.ndim} "
                f"dimensions once"
            )
        return self._of(self.algebra.transpose(self.value, order))

    def swap(self, first: int, second: int) -> Term:
        """Exchange two dimensions."""
        order = list(range(self.ndim))
        a, b = self.axis(first), self.axis(second)
        order[a], order[b] = b, a
        return self.permute(order)

    def move(self, source: int, target: int) -> Term:
        """Move dimension ``source`` to place ``target``; the others keep their order."""
        order = [i for i in range(self.ndim) if i != self.axis(source)]
        order.insert(self.axis(target), self.axis(source))
        return self.permute(order)

    def expand(self, shape: Sequence[int]) -> Term:
        """Broadcast to ``shape``."""
        return self._of(self.algebra.expand(self.value, tuple(shape)))

    def unsqueeze(self, axis: int) -> Term:
        """Insert a dimension of size 1 at ``axis`` of the result."""
        place = normalise(axis, self.ndim + 1)
        return self.reshape((*self.shape[:place], 1, *self.shape[place:]))

    def squeeze(self, axis: int) -> Term:
        """Remove dimension ``axis``.

        Raises:
            ShapeError: if its size is not 1.
        """
        place = self.axis(axis)
        if self.shape[place] != 1:
            raise ShapeError(f"dimension {place} of {self.shape} has not size 1")
        return self.reshape(self.shape[:place] + self.shape[place + 1 :])

    def slice(self, axis: int, start: int, stop: int, step: int = 1) -> Term:
        """Return the elements ``start, start + step, ... < stop`` along ``axis``.

        Raises:
            ShapeError: if offsets do not lie within the dimension, or the step is below 1.
        """
        place = self.axis(axis)
        if not 0 <= start <= stop <= self.shape[place]:
            raise ShapeError(
                f"the slice [{start}:{stop}] does not lie within dimension {place} of {self.shape}"
            )
        if step < 1:
            raise ShapeError(f"a slice's step is at least 1, not {step}")
        return self._of(self.algebra.slice(self.value, place, start, stop, step))

    def part(self, axis: int, count: int, position: int) -> Term:
        """Return part number ``position`` of ``count`` equal parts of dimension ``axis``.

        Raises:
            ShapeError: if the dimension has no such parts.
        """
        size = self.shape[self.axis(axis)]
        if count < 1 or size % count:
            raise ShapeError(
                f"dimension {self.axis(axis)} of {self.shape} cannot be cut into {count} equal "
                f"parts"
            )
        if not 0 <= position < count:
            raise ShapeError(f"part {position} of {count} does not exist")
        return self.slice(axis, position * (size // count), (position + 1) * (size // count))

    def select(self, axis: int, position: int) -> Term:
        """Return the elements at ``position`` of ``axis``, which disappears."""
        place = self.axis(axis)
        return self.slice(place, position, position + 1).reshape(
            self.shape[:place] + self.shape[place + 1 :]
        )

    def flip(self, axis: int) -> Term:
        """Reverse the order along ``axis``."""
        return self._of(self.algebra.flip(self.value, self.axis(axis)))

    def arange(self, axis: int) -> Term:
        """Return the positions along ``axis``, 1-d int."""
        return self._of(self.algebra.arange(self.value, self.axis(axis)))

    def boundary(self, axis: int, offset: int) -> Term:
        """Return the place ``offset`` along ``axis``, a 0-d int."""
        return self._of(self.algebra.boundary(self.value, self.axis(axis), offset))

    def positions(self, axis: int) -> Term:
        """Return the positions along ``axis``, int, of size 1 along the other dimensions."""
        place = self.axis(axis)
        return self.arange(place).reshape(
            tuple(n if i == place else 1 for i, n in enumerate(self.shape))
        )

    def like(self, number: Fraction | float | int, kind: Kind = "field") -> Term:
        """Return a value of the same shape filled with ``number``."""
        return self.constant(
            number if isinstance(number, float) else Fraction(number), kind
        ).expand(self.shape)

    # --- indexing
    def take(self, axis: int, indices: Term) -> Term:
        """Return the term with ``axis`` replaced by the dimensions of ``indices``."""
        return self._of(self.algebra.take(self.value, self.axis(axis), indices.value))

    def add_at(self, axis: int, indices: Term, source: Term) -> Term:
        """Return the term with ``source`` added at ``indices`` of ``axis``."""
        return self._of(
            self.algebra.add_at(self.value, self.axis(axis), indices.value, source.value)
        )

    def take_along(self, axis: int, indices: Term) -> Term:
        """Return one element per index along ``axis``."""
        return self._of(self.algebra.take_along(self.value, self.axis(axis), indices.value))

    def add_along(self, axis: int, indices: Term, source: Term) -> Term:
        """Return the term with elements of ``source`` added at ``indices`` along ``axis``."""
        return self._of(
            self.algebra.add_along(self.value, self.axis(axis), indices.value, source.value)
        )

    # --- decisions
    def compare(self, comparison: Comparison, other: Term | Real) -> Term:
        """Return a bool value, elementwise."""
        return self._of(self.algebra.compare(comparison, self.value, self._value(other)))

    def where(self, a: Term, b: Term) -> Term:
        """Return ``a`` where this bool value is true, else ``b``."""
        return self._of(self.algebra.where(self.value, a.value, b.value))

    def __and__(self, other: Term) -> Term:
        return self._of(self.algebra.logical_and(self.value, other.value))

    def __or__(self, other: Term) -> Term:
        return self._of(self.algebra.logical_or(self.value, other.value))

    def __invert__(self) -> Term:
        return self._of(self.algebra.logical_not(self.value))

    def maximum(self, other: Term) -> Term:
        """Return the elementwise maximum."""
        return self._of(self.algebra.maximum(self.value, other.value))

    def minimum(self, other: Term) -> Term:
        """Return the elementwise minimum."""
        return self._of(self.algebra.minimum(self.value, other.value))

    def order(self, axis: int, descending: bool) -> Term:
        """Return the stable sorting permutation along ``axis``."""
        return self._of(self.algebra.order(self.value, self.axis(axis), descending))

    def cast(self, kind: Kind) -> Term:
        """Return the term in another kind; itself if it has that kind."""
        return self if self.kind == kind else self._of(self.algebra.cast(self.value, kind))


def concatenate(terms: Sequence[Term], axis: int) -> Term:
    """Join at least one term along an axis."""
    first = terms[0]
    if len(terms) == 1:
        return first
    return Term(
        first.algebra, first.algebra.concatenate([t.value for t in terms], first.axis(axis))
    )


def promote(terms: Sequence[Term]) -> list[Term]:
    """Return operands of one kind: bool becomes int beside int, both become field beside field."""
    kinds = {term.kind for term in terms}
    if len(kinds) < 2:
        return list(terms)
    common: Kind = "field" if "field" in kinds else "int"
    return [term.cast(common) for term in terms]


def sum_to(gradient: Term, shape: tuple[int, ...]) -> Term:
    """Return the gradient of an operand that was broadcast, summed to its ``shape``."""
    extra = gradient.ndim - len(shape)
    summed = gradient.sum(range(extra)) if extra else gradient
    stretched = [i for i, n in enumerate(shape) if n == 1 and summed.shape[i] != 1]
    reduced = summed.sum(stretched, keep=True) if stretched else summed
    return reduced.expand(shape)


def number(algebra: Algebra[Any], value: int | float | str, place: str) -> Term:
    """Return a number of an attribute as an exact field constant.

    Roots become square roots of constants.

    Raises:
        PlanError: if ``value`` is not a number; ``place`` is its place in the plan.
    """
    return exact(algebra, parse_number(value, place))


def exact(algebra: Algebra[Any], literal: Literal) -> Term:
    """Return a literal as an exact field constant.

    sqrt(n / pi) is sqrt(2 n) times the density of the normal distribution at 0, 1 / sqrt(2 pi).
    """
    if not isinstance(literal, Root):
        return Term(algebra, algebra.constant(literal))
    square = Term(
        algebra, algebra.constant(2 * literal.square if literal.over_pi else literal.square)
    )
    root = square.sqrt().sqrt() if literal.fourth else square.sqrt()
    if literal.over_pi:
        root = root * root.constant(Fraction(0)).function("normal_density")
    return -root if literal.sign < 0 else root


def normalise(axis: int, ndim: int) -> int:
    """Return an axis counted from the front.

    Raises:
        ShapeError: if it is not one of ``ndim`` dimensions.
    """
    if not -ndim <= axis < ndim:
        raise ShapeError(f"axis {axis} is outside a tensor of {ndim} dimensions")
    return axis % ndim


def complete(sizes: tuple[int, ...], old: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of a reshape, with -1 computed.

    Raises:
        ShapeError: if the number of elements differs, or two sizes are -1.
    """
    unknown = [i for i, n in enumerate(sizes) if n == -1]
    if len(unknown) > 1 or any(n < -1 for n in sizes):
        raise ShapeError(
            f"the sizes {sizes} are not those of a reshape: at most one is -1, none is below"
        )
    total, known = prod(old), prod(n for n in sizes if n != -1)
    if unknown and known and total % known == 0:
        return tuple(total // known if n == -1 else n for n in sizes)
    if unknown or total != known:
        raise ShapeError(
            f"a tensor of shape {old} cannot be viewed as {sizes}: the number of elements differs"
        )
    return sizes


def flag(attributes: Any, name: str, default: bool = False) -> bool:
    """Return an attribute that is true or false; 1 and 0 say the same.

    Raises:
        PlanError: if it is anything else.
    """
    value = attributes.get(name, default)
    if value not in (True, False):
        raise PlanError(
            f"the attribute {name!r} is true or false, and not {value!r}", f"attributes.{name}"
        )
    return bool(value)


def needed(attributes: Any, name: str) -> Any:
    """Return an attribute without which the meaning is not defined.

    Raises:
        PlanError: if it is absent.
    """
    if name not in attributes:
        raise PlanError(f"the attribute {name!r} is required", f"attributes.{name}")
    return attributes[name]
