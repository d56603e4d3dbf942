"""Gradients of pooling: each number goes to the element that its window selects."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.elementwise import chosen
from pitcheck.frontends.xla.lowering.reductions import is_neutral, of_two
from pitcheck.frontends.xla.lowering.regions.of_two import reduction_in
from pitcheck.frontends.xla.lowering.regions.terms import Terms
from pitcheck.frontends.xla.lowering.structure import padded, sliced, spread
from pitcheck.frontends.xla.lowering.windows.window_reductions import placements, window_of
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.frontends.xla.text.values import Pad, WindowDimension

MOST_SELECTED = 256
"""The elements of a window that are selected from one by one."""


def selections(b: Building, instruction: Instruction, operands: Sequence[Array]) -> Array | None:
    """Return numbers added where windows select; None if the opcode is another.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for operands that do not fit together.
    """
    if instruction.opcode != "select-and-scatter":
        return None
    x, source, zero = operands
    window = window_of(b, instruction, x.rank)
    _check(b, operands, window)
    select, scatter = (b.module.computations[name] for name in instruction.calls)
    if reduction_in(b.module, scatter) != "add" or not is_neutral("add", zero):
        raise unsupported(b, "select-and-scatter that does not add from 0")
    terms = Terms()
    kept = terms.result(select)
    sides = terms.parameter(0), terms.parameter(1)
    comparisons = {terms.compare(d, *sides): d.lower() for d in ("GE", "GT", "LE", "LT")}
    if kept not in comparisons:
        raise unsupported(b, f"a selection by {select.name} (line {select.line})")
    places = [*product(*(range(each.size) for each in window))]
    parts = [_part(b, x, window, source, place) for place in places]
    total: Array | None = None
    for place, here in zip(places, _selected(b, parts, comparisons[kept]), strict=True):
        wide = spread(b, zero, (), source.sizes)
        number = source if here is None else chosen(b, source.shape, here, source, wide)
        back = _put_back(b, number, window, place, x.sizes, zero)
        total = back if total is None else of_two(b, "add", total, back)
    if total is None:
        raise PlanError("select-and-scatter has an empty window", b.place)
    return total


def _check(b: Building, operands: Sequence[Array], window: Sequence[WindowDimension]) -> None:
    """Raise an error unless there is a number for each place of a window without padding."""
    x, source, zero = operands
    element = x.shape.element
    if {source.shape.element, zero.shape.element} != {element} or zero.rank:
        raise PlanError(
            f"select-and-scatter of {x.shape}, {source.shape} and {zero.shape}", b.place
        )
    if any(each.low or each.high for each in window):
        raise unsupported(b, "select-and-scatter with padding")
    if any(each.base_dilation != 1 or each.window_dilation != 1 for each in window):
        raise unsupported(b, "select-and-scatter with a dilation")
    counts = tuple(placements(b, size, w) for size, w in zip(x.sizes, window, strict=True))
    if source.sizes != counts:
        raise PlanError(f"a window has {list(counts)} places, and {source.shape} numbers", b.place)
    if element is ElementType.PRED or prod(each.size for each in window) > MOST_SELECTED:
        raise unsupported(b, f"a selection of more than {MOST_SELECTED} elements, or of truths,")


def _part(
    b: Building, x: Array, window: Sequence[WindowDimension], source: Array, place: tuple[int, ...]
) -> Array:
    """Return the element of each window that is at one place of it."""
    for axis, (first, each) in enumerate(zip(place, window, strict=True)):
        reach = (source.sizes[axis] - 1) * each.stride + 1
        x = sliced(b, x, axis, first, first + reach, each.stride)
    return x


def _selected(b: Building, parts: Sequence[Array], keeps: str) -> list[Array | None]:
    """Return for each place of a window where it is selected; None if it is the only one.

    One element after the other is compared with the one that is selected so far.
    """
    truths = ArrayShape(ElementType.PRED, parts[0].sizes)
    best, stays = parts[0], []
    for part in parts[1:]:
        stay = b.array(keeps, (best.name, part.name), truths)
        best = chosen(b, best.shape, stay, best, part)
        stays.append(stay)
    found: list[Array | None] = []
    later: Array | None = None
    for stay in reversed(stays):
        taken = b.array("logical_not", (stay.name,), truths)
        if later is None:
            found.append(taken)
            later = stay
        else:
            found.append(b.array("logical_and", (taken.name, later.name), truths))
            later = b.array("logical_and", (stay.name, later.name), truths)
    return [later, *reversed(found)]


def _put_back(
    b: Building,
    number: Array,
    window: Sequence[WindowDimension],
    place: tuple[int, ...],
    sizes: tuple[int, ...],
    zero: Array,
) -> Array:
    """Return an array with a number at one place of each window, and zeros elsewhere."""
    for axis, (first, each) in enumerate(zip(place, window, strict=True)):
        reach = (number.sizes[axis] - 1) * each.stride + 1
        pad = Pad(first, sizes[axis] - first - reach, each.stride - 1)
        number = padded(b, number, axis, pad, zero)
    return number
