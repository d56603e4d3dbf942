"""Draws that show each pair of the values by which two integers decide.

Where i = 5 and j > 3 decide together, another plan may have j > 4: both differ where i is 5 and j
is 4, and nowhere else. The marked values of an integer are those on both sides of each border at
which a comparison changes. So of every two elements each pair of marked values is looked for among
many draws, which costs little, and the draws are named that show pairs which no draw before had.
The same is done for three tensors if they have few values.

>>> flags = Fresh("flags", (2,), "bool")
>>> classes(flags, np.array([[False, True]])).tolist()
[[0, 1]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.prove.integers.cone import discrete_cone
from pitcheck.prove.integers.joint import (
    MOST_CELLS,
    MOST_WORDS,
    decides,
    outcomes,
    pairs_of,
    telling,
)
from pitcheck.stage.drawn_inputs import FIRST_MIXED, discrete, mixed_numbers
from pitcheck.stage.inputs import Fresh
from pitcheck.stage.shaped_stage import ShapedStage

TIMES = 16
"""The times that each pair comes about on average among the draws that are looked at."""
LEAST, MOST = 64, 8192
"""The draws that are looked at."""
MOST_CLASSES = 48
"""The values of an integer, all others together being one, up to which pairs are looked for."""
MOST_TRIPLES = 512
"""The values of three tensors together up to which they are looked for."""
MOST_INPUTS = 8
"""The tensors of integers and booleans of which every two are looked at."""

Classes = NDArray[np.int64]


def paired_draws(shaped: ShapedStage, seed: int, known: int, most: int) -> list[int]:
    """Return at most ``most`` draws of a stage that have new pairs of values of two integers.

    ``known`` is the number of draws that are made anyway, the first ones.
    """
    inputs = _inputs(shaped)
    if not inputs or (len(inputs) == 1 and prod(inputs[0].shape) == 1):
        return []
    draws = _looked_at(inputs, known)
    conditions = [
        _Condition(classes(each, discrete(each, seed, draws)), _count(each)) for each in inputs
    ]
    seen, left = [], MOST_WORDS
    for one, two in _together(conditions):
        left -= len(draws) * 2 * one.many * two.many + max(one.held.size, two.held.size)
        if left >= 0:
            seen.append(outcomes(one.held, two.held, (one.many, two.many)))
    told = telling(np.concatenate(seen, axis=1), known, most) if seen else []
    return [draws[each] for each in told]


def _inputs(shaped: ShapedStage) -> list[Fresh]:
    """Return the tensors of integers and booleans that have few values by which they decide.

    Return none if integers are indices as they are drawn, and nothing else.
    """
    cone = discrete_cone(shaped)
    if cone is None or not any(map(decides, cone.sides)):
        return []
    inputs = [shaped.fresh[value] for value in cone.drawn][:MOST_INPUTS]
    return [each for each in inputs if 1 < _count(each) <= MOST_CLASSES]


class _Condition(NamedTuple):
    """The classes of a tensor's elements, shape (draws, instances, *shape), and their number."""

    held: Classes
    many: int


def _together(conditions: Sequence[_Condition]) -> Iterator[tuple[_Condition, _Condition]]:
    """Yield every two conditions, then every two as one with a third one.

    Smaller ones stand for as many elements as larger ones have.
    """
    for first, second in combinations_with_replacement(conditions, 2):
        yield from _aligned(first, second)
    for first, second, third in combinations(conditions, 3):
        if first.many * second.many * third.many <= MOST_TRIPLES:
            for one, two in _aligned(first, second):
                both = _Condition(one.held * two.many + two.held, one.many * two.many)
                yield from _aligned(both, third)


def _aligned(one: _Condition, two: _Condition) -> Iterator[tuple[_Condition, _Condition]]:
    """Yield both with as many dimensions; nothing if their elements do not correspond."""
    for first, second in pairs_of(one.held, two.held):
        yield one._replace(held=first), two._replace(held=second)


def classes(fresh: Fresh, drawn: NDArray[Any]) -> Classes:
    """Return for each element which of the values that decide it is, as a number from 0 on.

    All other integers are one class, the last.
    """
    if fresh.kind == "bool":
        return drawn.astype(np.int64)
    numbers = _numbers(fresh)
    at = np.minimum(np.searchsorted(numbers, drawn), len(numbers) - 1)
    return np.where(numbers[at] == drawn, at, len(numbers))


def _numbers(fresh: Fresh) -> Classes:
    """Return the integers that decide: those that draws mix, or all if there are none of them."""
    numbers = mixed_numbers(fresh)
    low, high = fresh.bounds or (0, 2)
    return numbers if len(numbers) else np.arange(low, min(high, low + MOST_CLASSES))


def _count(fresh: Fresh) -> int:
    """Return the number of classes of the elements of a tensor."""
    return 2 if fresh.kind == "bool" else len(_numbers(fresh)) + 1


def _looked_at(inputs: Sequence[Fresh], known: int) -> list[int]:
    """Return the draws among which pairs are looked for: the first ones, and mixed ones."""
    counts = sorted((_count(each) for each in inputs), reverse=True)
    elements = sum(prod(each.shape) for each in inputs)
    rarest = counts[0] * counts[min(1, len(counts) - 1)]
    if len(counts) > 2:
        rarest = max(rarest, min(rarest * counts[2], MOST_TRIPLES))
    fewest = min(prod(each.shape) for each in inputs)
    mixed = min(max(LEAST, TIMES * rarest // fewest), MOST, MOST_CELLS // elements)
    return [*range(known), *range(FIRST_MIXED, FIRST_MIXED + mixed)]
