"""Integers that are computed, and decide at numbers which hardly any draw meets.

Every pair is judged by Python integers first: wrong ones differ for some integers, right ones for
none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attacks.integer_pairs import (
    Formula,
    anywhere,
    clamp,
    differ,
    everywhere,
    filled,
    first_place,
    flipped,
    larger,
    largest,
    number,
    places,
    row_of,
    running,
    sign,
    smaller,
    total,
    truth,
    verdict,
    where,
)
from attacks.pairs import found
from zoo.builder import Builder, lineage, table

from pitcheck.plan.model import Number, Plan, Tensor

WIDE = (0, 50000)
Pair = tuple[Formula, Formula] | tuple[Formula, Formula, tuple[int, int]]


def never(i: Any) -> Any:
    return i < 0


def computed(i: Any, a: int, b: int) -> Any:
    """A product of two constants."""
    return filled(i, a) * b


WRONG: dict[str, Pair] = {
    "a multiple is one number": (lambda i: i * 31 == 38254, never),
    "a square is one number": (lambda i: i * i == 1369, never),
    "a cube is one number": (lambda i: i * i * i == 50653, never),
    "a quotient is one number": (lambda i: i // 7 == 5000, never),
    "a remainder is one number": (lambda i: i % 9973 == 9972, never),
    "a remainder of a multiple": (lambda i: i * 7919 % 49999 == 777, never),
    "a quotient of a remainder": (lambda i: i % 10007 // 10006 == 1, never),
    "a remainder of a quotient": (lambda i: i // 10 % 4999 == 4998, never),
    "a sum with itself": (lambda i: i + i + i == 3 * 31234, never),
    "a difference from a multiple": (lambda i: 100000 - i * 3 == 7, never),
    "an opposite": (lambda i: -i * 3 == -30003, never),
    "a distance": (lambda i: abs(i - 31234) * 5 == 0, never),
    "a distance that is short": (lambda i: abs(i * 2 - 62468) < 2, never),
    "two remainders at once": (lambda i: (i % 211 == 7) & (i % 199 == 11), never),
    "three remainders at once": (lambda i: (i % 31 == 7) & (i % 37 == 5) & (i % 41 == 3), never),
    "one of two": (lambda i: (i * 3 == 300) | (i * 7 == 70007), lambda i: i == 100),
    "exactly one of two": (lambda i: (i * 2 > 44444) ^ (i * 3 > 66669), never),
    "not one number": (lambda i: ~(i * 13 != 13013), never),
    "thresholds of one multiple": (lambda i: i * 31 > 38254, lambda i: i * 31 > 38285),
    "thresholds of two multiples": (lambda i: i * 31 > 38254, lambda i: i * 17 > 20995),
    "thresholds of a square": (lambda i: i * i < 1234321, lambda i: i * i <= 1234321),
    "thresholds of a quotient": (lambda i: i // 7 < 5000, lambda i: i < 35001),
    "above and equal": (lambda i: i * 9 >= 99999, lambda i: i * 9 > 99999),
    "a square that is not a product": (
        lambda i: i * i < 399980000,
        lambda i: i * (i + 1) < 399980000,
    ),
    "one more where it is one number": (
        lambda i: i,
        lambda i: i + number(i * 31 == 38254),
    ),
    "one more at the greatest": (lambda i: i, lambda i: i + i // 49999),
    "one more at the greatest, twice": (lambda i: i * 2, lambda i: i * 2 + i // 49999),
    "one less at one place": (lambda i: i // 7, lambda i: i // 7 - number(i * 3 == 70005)),
    "division by multiplication": (lambda i: i // 7, lambda i: i * 9362 // 65536),
    "division by multiplication, doubled": (
        lambda i: i // 641 * 2,
        lambda i: i * 6544 // 4194304 * 2,
    ),
    "remainder by multiplication": (
        lambda i: i % 7,
        lambda i: i - i * 9362 // 65536 * 7,
    ),
    "quotient times divisor plus another remainder": (
        lambda i: i,
        lambda i: i // 7 * 7 + i % 7 + number(i % 43210 == 43209),
    ),
    "rounding up": (
        lambda i: (i + 6) // 7,
        lambda i: i // 7 + number((i % 7 > 0) & (i * 2 != 62470)),
    ),
    "halves of a remainder": (
        lambda i: i % 8 // 4,
        lambda i: number((i % 8 >= 4) & (i * 2 != 62472)),
    ),
    "a row of a table": (
        lambda i: row_of(i % 50, 50),
        lambda i: row_of((i + number(i * 5 == 155555)) % 50, 50),
    ),
    "a row of a table, clamped": (
        lambda i: row_of(clamp(i - 49000, 0, 999), 1000),
        lambda i: row_of(clamp(i - 49000, 0, 998), 1000),
    ),
    "a row of a hash": (
        lambda i: row_of(i * 7919 % 64, 64),
        lambda i: row_of(i * 7919 % 64 * number(i * 7919 % 49999 != 777), 64),
    ),
    "the larger": (lambda i: larger(i * 3, 149990), lambda i: i * 0 + 149990),
    "the smaller": (lambda i: smaller(i * 3, 149995), lambda i: i * 3),
    "clamped": (lambda i: clamp(i * 2, 0, 99996), lambda i: i * 2),
    "clamped below": (
        lambda i: clamp(i * 5 - 12, 0, 10**6),
        lambda i: larger(i * 5, 12) - 12 + number(i * 5 == 10),
    ),
    "a sign": (lambda i: sign(i * 2 - 62468), lambda i: sign(i * 2 - 62467)),
    "no sign": (lambda i: abs(sign(i * 2 - 62468)), lambda i: i * 0 + 1),
    "a truth of a number": (lambda i: truth(i * 2 - 62468), lambda i: i >= 0),
    "a truth of a remainder": (lambda i: truth(i % 31013), lambda i: i > 0),
    "a truth of a product": (lambda i: truth((i - 100) * (i - 31234)), lambda i: i != 100),
    "chosen twice": (
        lambda i: where(i * 3 > 93702, 1, where(i * 3 > 93699, 2, 3)),
        lambda i: where(i * 3 > 93702, 1, 3),
    ),
    "chosen within what was chosen": (
        lambda i: where(i > 31234, where(i * 2 < 62472, 5, 1), 0),
        lambda i: where(i > 31234, 1, 0),
    ),
    "a number that was chosen": (
        lambda i: where(i > 31234, i * 2, i) == 62472,
        never,
    ),
    "floating, halved": (
        lambda i: number(i, "float32") * 1 == 31234,
        lambda i: number(i, "float32") * 2 == 62467,
    ),
    "floating, squared": (
        lambda i: number(i, "float32") * number(i, "float32") == 1369,
        never,
    ),
    "floating, above": (
        lambda i: number(i, "float32") * 3 > 93702,
        lambda i: number(i, "float32") * 3 > 93705,
    ),
    "truths added": (
        lambda i: number(i * 3 > 300) + number(i * 5 > 155555),
        lambda i: number(i * 3 > 300) + number(i * 5 > 155560),
    ),
    "truths added to one": (
        lambda i: number(i * 2 > 62468) + number(i * 2 < 62468) == 1,
        lambda i: i >= 0,
    ),
    "a range that begins below 0": (
        lambda i: i * i == 1234 * 1234,
        lambda i: i == 1234,
        (-25000, 25000),
    ),
    "quotients below 0": (
        lambda i: i // 7,
        lambda i: where(i < -24990, i // 7 + 1, i // 7),
        (-25000, 25000),
    ),
    "remainders below 0": (
        lambda i: i % 8,
        lambda i: where(i * 2 == -49998, i % 8 + 1, i % 8),
        (-25000, 25000),
    ),
    "half a million": (lambda i: i * 7 == 7 * 456789, never, (0, 500000)),
    "a small range": (lambda i: i * i == 1369, never, (0, 2000)),
    "only the greatest": (lambda i: i * 2 == 99998, never),
    "only the least": (lambda i: (i - 1000) * 3 == 0, never, (1000, 50000)),
    "a quadratic": (lambda i: i * i - i * 200 + 9999 == 0, lambda i: i == 101),
    "a chain": (lambda i: ((i * 3 + 5) // 2 - 7) % 40009 == 40008, never),
    "a digit": (lambda i: (i // 10000 == 4) & (i // 1000 % 10 == 9) & (i % 1000 == 999), never),
    "odd numbers": (lambda i: i % 2 == 1, lambda i: (i % 2 == 1) & (i * 3 != 93705)),
    "one number that is computed": (lambda i: i == computed(i, 177, 177), never),
    "a threshold that is computed": (
        lambda i: i > computed(i, 177, 177),
        lambda i: i >= computed(i, 177, 177),
    ),
}
RIGHT: dict[str, Pair] = {
    "a quotient and its remainder": (lambda i: i, lambda i: i // 7 * 7 + i % 7),
    "one more and one less": (lambda i: i, lambda i: i + 1 - 1),
    "twice a number and a threshold": (lambda i: i > 4, lambda i: i * 2 > 8),
    "half of a remainder": (lambda i: i % 8 // 4, lambda i: i // 4 % 2),
    "quotients one after the other": (lambda i: i // 6 // 7, lambda i: i // 42),
    "a threshold of a quotient": (lambda i: i // 7 >= 5000, lambda i: i >= 35000),
    "between two thresholds": (lambda i: i // 7 == 5000, lambda i: (i >= 35000) & (i < 35007)),
    "a square root": (lambda i: i * i == 1369, lambda i: i == 37),
    "a multiple": (lambda i: i * 31 == 38254, lambda i: i == 1234),
    "no multiple": (lambda i: i * 31 == 38255, never),
    "rounding up": (lambda i: (i + 6) // 7, lambda i: i // 7 + number(i % 7 > 0)),
    "division by multiplication": (lambda i: i // 7, lambda i: i * 9363 // 65536, (0, 10000)),
    "remainders one after the other": (lambda i: i % 12 % 4, lambda i: i % 4),
    "a remainder of a sum": (lambda i: (i % 100 + 5) % 100, lambda i: (i + 5) % 100),
    "odd numbers": (lambda i: i % 2 == 1, lambda i: ~(i % 2 == 0)),
    "never": (lambda i: i % 8 // 8 == 1, never),
    "never at once": (lambda i: (i * 2 > 100) & (i * 2 < 90), never),
    "clamped and chosen": (lambda i: clamp(i * 2, 0, 5000), lambda i: where(i > 2500, 5000, i * 2)),
    "the larger and the chosen": (
        lambda i: larger(i * 3, 777),
        lambda i: where(i < 259, 777, i * 3),
    ),
    "a clamp without use": (lambda i: i * 2, lambda i: clamp(i * 2, 0, 100000)),
    "two opposites": (lambda i: -(i * 3) < -300, lambda i: i * 3 > 300),
    "a distance": (lambda i: abs(i * 2 - 400) < 10, lambda i: (i > 195) & (i < 205)),
    "a row of a hash": (
        lambda i: row_of(i * 7919 % 64, 64),
        lambda i: row_of(i % 64 * 47 % 64, 64),
    ),
    "a row in halves": (
        lambda i: row_of(i // 16 * 16 + i % 16, 64),
        lambda i: row_of(i, 64),
        (0, 64),
    ),
    "floating": (
        lambda i: number(i * i, "float32"),
        lambda i: number(i, "float32") * number(i, "float32"),
    ),
    "floating and whole": (lambda i: number(i, "float32") > 312, lambda i: i * 2 > 624, (0, 500)),
    "places": (lambda i: i + places(i, 8) > 100, lambda i: i > 92 - places(i)),
    "truths added": (
        lambda i: number(i * 2 > 100) + number(i * 3 > 600),
        lambda i: where(i > 200, 2, where(i > 50, 1, 0)),
    ),
    "one chosen from two": (
        lambda i: where(i * 2 > 8, i + 3, 0),
        lambda i: number(i > 4) * (i + 3),
    ),
    "below 0": (lambda i: i // 7 * 7 + i % 7, lambda i: i, (-25000, 25000)),
    "a sum of all": (lambda i: number(total(i * 2)) > 200, lambda i: total(i) > 100, (0, 60)),
    "a remainder in a wide range": (
        lambda i: i % 1000 < 500,
        lambda i: ~(i % 1000 >= 500),
        (0, 2**31),
    ),
    "two of a pair": (lambda i: i > flipped(i), lambda i: i * 2 > flipped(i) * 2 + 1),
    "the largest": (lambda i: largest(i * 2) > 16, lambda i: largest(i * 2 + 1) > 17, (0, 12)),
    "a count that is never too small": (
        lambda i: larger(total(number(i * 2 > 50)), 0),
        lambda i: total(number(i * 2 > 50)),
        (0, 60),
    ),
    "a running sum": (lambda i: running(i * 2) >= 30, lambda i: running(i) >= 15, (0, 12)),
}
TOGETHER: dict[str, tuple[Formula, Formula, tuple[int, int], list[int]]] = {
    "places added": (lambda i: i * 2 + places(i) == 62468, never, WIDE, [31234, 0, 0, 0, 0, 0]),
    "places added, but for one": (
        lambda i: i * 2 + places(i) == 62468,
        lambda i: (i * 2 + places(i) == 62468) & (i * 3 != 93696),
        WIDE,
        [0, 0, 0, 0, 31232, 0],
    ),
    "a sum of truths": (
        lambda i: total(number(i * 31 == 38254)),
        lambda i: total(number(i < 0)),
        WIDE,
        [1234, 0, 0, 0, 0, 0],
    ),
    "any truth": (
        lambda i: anywhere(i * 31 == 38254),
        lambda i: anywhere(i < 0),
        WIDE,
        [1234, 0, 0, 0, 0, 0],
    ),
    "all truths": (
        lambda i: everywhere(i * 31 != 38254),
        lambda i: everywhere(i >= 0),
        WIDE,
        [1234, 0, 0, 0, 0, 0],
    ),
    "a running sum of truths": (
        lambda i: running(number(i * 31 == 38254)),
        lambda i: running(number(i < 0)),
        WIDE,
        [1234, 0, 0, 0, 0, 0],
    ),
    "the largest is one number": (
        lambda i: largest(i * 3) == 38253,
        lambda i: total(i) < 0,
        WIDE,
        [12751, 0, 0, 0, 0, 0],
    ),
    "thresholds of the largest": (
        lambda i: largest(i * 3) > 149990,
        lambda i: largest(i * 3) > 149993,
        WIDE,
        [49997, 0, 0, 0, 0, 0],
    ),
    "the place of the largest": (
        lambda i: first_place(i * 31),
        lambda i: first_place(i * 31 + number(i == 1234) * 62),
        WIDE,
        [1234, 1235, 0, 0, 0, 0],
    ),
    "two at once": (
        lambda i: (i * 31 == 38254) & (flipped(i) * 31 == 76508),
        never,
        WIDE,
        [1234, 0, 0, 0, 0, 2468],
    ),
    "a product of two": (
        lambda i: number(i * 31 == 38254) * number(flipped(i) * 31 == 76508),
        lambda i: i * 0,
        WIDE,
        [1234, 0, 0, 0, 0, 2468],
    ),
    "a multiple of another one": (
        lambda i: i * 7919 % 49999 == flipped(i),
        never,
        WIDE,
        [1, 0, 0, 0, 0, 7919],
    ),
    "the smaller of two multiples": (
        lambda i: smaller(i * 3, flipped(i) * 5) == 15000,
        never,
        WIDE,
        [5000, 0, 0, 0, 0, 9000],
    ),
    "thresholds of a difference": (
        lambda i: i * 31 > flipped(i) * 31 + 38254,
        lambda i: i * 31 > flipped(i) * 31 + 38285,
        WIDE,
        [1235, 0, 0, 0, 0, 0],
    ),
    "a threshold beside one of given integers": (
        lambda i: i > flipped(i),
        lambda i: i * 2 > flipped(i) * 2 + 2,
        WIDE,
        [1, 0, 0, 0, 0, 0],
    ),
    "less and not more": (
        lambda i: i * 31 < flipped(i) * 31 + 31,
        lambda i: i * 31 <= flipped(i) * 31 + 31,
        WIDE,
        [1, 0, 0, 0, 0, 0],
    ),
    "a count of many": (
        lambda i: total(number(i * 31 == 38254)) > 2,
        lambda i: total(number(i * 31 == 38254)) > 3,
        WIDE,
        [1234, 1234, 1234, 0, 0, 0],
    ),
    "a capacity of one more": (
        lambda i: running(number(i % 4 == 1)) <= 3,
        lambda i: running(number(i % 4 == 1)) <= 4,
        WIDE,
        [1, 1, 1, 1, 0, 0],
    ),
    "a capacity counted from 0": (
        lambda i: running(number(i % 4 == 1)) - number(i % 4 == 1) < 3,
        lambda i: running(number(i % 4 == 1)) < 3,
        WIDE,
        [1, 1, 1, 1, 0, 0],
    ),
    "a range too wide to evaluate": (
        lambda i: i * 31 == 38254,
        never,
        (0, 2**31),
        [1234, 0, 0, 0, 0, 0],
    ),
    "a quotient of a wide range": (
        lambda i: i // 7,
        lambda i: i // 7 + i // (2**31 - 1),
        (0, 2**31),
        [2**31 - 1, 0, 0, 0, 0, 0],
    ),
    "a sum is one number": (
        lambda i: total(i) * 3 == 60000,
        lambda i: total(i) < 0,
        WIDE,
        [20000, 0, 0, 0, 0, 0],
    ),
    "a running sum is one number": (
        lambda i: running(i) * 7 == 140000,
        never,
        WIDE,
        [20000, 0, 0, 0, 0, 0],
    ),
    "thresholds of a sum": (
        lambda i: total(i) * 3 > 600000,
        lambda i: total(i) * 3 > 600003,
        WIDE,
        [50000 - 1, 49999, 49999, 49999, 5, 0],
    ),
    "a count of pairs": (
        lambda i: total(number(i * 3 > 149990)) == 5,
        lambda i: total(number(i * 3 > 149990)) == 7,
        WIDE,
        [49999] * 5 + [0],
    ),
    "a quotient of a sum": (
        lambda i: total(i) // 299990,
        lambda i: total(i) * 0,
        WIDE,
        [49999] * 6,
    ),
    "a remainder of a sum": (
        lambda i: total(i) % 49999 == 17,
        lambda i: total(i) < 0,
        WIDE,
        [17, 0, 0, 0, 0, 0],
    ),
    "the larger of a sum": (
        lambda i: larger(total(i), 299990),
        lambda i: total(i) * 0 + 299990,
        WIDE,
        [49999] * 6,
    ),
}


def made(b: Builder, kind: str, like: str, *inputs: Any, **more: Any) -> str:
    """An operator whose result has the shape of a tensor and holds integers."""
    name = b.add(Tensor(f"n{len(b.operators)}", b.tensors[like].shape, "int64"))
    b.op(kind, *inputs, out=name, **more)
    return name


Condition = Callable[[Builder, str, bool, str], str]
"""A condition of integers that a builder writes, for a plan of two ranks if a flag says so, with a
mistake.
"""


def offset(mistake: str) -> Any:
    return table("tp", 0, 0 if mistake == "place" else 3)


def of_places(factor: int, kind: str, number_: int) -> Condition:
    """A multiple of an integer, and its place."""

    def write(b: Builder, i: str, apart: bool, mistake: str) -> str:
        where_ = b.op("positions", i, axis=0, **({"offset": offset(mistake)} if apart else {}))
        total_ = b.op("add", b.op("mul", i, Number(factor)), where_)
        return b.op(kind, total_, Number(number_ + (mistake == "threshold")))

    return write


def of_capacity(modulus: int, kind: str, capacity: int) -> Condition:
    """The first integers of those with remainder 1."""

    def write(b: Builder, i: str, apart: bool, mistake: str) -> str:
        chosen = b.op("eq", made(b, "remainder", i, i, Number(modulus)), Number(1))
        slot = made(b, "cumsum", i, made(b, "cast", i, chosen, dtype="int64"), axis=0)
        if apart and mistake != "place":
            last = b.op("slice", slot, axis=0, start=2, stop=3)
            every = b.op("all_gather", last, group="tp", axis=0)
            before = b.op("slice", every, axis=0, start=0, stop=1)
            rank = b.op("positions", last, axis=0, offset=table("tp", 0, 1))
            slot = b.op("add", slot, b.op("mul", before, rank))
        kept = b.op(kind, slot, Number(capacity + (mistake == "threshold")))
        return b.op("logical_and", kept, chosen)

    return write


SHARDED = {
    "places and a threshold": of_places(2, "gt", 1000),
    "places and one number": of_places(31, "eq", 38254),
    "a capacity of three": of_capacity(4, "le", 3),
    "a capacity below three": of_capacity(4, "lt", 3),
    "a capacity seldom met": of_capacity(1000, "le", 2),
}


def sharded(condition: Condition, apart: bool, mistake: str = "") -> Plan:
    b = Builder("sharded", {"tp": 2}) if apart else Builder("whole")
    rows: tuple[int, Any] = (3, {0: "tp"}) if apart else (6, None)
    i = b.input("i", rows[:1], rows[1], dtype="int64", bounds=WIDE)
    x = b.input("x", rows[:1], rows[1])
    y = b.op("where", condition(b, i, apart, mistake), x, Number(0), out="y")
    b.output(y, spec=lineage("y", {0: "tp"}) if apart else None)
    return b.plan()


@pytest.mark.parametrize("name", SHARDED)
def test_each_rank_computes_with_its_own_integers(name: str) -> None:
    reference = sharded(SHARDED[name], apart=False)
    assert found(reference, sharded(SHARDED[name], apart=True)) == ("equivalent", "")
    for mistake in ("place", "threshold"):
        wrong = sharded(SHARDED[name], apart=True, mistake=mistake)
        assert found(reference, wrong)[0] in ("mismatch", "inconclusive")


HASHED: dict[str, Callable[[Builder, str], str]] = {
    "remainders": lambda b, i: made(b, "remainder", i, i, Number(40)),
    "hashes": lambda b, i: made(b, "remainder", i, made(b, "mul", i, i, Number(7919)), Number(40)),
    "quotients": lambda b, i: made(b, "floor_divide", i, i, Number(1250)),
}


def rows_of(hashed: Callable[[Builder, str], str], apart: bool, last: int = 20) -> Plan:
    """Rows of a table of 40, which two ranks share."""
    b = Builder("rows", {"tp": 2}) if apart else Builder("whole")
    i = b.input("i", (6,), {} if apart else None, dtype="int64", bounds=WIDE)
    w = b.parameter("w", (20 if apart else 40, 6), {0: "tp"} if apart else None)
    bucket = hashed(b, i)
    if not apart:
        b.output(b.op("embedding", bucket, w, out="y"))
        return b.plan()
    every = b.op("positions", w, axis=0, offset=table("tp", 0, 20))
    local = b.op("sub", bucket, b.op("slice", every, axis=0, start=0, stop=1))
    away = b.op("logical_or", b.op("lt", local, Number(0)), b.op("ge", local, Number(last)))
    e = b.op("embedding", b.op("masked_fill", local, away, Number(0)), w)
    e = b.op("masked_fill", e, b.op("unsqueeze", away, axis=1), Number(0))
    b.output(b.op("all_reduce", e, group="tp", out="y"))
    return b.plan()


@pytest.mark.parametrize("name", HASHED)
def test_rows_of_a_table_that_integers_are_hashed_to(name: str) -> None:
    reference = rows_of(HASHED[name], apart=False)
    assert found(reference, rows_of(HASHED[name], apart=True)) == ("equivalent", "")
    assert found(reference, rows_of(HASHED[name], apart=True, last=19))[0] == "mismatch"


def parts(pair: Pair) -> tuple[Formula, Formula, tuple[int, int]]:
    return (*pair, WIDE) if len(pair) == 2 else pair


@pytest.mark.parametrize("name", WRONG)
def test_no_number_is_too_seldom(name: str) -> None:
    one, two, bounds = parts(WRONG[name])
    assert differ(one, two, bounds, None)
    assert verdict(one, two, bounds)[0] in ("mismatch", "inconclusive")


@pytest.mark.parametrize("name", RIGHT)
def test_formulas_that_give_the_same_are_proven(name: str) -> None:
    one, two, bounds = parts(RIGHT[name])
    assert not differ(one, two, bounds, None)
    assert verdict(one, two, bounds) == ("equivalent", "")


@pytest.mark.parametrize("name", TOGETHER)
def test_several_integers_decide_together(name: str) -> None:
    one, two, bounds, witness = TOGETHER[name]
    assert differ(one, two, bounds, witness)
    assert verdict(one, two, bounds)[0] in ("mismatch", "inconclusive")
