"""Residues modulo a few random primes: the arithmetic in which the verifier evaluates operators.

Functions without algebra are tables of random residues, one entry for each different argument. A
comparison of numbers is a table, too; what is made of it is a polynomial in its entries. Integers
and booleans that are given are evaluated as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf, prod

import numpy as np

from pitcheck.certificate import modular
from pitcheck.certificate.forms import LEVELS, VARIABLE, Form, vanishing
from pitcheck.certificate.modular import Array
from pitcheck.certificate.moves import (
    NONNEGATIVE,
    POSITIVE,
    UNKNOWN,
    Kind,
    Moves,
    Value,
    VoidError,
    aligned,
    finite,
    fitting,
    greatest,
    limited,
    numbers_alone,
)
from pitcheck.errors import ShapeError, UnsupportedError

_MOST_TERMS = 4


class Table:
    """A function without algebra: a random residue for every different argument."""

    def __init__(self) -> None:
        self.entries: dict[bytes, int] = {}
        self.values: list[Array] = []
        self.form: Form | None = None

    def read(self, rows: Array, make: Callable[[int], Array]) -> Array:
        """Return the entries of some rows, shape (rows, ...); new ones are made."""
        packed = np.ascontiguousarray(rows).view(f"V{rows.shape[1] * 8}").reshape(-1)
        distinct, which = np.unique(packed, return_inverse=True)
        places = [self.entries.setdefault(key.tobytes(), len(self.entries)) for key in distinct]
        if len(self.entries) > len(self.values):
            self.values.extend(make(len(self.entries) - len(self.values)))
        return np.stack([self.values[place] for place in places])[which.reshape(-1)]


class Residues(Moves):
    """One draw: the arithmetic, with tables, and what was divided by on either side.

    ``guards`` has, by side, the arguments of partial operations that may be outside of their
    domain.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(generator)
        self.tables: dict[str, Table] = {}
        self.guards: dict[str, set[tuple[str, bytes]]] = {"reference": set(), "parallel": set()}
        self.side = "reference"

    # --- the ring

    def _binary(self, a: Value, b: Value) -> tuple[Value, Value]:
        if a.kind != b.kind or a.kind == "bool":
            raise ShapeError(f"values of kinds {a.kind} and {b.kind} have no arithmetic")
        try:
            shape = np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            raise ShapeError(f"shapes {a.shape} and {b.shape} do not broadcast") from None
        return self.expand(a, shape), self.expand(b, shape)

    def add(self, a: Value, b: Value) -> Value:
        """Return the sum."""
        return self._sum(a, b, 1)

    def subtract(self, a: Value, b: Value) -> Value:
        """Return the difference."""
        return self._sum(a, b, -1)

    def _sum(self, a: Value, b: Value, sign: int) -> Value:
        x, y = self._binary(a, b)
        if x.kind == "int":
            fitting(greatest(x) + greatest(y))
            return Value("int", x.data + sign * y.data)
        if y.zero or x.zero:
            return x if y.zero else y if sign > 0 else self.negate(y)
        finite(*(v for v in (x, y) if v.special not in (None, -inf) or (sign < 0 and v is y)))
        masks = [v.hidden for v in (x, y) if v.hidden is not None]
        hidden = np.logical_or.reduce(masks) if masks else None
        data = (x.data + sign * y.data) % self._p(len(x.shape))
        if hidden is not None:
            data = np.where(hidden, 0, data)
        known = POSITIVE if POSITIVE in (x.sign, y.sign) else NONNEGATIVE
        known = known if sign > 0 and min(x.sign, y.sign) > UNKNOWN else UNKNOWN
        terms = (*_terms(x), *((sign * n, t) for n, t in _terms(y)))
        split = len(terms) <= _MOST_TERMS and any(n < 0 or t.base is not None for n, t in terms)
        form = self.forms.added(x.form, y.form)
        return self._field(data, form, known, hidden=hidden, terms=terms if split else ())

    def negate(self, a: Value) -> Value:
        """Return the opposite."""
        if a.kind == "int":
            fitting(greatest(a))
            return Value("int", -a.data)
        finite(a)
        terms = tuple((-n, t) for n, t in _terms(a))
        return self._field(-a.data % self._p(len(a.shape)), a.form, terms=terms, zero=a.zero)

    def multiply(self, a: Value, b: Value) -> Value:
        """Return the product."""
        x, y = self._binary(a, b)
        if x.kind == "int":
            fitting(greatest(x) * greatest(y))
            return Value("int", x.data * y.data)
        finite(x, y)
        sign = NONNEGATIVE if a is b else min(x.sign, y.sign)
        data = x.data * y.data % self._p(len(x.shape))
        return self._field(data, self.forms.product(x.form, y.form), max(sign, min(x.sign, y.sign)))

    def divide(self, a: Value, b: Value) -> Value:
        """Return the quotient.

        Raises:
            VoidError: a divisor is 0 modulo a prime, so that the draw says nothing.
            UnsupportedError: one is 0 modulo all primes, which is no chance, and the reference,
                evaluated first, divides by no such number.
        """
        finite(a, b)
        self._guard("div", b)
        if self.side == "parallel" and not b.data.any(axis=0).all():
            raise UnsupportedError("it divides by 0 where the reference does not")
        if not b.data.all():
            raise VoidError
        self.void_chance += LEVELS * b.data[0].size * vanishing(b.form)
        turned = modular.inverse(b.data, self._p(len(b.shape)))
        form = self.forms.inverse(b.form, b.data[0].size)
        return self.multiply(
            a, self._field(turned, form, b.sign if b.sign == POSITIVE else UNKNOWN)
        )

    def power(self, a: Value, exponent: int) -> Value:
        """Return an integer power."""
        if exponent < 0:
            return self.divide(self.constant(Fraction(1)), self.power(a, -exponent))
        if exponent < 2:
            return a if exponent else self.expand(self.constant(Fraction(1)), a.shape)
        half = self.power(a, exponent // 2)
        square = self.multiply(half, half)
        return self.multiply(square, a) if exponent % 2 else square

    def sum(self, a: Value, axes: Sequence[int]) -> Value:
        """Return the sum over axes."""
        finite(a)
        if a.kind == "bool":
            raise UnsupportedError("truths are added, which is not verified")
        count = prod(a.shape[axis] for axis in axes)
        if a.kind == "int":
            fitting(greatest(a) * count)
        data = a.data.sum(axis=tuple(1 + axis for axis in axes))
        if a.kind == "int":
            return Value("int", data)
        data = data % self._p(data.ndim - 1)
        return self._field(data, self.forms.total(a.form, count), a.sign if count else UNKNOWN)

    def matmul(self, a: Value, b: Value) -> Value:
        """Return the product of matrices."""
        finite(a, b)
        if a.kind != "field" or b.kind != "field" or a.shape[-1] != b.shape[-2]:
            raise ShapeError(f"matrices of shapes {a.shape} and {b.shape} have no product here")
        rank = max(len(a.shape), len(b.shape))
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        limited((*batch, a.shape[-2], b.shape[-1]))
        data = modular.matmul(aligned(a.data, rank), aligned(b.data, rank), self._p(rank))
        form = self.forms.total(self.forms.product(a.form, b.form), a.shape[-1])
        return self._field(data, form)

    # --- functions as tables

    def _guard(self, operation: str, a: Value) -> None:
        numbers_alone(a)
        if a.sign != POSITIVE and not (operation == "sqrt" and a.sign == NONNEGATIVE):
            rows = np.ascontiguousarray(np.moveaxis(a.data, 0, -1)).reshape(-1, LEVELS)
            self.guards[self.side].update((operation, row.tobytes()) for row in rows)

    def _read(self, name: str, arguments: Sequence[Value], along: int | None = None) -> Array:
        """Return the entries of a table; ``along`` is an axis whose elements are one argument."""
        numbers_alone(*arguments)
        table = self.tables.setdefault(name, Table())
        columns = [np.moveaxis(a.data, 0, -1) for a in arguments]
        shape = columns[0].shape[:-1]
        if along is not None:
            moved = np.moveaxis(columns[0], along, -2)
            shape, columns = moved.shape[:-2], [moved.reshape((*moved.shape[:-2], -1))]
        rows = np.concatenate(columns, axis=-1).reshape(prod(shape), -1)
        for argument in arguments:
            old = table.form or argument.form
            table.form = self.forms.joined(old, argument.form)
        found = table.read(rows, lambda count: np.moveaxis(self._drawn((count,)), 0, -1))
        return np.moveaxis(found.reshape((*shape, LEVELS)), -1, 0)

    def exp(self, a: Value) -> Value:
        """Return the exponential: e^(s - t) is e^s / e^t, e^log s is s, e^0 is 1, e^-inf 0."""
        if a.base is not None:
            return a.base
        if a.zero:
            return self.expand(self.constant(Fraction(1)), a.shape)
        if a.terms:
            result = self.expand(self.constant(Fraction(1)), a.shape)
            for n, term in a.terms:
                factor = self.exp(term)
                result = self.multiply(result, factor) if n > 0 else self.divide(result, factor)
            return result
        if a.hidden is None:
            return self._field(self._read("exp", [a]), VARIABLE, POSITIVE)
        data = self._read("exp", [replace(a, hidden=None, special=None)])
        return self._field(np.where(a.hidden, 0, data), VARIABLE, NONNEGATIVE)

    def log(self, a: Value) -> Value:
        """Return the logarithm, which remembers what it is taken of."""
        self._guard("log", a)
        return self._field(self._read("log", [a]), VARIABLE, base=a)

    def sqrt(self, a: Value) -> Value:
        """Return the square root."""
        self._guard("sqrt", a)
        return self._field(self._read("sqrt", [a]), VARIABLE, max(a.sign, NONNEGATIVE))

    def function(self, name: str, *arguments: Value) -> Value:
        """Return a function known by name."""
        shape = np.broadcast_shapes(*(a.shape for a in arguments))
        return self._field(self._read(name, [self.expand(a, shape) for a in arguments]), VARIABLE)

    def draw(self, stream: str, index: Value) -> Value:  # noqa: ARG002  the interface
        """Refuse random draws. Raises UnsupportedError."""
        raise UnsupportedError(f"random draws (stream {stream!r}) are not verified")

    # --- decisions

    def compare(self, comparison: str, a: Value, b: Value) -> Value:
        """Return truths: of integers exact ones, of numbers entries of a table."""
        if a.kind == "int" and b.kind == "int":
            return Value("bool", getattr(np, _EXACT[comparison])(*_both(a.data, b.data)))
        if b.special is not None and a.special is None and comparison in ("eq", "ne"):
            none = np.zeros((1, *a.shape), dtype=np.bool_)
            equal = none if b.special != -inf or a.hidden is None else a.hidden
            return Value("bool", equal if comparison == "eq" else ~equal)
        if a.kind != "field" or b.kind != "field":
            raise UnsupportedError(f"{a.kind} and {b.kind} are compared, which is not verified")
        swapped = comparison in ("gt", "le")
        difference = self.subtract(b, a) if swapped else self.subtract(a, b)
        name = "eq" if comparison in ("eq", "ne") else "lt"
        truth = Value("bool", self._read(name, [replace(difference, terms=())]), VARIABLE)
        return self.logical_not(truth) if comparison in ("ne", "ge", "le") else truth

    def _number(self, a: Value) -> Value:
        """Return a truth as a number."""
        data = (
            a.data if a.symbolic else np.broadcast_to(a.data, (LEVELS, *a.shape)).astype(np.int64)
        )
        return self._field(data, a.form if a.symbolic else Form(), NONNEGATIVE)

    def _truth(self, a: Value) -> Value:
        return Value("bool", a.data, a.form)

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        """Return elements of one value or the other."""
        shape = np.broadcast_shapes(condition.shape, a.shape, b.shape)
        c, x, y = (self.expand(v, shape) for v in (condition, a, b))
        if c.kind != "bool" or x.kind != y.kind or (x.kind == "bool" and x.symbolic != y.symbolic):
            raise UnsupportedError("a choice between these kinds is not verified")
        if c.symbolic:
            if x.kind != "field":
                raise UnsupportedError("integers are chosen by numbers, which is not verified")
            chosen = self.multiply(self._number(c), self.subtract(x, y))
            return replace(self.add(y, chosen), terms=(), sign=min(x.sign, y.sign))
        data = np.where(c.data, x.data, y.data)
        return self._like([x, y], data, lambda arrays: np.where(c.data, *arrays))

    def logical_and(self, a: Value, b: Value) -> Value:
        """Return True where both are."""
        if not a.symbolic and not b.symbolic:
            return Value("bool", np.logical_and(*_both(a.data, b.data)))
        return self._truth(self.multiply(self._number(a), self._number(b)))

    def logical_or(self, a: Value, b: Value) -> Value:
        """Return True where one is."""
        return self.logical_not(self.logical_and(self.logical_not(a), self.logical_not(b)))

    def logical_not(self, a: Value) -> Value:
        """Return True where it is not."""
        if not a.symbolic:
            return Value("bool", ~a.data)
        return self._truth(self.subtract(self.constant(Fraction(1)), self._number(a)))

    def maximum(self, a: Value, b: Value) -> Value:
        """Return the greater of two."""
        return self._extreme("max", np.maximum, a, b)

    def minimum(self, a: Value, b: Value) -> Value:
        """Return the less of two."""
        return self._extreme("min", np.minimum, a, b)

    def _extreme(self, name: str, exact: Callable[..., Array], a: Value, b: Value) -> Value:
        x, y = self._binary(a, b)
        if x.kind == "int":
            return Value("int", exact(x.data, y.data))
        sign = max(x.sign, y.sign) if name == "max" else min(x.sign, y.sign)
        return self._field(self._read(name, [x, y]), VARIABLE, sign)

    def reduce_max(self, a: Value, axis: int) -> Value:
        """Return the greatest along an axis."""
        return self._extreme_along("max", np.max, a, axis)

    def reduce_min(self, a: Value, axis: int) -> Value:
        """Return the least along an axis."""
        return self._extreme_along("min", np.min, a, axis)

    def _extreme_along(self, name: str, exact: Callable[..., Array], a: Value, axis: int) -> Value:
        if a.kind == "int":
            return Value("int", exact(a.data, axis=1 + axis))
        return self._field(self._read(f"{name} of {a.shape[axis]}", [a], axis), VARIABLE, a.sign)

    def shift(self, a: Value, axis: int) -> Value:
        """Return 0 for every row: the shift of a softmax cancels."""
        return self.expand(self.constant(Fraction(0)), a.shape[:axis] + a.shape[axis + 1 :])

    def order(self, a: Value, axis: int, descending: bool) -> Value:
        """Return the sorting permutation of integers. Raises UnsupportedError for numbers."""
        if a.kind != "int":
            raise UnsupportedError("an order of numbers is not verified")
        key = self.negate(a).data if descending else a.data
        return Value("int", np.argsort(key, axis=1 + axis, kind="stable"))

    # --- integers

    def floor_divide(self, a: Value, b: Value) -> Value:
        """Return the quotient of integers, rounded down."""
        return self._integers(np.floor_divide, a, b)

    def remainder(self, a: Value, b: Value) -> Value:
        """Return the remainder of integers."""
        return self._integers(np.remainder, a, b)

    def _integers(self, exact: Callable[..., Array], a: Value, b: Value) -> Value:
        x, y = self._binary(a, b)
        if x.kind != "int" or not y.data.all():
            raise UnsupportedError("a division with remainder of numbers, or by 0, is not verified")
        fitting(greatest(x))
        return Value("int", exact(x.data, y.data))

    def cast(self, a: Value, kind: Kind) -> Value:
        """Return a value in another kind."""
        if a.kind == kind:
            return a
        if a.kind == "field":
            if kind == "int":
                raise UnsupportedError("numbers are rounded to integers, which is not verified")
            return self.compare("ne", a, self.constant(Fraction(0)))
        if kind == "bool":
            return Value("bool", a.data != 0)
        if a.kind == "bool":
            if kind == "field":
                return self._number(a)
            if a.symbolic:
                raise UnsupportedError("outcomes of numbers are counted, which is not verified")
            return Value("int", a.data.astype(np.int64))
        height = max(greatest(a), 1).bit_length()
        return self._field(a.data % self._p(len(a.shape)), Form(0, float(height)))

    # --- the error of a draw

    def error(self, difference: Form) -> float:
        """Return a bound on the chance that a false formula agrees in a draw that is not void."""
        chance = vanishing(difference) ** LEVELS
        for table in self.tables.values():
            form = self.forms.added(table.form or Form(), table.form or Form())
            chance += len(table.entries) ** 2 / 2 * vanishing(form) ** LEVELS
        return 1.0 if self.void_chance > 0.5 else 2 * chance


_EXACT = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def _both(a: Array, b: Array) -> tuple[Array, Array]:
    rank = max(a.ndim, b.ndim) - 1
    return aligned(a, rank), aligned(b, rank)


def _terms(a: Value) -> tuple[tuple[int, Value], ...]:
    return a.terms or ((1, a),)
