"""Decisions that two integers make together without a comparison of what both make.

Products of conditions, choices inside choices, extrema along an axis, and comparisons of integers
that were cast to floating-point numbers.
"""

from __future__ import annotations

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
    larger,
    number,
    ones,
    smaller,
    total,
    verdict,
    where,
)

BOUNDS = (0, 5000)


def line(i: Any) -> Any:
    """Two elements of which few pairs give 0."""
    return i * 31 - flipped(i) * 37 - 8254


def first(i: Any) -> Any:
    return i * 31


def second(i: Any) -> Any:
    return flipped(i) * 37


def real(a: Any) -> Any:
    return a.cast("float32") if isinstance(a, Made) else a


def in_table(i: Any, place: int, at: Any) -> Any:
    """The elements at computed places of a table that is true at one place."""
    if isinstance(i, Ints):
        return Ints([each == place for each in at])
    size = 400000
    filled_ = i.writer.write("full", dtype="int64", shape=(size,), sizes=(size,), value=0)
    every = i.writer.write("positions", filled_, dtype="int64", shape=(size,), axis=0, offset=0)
    rows = i.writer.write("eq", every, place, dtype="bool", shape=(size,))
    return i.writer.write("index_select", rows, at, dtype="bool", axis=0)


def of_both(kind: str, a: Any, b: Any) -> Any:
    """The extremum along an axis along which two tensors are stacked."""
    if isinstance(a, Ints):
        return (larger if kind == "amax" else smaller)(a, b)
    joined = a.writer.write("cat", a, b, dtype=a.dtype, shape=(2 * COUNT,), axis=0)
    two = joined.writer.write("reshape", joined, dtype=a.dtype, shape=(2, COUNT), sizes=(2, COUNT))
    return two.writer.write(kind, two, dtype=a.dtype, axes=(0,))


def inner(a: Any, b: Any) -> Any:
    """The sum of products, as a product of matrices."""
    if isinstance(a, Ints):
        return Ints([sum(x * y for x, y in zip(a, b, strict=True))])
    row, column = (
        x.writer.write("reshape", real(x), dtype="float32", shape=shape, sizes=shape)
        for x, shape in ((a, (1, COUNT)), (b, (COUNT, 1)))
    )
    product = row.writer.write("matmul", row, column, dtype="float32", shape=(1, 1))
    return product.writer.write("reshape", product, dtype="float32", shape=(1,), sizes=(1,))


WRONG: dict[str, tuple[Formula, Formula, list[int]]] = {
    "a product of conditions": (
        ones,
        lambda i: ones(i) + number(i == 777) * number(flipped(i) == 1234),
        [777, 0, 0, 0, 0, 1234],
    ),
    "a product of floating-point conditions": (
        ones,
        lambda i: real(ones(i)) + real(number(i == 777)) * real(number(flipped(i) == 1234)),
        [777, 0, 0, 0, 0, 1234],
    ),
    "a matrix product of conditions": (
        lambda i: real(ones(i)),
        lambda i: real(ones(i)) + inner(number(i == 777), number(flipped(i) == 1234)),
        [777, 0, 0, 0, 0, 1234],
    ),
    "a matrix product of computed conditions": (
        lambda i: real(ones(i)),
        lambda i: real(ones(i)) + inner(number(i * 3 == 2331), number(flipped(i) * 3 == 3702)),
        [777, 0, 0, 0, 0, 1234],
    ),
    "a choice inside a choice": (
        ones,
        lambda i: where(i == 777, where(flipped(i) == 1234, filled(i, 2), ones(i)), ones(i)),
        [777, 0, 0, 0, 0, 1234],
    ),
    "a table that is indexed": (
        ones,
        lambda i: ones(i) + number(in_table(i, 8254, i * 31 + flipped(i) * 37)),
        [18, 0, 0, 0, 0, 208],
    ),
    "the largest along an axis": (
        ones,
        lambda i: ones(i) + 1 + of_both("amax", -(line(i) * line(i)), filled(i, -1)),
        [277, 0, 0, 0, 0, 9],
    ),
    "the least along an axis": (
        ones,
        lambda i: ones(i) + 1 - of_both("amin", line(i) * line(i), ones(i)),
        [277, 0, 0, 0, 0, 9],
    ),
    "floating-point numbers compared": (
        lambda i: number(real(first(i)) > real(second(i))),
        lambda i: number(real(first(i)) > real(second(i)) + 1),
        [6, 0, 0, 0, 0, 5],
    ),
    "a maximum with a margin": (
        lambda i: larger(first(i), second(i)),
        lambda i: where(first(i) > second(i) + 1, first(i), second(i)),
        [6, 0, 0, 0, 0, 5],
    ),
}
RIGHT: dict[str, tuple[Formula, Formula, tuple[int, int]]] = {
    "a product of conditions": (
        lambda i: number(i == 7) * number(flipped(i) == 12),
        lambda i: number((i == 7) & (flipped(i) == 12)),
        (0, 30),
    ),
    "a table that both index": (
        lambda i: number(in_table(i, 8254, i * 31 + flipped(i) * 37)),
        lambda i: number(in_table(i, 8254, flipped(i) * 37 + i * 31)),
        BOUNDS,
    ),
    "a matrix product of conditions": (
        lambda i: inner(number(i == 7), number(flipped(i) == 12)),
        lambda i: real(total(number(i == 7) * number(flipped(i) == 12))),
        (0, 30),
    ),
    "a product of integers": (lambda i: i * flipped(i), lambda i: flipped(i) * i, BOUNDS),
    "a choice inside a choice": (
        lambda i: where(i > 9, where(flipped(i) > 5, filled(i, 2), ones(i)), ones(i)),
        lambda i: ones(i) + number((flipped(i) > 5) & (i > 9)),
        (0, 30),
    ),
    "the larger one": (
        lambda i: larger(first(i), second(i)),
        lambda i: where(first(i) > second(i), first(i), second(i)),
        BOUNDS,
    ),
    "the larger one if equal": (
        lambda i: larger(first(i), second(i)),
        lambda i: where(first(i) >= second(i), first(i), second(i)),
        BOUNDS,
    ),
    "the largest along an axis": (
        lambda i: of_both("amax", first(i), second(i)),
        lambda i: larger(second(i), first(i)),
        BOUNDS,
    ),
    "the least along an axis": (
        lambda i: of_both("amin", first(i), second(i)),
        lambda i: -larger(-second(i), -first(i)),
        BOUNDS,
    ),
    "the larger floating-point number": (
        lambda i: larger(real(first(i)), real(second(i))),
        lambda i: where(real(first(i)) > real(second(i)), real(first(i)), real(second(i))),
        BOUNDS,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_few_pairs_differ(name: str) -> None:
    one, two, witness = WRONG[name]
    assert differ(one, two, BOUNDS, witness)
    assert verdict(one, two, BOUNDS)[0] in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", RIGHT)
def test_the_same_decided_in_another_way(name: str) -> None:
    one, two, bounds = RIGHT[name]
    assert not differ(one, two, bounds, None)
    assert verdict(one, two, bounds) == ("equivalent", "")
