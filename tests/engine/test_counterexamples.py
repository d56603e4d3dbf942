"""Every case in which small sizes, few ranks, single draws or cuts could hide a mistake: the wrong
plan is caught, the right one is proven.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.by_day import some_at_once
from support.verdicts import caught, not_proven, proven, reports
from zoo.builder import Builder, intervals, lineage, table

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan

Write = Callable[[Builder, str], str]
"""Appends operators that read a tensor, and returns the tensor they give."""


def alone(write: Write, shape: tuple[int, ...] = (4, 24), name: str = "reference") -> Plan:
    """One device: x goes in, y comes out."""
    b = Builder(name)
    b.op("identity", write(b, b.input("x", shape)), out="y")
    b.output("y")
    return b.plan()


def rows(write: Write, shape: tuple[int, ...] = (4, 24), axis: int = 0) -> Plan:
    """Two ranks, each with half of the rows; the results are gathered."""
    b = Builder("rows", {"dp": 2})
    local = list(shape)
    local[0] //= 2
    y = write(b, b.input("x", local, {0: "dp"}))
    b.op("all_gather", y, out="y", group="dp", axis=axis)
    b.output("y")
    return b.plan()


def both(reference: Write, right: Write, wrong: Write, shape: tuple[int, ...] = (4, 24)) -> None:
    """``right`` is proven and ``wrong`` caught, on one device and with the rows spread."""
    plan = alone(reference, shape)
    for spread in (alone, rows):
        proven(plan, spread(right, shape))
        caught(plan, spread(wrong, shape))


def _then(*steps: tuple[str, dict[str, Any]]) -> Write:
    def write(b: Builder, x: str) -> str:
        for kind, attributes in steps:
            x = b.op(kind, x, **attributes)
        return x

    return write


# --- sizes


def test_roll_by_one_is_not_roll_by_minus_one() -> None:
    right, wrong = (_then(("roll", {"axis": 1, "shift": s})) for s in (1, -1))
    both(right, right, wrong)


def test_roll_of_two_elements() -> None:
    forward, back = (_then(("roll", {"axis": 1, "shift": s})) for s in (1, -1))
    proven(alone(forward, (4, 2)), rows(back, (4, 2)))


def test_roll_by_slices() -> None:
    def cut(at: int) -> Write:
        return lambda b, x: b.op(
            "cat",
            b.op("slice", x, axis=1, start=at, stop=24),
            b.op("slice", x, axis=1, start=0, stop=at),
            axis=1,
        )

    both(_then(("roll", {"axis": 1, "shift": 1})), cut(23), cut(1))


def _to_halves(
    size: int, lead: Callable[[Builder, str], int] = lambda b, x: b.tensors[x].shape[0]
) -> Write:
    def write(b: Builder, x: str) -> str:
        n = lead(b, x)
        pairs = b.op("view", x, sizes=(n, size // 2, 2))
        return b.op("reshape", b.op("transpose", pairs, dim0=1, dim1=2), sizes=(n, size))

    return write


def _twice(size: int) -> Write:
    return lambda b, x: _to_halves(size)(b, _to_halves(size)(b, x))


@pytest.mark.parametrize("size", [8, 16, 32])
def test_pairs_to_halves_twice_is_not_nothing(size: int) -> None:
    both(_twice(size), _twice(size), _then(("contiguous", {})), (4, size))


def test_pairs_to_halves_twice_at_four() -> None:
    proven(alone(_twice(4), (4, 4)), rows(_then(("contiguous", {})), (4, 4)))


def _rotary(convention: str, before: bool, after: bool, size: int = 8) -> Write:
    """The rotary embedding with the conversion of pairs to halves before or after."""

    def write(b: Builder, x: str) -> str:
        n = b.tensors[x].shape[0]
        cos, sin = (
            b.input(name, (n, size // 2), {0: "dp"} if n == 2 else None) for name in ("cos", "sin")
        )
        if before:
            x = _to_halves(size)(b, x)
        y = b.op("rotary", x, cos, sin, convention=convention)
        return _to_halves(size)(b, y) if after else y

    return write


def test_rotary_conventions() -> None:
    interleaved = _rotary("interleaved", before=False, after=True)
    both(
        interleaved,
        _rotary("half", before=True, after=False),
        _rotary("half", before=False, after=True),
        (4, 8),
    )
    both(interleaved, interleaved, _rotary("half", before=True, after=True), (4, 8))


@pytest.mark.parametrize(("a", "c"), [(6, 4), (4, 6), (8, 3), (12, 2)])
def test_view_of_other_sizes(a: int, c: int) -> None:
    def viewed(first: int, second: int, turned: bool) -> Write:
        def write(b: Builder, x: str) -> str:
            y = b.op("view", x, sizes=(b.tensors[x].shape[0], first, second))
            return b.op("permute", y, permutation=(0, 2, 1)) if turned else y

        return write

    both(viewed(a, c, True), viewed(a, c, True), viewed(c, a, False))


def test_view_and_permute_in_another_order() -> None:
    def heads(first: int, second: int) -> Write:
        def write(b: Builder, x: str) -> str:
            n = b.tensors[x].shape[0]
            return b.op(
                "reshape",
                b.op("permute", b.op("view", x, sizes=(n, first, second)), permutation=(0, 2, 1)),
                sizes=(n, 24),
            )

        return write

    both(heads(4, 6), heads(4, 6), heads(6, 4))


def test_square_view_is_not_its_transpose() -> None:
    def square(turned: bool) -> Write:
        def write(b: Builder, x: str) -> str:
            y = b.op("view", x, sizes=(b.tensors[x].shape[0], 8, 8))
            return b.op("transpose", y, dim0=1, dim1=2) if turned else y

        return write

    both(square(True), square(True), square(False), (4, 64))


def test_repeated_elements_are_not_a_repeated_whole() -> None:
    each = _then(("repeat_interleave", {"count": 2, "axis": 1}))
    both(each, each, lambda b, x: b.op("cat", x, x, axis=1))


@pytest.mark.parametrize("wrong", [11, 13, 5, 0])
def test_offset_off_the_boundary(wrong: int) -> None:
    def part(start: int) -> Write:
        return _then(("slice", {"axis": 1, "start": start, "stop": start + 6}))

    both(part(12), part(12), part(wrong))


@pytest.mark.parametrize(
    "wrong", [[(11, 23)], [(12, 23), (-1, 1)], [(0, 12)], [(12, 18), (17, 23)]]
)
def test_shard_off_the_boundary(wrong: list[tuple[int, int]]) -> None:
    def spread(second: list[tuple[int, int]]) -> Plan:
        b = Builder("spread", {"tp": 2})
        x = b.input("x", (4, 12), {1: intervals("tp", [(0, 12)], second)})
        b.output(b.op("all_gather", b.op("square", x), out="y", group="tp", axis=1))
        return b.plan()

    reference = alone(_then(("square", {})))
    proven(reference, spread([(12, 24)]))
    caught(reference, spread(wrong))


def test_literal_that_is_a_dimension() -> None:
    def mean(divisor: str) -> Write:
        return lambda b, x: b.op("mul", b.op("sum", x, axes=(1,), keepdim=True), Number(divisor))

    reference = _then(("mean", {"axes": (1,), "keepdim": True}))
    both(reference, mean("1/24"), mean("1/12"))
    for size in (3, 4, 5, 6, 7, 8, 9, 11, 23, 25):
        caught(alone(reference), rows(mean(f"1/{size}")))


def test_literal_of_the_local_dimension() -> None:
    def spread(literal: str) -> Plan:
        b = Builder("local", {"tp": 2})
        x = b.input("x", (4, 12), {1: "tp"})
        part = b.op("mul", b.op("sum", x, axes=(1,)), Number(literal))
        b.output(b.op("all_reduce", part, out="y", group="tp"))
        return b.plan()

    reference = alone(_then(("mean", {"axes": (1,)})))
    proven(reference, spread("1/24"))
    caught(reference, spread("1/12"))


@pytest.mark.parametrize("wrong", [4, 6])
def test_window_of_another_width(wrong: int) -> None:
    def window(width: int) -> Write:
        def write(b: Builder, x: str) -> str:
            near = b.op("lt", b.op("positions", x, axis=1), Number(width))
            return b.op("where", near, x, Number(0))

        return write

    both(window(5), window(5), window(wrong))


# --- ranks


def _others(n: int, right: bool) -> Plan:
    b = Builder("others", {"dp": n})
    h = b.input("h", (1, 5), {0: "dp"})
    if right:
        total = b.op("all_reduce", h, group="dp")
        own = b.op("square", b.op("sub", total, h))
    else:
        squares = b.op("square", h)
        own = b.op("sub", b.op("all_reduce", squares, group="dp"), squares)
    b.output(b.op("all_gather", own, out="y", group="dp", axis=0))
    return b.plan()


def _others_reference(n: int) -> Plan:
    b = Builder("others")
    h = b.input("h", (n, 5))
    b.output(b.op("square", b.op("sub", b.op("sum", h, axes=(0,), keepdim=True), h), out="y"))
    return b.plan()


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_square_of_the_others_sum(n: int) -> None:
    """(S - h)^2 and the sum of h^2 less h^2 agree on two ranks only."""
    proven(_others_reference(n), _others(n, right=True))
    (proven if n == 2 else caught)(_others_reference(n), _others(n, right=False))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_denominator_that_is_a_sum_over_ranks(n: int) -> None:
    r = Builder("normalised")
    x = r.input("x", (n, 5))
    r.output(r.op("div", x, r.op("sum", r.op("square", x)), out="y"))

    def spread(how: str) -> Plan:
        b = Builder("normalised", {"dp": n})
        x = b.input("x", (1, 5), {0: "dp"})
        own = b.op("sum", b.op("square", x))
        total = own if how == "none" else b.op("all_reduce", own, group="dp", reduction=how)
        b.output(b.op("all_gather", b.op("div", x, total), out="y", group="dp", axis=0))
        return b.plan()

    proven(r.plan(), spread("sum"))
    for how in ("avg", "max", "none"):
        caught(r.plan(), spread(how))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_ring_the_other_way_round(n: int) -> None:
    def ring(step: int) -> Plan:
        b = Builder("ring", {"cp": n})
        x = b.input("x", (3, 4), {0: "cp"})
        b._append(
            "send",
            (x,),
            (),
            {"peer": table("cp", *((i + step) % n for i in range(n))), "batch": "shift"},
            (),
            None,
        )
        b.add(type(b.tensors[x])("got", (3, 4)))
        b._append(
            "receive",
            (),
            ("got",),
            {"peer": table("cp", *((i - step) % n for i in range(n))), "batch": "shift"},
            (),
            None,
        )
        b.output(b.op("all_gather", "got", out="y", group="cp", axis=0))
        return b.plan()

    reference = alone(_then(("roll", {"axis": 0, "shift": 3})), (3 * n, 4))
    proven(reference, ring(1))
    (proven if n == 2 else caught)(reference, ring(-1))


REDUCTIONS = ("sum", "avg", "max", "min", "product")


def _reduced(n: int, reduction: str, scatter: bool) -> Plan:
    b = Builder("reduced", {"tp": n})
    x = b.input("x", (1, 6, 4), {0: "tp"})
    own = b.op("squeeze", x, axis=0)
    if scatter:
        part = b.op("reduce_scatter", own, group="tp", axis=0, reduction=reduction)
        b.output(b.op("all_gather", part, out="y", group="tp", axis=0))
    else:
        b.output(b.op("all_reduce", own, out="y", group="tp", reduction=reduction))
    return b.plan()


@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("n", some_at_once([2, 3], 2))
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reduction_kinds(reduction: str, n: int, scatter: bool) -> None:
    r = Builder("reduced")
    x = r.input("x", (n, 6, 4))
    if reduction == "product":
        parts = r.op("unbind", x, axis=0, out=[f"p{i}" for i in range(n)])
        y = parts[0]
        for part in parts[1:]:
            y = r.op("mul", y, part)
        r.output(r.op("identity", y, out="y"))
    else:
        kind = {"sum": "sum", "avg": "mean", "max": "amax", "min": "amin"}[reduction]
        r.output(r.op(kind, x, axes=(0,), out="y"))
    proven(r.plan(), _reduced(n, reduction, scatter))
    for other in REDUCTIONS:
        if other != reduction:
            caught(r.plan(), _reduced(n, other, scatter))


# --- decisions


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("relu", {}),
        ("abs", {}),
        ("sign", {}),
        ("clamp", {"min": "1/3"}),
        ("clamp", {"max": 1}),
        ("clamp", {"min": -1, "max": 1}),
    ],
)
def test_decision_dropped(kind: str, attributes: dict[str, Any]) -> None:
    both(_then((kind, attributes)), _then((kind, attributes)), _then(("contiguous", {})))


def test_one_side_of_a_clamp_dropped() -> None:
    both(
        _then(("clamp", {"min": -1, "max": 1})),
        _then(("clamp", {"max": 1}), ("clamp", {"min": -1})),
        _then(("clamp", {"min": -1})),
    )


def test_relu_and_its_formulas() -> None:
    relu = _then(("relu", {}))
    both(
        relu, lambda b, x: b.op("maximum", x, Number(0)), lambda b, x: b.op("minimum", x, Number(0))
    )
    both(
        relu,
        lambda b, x: b.op("where", b.op("gt", x, Number(0)), x, Number(0)),
        lambda b, x: b.op("where", b.op("lt", x, Number(0)), x, Number(0)),
    )


def test_clipping_by_the_norm() -> None:
    def clipped(kept: bool) -> Write:
        def write(b: Builder, x: str) -> str:
            norm = b.op("sqrt", b.op("sum", b.op("square", x), axes=(1,), keepdim=True))
            factor = b.op("div", Number(2), norm)
            return b.op("mul", x, b.op("minimum", factor, Number(1)) if kept else factor)

        return write

    both(clipped(True), clipped(True), clipped(False), (4, 6))


def test_maximum_is_no_sum() -> None:
    both(
        _then(("amax", {"axes": (1,)})),
        _then(("amax", {"axes": (1,)})),
        _then(("sum", {"axes": (1,)})),
    )


def test_gradient_through_a_decision() -> None:
    def derived(kind: str, **attributes: Any) -> Plan:
        b = Builder("derived")
        x, g = b.input("x", (4, 6)), b.input("g", (4, 6))
        b.back(kind, [x], b.op(kind, x, **attributes), g, ["dx"], **attributes)
        b.output("dx")
        return b.plan()

    proven(derived("relu"), derived("relu"))
    proven(derived("relu"), derived("clamp", min=0))
    caught(derived("relu"), derived("abs"))
    caught(derived("relu"), derived("identity"))


# --- exponentials


def test_softmax_whose_rows_sum_to_one() -> None:
    """A stage that begins at the softmax does not know that its rows sum to 1: it is widened and
    passes.
    """

    def again(axes: tuple[int, ...]) -> Write:
        def write(b: Builder, x: str) -> str:
            p = b.op("softmax", x, axis=1)
            return b.op("div", p, b.op("sum", p, axes=axes, keepdim=True))

        return write

    both(_then(("softmax", {"axis": 1})), again((1,)), again((0,)), (4, 6))


def test_sum_of_a_softmax_is_one() -> None:
    def times(start: int) -> Write:
        def write(b: Builder, x: str) -> str:
            p = b.op("slice", b.op("softmax", x, axis=1), axis=1, start=start, stop=6)
            return b.op("mul", x, b.op("sum", p, axes=(1,), keepdim=True))

        return write

    both(_then(("contiguous", {})), times(0), times(3), (4, 6))


def test_product_that_vanishes_at_zero() -> None:
    def grown(b: Builder, x: str) -> str:
        return b.op("mul", x, b.op("sub", b.op("exp", x), Number(1)))

    both(
        grown,
        lambda b, x: b.op("sub", b.op("mul", x, b.op("exp", x)), x),
        lambda b, x: b.op("mul", x, Number(0)),
        (4, 6),
    )


def _thirds(depth: int, last: str = "1/3") -> Write:
    """exp(-...exp(-x)) where only thirds of its values are ever there, so that nothing
    can be cut.
    """

    def write(b: Builder, x: str) -> str:
        third = b.op("mul", x, Number("1/3"))
        for level in range(depth):
            e = b.op("exp", b.op("neg", third))
            factor = last if level == depth - 1 else "1/3"
            third = b.op("mul", b.op("mul", b.op("mul", e, Number(factor)), e), e)
        return b.op("mul", third, Number(3))

    return write


def _nested(depth: int) -> Write:
    return _then(*[step for _ in range(depth) for step in (("neg", {}), ("exp", {}))])


def test_exponentials_within_the_chain() -> None:
    both(_nested(2), _thirds(2), _thirds(2, "1/4"), (4, 6))


def test_exponentials_deeper_than_the_chain_are_not_proven() -> None:
    """No level is left on which both sides are defined, which is no agreement."""
    for spread in (alone, rows):
        report = not_proven(alone(_nested(5), (4, 6)), spread(_thirds(5), (4, 6)))
        assert report.verdict == "inconclusive"
        caught(alone(_nested(5), (4, 6)), spread(_thirds(5, "1/4"), (4, 6)))


def test_deep_exponentials_that_can_be_cut() -> None:
    proven(alone(_nested(6), (4, 6)), rows(_nested(6), (4, 6)))


def _online(missing: str = "") -> Plan:
    """Softmax times v over two blocks of keys, the second merged into the first."""
    b = Builder("online")
    s, v = b.input("s", (6, 8)), b.input("v", (8, 5))
    s0, s1 = (b.op("slice", s, axis=1, start=i, stop=i + 4) for i in (0, 4))
    v0, v1 = (b.op("slice", v, axis=0, start=i, stop=i + 4) for i in (0, 4))
    m0 = b.op("amax", s0, axes=(1,), keepdim=True)
    e0 = b.op("exp", b.op("sub", s0, m0))
    l0, o0 = b.op("sum", e0, axes=(1,), keepdim=True), b.op("matmul", e0, v0)
    m = b.op("maximum", m0, b.op("amax", s1, axes=(1,), keepdim=True))
    rescale = b.op("exp", b.op("sub", m0, m))
    e1 = b.op("exp", b.op("sub", s1, m))
    total = b.op(
        "add",
        l0 if missing in ("sum", "both") else b.op("mul", l0, rescale),
        b.op("sum", e1, axes=(1,), keepdim=True),
    )
    out = b.op(
        "add",
        o0 if missing in ("out", "both") else b.op("mul", o0, rescale),
        b.op("matmul", e1, v1),
    )
    b.output(b.op("div", out, total, out="y"))
    return b.plan()


def _ring_merged(missing: str = "") -> Plan:
    """Every rank has some keys; maxima, sums and results are merged over the ranks."""
    b = Builder("merged", {"cp": 2})
    s, v = b.input("s", (6, 4), {1: "cp"}), b.input("v", (4, 5), {0: "cp"})
    m0 = b.op("amax", s, axes=(1,), keepdim=True)
    e0 = b.op("exp", b.op("sub", s, m0))
    l0, o0 = b.op("sum", e0, axes=(1,), keepdim=True), b.op("matmul", e0, v)
    m = m0 if missing == "maximum" else b.op("all_reduce", m0, group="cp", reduction="max")
    rescale = b.op("exp", b.op("sub", m0, m))
    total = b.op(
        "all_reduce", l0 if missing in ("sum", "both") else b.op("mul", l0, rescale), group="cp"
    )
    out = b.op(
        "all_reduce", o0 if missing in ("out", "both") else b.op("mul", o0, rescale), group="cp"
    )
    b.output(b.op("div", out, total, out="y"))
    return b.plan()


def _plain_attention() -> Plan:
    b = Builder("plain")
    s, v = b.input("s", (6, 8)), b.input("v", (8, 5))
    b.output(b.op("matmul", b.op("softmax", s, axis=1), v, out="y"))
    return b.plan()


def test_softmax_is_online_softmax_is_ring_merged() -> None:
    for first in (_plain_attention(), _online()):
        for second in (_online(), _ring_merged()):
            proven(first, second)


@pytest.mark.parametrize("missing", ["sum", "out", "both"])
def test_online_softmax_without_rescale(missing: str) -> None:
    caught(_plain_attention(), _online(missing))


@pytest.mark.parametrize("missing", some_at_once(["sum", "out", "both", "maximum"], 2))
def test_ring_merged_softmax_without_rescale(missing: str) -> None:
    caught(_plain_attention(), _ring_merged(missing))


def _vocabulary_parallel(missing: str = "") -> Plan:
    b = Builder("vocabulary", {"tp": 2})
    z, t = b.input("z", (6, 4), {1: "tp"}), b.input("t", (6,), {}, dtype="int64", bounds=(0, 8))
    own = b.op("amax", z, axes=(1,), keepdim=True)
    top = own if missing == "maximum" else b.op("all_reduce", own, group="tp", reduction="max")
    e = b.op(
        "sum",
        b.op("exp", b.op("sub", z, own if missing == "rescale" else top)),
        axes=(1,),
        keepdim=True,
    )
    total = e if missing == "sum" else b.op("all_reduce", e, group="tp")
    hot = b.op("cast", b.op("one_hot", t, classes=8), dtype="float32")
    mine = b.op(
        "chunk",
        hot,
        axis=1,
        count=2,
        position=table("tp", 0, 0) if missing == "offset" else table("tp", 0, 1),
    )
    score = b.op(
        "all_reduce", b.op("sum", b.op("mul", z, mine), axes=(1,), keepdim=True), group="tp"
    )
    b.output(b.op("mean", b.op("sub", b.op("add", b.op("log", total), top), score), out="loss"))
    return b.plan()


def _plain_loss() -> Plan:
    b = Builder("plain")
    z, t = b.input("z", (6, 8)), b.input("t", (6,), dtype="int64", bounds=(0, 8))
    b.output(b.op("cross_entropy", z, t, out="loss"))
    return b.plan()


def test_cross_entropy_over_the_vocabulary() -> None:
    proven(_plain_loss(), _vocabulary_parallel())


@pytest.mark.parametrize("missing", ["maximum", "rescale", "sum", "offset"])
def test_cross_entropy_over_the_vocabulary_with_a_step_missing(missing: str) -> None:
    caught(_plain_loss(), _vocabulary_parallel(missing))


# --- integers


def _looked_up(shift: int) -> Plan:
    b = Builder("looked-up", {"dp": 2})
    ids, w = (
        b.input("ids", (4,), {0: "dp"}, dtype="int64", bounds=(0, 9)),
        b.parameter("w", (9, 5), {}),
    )
    moved = ids
    if shift:
        there = {"dp": (1,)}
        by = b.op("full", sizes=(4,), value=shift, dtype="int64", where=there)
        size = b.op("full", sizes=(4,), value=9, dtype="int64", where=there)
        more = b.op("add", ids, by, where=there)
        over = b.op("cast", b.op("ge", more, size, where=there), dtype="int64", where=there)
        moved = b.op("sub", more, b.op("mul", size, over, where=there), out="moved", where=there)
        b.op("identity", ids, out="moved", where={"dp": (0,)})
    b.output(b.op("all_gather", b.op("embedding", moved, w), out="y", group="dp", axis=0))
    return b.plan()


def test_ids_shifted_on_one_shard() -> None:
    r = Builder("looked-up")
    r.output(
        r.op(
            "embedding",
            r.input("ids", (8,), dtype="int64", bounds=(0, 9)),
            r.parameter("w", (9, 5)),
            out="y",
        )
    )
    proven(r.plan(), _looked_up(0))
    for shift in (1, 4, 8):
        caught(r.plan(), _looked_up(shift))


def _chosen(kind: str, k: int = 2, order: tuple[int, ...] = (0, 1)) -> Plan:
    """The two best experts' rows, weighted."""
    b = Builder("chosen")
    x, w, router = b.input("x", (6, 4)), b.parameter("w", (5, 4)), b.parameter("router", (5, 4))
    values, places = b.op(
        "topk", b.op("linear", x, router), k=k, out=["values", "places"], largest=kind == "best"
    )
    parts = []
    for slot, weight in enumerate(order):
        row = b.op("embedding", b.op("select", places, axis=1, index=slot), w)
        parts.append(
            b.op(
                "mul", row, b.op("unsqueeze", b.op("select", values, axis=1, index=weight), axis=1)
            )
        )
    b.output(b.op("add", *parts, out="y"))
    return b.plan()


def test_routing() -> None:
    proven(_chosen("best"), _chosen("best"))
    caught(_chosen("best"), _chosen("worst"))
    caught(_chosen("best"), _chosen("best", order=(1, 0)))


def _mean_of_tokens(how: str) -> Plan:
    """The mean of losses over the tokens that count, on two ranks."""
    b = Builder("tokens", {"dp": 2})
    losses, ids = (
        b.input("losses", (3,), {0: "dp"}),
        b.input("ids", (3,), {0: "dp"}, dtype="int64", bounds=(0, 3)),
    )
    counts = b.op("cast", b.op("ne", ids, Number(0)), dtype="float32")
    own, number = b.op("sum", b.op("mul", losses, counts)), b.op("sum", counts)
    if how == "mean of means":
        b.output(b.op("all_reduce", b.op("div", own, number), out="y", group="dp", reduction="avg"))
    elif how == "weighted means":
        weighted = b.op("mul", b.op("div", own, number), number)
        b.output(
            b.op(
                "div",
                b.op("all_reduce", weighted, group="dp"),
                b.op("all_reduce", number, group="dp"),
                out="y",
            )
        )
    else:
        b.output(
            b.op(
                "div",
                b.op("all_reduce", own, group="dp"),
                b.op("all_reduce", number, group="dp"),
                out="y",
            )
        )
    return b.plan()


def _mean_of_tokens_reference() -> Plan:
    b = Builder("tokens")
    losses, ids = b.input("losses", (6,)), b.input("ids", (6,), dtype="int64", bounds=(0, 3))
    counts = b.op("cast", b.op("ne", ids, Number(0)), dtype="float32")
    b.output(b.op("div", b.op("sum", b.op("mul", losses, counts)), b.op("sum", counts), out="y"))
    return b.plan()


def test_mean_of_means() -> None:
    proven(_mean_of_tokens_reference(), _mean_of_tokens("sums"))
    caught(_mean_of_tokens_reference(), _mean_of_tokens("mean of means"))


def test_rank_without_tokens() -> None:
    """Weighting the means mends all but a rank without tokens, whose mean is 0/0."""
    for seed in range(6):
        report = check(
            _mean_of_tokens_reference(), _mean_of_tokens("weighted means"), Options(seed=seed)
        )
        assert report.verdict != "equivalent"


# --- constants


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (2, 2.0000001),
        (2, 2.000000000001),
        ("1/3", 0.3333333),
        (0.1, 0.10000001),
        (1e-5, 1e-6),
        ("sqrt(2)", 1.41421),
    ],
)
def test_constants_that_are_nearly_the_same(right: Any, wrong: Any) -> None:
    def times(number: Any) -> Write:
        return lambda b, x: b.op("mul", x, Number(number))

    proven(alone(times(right)), rows(times(right)))
    not_proven(alone(times(right)), rows(times(wrong)))


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_other_eps(kind: str) -> None:
    def norm(eps: float) -> Write:
        return _then((kind, {"eps": eps}))

    both(norm(1e-5), norm(1e-5), norm(1e-6), (4, 6))


def _masked(literal: Any) -> Write:
    def write(b: Builder, x: str) -> str:
        ahead = b.op("logical_not", b.op("causal_mask", x))
        return b.op("softmax", b.op("masked_fill", x, ahead, Number(literal)), axis=2)

    return write


def test_mask_literals() -> None:
    both(_masked("-inf"), _masked("-inf"), _masked(0), (4, 5, 5))
    both(_masked("-inf"), _masked("-inf"), _masked(-1), (4, 5, 5))


def test_large_negative_mask_is_no_mismatch() -> None:
    """On the reals exp(-10000) is 0: there is no difference to show; where the two are identified,
    the report says so.
    """
    report = reports(alone(_masked("-inf"), (4, 5, 5)), rows(_masked(-10000), (4, 5, 5)))[0]
    assert report.verdict == "inconclusive" or (
        report.verdict == "equivalent" and report.assumptions
    )


# --- justification


def test_values_that_depend_on_themselves() -> None:
    b = Builder("circle")
    x = b.input("x", (4, 6))
    b.add(type(b.tensors[x])("later", (4, 6)))
    y = b.op("add", x, "later", out="y")
    b.op("sub", y, x, out="later")
    b.output(y)
    r = Builder("circle")
    r.output(r.op("identity", r.input("x", (4, 6)), out="y"))
    assert caught(r.plan(), b.plan()).verdict == "invalid"


def test_hints_that_justify_each_other() -> None:
    """Two tensors that are right if the other one is: hints say they are, but nothing
    begins right.
    """
    r = Builder("hinted")
    h = r.op("square", r.input("x", (4, 6)), out="h")
    r.output(r.op("exp", h, out="y"))
    b = Builder("hinted", {"tp": 2})
    x = b.input("x", (4, 6), {})
    first = b.op("add", x, Number(1), hint=lineage("h"))
    second = b.op("all_reduce", first, group="tp", reduction="avg", hint=lineage("h"))
    b.output(b.op("exp", second, out="y"))
    caught(r.plan(), b.plan())
