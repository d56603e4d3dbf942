"""Sorted arrays, what is put into the order of others, and the greatest elements.

XLA sorts by a computation that says if one element stands before another. It is recognised by its
instructions: keys that are compared one after the other, upwards or downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, Tuple, Value
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.regions.terms import Terms
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, TupleShape
from pitcheck.plan.model import Attribute


@dataclass(frozen=True)
class _Key:
    """An operand that decides the order, unless those before it do."""

    operand: int
    descending: bool


def ordered(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Value | None:
    """Return sorted arrays, or the greatest elements with their places; None for other opcodes.

    Raises:
        UnsupportedError: for an order that is not recognised, or that XLA leaves open.
        PlanError: for arrays that do not fit together.
    """
    if instruction.opcode == "sort":
        return _sorted(b, instruction, operands)
    if instruction.opcode == "topk":
        return _greatest(b, instruction, operands[0])
    return None


# --- sort
def _sorted(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Value:
    axes = instruction.integers("dimensions")
    sizes = operands[0].sizes
    if len(axes) != 1 or axes[0] >= len(sizes) or any(x.sizes != sizes for x in operands):
        raise PlanError(
            f"sort of {', '.join(str(x.shape) for x in operands)} along {list(axes)}", b.place
        )
    keys = _keys(b, instruction, operands)
    stable = instruction.get("is_stable", False)
    if not stable and {key.operand for key in keys} != {*range(len(operands))}:
        raise unsupported(b, "a sort that is not stable, of more than its keys,")
    axis = axes[0]
    first = keys[0]
    place: Array | None = None
    values = operands[first.operand]
    for key in reversed(keys):
        column = operands[key.operand]
        moved = column if place is None else _taken(b, column, place, axis)
        values, order = _order(b, moved, axis, key.descending)
        place = order if place is None else _taken(b, place, order, axis)
    found = []
    for number, x in enumerate(operands):
        if place is None or (number == first.operand and x.shape.element is not ElementType.PRED):
            found.append(values)
        else:
            found.append(_taken(b, x, place, axis))
    return Tuple(tuple(found)) if isinstance(instruction.shape, TupleShape) else found[0]


def _order(b: Building, x: Array, axis: int, descending: bool) -> tuple[Array, Array]:
    """Return sorted elements and their places; equal ones keep their order."""
    places = ArrayShape(ElementType.S64, x.sizes)
    if x.shape.element is ElementType.PRED:
        whole = ArrayShape(ElementType.S32, x.sizes)
        x = b.array("cast", (x.name,), whole, {"dtype": "int32"}, span=(0, 2))
    attributes: dict[str, Attribute] = {"axis": axis, "descending": descending}
    spans = x.span, (0, max(x.sizes[axis], 1))
    values, order = b.several("sort", (x.name,), (x.shape, places), attributes, spans)
    return values, order


def _taken(b: Building, x: Array, place: Array, axis: int) -> Array:
    """Return the elements of ``x`` at places along an axis."""
    return b.array("gather", (x.name, place.name), x.shape, {"axis": axis}, span=x.span)


def _keys(b: Building, instruction: Instruction, operands: Sequence[Array]) -> list[_Key]:
    """Return the keys that the computation of a sort compares, the first that decides first.

    Raises UnsupportedError for a computation that is none of these.
    """
    computation = b.module.computations[instruction.calls[0]]
    terms = Terms()
    left = terms.result(computation)
    pairs = [_compared(terms, number, x) for number, x in enumerate(operands)]
    keys: list[_Key] = []
    while True:
        key, left = _next_key(terms, left, pairs)
        if key is None:
            raise unsupported(
                b,
                f"a sort by {computation.name} (line {computation.line}), which is no order of "
                f"its operands,",
            )
        keys.append(key)
        if left < 0:
            return keys


@dataclass(frozen=True)
class _Pair:
    """The elements that a computation compares, of one operand, and how it does."""

    first: int
    second: int
    order: str


def _compared(terms: Terms, number: int, x: Array) -> tuple[_Pair, ...]:
    """Return the ways in which elements of an operand are compared.

    JAX compares floating-point numbers in total order, once 0 stands for -0, and one number that is
    none for all of these. In total order as they are, -0 would stand before 0.
    """
    sides = terms.parameter(2 * number), terms.parameter(2 * number + 1)
    if x.shape.element in NUMPY:
        return _Pair(*sides, ""), _Pair(*sides, "TOTALORDER")
    zero, none = terms.constant("0"), terms.constant("Special.NAN")
    first, second = (
        terms.choice(
            terms.compare("NE", side, side),
            none,
            terms.choice(terms.compare("EQ", side, zero), zero, side),
        )
        for side in sides
    )
    return _Pair(*sides, ""), _Pair(first, second, "TOTALORDER")


def _next_key(
    terms: Terms, term: int, pairs: Sequence[tuple[_Pair, ...]]
) -> tuple[_Key | None, int]:
    """Return the key that a term compares first, and the term for equal keys; -1 if none is left.

    The key is None if it compares something else.
    """
    whole = terms.key(term)
    for number, ways in enumerate(pairs):
        for pair in ways:
            equal = terms.compare("EQ", pair.first, pair.second, pair.order)
            for direction in ("LT", "GT"):
                before = terms.compare(direction, pair.first, pair.second, pair.order)
                key = _Key(number, direction == "GT")
                if term == before:
                    return key, -1
                if whole[0] == "or" and before in whole[1:]:
                    other = next((int(each) for each in whole[1:] if each != before), before)
                    rest = terms.key(other)
                    if rest[0] == "and" and equal in rest[1:]:
                        return key, next((int(n) for n in rest[1:] if n != equal), equal)
    return None, -1


# --- greatest elements
def _greatest(b: Building, instruction: Instruction, x: Array) -> Tuple:
    """Return the greatest or the least elements along the last dimension, and their places."""
    count = instruction.get("k", 0)
    if not x.rank or not 0 < count <= x.sizes[-1]:
        raise PlanError(f"topk of {count} elements of {x.shape}", b.place)
    if x.shape.element is ElementType.PRED:
        raise unsupported(b, "topk of truths")
    sizes = (*x.sizes[:-1], count)
    shapes = ArrayShape(x.shape.element, sizes), ArrayShape(ElementType.S32, sizes)
    largest = instruction.get("largest", True)
    attributes: dict[str, Attribute] = {"k": count, "axis": x.rank - 1, "largest": largest}
    spans = x.span, (0, x.sizes[-1])
    return Tuple(tuple(b.several("topk", (x.name,), shapes, attributes, spans)))
