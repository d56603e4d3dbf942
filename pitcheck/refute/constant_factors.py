"""Numbers that a run computes from constants alone, such as a count of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.stage.evaluate import Evaluated

MOST_FACTORS = 4
"""The most numbers that are taken; each is one more factor with which values are looked up."""
LARGEST = 1 << 40


def constant_factors(evaluated: Evaluated) -> list[Fraction]:
    """Return whole numbers above 1 that either plan computes as one element, the same in all draws.

    One plan may divide by the number of tokens at the end, the other one at the beginning. All that
    lies between then differs by this factor. The inverses follow the numbers.
    """
    found = dict.fromkeys((*_counts(evaluated.reference), *_counts(evaluated.parallel)))
    numbers = [Fraction(number) for number in list(found)[:MOST_FACTORS]]
    return [*numbers, *(1 / number for number in numbers)]


def _counts(values: Mapping[int, Any]) -> Iterator[int]:
    for value in values.values():
        if value.kind == "field":
            number = _constant(np.asarray(value.data))
            if number is not None:
                yield number


def _constant(data: np.ndarray[Any, Any]) -> int | None:
    """Return the number of a tensor of shape (1, trials, rows, *shape) with one element per row."""
    if data.ndim < 3 or data.size != data.shape[1] * data.shape[2] or data.shape[1] < 2:
        return None
    first = float(data.flat[0])
    if not 1 < first < LARGEST or not first.is_integer() or not (data == first).all():
        return None
    return int(first)
