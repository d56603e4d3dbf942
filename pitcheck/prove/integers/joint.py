"""Draws that show joint outcomes of conditions by integers.

The conditions i = 7 and j = 9 may decide together what a plan needs, by one operator or by several.
Draws hold either often, and both seldom. So many draws of the integers alone are looked at, which
costs little, and those are named in which two conditions have outcomes that no draw before had.

>>> seen = np.array([[[True, False]], [[True, False]], [[False, True]], [[True, True]]])
>>> telling(seen.reshape(4, 2), known=1, most=8)
[2]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PitcheckError
from pitcheck.prove.integers.cone import Cone, Side, discrete_cone
from pitcheck.prove.integers.sourced import SourcedAlgebra
from pitcheck.prove.integers.unvaried import drawn_of
from pitcheck.stage.drawn_inputs import FIRST_MIXED
from pitcheck.stage.shaped_stage import ShapedStage

LOOKED_AT = 256
"""The draws of mixed integers among which joint outcomes are looked for."""
MOST_CELLS = 1 << 20
"""The elements of the largest value, over all draws that are looked at."""
MOST_WORDS = 1 << 25
"""The elements of all pairs of conditions, over all draws."""
MOST_DRAWS = 16
"""The draws that are named at most."""
FEW = 16
"""The different numbers up to which a value is taken for a condition."""
MOST_CONDITIONS = 24
"""The conditions of a side of which every two are looked at."""
MOST_PAIRED = 1 << 14
"""The elements that two conditions of different shapes may have together."""

Bools = NDArray[np.bool_]
Outcomes = NDArray[np.int64]


def joint_draws(shaped: ShapedStage, seed: int, known: int) -> list[int]:
    """Return further draws of a stage in which conditions have joint outcomes that are new.

    ``known`` is the number of draws that are made anyway, the first ones.
    """
    cone = discrete_cone(shaped)
    if cone is None or not any(map(decides, cone.sides)):
        return []
    cone = cone.without_places()
    mixed = min(LOOKED_AT, MOST_CELLS // _largest(shaped, cone) - known)
    if mixed <= 0:
        return []
    draws = [*range(known), *range(FIRST_MIXED, FIRST_MIXED + mixed)]
    algebra = SourcedAlgebra(draws, seed)
    try:
        values = cone.run(algebra, drawn_of(cone, algebra))
    except PitcheckError:
        return []
    seen, left = [], MOST_WORDS
    for side, own in zip(cone.sides, values, strict=True):
        for one, two in _pairs(list(_conditions(side, own, len(draws)))):
            left -= max(one.size, two.size)
            if left >= 0:
                seen.append(outcomes(one, two))
    found = telling(np.concatenate(seen, axis=1), known, MOST_DRAWS) if seen else []
    return [draws[each] for each in found]


def decides(side: Side) -> bool:
    """Return True if integers decide on a side, rather than being indices as they are drawn."""
    kinds = {side.batch.graph.values[value].kind for value in side.sinks}
    return bool(kinds) and (bool(side.batch.steps) or "bool" in kinds)


def _largest(shaped: ShapedStage, cone: Cone) -> int:
    """Return the elements of the largest value that integers make, in one draw."""
    sizes = (
        step.count * prod(shapes[output])
        for side, shapes in zip(cone.sides, shaped.shapes, strict=True)
        for step in side.batch.steps
        for output in step.outputs
        if output is not None and output in shapes
    )
    return max((1, *sizes))


def telling(seen: Bools, known: int, most: int) -> list[int]:
    """Return draws that have an outcome which those before lack, the most telling ones first.

    ``seen`` says which draws have which outcomes, shape (draws, outcomes). Nothing is returned that
    the first ``known`` draws have.
    """
    left = seen[:, ~seen[:known].any(axis=0)]
    found: list[int] = []
    while left.any() and len(found) < most:
        found.append(int(left.sum(axis=1).argmax()))
        left = left[:, ~left[found[-1]]]
    return found


def _conditions(side: Side, values: dict[int, Any], count: int) -> Iterator[Outcomes]:
    """Yield the outcomes of the conditions of a side, shape (draws, instances, *shape).

    They are the values that others read, if they have few different numbers.
    """
    for value in list(side.sinks)[:MOST_CONDITIONS]:
        data = values[value].data[0]
        if len(data) != count:
            continue  # the same in all draws
        numbers, which = np.unique(data, return_inverse=True)
        if 1 < len(numbers) <= FEW:
            yield which.reshape(data.shape).astype(np.int64)


def _pairs(conditions: list[Outcomes]) -> Iterator[tuple[Outcomes, Outcomes]]:
    """Yield every two conditions, with as many dimensions; each with itself."""
    for one, two in combinations_with_replacement(conditions, 2):
        yield from pairs_of(one, two)


def pairs_of(one: Outcomes, two: Outcomes) -> Iterator[tuple[Outcomes, Outcomes]]:
    """Yield two conditions with as many dimensions; nothing if their elements do not correspond.

    Smaller ones stand for as many elements as larger ones have.
    """
    rank = max(one.ndim, two.ndim)
    first, second = (
        a.reshape(*a.shape[:2], *(1,) * (rank - a.ndim), *a.shape[2:]) for a in (one, two)
    )
    try:
        shape = np.broadcast_shapes(first.shape[1:], second.shape[1:])
    except ValueError:
        return
    if one.shape == two.shape or prod(shape) <= MOST_PAIRED:
        yield first, second


def outcomes(one: Outcomes, two: Outcomes, few: tuple[int, int] = (FEW, FEW)) -> Bools:
    """Return which joint outcomes two conditions have, shape (draws, outcomes).

    First those of one element, then those of two different elements: what is decided at one place
    may be added to what is decided at another. The conditions have up to ``few`` outcomes.
    """
    number = np.arange(len(one))[:, None] * few[0] * few[1]
    words = (one * few[1] + two).reshape(len(one), -1) + number
    counts = np.bincount(words.ravel(), minlength=len(one) * few[0] * few[1])
    together = counts.reshape(len(one), *few)
    first, second = together.sum(axis=2)[:, :, None], together.sum(axis=1)[:, None, :]
    elsewhere = (first > 0) & (second > 0) & (first + second - together > 1)
    found = np.stack([together > 0, elsewhere], axis=1).reshape(len(one), -1)
    return found[:, found.any(axis=0)]
