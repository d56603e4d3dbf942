"""Places of counts and one-hot vectors that few integers reach.

Draws meet a few of thousands of places. A plan that reads one place alone, or gives it a weight of
its own, is compared there only if some draw reaches it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from attacks.integer_pairs import (
    COUNT,
    Formula,
    Ints,
    Made,
    differ,
    filled,
    flipped,
    number,
    ones,
    plan,
    total,
    verdict,
    where,
)
from attacks.pairs import found

BOUNDS = (0, 3000)


def element(a: Any, place: int = 0) -> Any:
    """One element of a tensor, shape (1,)."""
    if isinstance(a, Ints):
        return Ints([a[place]])
    return a.writer.write(
        "slice", a, dtype=a.dtype, shape=(1,), axis=0, start=place, stop=place + 1
    )


def constant(a: Made, size: int, value: int) -> Made:
    return a.writer.write("full", dtype="int64", shape=(size,), sizes=(size,), value=value)


def counts(at: Any, size: int, kind: str = "index_add") -> Any:
    """The number of times that each place is an index, shape (size,)."""
    if isinstance(at, Ints):
        return Ints([list(at).count(place) for place in range(size)])
    added = constant(at, at.shape[0], 1)
    return at.writer.write(
        kind, constant(at, size, 0), at, added, dtype="int64", shape=(size,), axis=0
    )


def gathered(a: Any, place: int) -> Any:
    """An element of a tensor once for each integer, by an index that the plan fixes."""
    if isinstance(a, Ints):
        return Ints([a[place]] * COUNT)
    return a.writer.write("index_select", a, filled(a, place), dtype="int64", axis=0)


def column(at: Any, classes: int, place: int) -> Any:
    """One column of the one-hot rows of integers, shape (COUNT,)."""
    if isinstance(at, Ints):
        return Ints([int(x == place) for x in at])
    write = at.writer.write
    rows = write("one_hot", at, dtype="int64", shape=(COUNT, classes), classes=classes)
    one = write("slice", rows, dtype="int64", shape=(COUNT, 1), axis=1, start=place, stop=place + 1)
    return write("reshape", one, dtype="int64", sizes=(COUNT,))


def weighed(a: Any, size: int, place: int) -> Any:
    """The sum of a tensor whose elements have the weight 0 but for one place, shape (1,)."""
    if isinstance(a, Ints):
        return Ints([a[place]])
    every = a.writer.write("positions", a, dtype="int64", shape=(size,), axis=0, offset=0)
    weights = a.writer.write("eq", every, place, dtype="bool", shape=(size,)).cast("int64")
    product = a.writer.write("mul", a, weights, dtype="int64", shape=(size,))
    return a.writer.write("sum", product, dtype="int64", shape=(1,), axes=(0,), keepdim=True)


def beyond(part: Formula, i: Any) -> Any:
    return ones(i) + part(i)


PARTS: dict[str, tuple[Formula, list[int]]] = {
    "a place of a count of computed indices": (
        lambda i: element(counts(i * 3, 9000), 2331),
        [777, 0, 0, 0, 0, 0],
    ),
    "a place of a count, of one index": (
        lambda i: element(counts(element(i * 3), 9000), 2331),
        [777, 0, 0, 0, 0, 0],
    ),
    "a place of numbers that are scattered": (
        lambda i: element(counts(i * 3, 9000, "scatter_add"), 2331),
        [777, 0, 0, 0, 0, 0],
    ),
    "an index of two integers": (
        lambda i: element(counts(i * 3 + flipped(i) * 5, 24000), 8255),
        [0, 0, 0, 0, 5, 1651],
    ),
    "an index of a sum": (
        lambda i: element(counts(total(i), 18000), 15555),
        [2999, 2999, 2999, 2999, 2999, 560],
    ),
    "a place that a fixed index reads": (
        lambda i: gathered(counts(i * 3, 9000), 2331),
        [777, 0, 0, 0, 0, 0],
    ),
    "a place with a weight": (
        lambda i: weighed(counts(i * 3, 9000), 9000, 2331),
        [777, 0, 0, 0, 0, 0],
    ),
    "a column of one-hot rows": (lambda i: column(i, 3000, 777), [777, 0, 0, 0, 0, 0]),
    "a column of one-hot rows of computed integers": (
        lambda i: column(i * 3, 9000, 2331),
        [777, 0, 0, 0, 0, 0],
    ),
}
RIGHT: dict[str, tuple[Formula, Formula, tuple[int, int]]] = {
    "a place of a count": (
        lambda i: element(counts(i * 3, 30), 12),
        lambda i: total(number(i == 4)),
        (0, 10),
    ),
    "all that was counted, and a sum of ones": (
        lambda i: total(counts(i, 10)),
        lambda i: total(ones(i)),
        (0, 10),
    ),
    "a place of a count in a large range": (
        lambda i: element(counts(element(i * 3), 9000), 2331),
        lambda i: number(element(i) == 777),
        BOUNDS,
    ),
    "all that was counted": (
        lambda i: total(counts(i, 10)),
        lambda i: total(i - i + 1),
        (0, 10),
    ),
    "a column of one-hot rows": (
        lambda i: column(i, 300, 157),
        lambda i: number(i == 157),
        (0, 300),
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_few_integers_reach_it(name: str) -> None:
    part, witness = PARTS[name]
    assert differ(ones, partial(beyond, part), BOUNDS, witness)
    assert verdict(ones, partial(beyond, part), BOUNDS)[0] in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_in_another_way(name: str) -> None:
    one, two, bounds = RIGHT[name]
    assert not differ(one, two, bounds, None)
    assert verdict(one, two, bounds) == ("equivalent", "")


def below(i: Any) -> Any:
    return number(i < 1000)


def without_one(i: Any) -> Any:
    """The same, but for one integer: it counts as those above do."""
    return where(i * 18 == 2412, filled(i, 0), below(i))


@pytest.mark.parametrize("seed", range(3))
def test_a_count_of_what_drawn_integers_decide(seed: int) -> None:
    """What a sum hides is told apart on both sides, also if no computed integer decides on one."""

    def one(i: Any) -> Any:
        return total(below(i)) * 2

    def two(i: Any) -> Any:
        return total(without_one(i)) * 2

    assert differ(one, two, (0, 2000), [134, 0, 1, 2, 3, 4])
    assert found(plan(one, (0, 2000), "int64", 1), plan(two, (0, 2000), "int64", 2), seed)[0] in (
        "mismatch",
        "inconclusive",
    )
    assert verdict(one, one, (0, 2000)) == ("equivalent", "")


def added(at: Any, size: int, place: int) -> Any:
    """The element at a place of what x adds at indices: real numbers, and not counts."""
    write = at.writer.write
    base = write("full", dtype="float32", shape=(size,), sizes=(size,), value=0)
    table = write("index_add", base, at, "x", dtype="float32", shape=(size,), axis=0)
    return write("slice", table, dtype="float32", shape=(1,), axis=0, start=place, stop=place + 1)


def used(i: Any, *parts: Any) -> Any:
    """1 and the sum of parts, once for each integer."""
    result = (i.cast("float32") * 0) + 1
    for part in parts:
        result = result + part
    return result


ADDED: dict[str, tuple[Formula, Formula, tuple[int, int], bool]] = {
    "another place": (
        lambda i: used(i, added(i, 9000, 2331)),
        lambda i: used(i, added(i, 9000, 2332)),
        (0, 9000),
        False,
    ),
    "another place of computed indices": (
        lambda i: used(i, added(i * 3, 9000, 2331)),
        lambda i: used(i, added(i * 3, 9000, 2334)),
        (0, 3000),
        False,
    ),
    "another place of few": (
        lambda i: used(i, added(i, 300, 231)),
        lambda i: used(i, added(i + 5, 310, 237)),
        (0, 300),
        False,
    ),
    "the same place": (
        lambda i: used(i, added(i, 300, 231)),
        lambda i: used(i, added(i + 5, 310, 236)),
        (0, 300),
        True,
    ),
    "two places, exchanged": (
        lambda i: used(i, added(i, 300, 231), added(i, 300, 77)),
        lambda i: used(i, added(i, 300, 77), added(i, 300, 231)),
        (0, 300),
        True,
    ),
}


@pytest.mark.parametrize("name", ADDED)
def test_a_place_of_real_numbers_that_are_added(name: str) -> None:
    one, two, bounds, right = ADDED[name]
    told = verdict(one, two, bounds)
    assert told == ("equivalent", "") if right else told[0] in ("mismatch", "inconclusive")
