"""Values of the verifier, and the moves of their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf, log2, prod
from typing import Any, Literal

import numpy as np

from pitcheck.certificate import modular
from pitcheck.certificate.forms import LEVELS, VARIABLE, Form, Forms, vanishing
from pitcheck.certificate.modular import Array
from pitcheck.errors import ShapeError, UnsupportedError

Kind = Literal["field", "int", "bool"]
MOST_ELEMENTS = 1 << 22
"""The elements of the largest value that is computed."""
_MOST_TERMS = 4
UNKNOWN, NONNEGATIVE, POSITIVE = range(3)


class VoidError(Exception):
    """A divisor was 0 by chance, or by the integers that were drawn: the draw says nothing."""


@dataclass(frozen=True, eq=False)
class Value:
    """Elements of one kind; ``data`` has a leading axis for the primes, of size 1 if it is exact.

    ``sign``: what is known for all inputs. ``terms``: signed values whose sum it is, if one is
    subtracted or a logarithm. ``base``: the value whose logarithm it is. ``hidden``: True where it
    is minus infinity. ``zero``: it is 0 by construction. ``special``: the constant inf or nan.
    """

    kind: Kind
    data: Array
    form: Form = field(default_factory=Form)
    sign: int = UNKNOWN
    terms: tuple[tuple[int, Value], ...] = ()
    base: Value | None = None
    hidden: Array | None = None
    zero: bool = False
    special: float | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape without the axis of primes."""
        return tuple(self.data.shape[1:])

    @property
    def symbolic(self) -> bool:
        """True for a truth that is an entry of a table, or a polynomial in such entries."""
        return self.kind == "bool" and self.data.dtype != np.bool_


class Moves:
    """Values modulo the primes of one draw, and what moves their elements.

    ``void_chance`` bounds the chance that a number by which is divided is 0.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self.primes = modular.draw_primes(generator)
        self.forms = Forms()
        self.void_chance = 0.0

    # --- making values

    def _p(self, rank: int) -> Array:
        return self.primes.reshape((LEVELS,) + (1,) * rank)

    def _field(self, data: Array, form: Form, sign: int = UNKNOWN, **more: Any) -> Value:
        return Value("field", data, form, sign, **more)

    def fresh(self, shape: Sequence[int]) -> Value:
        """Return variables: residues other than 0, drawn uniformly."""
        limited(shape)
        return self._field(self._drawn(shape), VARIABLE)

    def _drawn(self, shape: Sequence[int]) -> Array:
        return np.stack(
            [self.generator.integers(1, int(p), size=tuple(shape)) for p in self.primes]
        )

    def exactly(self, data: Array) -> Value:
        """Return integers or booleans, of shape ``data.shape``."""
        kind: Kind = "bool" if data.dtype == np.bool_ else "int"
        return Value(kind, data[None])

    def constant(self, number: Fraction | float, kind: Kind = "field") -> Value:
        """Return a 0-dimensional constant."""
        if isinstance(number, float) and not np.isfinite(number):
            hidden = np.ones((1,), dtype=np.bool_) if number == -inf else None
            zeros = np.zeros((LEVELS,), dtype=np.int64)
            return self._field(zeros, Form(), hidden=hidden, special=number)
        exact = Fraction(number)
        if kind != "field":
            return self.exactly(
                np.array(int(exact), dtype=np.bool_ if kind == "bool" else np.int64)
            )
        if any(exact.denominator % int(p) == 0 for p in self.primes):
            raise VoidError
        up, low = exact.numerator, exact.denominator
        residues = [up * pow(low, -1, int(p)) % int(p) for p in self.primes]
        height = float(max(abs(exact.numerator).bit_length(), 1))
        below = {} if exact.denominator == 1 else {self.forms.over(exact.denominator): 1}
        self.void_chance += LEVELS * vanishing(Form(0, log2(exact.denominator)))
        sign = POSITIVE if exact > 0 else NONNEGATIVE if exact == 0 else UNKNOWN
        data = np.array(residues, dtype=np.int64)
        return self._field(data, Form(0, height, below), sign, zero=exact == 0)

    def extent(self, a: Value, axes: Sequence[int]) -> Value:
        """Return the number of elements along some axes."""
        return self.constant(Fraction(prod(a.shape[axis] for axis in axes)))

    def arange(self, like: Value, axis: int) -> Value:
        """Return the places along an axis."""
        return self.exactly(np.arange(like.shape[axis], dtype=np.int64))

    def boundary(self, like: Value, axis: int, offset: int) -> Value:  # noqa: ARG002  sizes are full
        """Return a place along an axis as an integer."""
        return self.constant(Fraction(int(offset)), "int")

    def shape(self, a: Value) -> tuple[int, ...]:
        """Return the shape of a value."""
        return a.shape

    def kind(self, a: Value) -> Kind:
        """Return the kind of a value."""
        return a.kind

    # --- moves

    def _move(self, a: Value, move: Callable[[Array], Array]) -> Value:
        return replace(
            a,
            data=move(a.data),
            terms=tuple((n, self._move(t, move)) for n, t in a.terms),
            base=None if a.base is None else self._move(a.base, move),
            hidden=None if a.hidden is None else move(a.hidden),
        )

    def reshape(self, a: Value, shape: Sequence[int]) -> Value:
        """Return the elements in another shape."""
        if prod(shape) != prod(a.shape):
            raise ShapeError(f"a tensor of shape {a.shape} cannot be viewed as {tuple(shape)}")
        return self._move(a, lambda d: d.reshape((d.shape[0], *shape)))

    def transpose(self, a: Value, permutation: Sequence[int]) -> Value:
        """Return the axes in another order."""
        return self._move(a, lambda d: d.transpose((0, *(1 + axis for axis in permutation))))

    def expand(self, a: Value, shape: Sequence[int]) -> Value:
        """Return a value broadcast to a shape."""
        new = tuple(shape)
        if a.shape == new:
            return a
        limited(new)
        if np.broadcast_shapes(a.shape, new) != new:
            raise ShapeError(f"a tensor of shape {a.shape} cannot be expanded to {new}")
        return self._move(a, lambda d: np.broadcast_to(aligned(d, len(new)), (d.shape[0], *new)))

    def slice(self, a: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        """Return a part along an axis."""
        index = (slice(None),) * (1 + axis) + (slice(start, stop, step),)
        return self._move(a, lambda d: d[index])

    def flip(self, a: Value, axis: int) -> Value:
        """Return the reverse order along an axis."""
        return self._move(a, lambda d: np.flip(d, 1 + axis))

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        """Return values joined along an axis; what only some have (terms, bases) is dropped."""
        if len({v.kind for v in values}) != 1:
            raise UnsupportedError("values of several kinds are joined, which is not verified")
        limited((sum(prod(v.shape) for v in values),))
        data = np.concatenate([v.data for v in values], axis=1 + axis)
        return self._like(values, data, lambda arrays: np.concatenate(arrays, axis=1 + axis))

    def _like(
        self, values: Sequence[Value], data: Array, join: Callable[[list[Array]], Array]
    ) -> Value:
        """Return a value each of whose elements is one of ``values``."""
        if any(v.symbolic for v in values):
            raise UnsupportedError(
                "outcomes of numbers are chosen or joined, which is not verified"
            )
        if values[0].kind != "field":
            return Value(values[0].kind, data)
        hidden = None
        if any(v.hidden is not None for v in values):
            none = [np.zeros((1, *v.shape), dtype=np.bool_) for v in values]
            masks = zip((v.hidden for v in values), none, strict=True)
            hidden = join([n if mask is None else mask for mask, n in masks])
        if any(v.special not in (None, -inf) for v in values):
            raise UnsupportedError("infinity or NaN is chosen, which has no meaning here")
        form = values[0].form
        for value in values[1:]:
            form = self.forms.joined(form, value.form)
        sign = min(v.sign for v in values)
        return self._field(data, form, sign, hidden=hidden, zero=all(v.zero for v in values))

    def take(self, a: Value, axis: int, indices: Value) -> Value:
        """Return the elements at some places of an axis."""
        index = places_of(indices, a.shape[axis])
        limited((*a.shape[:axis], *index.shape, *a.shape[axis + 1 :]))
        return self._move(a, lambda d: np.take(d, index, axis=1 + axis))

    def take_along(self, a: Value, axis: int, indices: Value) -> Value:
        """Return one element for each index."""
        index = places_of(indices, a.shape[axis])[None]
        return self._move(a, lambda d: np.take_along_axis(d, index, axis=1 + axis))

    def add_at(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        """Return a value with another one added at some places of an axis."""
        index = places_of(indices, base.shape[axis])
        flat = (base.data.shape[0], *base.shape[:axis], index.size, *base.shape[axis + 1 :])
        where = (slice(None),) * (1 + axis) + (index.reshape(-1),)
        return self._added(base, source, source.data.reshape(flat), where)

    def add_along(self, base: Value, axis: int, indices: Value, source: Value) -> Value:
        """Return a value with elements added at one index each."""
        index = places_of(indices, base.shape[axis])
        grid = list(np.indices((base.data.shape[0], *index.shape), sparse=True))
        grid[1 + axis] = index[None]
        return self._added(base, source, source.data, tuple(grid))

    def _added(self, base: Value, source: Value, data: Array, where: tuple[Any, ...]) -> Value:
        finite(base, source)
        if base.kind != source.kind or base.kind == "bool":
            raise UnsupportedError("truths, or values of two kinds, are added at indices")
        if base.kind == "int":
            fitting(greatest(base) + greatest(source) * source.data.size)
        result = np.array(base.data)
        np.add.at(result, where, data)
        if base.kind != "field":
            return Value(base.kind, result)
        total = self.forms.total(source.form, data[0].size)
        return self._field(result % self._p(result.ndim - 1), self.forms.added(base.form, total))


def aligned(data: Array, rank: int) -> Array:
    """Return data of at least so many logical axes; axes of size 1 stand behind the first one."""
    missing = rank + 1 - data.ndim
    return data.reshape(data.shape[:1] + (1,) * missing + data.shape[1:]) if missing > 0 else data


def limited(shape: Sequence[int]) -> None:
    """Raise UnsupportedError for the shape of a value that is too large to be computed here."""
    if prod(shape) > MOST_ELEMENTS:
        raise UnsupportedError(
            f"a value of shape {tuple(shape)} has more than {MOST_ELEMENTS} elements, which is "
            f"more than are evaluated here"
        )


def greatest(a: Value) -> int:
    """Return the greatest magnitude among integers."""
    return max(abs(int(a.data.min(initial=0))), int(a.data.max(initial=0)))


def fitting(magnitude: int) -> None:
    """Raise UnsupportedError for integers of a magnitude that 64 bits may not hold."""
    if magnitude >= 1 << 63:
        raise UnsupportedError(f"integers up to {magnitude} wrap around in 64 bits")


def numbers_alone(*values: Value) -> None:
    """Raise UnsupportedError for a value that is no finite number."""
    finite(*values)
    if any(v.kind != "field" for v in values):
        raise UnsupportedError("a function of integers or truths is not verified")


def finite(*values: Value) -> None:
    """Raise UnsupportedError for a value that is infinite somewhere."""
    if any(v.hidden is not None or v.special is not None for v in values):
        raise UnsupportedError("infinity or NaN is computed with, which is not verified")


def places_of(indices: Value, size: int) -> Array:
    """Return indices as an array. Raises ShapeError for others than places of an axis."""
    index: Array = indices.data[0]
    if indices.kind != "int" or (index.size and not ((index >= 0) & (index < size)).all()):
        raise ShapeError(f"an index is no integer below {size}")
    return index
