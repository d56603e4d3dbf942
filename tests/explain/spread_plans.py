"""Models spread over ranks by hand, right and with one mistake that is easily made."""

from __future__ import annotations

from support.explain_plans import Pair
from zoo.builder import Builder, table

from pitcheck.plan.model import Number, Plan

HEADS, SIZE, TOKENS = 4, 3, 6


def exchanged_heads(wrong: str = "") -> Pair:
    """Attention of a kind whose ranks have part of the tokens outside and part of the heads inside.

    ``back``: what comes back is taken for [tokens, heads] and lies as [heads, tokens]; ``there``:
    the same on the way in.
    """

    def mixed(b: Builder, h: str) -> str:
        return b.op("mul", b.op("softmax", h, axis=0), b.op("cumsum", h, axis=0))

    r = Builder("reference")
    x, w = r.input("x", (TOKENS, HEADS, SIZE)), r.parameter("w", (5, HEADS * SIZE))
    h = r.op("reshape", mixed(r, x), sizes=(TOKENS, HEADS * SIZE))
    r.output(r.op("linear", h, w, out="y"))
    cp, rows, heads = 2, TOKENS // 2, HEADS // 2
    b = Builder("heads", {"cp": cp})
    x, w = b.input("x", (rows, HEADS, SIZE), {0: "cp"}), b.parameter("w", (5, HEADS * SIZE), {})
    if wrong == "there":
        parts = b.op("reshape", x, sizes=(cp, rows, heads, SIZE))
    else:
        parts = b.op("reshape", x, sizes=(rows, cp, heads, SIZE))
        parts = b.op("permute", parts, permutation=(1, 0, 2, 3))
    got = b.op("all_to_all", parts, split_axis=0, concat_axis=0, group="cp", out="of_heads")
    h = b.op("reshape", got, sizes=(TOKENS, heads, SIZE))
    sent = b.op("reshape", mixed(b, h), sizes=(cp, rows, heads, SIZE))
    back = b.op("all_to_all", sent, split_axis=0, concat_axis=0, group="cp", out="of_tokens")
    if wrong != "back":
        back = b.op("permute", back, permutation=(1, 0, 2, 3), out="in_order")
    h = b.op("reshape", back, sizes=(rows, HEADS * SIZE), out="side_by_side")
    b.op("linear", h, w, out="own")
    b.output(b.op("all_gather", "own", axis=0, group="cp", out="y"))
    return r.plan(), b.plan()


def gathered(axis: int) -> Pair:
    """A square matrix of which ranks hold columns, gathered along an axis."""
    r = Builder("reference")
    r.output(r.op("matmul", r.input("x", (4, 4)), r.op("tanh", r.input("k", (4, 4))), out="y"))
    b = Builder("columns", {"tp": 2})
    x, k = b.input("x", (4, 4), {}), b.input("k", (4, 2), {1: "tp"})
    k = b.op("tanh", k)
    if axis == 1:
        whole = b.op("all_gather", k, axis=1, group="tp", out="whole")
    else:
        whole = b.op("reshape", b.op("all_gather", k, axis=0, group="tp", out="tall"), sizes=(4, 4))
    b.output(b.op("matmul", x, whole, out="y"))
    return r.plan(), b.plan()


def mean_loss(wrong: str = "") -> Pair:
    """The mean over all rows; every rank has the mean of its own."""
    r = Builder("reference")
    x, w = r.input("x", (8, 3)), r.parameter("w", (1, 3))
    r.output(r.op("mean", r.op("square", r.op("linear", x, w)), out="loss"))
    b = Builder("dp", {"dp": 4})
    x, w = b.input("x", (2, 3), {0: "dp"}), b.parameter("w", (1, 3), {})
    local = b.op("mean", b.op("square", b.op("linear", x, w)), out="local")
    total = b.op("all_reduce", local, group="dp", out="loss" if wrong == "sum" else "total")
    if not wrong:
        b.op("div", total, Number(4), out="loss")
    if wrong == "twice":
        b.op("div", b.op("div", total, Number(4), out="once"), Number(4), out="loss")
    b.output("loss")
    return r.plan(), b.plan()


def scattered(axis: int) -> Pair:
    """Terms of a square matrix, reduced and scattered along an axis, and used as its rows."""
    r = Builder("reference")
    x, w = r.input("x", (4, 6)), r.parameter("w", (4, 6))
    r.output(r.op("tanh", r.op("linear", x, w, out="h"), out="y"))
    b = Builder("rows", {"tp": 2})
    x, w = b.input("x", (4, 3), {1: "tp"}), b.parameter("w", (4, 3), {1: "tp"})
    term = b.op("linear", x, w, out="term")
    part = b.op("reduce_scatter", term, axis=axis, group="tp", out="part")
    if axis != 0:
        part = b.op("reshape", part, sizes=(2, 4), out="taken")
    b.op("tanh", part, out="own")
    b.output(b.op("all_gather", "own", axis=0, group="tp", out="y"))
    return r.plan(), b.plan()


def updated(stale: bool) -> Pair:
    """Two steps on one weight; (stale) the second one gathers the shard of before the first."""

    r = Builder("reference")
    x, w, g = r.input("x", (4, 3)), r.parameter("w", (6, 3)), r.input("g", (6, 3))
    first = r.op("linear", x, w, out="y0")
    new = r.op("sub", w, r.op("mul", g, Number("1/10")), out="w_new")
    r.output(first)
    r.output(r.op("linear", x, new, out="y1"))
    b = Builder("shards", {"dp": 2})
    x, w = b.input("x", (4, 3), {}), b.parameter("w", (3, 3), {0: "dp"})
    g = b.input("g", (3, 3), {0: "dp"})
    whole = b.op("all_gather", w, axis=0, group="dp", out="whole0")
    b.output(b.op("linear", x, whole, out="y0"))
    new = b.op("sub", w, b.op("mul", g, Number("1/10")), out="w_new")
    again = b.op("all_gather", w if stale else new, axis=0, group="dp", out="whole1")
    b.output(b.op("linear", x, again, out="y1"))
    return r.plan(), b.plan()


def vocabulary(*offsets: int) -> Pair:
    """A table of words of which ranks have rows from an offset on; what a rank lacks is zero."""
    r = Builder("reference")
    ids, w = r.input("ids", (5,), dtype="int64", bounds=(0, 8)), r.parameter("w", (8, 3))
    r.output(r.op("tanh", r.op("embedding", ids, w), out="y"))
    b = Builder("words", {"tp": 2})
    ids = b.input("ids", (5,), {}, dtype="int64", bounds=(0, 8))
    w = b.parameter("w", (4, 3), {0: "tp"})
    words = b.op("positions", w, axis=0, offset=table("tp", *offsets), out="words")
    chosen = b.op("eq", b.op("unsqueeze", ids, axis=1), b.op("unsqueeze", words, axis=0))
    own = b.op("matmul", b.op("cast", chosen, dtype="float32"), w, out="own")
    b.output(b.op("tanh", b.op("all_reduce", own, group="tp"), out="y"))
    return r.plan(), b.plan()


def positions(*offsets: int) -> Pair:
    """Tokens cut over ranks, with a table of positions that begins at an offset."""
    r = Builder("reference")
    x, t = r.input("x", (6, 4)), r.parameter("t", (6, 4))
    r.output(r.op("tanh", r.op("add", x, t), out="y"))
    b = Builder("tokens", {"cp": 2})
    x, t = b.input("x", (3, 4), {0: "cp"}), b.parameter("t", (6, 4), {})
    stops = tuple(offset + 3 for offset in offsets)
    own = b.op("slice", t, axis=0, start=table("cp", *offsets), stop=table("cp", *stops), out="own")
    b.op("tanh", b.op("add", x, own), out="part")
    b.output(b.op("all_gather", "part", axis=0, group="cp", out="y"))
    return r.plan(), b.plan()


def over_axes(group: str) -> Pair:
    """A weight's gradient on a mesh of dp and tp, summed over one of them."""
    r = Builder("reference")
    x, w, g = r.input("x", (4, 3)), r.parameter("w", (6, 3)), r.input("g", (4, 6))
    r.back("linear", [x, w], r.op("linear", x, w), g, ["", "dw"])
    r.gradient("dw", w)
    b = Builder("grid", {"dp": 2, "tp": 2})
    x, w = b.input("x", (2, 3), {0: "dp"}), b.parameter("w", (3, 3), {0: "tp"})
    g = b.input("g", (2, 3), {0: "dp", 1: "tp"})
    b.back("linear", [x, w], b.op("linear", x, w), g, ["", "term"])
    b.op("all_reduce", "term", group=group, out="dw")
    b.gradient("dw", w)
    return r.plan(), b.plan()


def gated(wrong: bool) -> Pair:
    """A gated layer; (wrong) the function is that of the other half."""
    plans = []
    for mesh in (None, {"tp": 2}):
        b = Builder("reference" if mesh is None else "tp", mesh)
        size = 6 if mesh is None else 3
        cut = [None] if mesh is None else [{0: "tp"}]
        whole = [None] if mesh is None else [{}]
        x = b.input("x", (4, 5), *whole)
        gate = b.op("linear", x, b.parameter("gate", (size, 5), *cut), out="g")
        up = b.op("linear", x, b.parameter("up", (size, 5), *cut), out="u")
        if wrong and mesh is not None:
            gate, up = up, gate
        h = b.op("mul", b.op("silu", gate), up, out="h")
        down = b.parameter("down", (5, size), *([None] if mesh is None else [{1: "tp"}]))
        if mesh is None:
            b.output(b.op("linear", h, down, out="y"))
        else:
            b.output(b.op("all_reduce", b.op("linear", h, down), group="tp", out="y"))
        plans.append(b.plan())
    return plans[0], plans[1]


def halved(wrong: bool) -> Pair:
    """A sum of terms with a constant of one half; (wrong) it is a quarter."""

    def plan(name: str, mesh: dict[str, int] | None, number: str) -> Plan:
        b = Builder(name, mesh)
        given = [{}] if mesh else [None]
        size = 3 if mesh else 6
        x = b.input("x", (4, size), *([{1: "tp"}] if mesh else [None]))
        w = b.parameter("w", (5, size), *([{1: "tp"}] if mesh else [None]))
        bias = b.parameter("b", (5,), *given)
        y = b.op("linear", x, w)
        y = b.op("all_reduce", y, group="tp") if mesh else y
        b.output(b.op("add", y, b.op("mul", bias, Number(number), out="halved"), out="y"))
        return b.plan()

    return plan("reference", None, "1/2"), plan("tp", {"tp": 2}, "1/4" if wrong else "1/2")


def never_synchronised(right: bool) -> Pair:
    """Shards of two weights with the gradients of the rank's rows, not reduced and scattered."""
    r, b = Builder("reference"), Builder("shards", {"dp": 2})
    for n in range(2):
        x, w, g = r.input(f"x{n}", (4, 3)), r.parameter(f"w{n}", (6, 3)), r.input(f"g{n}", (4, 6))
        r.back("linear", [x, w], r.op("linear", x, w), g, ["", f"dw{n}"])
        r.output(r.op("sub", w, f"dw{n}", out=f"new{n}"))
        x, w = b.input(f"x{n}", (2, 3), {0: "dp"}), b.parameter(f"w{n}", (3, 3), {0: "dp"})
        g = b.input(f"g{n}", (2, 6), {0: "dp"})
        whole = b.op("all_gather", w, axis=0, group="dp", out=f"whole{n}")
        b.back("linear", [x, whole], b.op("linear", x, whole), g, ["", f"term{n}"])
        if right:
            shard = b.op("reduce_scatter", f"term{n}", axis=0, group="dp", out=f"shard{n}")
        else:
            shard = b.op(
                "chunk", f"term{n}", axis=0, count=2, position=table("dp", 0, 1), out=f"shard{n}"
            )
        b.op("sub", w, shard, out=f"updated{n}")
        b.output(b.op("all_gather", f"updated{n}", axis=0, group="dp", out=f"new{n}"))
    return r.plan(), b.plan()


def updated_by_owners(*roots: int, owners: tuple[int, ...] | None = None, size: int = 2) -> Pair:
    """Two weights, each updated by one rank, its owner, and broadcast from a root.

    ``owners``: by default the roots; a weight without an owner is updated by no rank.
    """
    owners = roots if owners is None else owners
    r, b = Builder("reference"), Builder("owners", {"dp": size})
    for n, root in enumerate(roots):
        w, g = r.parameter(f"w{n}", (4, 3)), r.input(f"g{n}", (4, 3))
        r.output(r.op("sub", w, r.op("mul", g, Number("1/10")), out=f"new{n}"))
        w, g = b.parameter(f"w{n}", (4, 3), {}), b.input(f"g{n}", (4, 3), {})
        step = b.op("mul", g, Number("1/10"), out=f"step{n}")
        owner = owners[n : n + 1]
        others = tuple(rank for rank in range(size) if rank not in owner)
        if owner:
            b.op("sub", w, step, out=f"held{n}", where={"dp": owner})
        b.op("identity", w, out=f"held{n}", where={"dp": others})
        b.output(b.op("broadcast", f"held{n}", group="dp", root=root, out=f"new{n}"))
    return r.plan(), b.plan()
