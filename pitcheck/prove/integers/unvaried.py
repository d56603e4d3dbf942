"""Parts of computed integers that are the same in all draws.

Of a count over 9,000 places draws meet a few. If the place 2331 alone is read, 0 was compared with
0: what was never seen to change was never compared.

>>> first, other = np.zeros((2, 1, 3)), np.array([[[0, 0, 0]], [[0, 1, 0]]])
>>> where = np.ones((1, 3), dtype=np.bool_)
>>> varied(first, first[:1], where).tolist(), varied(other, first[:1], where).tolist()
([False], [True])
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.value import Value
from pitcheck.errors import PitcheckError
from pitcheck.ops.registry import has_trait, operator_kind
from pitcheck.ops.traits import Trait
from pitcheck.prove.integers.cone import Cone, Side, picks
from pitcheck.prove.integers.sourced import FOREIGN, HARD, SourcedAlgebra, codes_of, element_of
from pitcheck.stage.batch import Argument, Step
from pitcheck.stage.drawn_inputs import draw

LOOKS = range(16)
"""The draws in which a part may be the same by chance. Parts that are get draws of their own, or
must be seen to change in others.
"""

Bools = NDArray[np.bool_]
Values = dict[int, Value]
Found = tuple[dict[int, Bools], dict[int, Bools]]
"""By value of either side, the elements that drawn integers may change, (instances, *shape)."""


def with_unvaried(
    cone: Cone, sources: tuple[Values, Values]
) -> tuple[Cone, tuple[Values, Values], Found]:
    """Return a cone and its sources in which integers decide parts that are the same in all draws.

    Such parts are sinks of the cone, and are returned, too.
    """
    found = unvaried(cone, sources)
    if not any(found):
        return cone, sources, found
    sides, coded = [], []
    for side, values, own in zip(cone.sides, sources, found, strict=True):
        sides.append(side.with_sinks(own))
        coded.append({**values, **{value: _made_hard(values[value]) for value in own}})
    return replace(cone, sides=(sides[0], sides[1])), (coded[0], coded[1]), found


def unvaried(cone: Cone, sources: tuple[Values, Values]) -> Found:
    """Return the parts of computed integers that are the same in some draws of the inputs."""
    sides = list(zip(cone.sides, sources, strict=True))
    if not any(_parts(side, values, None) for side, values in sides):
        return {}, {}
    algebra = SourcedAlgebra(LOOKS)
    try:
        seen = cone.run(algebra, drawn_of(cone, algebra))
    except PitcheckError:
        seen = None
    first, second = (
        _unvaried(side, values, None if seen is None else seen[number])
        for number, (side, values) in enumerate(sides)
    )
    return first, second


def _unvaried(side: Side, sources: Values, seen: Values | None) -> dict[int, Bools]:
    """Return the parts of a side that are the same in the draws that were ``seen``."""
    parts = {
        value: where
        for value in _parts(side, sources, seen)
        if (where := _drawn(sources[value])).any()
    }
    return parts if seen is None else still(parts, seen)


def drawn_of(cone: Cone, algebra: Any) -> dict[int, Value]:
    """Return the discrete inputs of a cone in the draws of an algebra."""
    fresh = cone.shaped.fresh
    return {
        value: draw(algebra, one)
        for value, one in fresh.items()
        if one.kind != "field" or one.numbers
    }


def still(
    parts: Mapping[int, Bools], values: Mapping[int, Value], firsts: Mapping[int, Any] | None = None
) -> dict[int, Bools]:
    """Return the parts that do not change in some draws, without the instances that do.

    ``firsts``: what they held in a draw before these, shapes (1, instances, *shape).
    """
    found = {}
    for value, where in parts.items():
        data = values[value].data[0]
        same = ~varied(data, data[:1] if firsts is None else firsts[value], where)
        left = where & same.reshape(-1, *(1,) * (where.ndim - 1))
        if left.any():
            found[value] = left
    return found


def varied(data: Any, first: Any, where: Bools) -> Bools:
    """Return in which instances numbers, shape (draws, instances, *shape), are others somewhere.

    ``first`` are numbers of one draw, with which they are compared.
    """
    changes = np.logical_and((data != first).any(axis=0), where)
    result: Bools = changes.reshape(len(where), -1).any(axis=1)
    return result


def _parts(side: Side, sources: Values, seen: Values | None) -> list[int]:
    """Return the values of a side that fixed places or factors make of one that changes."""
    found = []
    for step, attributes in _steps(side):
        drawn = {v for v in _read(step) if _drawn(sources[v]).any()}
        if len(drawn) == 1 and _chooses(step, attributes, drawn, sources):
            (value,) = drawn
            if seen is None or not still({value: _drawn(sources[value])}, seen):
                found += [output for output in step.outputs if output is not None]
    return found


def _chooses(
    step: Step, attributes: Mapping[str, Any], drawn: Collection[int], sources: Values
) -> bool:
    """Return True if a step picks places, or multiplies by fixed numbers of which some are 0."""
    read = _read(step)
    if picks(step, attributes):
        conditions = [step.inputs[place] for place in operator_kind(step.kind).conditions]
        # An index or a condition that is drawn chooses places itself: they are not fixed.
        return (
            not any(isinstance(each, Argument) and each.value in drawn for each in conditions)
            if conditions
            else read[0] in drawn
        )
    fixed = (sources[value] for value in read if value not in drawn)
    return has_trait(step.kind, Trait.MULTILINEAR, attributes) and any(
        bool((value.data == 0).any()) for value in fixed
    )


def _steps(side: Side) -> Iterator[tuple[Step, Mapping[str, Any]]]:
    """Yield the steps of a side with their attributes, also those that show what is reached."""
    yield from zip(side.batch.steps, side.attributes, strict=True)
    if side.reached is not None:
        yield from zip(side.reached.batch.steps, side.reached.attributes, strict=True)


def _read(step: Step) -> list[int]:
    return [argument.value for argument in step.looked_into]


def _drawn(value: Value) -> Bools:
    """Return where a value depends on drawn integers, shape (instances, *shape)."""
    codes = codes_of(value)
    if codes is None:
        return np.zeros(value.data.shape[2:], dtype=np.bool_)
    element = element_of(codes[0, 0])
    where: Bools = (element > 0) & (element < FOREIGN)
    return where


def _made_hard(value: Value) -> Value:
    """Return a value with the codes of one that a computed integer decides."""
    codes = codes_of(value)
    if codes is None:
        return value
    return replace(value, special=np.where(element_of(codes) == 0, 0, codes | HARD))
