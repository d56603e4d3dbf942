"""Ranges of integers and signs of numbers that are known for every input, and what they decide.

For example ``topk(x, 2).indices // 4 == 0`` is true of four experts, whatever is drawn. Places come
of ordering, along axes whose size at full shapes counts: an index below a reduced size would say
nothing of the plan.

>>> _decided("lt", (0, 3), (4, 4)), _decided("lt", (0, 3), (2, 4))
(True, None)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

from pitcheck.algebra.bound.degree_values import compared_with_zero
from pitcheck.algebra.bound.degrees import DegreeAlgebra, DegreeValue
from pitcheck.algebra.interface import Comparison, Kind
from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.run_batch import step_at
from pitcheck.stage.shaped_stage import ShapedStage

Range = tuple[int, int]
"""The least and the greatest value."""
WORD = 1 << 63
"""Integers of 64 bits lie in [-2^63, 2^63); beyond, nothing is known."""


class RangedDegrees(DegreeAlgebra):
    """The algebra of degrees with ranges of integers and booleans (0 and 1).

    A value with one possible number depends on nothing.
    """

    def __init__(self, shaped: ShapedStage) -> None:
        super().__init__()
        self._shaped = shaped
        self._ranges: dict[int, Range] = {}

    def known(self, a: DegreeValue) -> Range | None:
        """Return the range of a value, or None."""
        return self._ranges.get(a.identity)

    def _ranged(self, value: DegreeValue, found: Range | None) -> DegreeValue:
        """Return the value with its range."""
        if found is None or value.kind == "field" or not -WORD <= found[0] <= found[1] < WORD:
            return value
        if found[0] == found[1]:
            value = self._value(value.kind, value.shape, value.instances)
        self._ranges[value.identity] = found
        return value

    def _any_of(self, *values: DegreeValue) -> Range | None:
        """Return the range of a value that is one of several; None if one range is unknown."""
        found = [self.known(value) for value in values]
        known = [own for own in found if own is not None]
        return (
            (min(low for low, _ in known), max(high for _, high in known))
            if known and len(known) == len(found)
            else None
        )

    # --- where integers come from
    def constant(self, number: Fraction | float, kind: Kind = "field") -> DegreeValue:
        value = super().constant(number, kind)
        if (
            kind == "field"
            or not isinstance(number, Fraction | int)
            or Fraction(number).denominator != 1
        ):
            return value
        whole = int(number) if kind == "int" else int(number != 0)
        return self._ranged(value, (whole, whole))

    def arange(self, like: DegreeValue, axis: int) -> DegreeValue:
        # Other operators count along what they make of their operands, whose sizes say nothing.
        size = self._full_size(like, axis) if self._reads_shape() else None
        return self._ranged(super().arange(like, axis), (0, size - 1) if size else None)

    def order(self, a: DegreeValue, axis: int, descending: bool) -> DegreeValue:
        size = self._full_size(a, axis)
        return self._ranged(super().order(a, axis, descending), (0, size - 1) if size else None)

    def _full_size(self, a: DegreeValue, axis: int) -> int | None:
        """Return the size of an axis at full shapes, or None if it is not known.

        The axis must be one of an operand of the step, or of a tensor that is whole.
        """
        for step, batch, shapes in self._steps():
            operand = step.inputs[0] if step.inputs else None
            if (
                not isinstance(operand, Argument)
                or operand.rows.ndim != 1
                or operand.value not in shapes
            ):
                continue
            full, small = batch.shape(operand.value), shapes[operand.value]
            if full == small and prod(small) == prod(a.shape):
                return a.shape[axis]
            if small == a.shape:
                return int(full[axis])
        return None

    def _reads_shape(self) -> bool:
        """Return True if the step that is evaluated reads the sizes of its only operand alone."""
        return any(
            has_trait(step.kind, Trait.READS_SHAPE, step.attributes) for step, _, _ in self._steps()
        )

    def _steps(self) -> Iterator[tuple[Step, Batch, Mapping[int, tuple[int, ...]]]]:
        """Yield the step that is evaluated, its side and the shapes of that, if there is one."""
        stage, shapes = self._shaped.stage, self._shaped.shapes
        for side, batch, own in (
            ("reference ", stage.reference, shapes[0]),
            ("parallel ", stage.parallel, shapes[1]),
        ):
            number = step_at(self.site, side)
            if number is not None:
                yield batch.steps[number], batch, own

    # --- arithmetic
    def _with_both(
        self, value: DegreeValue, a: DegreeValue, b: DegreeValue, combined: Any
    ) -> DegreeValue:
        """Return the value with the range of ``combined`` over both operands' ranges.

        ``combined`` takes its extremes at the ends of these.
        """
        first, second = self.known(a), self.known(b)
        if first is None or second is None:
            return value
        ends = [combined(x, y) for x in first for y in second]
        return self._ranged(value, (min(ends), max(ends)))

    def add(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        return self._with_both(super().add(a, b), a, b, lambda x, y: x + y)

    def subtract(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        value = super().subtract(a, b)
        # The algebra made it as a sum, and noted the range of that.
        self._ranges.pop(value.identity, None)
        return self._with_both(value, a, b, lambda x, y: x - y)

    def multiply(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        return self._with_both(super().multiply(a, b), a, b, lambda x, y: x * y)

    def negate(self, a: DegreeValue) -> DegreeValue:
        found = self.known(a)
        return self._ranged(super().negate(a), None if found is None else (-found[1], -found[0]))

    def floor_divide(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        found, by = self.known(a), self.known(b)
        value = super().floor_divide(a, b)
        if found is None or by is None or by[0] != by[1] or by[0] <= 0:
            return value
        return self._ranged(value, (found[0] // by[0], found[1] // by[0]))

    def remainder(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        found, by = self.known(a), self.known(b)
        value = super().remainder(a, b)
        if by is None or by[0] != by[1] or by[0] <= 0:
            return value
        return self._ranged(
            value,
            found if found is not None and found[0] >= 0 and found[1] < by[0] else (0, by[0] - 1),
        )

    def maximum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        return self._with_both(super().maximum(a, b), a, b, max)

    def minimum(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        return self._with_both(super().minimum(a, b), a, b, min)

    # --- decisions
    def compare(self, comparison: Comparison, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        value = super().compare(comparison, a, b)
        first, second = self.known(a), self.known(b)
        decided = None
        if a.kind == "field":
            decided = compared_with_zero(comparison, a, b)
        elif a.kind == "int" and first is not None and second is not None:
            decided = _decided(comparison, first, second)
        return self._ranged(value, None if decided is None else (int(decided), int(decided)))

    def where(self, condition: DegreeValue, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        decided = self.known(condition)
        chosen = (
            (a, b)
            if decided is None or decided[0] != decided[1]
            else ((a,) if decided[0] else (b,))
        )
        return self._ranged(super().where(condition, a, b), self._any_of(*chosen))

    def logical_and(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        return self._ranged(super().logical_and(a, b), _both(self.known(a), self.known(b), 0))

    def logical_or(self, a: DegreeValue, b: DegreeValue) -> DegreeValue:
        return self._ranged(super().logical_or(a, b), _both(self.known(a), self.known(b), 1))

    def logical_not(self, a: DegreeValue) -> DegreeValue:
        found = self.known(a)
        return self._ranged(
            super().logical_not(a), None if found is None else (1 - found[1], 1 - found[0])
        )

    def cast(self, a: DegreeValue, kind: Kind) -> DegreeValue:
        found = self.known(a)
        value = super().cast(a, kind)
        if kind == "bool" and a.kind == "int" and found is not None:
            return self._ranged(value, (int(found[0] > 0 or found[1] < 0), int(found != (0, 0))))
        return self._ranged(value, found)

    # --- moved elements
    def reshape(self, a: DegreeValue, shape: Sequence[int]) -> DegreeValue:
        return self._ranged(super().reshape(a, shape), self.known(a))

    def transpose(self, a: DegreeValue, permutation: Sequence[int]) -> DegreeValue:
        return self._ranged(super().transpose(a, permutation), self.known(a))

    def expand(self, a: DegreeValue, shape: Sequence[int]) -> DegreeValue:
        return self._ranged(super().expand(a, shape), self.known(a))

    def slice(self, a: DegreeValue, axis: int, start: int, stop: int, step: int = 1) -> DegreeValue:
        return self._ranged(super().slice(a, axis, start, stop, step), self.known(a))

    def concatenate(self, values: Sequence[DegreeValue], axis: int) -> DegreeValue:
        return self._ranged(super().concatenate(values, axis), self._any_of(*values))

    def take_along(self, a: DegreeValue, axis: int, indices: DegreeValue) -> DegreeValue:
        return self._ranged(super().take_along(a, axis, indices), self.known(a))

    def gather(self, a: DegreeValue, index: Any) -> DegreeValue:
        return self._ranged(super().gather(a, index), self.known(a))

    def stack(self, a: DegreeValue, index: Any) -> DegreeValue:
        return self._ranged(super().stack(a, index), self.known(a))

    def join(
        self, parts: Sequence[DegreeValue], counts: Sequence[int] | None = None
    ) -> DegreeValue:
        return self._ranged(super().join(parts, counts), self._any_of(*parts))


def _both(a: Range | None, b: Range | None, absorbing: int) -> Range | None:
    """Return the range of a conjunction (``absorbing`` 0) or disjunction (1) of booleans."""
    if (absorbing, absorbing) in (a, b):
        return absorbing, absorbing
    return (1 - absorbing, 1 - absorbing) if a == b == (1 - absorbing, 1 - absorbing) else None


def _decided(comparison: Comparison, a: Range, b: Range) -> bool | None:
    """Return the outcome of a comparison of all values in two ranges; None if outcomes differ."""
    if comparison in ("eq", "ne"):
        equal = (
            False if a[1] < b[0] or b[1] < a[0] else True if a[0] == a[1] == b[0] == b[1] else None
        )
        return equal if equal is None or comparison == "eq" else not equal
    if comparison in ("lt", "ge"):
        less = True if a[1] < b[0] else False if a[0] >= b[1] else None
        return less if less is None or comparison == "lt" else not less
    return (
        None
        if (greater := _decided("lt", b, a)) is None
        else greater
        if comparison == "gt"
        else not greater
    )
