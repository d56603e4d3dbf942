"""Known ranges of integers decide a condition that holds for all integers in them, or for none.

Plans with such conditions are files (tests/attacks/data/decisions).
"""

from __future__ import annotations

import itertools
import operator

from hypothesis import given
from hypothesis import strategies as st

from pitcheck.prove.known_ranges import _decided

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@given(*[st.integers(-3, 3)] * 4, st.sampled_from(sorted(COMPARISONS)))
def test_what_is_decided_is_so_for_all(a: int, b: int, c: int, d: int, name: str) -> None:
    first, second = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    pairs = itertools.product(range(first[0], first[1] + 1), range(second[0], second[1] + 1))
    outcomes = {COMPARISONS[name](x, y) for x, y in pairs}
    assert _decided(name, first, second) == (outcomes.pop() if len(outcomes) == 1 else None)  # type: ignore[arg-type]
