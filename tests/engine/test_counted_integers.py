"""Integers that are counted, places that are singled out by number, thresholds and padding: what
differs only for some numbers is not called equal.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from zoo.builder import Builder, intervals, lineage

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan

TOKENS, EXPERTS = 64, 4
IDS = 50


def _verdict(reference: Plan, parallel: Plan) -> str:
    return check(reference, parallel, Options(seed=1)).verdict


def _wrong(reference: Plan, parallel: Plan) -> bool:
    return _verdict(reference, parallel) in ("mismatch", "inconclusive")


def _dropped(capacity: int, ranks: int = 1, kind: str = "le") -> Plan:
    """Tokens dropped whose place among those of their expert, on their own rank, is beyond the
    capacity.
    """
    b = Builder("capacity", {"dp": ranks} if ranks > 1 else None)
    spec = {0: "dp"} if ranks > 1 else None
    x = b.input("x", (TOKENS // ranks, 8), spec)
    hot = b.op(
        "one_hot",
        b.input("e", (TOKENS // ranks,), spec, dtype="int64", bounds=(0, EXPERTS)),
        classes=EXPERTS,
    )
    place = b.op("sum", b.op("mul", b.op("cumsum", hot, axis=0), hot), axes=[1])
    kept = b.op("cast", b.op(kind, place, Number(capacity)), dtype="float32")
    y = b.op("mul", x, b.op("unsqueeze", kept, axis=1))
    b.output(
        b.op("all_gather", y, group="dp", axis=0, out="y")
        if ranks > 1
        else b.op("identity", y, out="y")
    )
    return b.plan()


@pytest.mark.parametrize("capacity", [1, 20, 40, 63])
def test_capacity_per_rank_is_not_that_of_all(capacity: int) -> None:
    assert _wrong(_dropped(capacity), _dropped(capacity, ranks=4))
    assert _wrong(_dropped(capacity), _dropped(max(1, capacity // 4), ranks=4))


@pytest.mark.parametrize("capacity", [20, 62])
def test_capacity_is_told_from_the_next_one(capacity: int) -> None:
    assert _wrong(_dropped(capacity), _dropped(capacity + 1))
    assert _verdict(_dropped(capacity), _dropped(capacity)) == "equivalent"
    assert _verdict(_dropped(capacity), _dropped(capacity + 1, kind="lt")) == "equivalent"


def test_capacity_that_nothing_reaches() -> None:
    assert _wrong(_dropped(TOKENS - 1), _dropped(10**6))
    assert _verdict(_dropped(TOKENS), _dropped(10**6)) == "equivalent"


def _looked_up(kept: int | None = None, length: int = 24) -> Plan:
    """A table looked up at how many places before were marked; zero from row ``kept`` on."""
    b = Builder("positions")
    marked = b.op("cast", b.input("m", (3, length), dtype="bool"), dtype="int64")
    table = b.parameter("w", (length, 4))
    if kept is not None:
        table = b.op(
            "pad",
            b.op("slice", table, axis=0, start=0, stop=kept),
            axis=0,
            before=0,
            after=length - kept,
        )
    b.output(b.op("embedding", b.op("sub", b.op("cumsum", marked, axis=1), marked), table, out="y"))
    return b.plan()


@pytest.mark.parametrize("kept", [4, 16, 23])
def test_rows_that_only_long_sequences_reach_are_looked_at(kept: int) -> None:
    assert _wrong(_looked_up(), _looked_up(kept))


def test_same_positions_are_equal() -> None:
    assert _verdict(_looked_up(), _looked_up()) == "equivalent"


def _masked_mean(least: int) -> Plan:
    b = Builder("mean")
    x, marked = (
        b.input("x", (32, 4)),
        b.op("cast", b.input("m", (32,), dtype="bool"), dtype="float32"),
    )
    count = b.op("clamp", b.op("sum", marked, axes=[0]), min=least)
    b.output(
        b.op(
            "div",
            b.op("sum", b.op("mul", x, b.op("unsqueeze", marked, axis=1)), axes=[0]),
            count,
            out="y",
        )
    )
    return b.plan()


def test_least_count_matters() -> None:
    assert _wrong(_masked_mean(1), _masked_mean(2))
    assert _wrong(_masked_mean(1), _masked_mean(20))
    assert _verdict(_masked_mean(1), _masked_mean(1)) == "equivalent"


def _above(
    kind: str, number: int, padding: int | None = None, bounds: tuple[int, int] | None = (0, IDS)
) -> Plan:
    """Return the plan that counts for how many of five integers a comparison with a number holds.

    ``padding``: the plan is over two ranks of three places, the last of which is padding of this
    kind: -1 is free, -2 is zero.
    """
    b = Builder("ids", {"dp": 2} if padding is not None else None)
    if padding is None:
        ids = b.input("ids", (5,), dtype="int64", bounds=(0, IDS))
    else:
        held = lineage("ids", {0: intervals("dp", [(0, 3)], [(3, 5), (padding, 1)])})
        ids = b.input("ids", (3,), held, dtype="int64", bounds=bounds)
    total = b.op("sum", b.op("cast", b.op(kind, ids, Number(number)), dtype="float32"))
    b.output(
        b.op("identity", total, out="y")
        if padding is None
        else b.op("all_reduce", total, group="dp", out="y")
    )
    return b.plan()


@pytest.mark.parametrize(
    ("kind", "number", "bounds"),
    [("gt", 1, (0, IDS)), ("eq", IDS - 1, (0, IDS)), ("lt", 0, None), ("ge", IDS, None)],
)
def test_free_integers_are_anything_they_may_be(
    kind: str, number: int, bounds: tuple[int, int] | None
) -> None:
    assert _wrong(_above(kind, number), _above(kind, number, -1, bounds))


def test_integers_that_are_zero_are_zero() -> None:
    assert _verdict(_above("gt", 1), _above("gt", 1, -2)) == "equivalent"
    assert _wrong(_above("lt", 1), _above("lt", 1, -2))


def _threshold(number: str, fill: float | None = None, squares: bool = False) -> Plan:
    """Elements doubled that are above a number, or whose row's sum of squares is; a causal mask
    fills in another number.
    """
    b = Builder("threshold")
    x = b.input("x", (4, 6))
    measured = b.op("sum", b.op("square", x), axes=[1], keepdim=True) if squares else x
    y = b.op("where", b.op("gt", measured, Number(number)), b.op("mul", x, Number(2)), x)
    if fill is not None:
        y = b.op("masked_fill", y, b.op("logical_not", b.op("causal_mask", y)), Number(fill))
    b.output(b.op("identity", y, out="y"))
    return b.plan()


@pytest.mark.parametrize("squares", [False, True])
@pytest.mark.parametrize("fill", [None, -1e30, -1e9, -1e4])
def test_thresholds_are_told_apart_beside_what_a_mask_fills_in(
    fill: float | None, squares: bool
) -> None:
    assert _wrong(_threshold("100", fill, squares), _threshold("110", fill, squares))
    assert (
        _verdict(_threshold("100", fill, squares), _threshold("100", fill, squares)) == "equivalent"
    )


def test_close_thresholds_are_told_apart_by_scaled_inputs() -> None:
    assert _wrong(_threshold("100", squares=True), _threshold("100001/1000", squares=True))


def _window(width: int, kind: str = "lt", length: int = 24) -> Plan:
    """Attention to the last ``width`` places."""
    b = Builder("window")
    x = b.input("x", (2, length, 3))
    places = b.op("positions", x, axis=1)
    apart = b.op("sub", b.op("unsqueeze", places, axis=1), b.op("unsqueeze", places, axis=0))
    seen = b.op("logical_and", b.op(kind, apart, Number(width)), b.op("ge", apart, Number(0)))
    scores = b.op(
        "masked_fill",
        b.op("bmm", x, b.op("permute", x, permutation=[0, 2, 1])),
        b.op("logical_not", seen),
        Number(-1e30),
    )
    b.output(b.op("bmm", b.op("softmax", scores, axis=-1), x, out="y"))
    return b.plan()


def test_windows_of_other_widths_differ() -> None:
    assert _wrong(_window(20), _window(21))
    assert _verdict(_window(8), _window(7, kind="le")) == "equivalent"


def _size(roots: tuple[int, ...], length: int, by_sums: bool) -> Plan:
    """The sum of rows, and the same sum times a polynomial of its length, of which these are roots;
    powers of it by sums of copies or by scaling.
    """
    b = Builder("size")
    x = b.input("x", (4, length))
    total = result = b.op("sum", x, axes=[1])
    term = total
    for root in roots:
        wide = b.op("expand", b.op("unsqueeze", term, axis=1), sizes=[4, length])
        times = (
            b.op("sum", wide, axes=[1])
            if by_sums
            else b.op("mean", b.op("scale_by_size", wide, axis=1, exponent=1), axes=[1])
        )
        term = b.op("sub", times, b.op("mul", term, Number(root)))
    if roots:
        result = b.op("add", result, term)
    b.output(b.op("identity", result, out="y"))
    return b.plan()


@pytest.mark.parametrize("by_sums", [False, True])
@pytest.mark.parametrize("roots", [(3, 4), (3, 4, 5, 6), tuple(range(2, 12))])
@pytest.mark.parametrize("length", [30, 1 << 13])
def test_polynomials_of_a_size_that_vanish_at_small_ones(
    roots: tuple[int, ...], length: int, by_sums: bool
) -> None:
    assert _wrong(_size((), length, by_sums), _size(roots, length, by_sums))


def _mean(parts: tuple[int, ...] = (), factor: str = "") -> Plan:
    """The mean of rows of 12: the mean of the means of parts of these lengths, or the sum times a
    number.
    """
    b = Builder("mean")
    x = b.input("x", (5, 12))
    if factor:
        y = b.op("mul", b.op("sum", x, axes=[1]), Number(factor))
    elif parts:
        ends = [sum(parts[:n]) for n in range(len(parts) + 1)]
        slices = [
            b.op("slice", x, axis=1, start=start, stop=stop) for start, stop in pairwise(ends)
        ]
        y = b.op(
            "mean",
            b.op("cat", *(b.op("mean", part, axes=[1], keepdim=True) for part in slices), axis=1),
            axes=[1],
        )
    else:
        y = b.op("mean", x, axes=[1])
    b.output(b.op("identity", y, out="y"))
    return b.plan()


RIGHT_MEANS: list[Callable[[], Plan]] = [
    lambda: _mean((4, 4, 4)),
    lambda: _mean((6, 6)),
    lambda: _mean(factor="1/12"),
]
WRONG_MEANS: list[Callable[[], Plan]] = [
    lambda: _mean((4, 6, 2)),
    lambda: _mean((3, 9)),
    lambda: _mean(factor="1/11"),
    lambda: _mean(factor="1/4"),
]


@pytest.mark.parametrize("made", RIGHT_MEANS)
def test_right_means(made: Callable[[], Plan]) -> None:
    assert _verdict(_mean(), made()) == "equivalent"


@pytest.mark.parametrize("made", WRONG_MEANS)
def test_wrong_means(made: Callable[[], Plan]) -> None:
    assert _wrong(_mean(), made())
