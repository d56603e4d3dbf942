"""Formulas of integers that are both a plan and Python integers.

A formula is one function. Given a ``Made`` it writes operators; given ``Ints`` it computes. So a
pair of formulas is judged without anything of the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from attacks.pairs import alone, found, given, spread, tensor
from msgspec.structs import replace

from pitcheck.plan.model import Number, Operator, Plan, Tensor

COUNT = 6
"""The integers of a plan."""
MOST_JUDGED = 500000
"""The integers that are computed by hand."""


@dataclass
class Writer:
    """The tensors and operators that formulas write."""

    tensors: list[Tensor]
    operators: list[Operator] = field(default_factory=list)

    def write(
        self, kind: str, *inputs: Any, dtype: Any, shape: tuple[int, ...] = (COUNT,), **more: Any
    ) -> Made:
        name = f"t{len(self.operators)}"
        operands = tuple(
            i.name if isinstance(i, Made) else i if isinstance(i, str) else Number(i)
            for i in inputs
        )
        self.tensors.append(Tensor(name, shape, dtype))
        if kind == "full":
            more["dtype"] = dtype
        self.operators.append(Operator(name, kind, operands, (name,), more))
        return Made(self, name, dtype, shape)


@dataclass(eq=False)
class Made:  # noqa: PLW1641  its equality is an operator
    """A tensor that operators make."""

    writer: Writer
    name: str
    dtype: Any
    shape: tuple[int, ...] = (COUNT,)

    def _with(self, kind: str, *inputs: Any, dtype: Any = None) -> Made:
        shapes = [i.shape for i in inputs if isinstance(i, Made)]
        return self.writer.write(
            kind, *inputs, dtype=dtype or self.dtype, shape=max(shapes, key=len)
        )

    def cast(self, dtype: Any) -> Made:
        made = self._with("cast", self, dtype=dtype)
        self.writer.operators[-1] = replace(self.writer.operators[-1], attributes={"dtype": dtype})
        return made

    def __add__(self, other: Any) -> Made:
        return self._with("add", self, other)

    def __radd__(self, other: Any) -> Made:
        return self._with("add", other, self)

    def __sub__(self, other: Any) -> Made:
        return self._with("sub", self, other)

    def __rsub__(self, other: Any) -> Made:
        return self._with("sub", other, self)

    def __mul__(self, other: Any) -> Made:
        return self._with("mul", self, other)

    def __rmul__(self, other: Any) -> Made:
        return self._with("mul", other, self)

    def __floordiv__(self, other: Any) -> Made:
        return self._with("floor_divide", self, other)

    def __mod__(self, other: Any) -> Made:
        return self._with("remainder", self, other)

    def __neg__(self) -> Made:
        return self._with("neg", self)

    def __abs__(self) -> Made:
        return self._with("abs", self)

    def __lt__(self, other: Any) -> Made:
        return self._with("lt", self, other, dtype="bool")

    def __le__(self, other: Any) -> Made:
        return self._with("le", self, other, dtype="bool")

    def __gt__(self, other: Any) -> Made:
        return self._with("gt", self, other, dtype="bool")

    def __ge__(self, other: Any) -> Made:
        return self._with("ge", self, other, dtype="bool")

    def __eq__(self, other: Any) -> Any:
        return self._with("eq", self, other, dtype="bool")

    def __ne__(self, other: Any) -> Any:
        return self._with("ne", self, other, dtype="bool")

    def __and__(self, other: Any) -> Made:
        return self._with("logical_and", self, other, dtype="bool")

    def __or__(self, other: Any) -> Made:
        return self._with("logical_or", self, other, dtype="bool")

    def __xor__(self, other: Any) -> Made:
        return self._with("logical_xor", self, other, dtype="bool")

    def __invert__(self) -> Made:
        return self._with("logical_not", self, dtype="bool")


class Ints(list[Any]):  # noqa: PLW1641  its equality is a list, too
    """Python integers, truths or fractions, one by one."""

    def _with(self, compute: Callable[[Any, Any], Any], other: Any) -> Ints:
        others = other if isinstance(other, Ints) else [other] * len(self)
        one = list(self) * len(others) if len(self) == 1 else self
        others = list(others) * len(one) if len(others) == 1 else others
        return Ints([compute(a, b) for a, b in zip(one, others, strict=True)])

    def __add__(self, other: Any) -> Any:  # type: ignore[override]
        return self._with(lambda a, b: a + b, other)

    def __radd__(self, other: Any) -> Any:
        return self._with(lambda a, b: b + a, other)

    def __sub__(self, other: Any) -> Any:
        return self._with(lambda a, b: a - b, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(lambda a, b: b - a, other)

    def __mul__(self, other: Any) -> Any:
        return self._with(lambda a, b: a * b, other)

    def __rmul__(self, other: Any) -> Any:
        return self._with(lambda a, b: b * a, other)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(lambda a, b: a // b, other)

    def __mod__(self, other: Any) -> Any:
        return self._with(lambda a, b: a % b, other)

    def __neg__(self) -> Any:
        return Ints([-a for a in self])

    def __abs__(self) -> Any:
        return Ints([abs(a) for a in self])

    def __lt__(self, other: Any) -> Any:
        return self._with(lambda a, b: a < b, other)

    def __le__(self, other: Any) -> Any:
        return self._with(lambda a, b: a <= b, other)

    def __gt__(self, other: Any) -> Any:
        return self._with(lambda a, b: a > b, other)

    def __ge__(self, other: Any) -> Any:
        return self._with(lambda a, b: a >= b, other)

    def __eq__(self, other: Any) -> Any:
        return self._with(lambda a, b: a == b, other)

    def __ne__(self, other: Any) -> Any:
        return self._with(lambda a, b: a != b, other)

    def __and__(self, other: Any) -> Any:
        return self._with(lambda a, b: bool(a and b), other)

    def __or__(self, other: Any) -> Any:
        return self._with(lambda a, b: bool(a or b), other)

    def __xor__(self, other: Any) -> Any:
        return self._with(lambda a, b: bool(a) != bool(b), other)

    def __invert__(self) -> Any:
        return Ints([not a for a in self])


def where(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, Made):
        like = a if isinstance(a, Made) else b if isinstance(b, Made) else None
        return condition._with("where", condition, a, b, dtype=like.dtype if like else "int64")
    sides = [x if isinstance(x, Ints) else Ints([x] * len(condition)) for x in (a, b)]
    return Ints([x if c else y for c, x, y in zip(condition, *sides, strict=True)])


def number(a: Any, dtype: Any = "int64") -> Any:
    """A truth, or an integer, as a number of a dtype."""
    return a.cast(dtype) if isinstance(a, Made) else Ints([int(x) for x in a])


def truth(a: Any) -> Any:
    return a.cast("bool") if isinstance(a, Made) else Ints([bool(x) for x in a])


def clamp(a: Any, low: int, high: int) -> Any:
    if isinstance(a, Made):
        return a.writer.write("clamp", a, dtype=a.dtype, shape=a.shape, min=low, max=high)
    return Ints([min(max(x, low), high) for x in a])


def larger(a: Any, b: Any) -> Any:
    if isinstance(a, Made):
        return a._with("maximum", a, b)
    return a._with(max, b)


def smaller(a: Any, b: Any) -> Any:
    if isinstance(a, Made):
        return a._with("minimum", a, b)
    return a._with(min, b)


def sign(a: Any) -> Any:
    if isinstance(a, Made):
        return a._with("sign", a)
    return Ints([(x > 0) - (x < 0) for x in a])


def total(a: Any) -> Any:
    """The sum of all, for each."""
    if isinstance(a, Made):
        return a.writer.write("sum", a, dtype=a.dtype, shape=(1,), axes=(0,), keepdim=True)
    return Ints([sum(a)])


def running(a: Any) -> Any:
    if isinstance(a, Made):
        return a.writer.write("cumsum", a, dtype=a.dtype, axis=0)
    return Ints([sum(a[: n + 1]) for n in range(len(a))])


def filled(a: Any, value: int) -> Any:
    """One number in all places."""
    if isinstance(a, Made):
        return a.writer.write("full", dtype="int64", sizes=(COUNT,), value=value)
    return Ints([value] * len(a))


def ones(a: Any) -> Any:
    return filled(a, 1)


def flipped(a: Any) -> Any:
    if isinstance(a, Made):
        return a.writer.write("flip", a, dtype=a.dtype, axes=(0,))
    return Ints(reversed(a))


def anywhere(a: Any) -> Any:
    """True for all if it is true for one."""
    if isinstance(a, Made):
        return a.writer.write("any", a, dtype="bool", shape=(1,), axes=(0,), keepdim=True)
    return Ints([any(a)])


def everywhere(a: Any) -> Any:
    if isinstance(a, Made):
        return a.writer.write("all", a, dtype="bool", shape=(1,), axes=(0,), keepdim=True)
    return Ints([all(a)])


def largest(a: Any) -> Any:
    if isinstance(a, Made):
        return a.writer.write("amax", a, dtype=a.dtype, shape=(1,), axes=(0,), keepdim=True)
    return Ints([max(a)])


def first_place(a: Any) -> Any:
    """The place of the first of the largest."""
    if isinstance(a, Made):
        return a.writer.write("argmax", a, dtype="int64", shape=(1,), axis=0, keepdim=True)
    return Ints([a.index(max(a))])


def places(a: Any, offset: int = 0) -> Any:
    if isinstance(a, Made):
        return a.writer.write("positions", a, dtype="int64", axis=0, offset=offset)
    return Ints(range(offset, offset + len(a)))


def row_of(a: Any, size: int) -> Any:
    """Rows of a table with so many different numbers."""
    if isinstance(a, Made):
        name = f"w{size}"
        if all(t.name != name for t in a.writer.tensors):
            a.writer.tensors.append(given(name, size, 1))
        rows = a.writer.write("embedding", a, name, dtype="float32", shape=(COUNT, 1))
        return a.writer.write("squeeze", rows, dtype="float32", axis=1)
    assert all(0 <= x < size for x in a)
    return Ints(a)


Formula = Callable[[Any], Any]


def plan(formula: Formula, bounds: tuple[int, int], dtype: Any, ranks: int) -> Plan:
    """A plan whose output is x where a formula is true, x times it, or the formula itself."""
    writer = Writer([Tensor("i", (COUNT,), dtype, role="input", bounds=bounds), given("x", COUNT)])
    result = formula(Made(writer, "i", dtype))
    writer.tensors.append(tensor("y", COUNT))
    if result.dtype == "bool":
        writer.operators.append(Operator("last", "where", (result.name, "x", Number(0)), ("y",)))
    else:
        result = result if result.dtype == "float32" else number(result, "float32")
        writer.operators.append(Operator("last", "mul", (result.name, "x"), ("y",)))
    write = alone if ranks == 1 else spread
    return write(writer.tensors, writer.operators)


def verdict(
    one: Formula, two: Formula, bounds: tuple[int, int], dtype: Any = "int64"
) -> tuple[str, str]:
    return found(plan(one, bounds, dtype, 1), plan(two, bounds, dtype, 2))


def differ(
    one: Formula, two: Formula, bounds: tuple[int, int], witness: Sequence[int] | None
) -> int:
    """How many results differ: for all integers (of very many, some), or for the witness alone."""
    if witness is not None:
        assert len(witness) == COUNT
        assert all(bounds[0] <= i < bounds[1] for i in witness)
        given_ = Ints(witness)
    else:
        given_ = Ints(range(*bounds, max(1, (bounds[1] - bounds[0]) // MOST_JUDGED)))
    results = [f(given_) for f in (one, two)]
    count = max(map(len, results))
    first, second = (list(r) * (count // len(r)) for r in results)
    return sum(a != b for a, b in zip(first, second, strict=True))
