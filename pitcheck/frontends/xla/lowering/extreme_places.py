"""Reductions of an array together with one of places: an extremum, and the place where it is.

Of equal extrema the least place is the result, wherever it stands. So the places need not count
up, as those of shards that are put together do not have to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Tuple
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.elementwise import chosen
from pitcheck.frontends.xla.lowering.reductions import is_neutral, of_two, over
from pitcheck.frontends.xla.lowering.regions.terms import Terms
from pitcheck.frontends.xla.lowering.spans import decided
from pitcheck.frontends.xla.lowering.structure import spread
from pitcheck.frontends.xla.text.module import Computation, Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, TupleShape

_BETTER: Mapping[str, str] = MappingProxyType({"maximum": "GT", "minimum": "LT"})


def extreme_with_place(
    b: Building, instruction: Instruction, operands: Sequence[Array]
) -> Tuple | None:
    """Return an extremum over some dimensions and the least of its places.

    None if the opcode is another, or if one array is reduced.

    Raises:
        UnsupportedError: for other reductions of several arrays.
        PlanError: for operands that do not fit together.
    """
    if instruction.opcode != "reduce" or not isinstance(instruction.shape, TupleShape):
        return None
    operator = _operator(b.module.computations[instruction.calls[0]])
    if operator is None or len(operands) != 4:
        raise unsupported(
            b, "a reduction of several arrays that is no extremum with the least of its places"
        )
    x, places, start, first = operands
    _check(b, operands)
    if not is_neutral(operator, start):
        raise unsupported(b, "an extremum with its place, from a number that is not neutral,")
    axes = instruction.integers("dimensions")
    kept = tuple(d for d in range(x.rank) if d not in axes)
    sizes = tuple(x.sizes[d] for d in kept)
    extreme = over(b, x, ArrayShape(x.shape.element, sizes), operator, axes)
    here = _equal(b, x, spread(b, extreme, kept, x.sizes))
    place = _least(b, here, places, axes, sizes)
    return Tuple((extreme, _with_start(b, extreme, place, start, first)))


def _operator(computation: Computation) -> str | None:
    """Return the extremum that a computation of two pairs is; None if it is none."""
    terms = Terms()
    found = terms.result(computation)
    x, i, y, j = map(terms.parameter, range(4))
    equal = terms.both(terms.compare("EQ", x, y), terms.compare("LT", i, j))
    for operator, direction in _BETTER.items():
        better = terms.compare(direction, x, y)
        # A number that is none is unequal to itself, and is passed on.
        for wins in (better, terms.either(better, terms.compare("NE", x, x))):
            value = terms.choice(wins, x, y)
            place = terms.choice(terms.either(wins, equal), i, j)
            if found == terms.of("tuple", value, place):
                return operator
    return None


def _check(b: Building, operands: Sequence[Array]) -> None:
    """Raise an error unless places of an array are given, and numbers to begin at."""
    x, places, start, first = operands
    fits = (
        places.sizes == x.sizes
        and start.shape == ArrayShape(x.shape.element, ())
        and first.shape == ArrayShape(places.shape.element, ())
    )
    if not fits:
        raise PlanError(
            f"reduce of {x.shape} and {places.shape} from {start.shape} and {first.shape}", b.place
        )
    if not places.is_integer or x.shape.element is ElementType.PRED:
        raise unsupported(b, f"an extremum of {x.shape.element} with a {places.shape.element}")


def _equal(b: Building, first: Array, second: Array) -> Array:
    """Return truths: where two arrays are equal."""
    shape = ArrayShape(ElementType.PRED, first.sizes)
    if first.known is not None and second.known is not None and b.computes(shape, first, second):
        return b.known(shape, np.equal(first.known, second.known))
    answer = decided("EQ", first.span, second.span) if first.is_integer else None
    if answer is not None:
        rows = np.full((1, *shape.dimensions), answer)
        return b.known(shape, rows)
    return b.array("eq", (first.name, b.operand(second)), shape)


def _least(
    b: Building, here: Array, places: Array, axes: tuple[int, ...], sizes: tuple[int, ...]
) -> Array:
    """Return the least place at which a condition holds; it does at one at least."""
    most = places.span[1] - 1 if places.span is not None else 0
    element = places.shape.element
    filler = spread(b, b.scalar(element, most), (), places.sizes)
    left = chosen(b, places.shape, here, places, filler)
    return over(b, left, ArrayShape(element, sizes), "minimum", axes)


def _with_start(b: Building, extreme: Array, place: Array, start: Array, first: Array) -> Array:
    """Return the least place, that of the number that a reduction begins at among them.

    It counts where the extremum is this number, infinity, of which all elements are equal then.
    """
    sizes = place.sizes
    wide = spread(b, first, (), sizes)
    least = first.uniform
    if isinstance(least, int) and place.within(least, least + 1):
        return place
    infinite = _equal(b, extreme, spread(b, start, (), sizes))
    return chosen(b, place.shape, infinite, of_two(b, "minimum", place, wide), place)
