"""Pairs with dimensions large enough to be reduced, and with what makes reduction hard: offsets,
rolls, views, windows, literals that may be sizes.
"""

from __future__ import annotations

from pitcheck.plan.model import Number, Plan
from zoo.attention import INFINITE
from zoo.builder import Builder, intervals, lineage, table

Pair = tuple[Plan, Plan]


def large_mlp() -> Pair:
    """Hidden 48 on four ranks, with gradients."""
    r = Builder("large-mlp")
    x, g = r.input("x", (24, 20)), r.input("g", (24, 20))
    up, down = r.parameter("up", (48, 20)), r.parameter("down", (20, 48))
    h = r.op("linear", x, up)
    a = r.op("silu", h)
    y = r.op("linear", a, down, out="y")
    r.output(y)
    r.back("linear", [a, down], y, g, ["da", "d_down"])
    r.back("silu", [h], a, "da", ["dh"])
    r.back("linear", [x, up], h, "dh", ["", "d_up"])
    r.gradient("d_up", up)
    r.gradient("d_down", down)

    b = Builder("large-mlp-tp", {"dp": 2, "tp": 4})
    x, g = b.input("x", (12, 20), {0: "dp"}), b.input("g", (12, 20), {0: "dp"})
    up, down = b.parameter("up", (12, 20), {0: "tp"}), b.parameter("down", (20, 12), {1: "tp"})
    h = b.op("linear", x, up)
    a = b.op("silu", h)
    part = b.op("linear", a, down)
    own = b.op("all_reduce", part, group="tp")
    b.output(b.op("all_gather", own, out="y", group="dp", axis=0))
    b.back("linear", [a, down], part, g, ["da", "d_down_own"])
    b.back("silu", [h], a, "da", ["dh"])
    b.back("linear", [x, up], h, "dh", ["", "d_up_own"])
    b.op("all_reduce", "d_up_own", out="d_up", group="dp")
    b.op("all_reduce", "d_down_own", out="d_down", group="dp")
    b.gradient("d_up", up)
    b.gradient("d_down", down)
    return r.plan(), b.plan()


def uneven_shards() -> Pair:
    """Forty-one rows, cut at 13 and 27 into parts of 14 with one of padding."""
    r = Builder("uneven-41")
    x, w = r.input("x", (12, 16)), r.parameter("w", (41, 16))
    r.output(r.op("linear", x, w, out="y"))

    b = Builder("uneven-41-tp", {"tp": 3})
    rows = intervals("tp", [(0, 13), (-1, 1)], [(13, 27)], [(27, 41)])
    x, w = b.input("x", (12, 16), {}), b.parameter("w", (14, 16), {0: rows})
    whole = b.op("all_gather", b.op("linear", x, w), group="tp", axis=1)
    first = b.op("slice", whole, axis=1, start=0, stop=13)
    rest = b.op("slice", whole, axis=1, start=14, stop=42)
    b.output(b.op("cat", first, rest, out="y", axis=1))
    return r.plan(), b.plan()


def sliding_windows() -> Pair:
    """Neighbouring rows are added over the ranks' boundaries: each rank sends its last three rows
    on.
    """
    r = Builder("window")
    x = r.input("x", (36, 5))
    late = r.op("slice", x, axis=0, start=3, stop=36)
    early = r.op("slice", x, axis=0, start=0, stop=33)
    shifted = r.op("pad", early, axis=0, before=3)
    r.output(r.op("add", x, shifted, out="y"))
    r.output(r.op("sub", late, early, out="z"))

    b = Builder("halo", {"cp": 3})
    x = b.input("x", (12, 5), {0: "cp"})
    tail = b.op("slice", x, axis=0, start=9, stop=12)
    b.send(tail, table("cp", 1, 2, 0), (), batch="halo")
    came = b.receive(tail, "came", table("cp", 2, 0, 1), (), batch="halo")
    there = b.op(
        "slice",
        b.op("positions", came, axis=0, offset=table("cp", 0, 12, 24)),
        axis=0,
        start=0,
        stop=1,
    )
    before = b.op("where", b.op("unsqueeze", b.op("gt", there, Number(0)), axis=1), came, Number(0))
    body = b.op("slice", x, axis=0, start=0, stop=9)
    y = b.op("add", x, b.op("cat", before, body, axis=0), out="y")
    b.output(y, spec=lineage("y", {0: "cp"}))
    whole = b.op("all_gather", x, group="cp", axis=0)
    late = b.op("slice", whole, axis=0, start=3, stop=36)
    early = b.op("slice", whole, axis=0, start=0, stop=33)
    b.output(b.op("sub", late, early, out="z"))
    return r.plan(), b.plan()


def rolls_and_flips() -> Pair:
    """A roll by one along a dimension that stays whole, a flip, on rows spread over ranks."""
    r = Builder("roll")
    x, w = r.input("x", (16, 24)), r.parameter("w", (24,))
    moved = r.op("roll", x, axis=1, shift=1)
    r.output(r.op("mul", r.op("add", x, moved), r.op("flip", w, axes=(0,)), out="y"))

    b = Builder("roll-dp", {"dp": 4})
    x, w = b.input("x", (4, 24), {0: "dp"}), b.parameter("w", (24,), {})
    last = b.op("slice", x, axis=1, start=23, stop=24)
    rest = b.op("slice", x, axis=1, start=0, stop=23)
    moved = b.op("cat", last, rest, axis=1)
    back = b.op("flip", w, axes=(0,))
    y = b.op("add", b.op("mul", x, back), b.op("mul", moved, back), out="y")
    b.output(y, spec=lineage("y", {0: "dp"}))
    return r.plan(), b.plan()


def views_of_heads() -> Pair:
    """Six heads of width four, seen by views and permutations; two heads per rank."""
    r = Builder("heads")
    x, w = r.input("x", (10, 8)), r.parameter("w", (24, 8))
    split = r.op("view", r.op("linear", x, w), sizes=(10, 6, 4))
    r.output(r.op("permute", split, out="y", permutation=(1, 2, 0)))
    sums = r.op("sum", split, axes=(2,))
    r.output(r.op("view", sums, out="z", sizes=(60,)))

    b = Builder("heads-tp", {"tp": 3})
    x, w = b.input("x", (10, 8), {}), b.parameter("w", (8, 8), {0: "tp"})
    split = b.op("view", b.op("linear", x, w), sizes=(10, 2, 4))
    own = b.op("permute", split, permutation=(1, 2, 0))
    b.output(b.op("all_gather", own, out="y", group="tp", axis=0))
    sums = b.op("sum", split, axes=(2,))
    whole = b.op("all_gather", sums, group="tp", axis=1)
    b.output(b.op("view", whole, out="z", sizes=(60,)))
    return r.plan(), b.plan()


def transposed_views() -> Pair:
    """view(a, b) and its transpose against view(b, a): only the former is an interleaving."""
    r = Builder("interleave")
    x = r.input("x", (30, 7))
    r.output(
        r.op(
            "view",
            r.op("transpose", r.op("view", x, sizes=(5, 6, 7)), dim0=0, dim1=1),
            out="y",
            sizes=(30, 7),
        )
    )

    b = Builder("interleave-dp", {"tp": 7})
    x = b.input("x", (30, 1), {1: "tp"})
    pairs = b.op("view", x, sizes=(5, 6))
    y = b.op("view", b.op("permute", pairs, permutation=(1, 0)), out="y", sizes=(30, 1))
    b.output(y, spec=lineage("y", {1: "tp"}))
    return r.plan(), b.plan()


def large_rotary() -> Pair:
    """Half-split rotation of width 16, in halves on each rank's head."""
    r = Builder("rotary-16")
    x = r.input("x", (4, 12, 16))
    cos, sin = r.input("cos", (12, 8)), r.input("sin", (12, 8))
    y = r.op("rotary", x, cos, sin, out="y", convention="half")
    r.output(y)
    r.back("rotary", [x, cos, sin], y, r.input("g", (4, 12, 16)), ["dx", "", ""], convention="half")
    r.output("dx")

    b = Builder("rotary-16-tp", {"tp": 4})
    x = b.input("x", (1, 12, 16), {0: "tp"})
    cos, sin = b.input("cos", (12, 8), {}), b.input("sin", (12, 8), {})
    first, second = (b.op("slice", x, axis=2, start=8 * i, stop=8 * i + 8) for i in range(2))
    low = b.op("sub", b.op("mul", first, cos), b.op("mul", second, sin))
    high = b.op("add", b.op("mul", second, cos), b.op("mul", first, sin))
    y = b.op("cat", low, high, out="y", axis=2)
    b.output(y, spec=lineage("y", {0: "tp"}))
    g = b.input("g", (1, 12, 16), {0: "tp"})
    b.back("rotary", [x, cos, sin], y, g, ["dx", "", ""], convention="half")
    b.output("dx", spec=lineage("dx", {0: "tp"}))
    return r.plan(), b.plan()


def large_causal() -> Pair:
    """Queries spread over four ranks, masked by positions; a window of six keys."""
    r = Builder("causal-24")
    q, k, v = (r.input(n, (24, 6)) for n in "qkv")
    s = r.op("einsum", q, k, equation="qd,kd->qk")
    rows = r.op("unsqueeze", r.op("positions", s, axis=0), axis=1)
    columns = r.op("unsqueeze", r.op("positions", s, axis=1), axis=0)
    hidden = r.op(
        "logical_or", r.op("gt", columns, rows), r.op("le", columns, r.op("sub", rows, Number(6)))
    )
    r.output(
        r.op(
            "matmul", r.op("softmax", r.op("masked_fill", s, hidden, INFINITE), axis=1), v, out="o"
        )
    )

    b = Builder("causal-24-cp", {"cp": 4})
    q, k, v = (b.input(n, (6, 6), {0: "cp"}) for n in "qkv")
    keys, values = (b.op("all_gather", x, group="cp", axis=0) for x in (k, v))
    s = b.op("einsum", q, keys, equation="qd,kd->qk")
    rows = b.op("unsqueeze", b.op("positions", s, axis=0, offset=table("cp", 0, 6, 12, 18)), axis=1)
    columns = b.op("unsqueeze", b.op("positions", s, axis=1), axis=0)
    visible = b.op(
        "logical_and", b.op("le", columns, rows), b.op("gt", columns, b.op("sub", rows, Number(6)))
    )
    o = b.op(
        "matmul",
        b.op("softmax", b.op("masked_fill", s, b.op("logical_not", visible), INFINITE), axis=1),
        values,
        out="o",
    )
    b.output(o, spec=lineage("o", {0: "cp"}))
    return r.plan(), b.plan()


def large_vocabulary() -> Pair:
    """Forty classes on four ranks, 12 tokens, vocabulary-parallel embedding and cross-entropy by
    ranges.
    """
    r = Builder("vocabulary")
    ids = r.input("ids", (12,), dtype="int64", bounds=(0, 40))
    t = r.input("t", (12,), dtype="int64", bounds=(0, 40))
    w = r.parameter("w", (40, 6))
    x = r.op("embedding", ids, w)
    z = r.op("linear", x, w)
    r.output(r.op("cross_entropy", z, t, out="loss"))

    b = Builder("vocabulary-tp", {"tp": 4})
    ids = b.input("ids", (12,), {}, dtype="int64", bounds=(0, 40))
    t = b.input("t", (12,), {}, dtype="int64", bounds=(0, 40))
    w = b.parameter("w", (10, 6), {0: "tp"})
    start = b.op(
        "slice",
        b.op("positions", w, axis=0, offset=table("tp", 0, 10, 20, 30)),
        axis=0,
        start=0,
        stop=1,
    )

    def own(tokens: str) -> tuple[str, str]:
        local = b.op("sub", tokens, start)
        away = b.op("logical_or", b.op("lt", local, Number(0)), b.op("ge", local, Number(10)))
        return b.op("masked_fill", local, away, Number(0)), away

    near, away = own(ids)
    rows = b.op(
        "masked_fill", b.op("embedding", near, w), b.op("unsqueeze", away, axis=1), Number(0)
    )
    x = b.op("all_reduce", rows, group="tp")
    z = b.op("linear", x, w)
    top = b.op("all_reduce", b.op("amax", z, axes=(1,), keepdim=True), group="tp", reduction="max")
    shifted = b.op("sub", z, top)
    near, away = own(t)
    picked = b.op(
        "squeeze", b.op("gather", shifted, b.op("unsqueeze", near, axis=1), axis=1), axis=1
    )
    score = b.op("all_reduce", b.op("masked_fill", picked, away, Number(0)), group="tp")
    total = b.op("all_reduce", b.op("sum", b.op("exp", shifted), axes=(1,)), group="tp")
    b.output(b.op("mean", b.op("sub", b.op("log", total), score), out="loss"))
    return r.plan(), b.plan()


def literal_sizes() -> Pair:
    """Means written with literals: one of the hidden size, one of the number of ranks."""
    r = Builder("literals")
    x, w = r.input("x", (15, 20)), r.parameter("w", (20,))
    n = r.op("rms_norm", x, w, eps="1/1000")
    r.output(r.op("mean", n, out="loss"))

    b = Builder("literals-tp", {"tp": 5})
    x, w = b.input("x", (15, 4), {1: "tp"}), b.parameter("w", (4,), {0: "tp"})
    squares = b.op(
        "all_reduce", b.op("sum", b.op("square", x), axes=(1,), keepdim=True), group="tp"
    )
    root = b.op("rsqrt", b.op("add", b.op("mul", squares, Number("1/20")), Number("1/1000")))
    n = b.op("mul", b.op("mul", x, root), w)
    own = b.op("div", b.op("sum", n), Number(300))
    b.output(b.op("all_reduce", own, out="loss", group="tp"))
    return r.plan(), b.plan()


PAIRS = {
    "large_mlp": large_mlp,
    "uneven_shards": uneven_shards,
    "sliding_windows": sliding_windows,
    "rolls_and_flips": rolls_and_flips,
    "views_of_heads": views_of_heads,
    "transposed_views": transposed_views,
    "large_rotary": large_rotary,
    "large_causal": large_causal,
    "large_vocabulary": large_vocabulary,
    "literal_sizes": literal_sizes,
}
