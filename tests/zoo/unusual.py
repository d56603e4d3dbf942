"""Unusual but right: uneven shards, groups of one, communication that cancels, replicated
computation, other orders, false hints.
"""

from __future__ import annotations

from pitcheck.plan.model import Group, Lineage, Number, Plan, Shard
from zoo.builder import Builder, intervals, lineage, table

Pair = tuple[Plan, Plan]


def _two_layers() -> Plan:
    """y = relu-free two-layer network with tanh; gradients of both weights."""
    b = Builder("two-layers")
    x, g = b.input("x", (4, 3)), b.input("g", (4, 2))
    w0, w1 = b.parameter("w0", (6, 3)), b.parameter("w1", (2, 6))
    h = b.op("linear", x, w0, out="h")
    a = b.op("tanh", h, out="a")
    y = b.op("linear", a, w1, out="y")
    b.output(y)
    b.back("linear", [a, w1], y, g, ["da", "dw1"])
    b.back("tanh", [h], a, "da", ["dh"])
    b.back("linear", [x, w0], h, "dh", ["", "dw0"])
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return b.plan()


def _run_two_layers(b: Builder, x: str, g: str, w0: str, w1: str, y: str = "") -> str:
    h = b.op("linear", x, w0)
    a = b.op("tanh", h)
    found: str = b.op("linear", a, w1, out=y)
    b.back("linear", [a, w1], found, g, ["da", "dw1_own"])
    b.back("tanh", [h], a, "da", ["dh"])
    b.back("linear", [x, w0], h, "dh", ["", "dw0_own"])
    return found


def replicated() -> Pair:
    """Every rank computes everything."""
    b = Builder("replicated", {"dp": 3})
    b.output(
        _run_two_layers(
            b,
            b.input("x", (4, 3)),
            b.input("g", (4, 2)),
            b.parameter("w0", (6, 3)),
            b.parameter("w1", (2, 6)),
            "y",
        )
    )
    b.gradient("dw0_own", "w0", "dw0")
    b.gradient("dw1_own", "w1", "dw1")
    return _two_layers(), b.plan()


def groups_of_one() -> Pair:
    """All collectives there could be, each among one rank."""
    b = Builder("ones", {"dp": 1, "tp": 1})
    x, g = b.input("x", (4, 3), {0: "dp"}), b.input("g", (4, 2), {0: "dp"})
    w0, w1 = b.parameter("w0", (6, 3), {0: "tp"}), b.parameter("w1", (2, 6), {1: "tp"})
    gathered = b.op("all_gather", x, group="tp", axis=0)
    y = _run_two_layers(b, gathered, g, w0, w1)
    scattered = b.op("reduce_scatter", y, group="tp", axis=1)
    b.output(b.op("all_to_all", scattered, out="y", group="dp", split_axis=0, concat_axis=1))
    b.op("all_reduce", "dw0_own", out="dw0", group=("dp", "tp"), reduction="avg")
    b.op("broadcast", "dw1_own", out="dw1", group=[[0]], root=0)
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return _two_layers(), b.plan()


def communication_that_cancels() -> Pair:
    """Sums over replicas divided by their number; a gather and its chunk; a maximum over equal
    values; two broadcasts.
    """
    b = Builder("cancels", {"dp": 3})
    x, g = b.input("x", (4, 3), {}), b.input("g", (4, 2), {})
    w0, w1 = b.parameter("w0", (6, 3), {}), b.parameter("w1", (2, 6), {})
    thrice = b.op("all_reduce", x, group="dp")
    same = b.op("div", thrice, Number(3))
    own = _run_two_layers(b, same, g, w0, w1)
    top = b.op("all_reduce", own, group="dp", reduction="max")
    again = b.op("all_gather", top, group="dp", axis=0)
    b.output(b.op("chunk", again, out="y", axis=0, count=3, position=table("dp", 2, 0, 1)))
    b.op("all_reduce", "dw0_own", out="dw0", group="dp", reduction="avg")
    first = b.op("broadcast", "dw1_own", group="dp", root=2)
    b.op("broadcast", first, out="dw1", group="dp", root=0)
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return _two_layers(), b.plan()


def uneven_rows() -> Pair:
    """Rank 0 has three of five hidden units, rank 1 two and one of zeros that it makes itself;
    shares of a row-parallel layer.
    """
    r = Builder("uneven")
    x, w, v = r.input("x", (2, 3)), r.parameter("w", (5, 3)), r.parameter("v", (4, 5))
    r.output(r.op("linear", r.op("linear", x, w), v, out="y"))

    b = Builder("uneven-tp", {"tp": 2})
    x = b.input("x", (2, 3), {})
    w = b.parameter("w", (3, 3), {0: intervals("tp", [(0, 3)], [(3, 5), (-1, 1)])})
    v = b.parameter("v", (4, 3), {1: intervals("tp", [(0, 3)], [(3, 5), (-1, 1)])})
    h = b.op("linear", x, w)
    column = b.op("positions", h, axis=1, offset=table("tp", 0, 3))
    real = b.op("lt", column, Number(5))
    kept = b.op("where", real, h, Number(0))
    columns = b.op("where", real, v, Number(0))
    part = b.op("linear", kept, columns)
    b.output(b.op("all_reduce", part, out="y", group="tp"))
    return r.plan(), b.plan()


def uneven_batch() -> Pair:
    """Five rows, three on rank 0 and three on rank 1, of which one is held by both; rank 1's first
    is masked from the gradient's sum.
    """
    r = Builder("linear")
    x, g, w = r.input("x", (5, 3)), r.input("g", (5, 2)), r.parameter("w", (2, 3))
    y = r.op("linear", x, w, out="y")
    r.output(y)
    r.back("linear", [x, w], y, g, ["", "dw"])
    r.gradient("dw", w)

    rows = intervals("dp", [(0, 3)], [(2, 5)])
    b = Builder("overlap", {"dp": 2})
    x, g, w = (
        b.input("x", (3, 3), {0: rows}),
        b.input("g", (3, 2), {0: rows}),
        b.parameter("w", (2, 3), {}),
    )
    y = b.op("linear", x, w, out="y")
    b.output(y, spec=lineage("y", {0: rows}))
    place = b.op("unsqueeze", b.op("positions", g, axis=0, offset=table("dp", 1, 0)), axis=1)
    own = b.op("where", b.op("gt", place, Number(0)), g, Number(0))
    b.back("linear", [x, w], y, own, ["", "dw_own"])
    b.op("all_reduce", "dw_own", out="dw", group="dp")
    b.gradient("dw", w)
    return r.plan(), b.plan()


def reversed_shards() -> Pair:
    """Rank lists in descending order: the shards are held, and gathered, the other way round."""
    b = Builder("reversed", {"tp": 2})
    x, g = b.input("x", (4, 3), {}), b.input("g", (4, 2), {})
    w0 = b.parameter("w0", (3, 3), {0: intervals("tp", [(3, 6)], [(0, 3)])})
    w1 = b.parameter("w1", (2, 3), {1: intervals("tp", [(3, 6)], [(0, 3)])})
    y = _run_two_layers(b, x, g, w0, w1)
    flat = b.op("transpose", y, dim0=0, dim1=1)
    scattered = b.op("reduce_scatter", flat, group=[[1, 0]], axis=0)
    whole = b.op("all_gather", scattered, group=[[1, 0]], axis=0)
    b.output(b.op("transpose", whole, out="y", dim0=0, dim1=1))
    b.gradient("dw0_own", w0, "dw0")
    b.gradient("dw1_own", w1, "dw1")
    return _two_layers(), b.plan()


def transposed_weights() -> Pair:
    """The first layer multiplies with a transposed copy; the gradient is transposed back."""
    b = Builder("transposed", {"tp": 2})
    x, g = b.input("x", (4, 3), {}), b.input("g", (4, 2), {})
    w0, w1 = b.parameter("w0", (3, 3), {0: "tp"}), b.parameter("w1", (2, 3), {1: "tp"})
    wt = b.op("transpose", w0, dim0=0, dim1=1)
    h = b.op("matmul", x, wt)
    a = b.op("sub", b.op("mul", b.op("sigmoid", b.op("mul", h, Number(2))), Number(2)), Number(1))
    part = b.op("einsum", a, w1, equation="bh,oh->bo")
    b.output(b.op("all_reduce", part, out="y", group="tp"))
    b.op("einsum", g, a, out="dw1", equation="bo,bh->oh")
    da = b.op("matmul", g, w1)
    dh = b.op("sub", da, b.op("mul", da, b.op("square", a)))
    dwt = b.op("matmul", b.op("transpose", x, dim0=0, dim1=1), dh)
    b.op("transpose", dwt, out="dw0", dim0=0, dim1=1)
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return _two_layers(), b.plan()


def other_orders() -> Pair:
    """A sum over four ranks as two sums over two, in the other order of axes; a product regrouped;
    a mean of means of equal parts.
    """
    r = Builder("orders")
    x, w = r.input("x", (8, 3)), r.parameter("w", (8, 3))
    p = r.op("mul", x, w, out="p")
    r.output(r.op("mean", p, out="loss"))
    r.back("mean", [p], "loss", r.constant("one", 1.0), ["dp"])
    r.back("mul", [x, w], p, "dp", ["", "dw"])
    r.gradient("dw", w)

    b = Builder("orders-2d", {"a": 2, "b": 2})
    x, w = b.input("x", (2, 3), {0: ("b", "a")}), b.parameter("w", (2, 3), {0: ("b", "a")})
    p = b.op("mul", w, x)
    rows = b.op("mean", p, axes=(1,))
    own = b.op("mean", rows)
    first = b.op("all_reduce", own, group="b", reduction="avg")
    b.output(b.op("all_reduce", first, out="loss", group="a", reduction="avg"))
    b.op("mul", b.op("div", x, Number(3)), Number("1/8"), out="dw")
    b.gradient("dw", w)
    return r.plan(), b.plan()


def partial_inputs() -> Pair:
    """An input that arrives as terms of a sum, and one with a scale."""
    r = Builder("partial")
    x, w = r.input("x", (4, 3)), r.parameter("w", (2, 3))
    r.output(r.op("linear", x, w, out="y"))

    b = Builder("partial-tp", {"tp": 3})
    x = b.input("x", (4, 3), Lineage("x", partial=("tp",)))
    w = b.parameter("w", (2, 3), Lineage("w", scale="1/2"))
    part = b.op("linear", x, w)
    summed = b.op("all_reduce", part, group="tp")
    b.output(b.op("add", summed, summed, out="y"))
    return r.plan(), b.plan()


def rank_lists() -> Pair:
    """Partial sums over explicit rank lists that no mesh axis names; two groups of two out of a
    line of four.
    """
    r = Builder("lists")
    x, w = r.input("x", (4, 6)), r.parameter("w", (2, 6))
    r.output(r.op("linear", x, w, out="y"))

    b = Builder("lists-4", {"rank": 4})
    cut = intervals("rank", [(0, 3)], [(0, 3)], [(3, 6)], [(3, 6)])
    rows = intervals("rank", [(0, 2)], [(2, 4)], [(2, 4)], [(0, 2)])
    x = b.input("x", (2, 3), Lineage("x", (Shard(0, intervals=rows), Shard(1, intervals=cut))))
    w = b.parameter("w", (2, 3), {1: cut})
    part = b.op("linear", x, w)
    half = b.op("all_reduce", part, group=[[3, 0], [1, 2]])
    b.output(b.op("all_gather", half, out="y", group=Group(ranks=((0, 1), (3, 2))), axis=0))
    return r.plan(), b.plan()


def different_ranks() -> Pair:
    """Two ranks compute the same by different records: one squares, the other multiplies; one sums
    by rows first.
    """
    r = Builder("different")
    x, w = r.input("x", (4, 3)), r.parameter("w", (3,))
    r.output(r.op("sum", r.op("square", r.op("mul", x, w)), out="loss"))

    b = Builder("different-dp", {"dp": 2})
    x, w = b.input("x", (2, 3), {0: "dp"}), b.parameter("w", (3,), {})
    zero, one = {"dp": (0,)}, {"dp": (1,)}
    p = b.op("mul", x, w)
    q = b.op("square", p, out="q", where=zero)
    b.op("mul", p, p, out=q, where=one)
    s = b.op("sum", q, out="s", where=zero)
    b.op("sum", b.op("sum", q, axes=(0,), where=one), out=s, where=one)
    b.output(b.op("all_reduce", s, out="loss", group="dp"))
    return r.plan(), b.plan()


def false_hints() -> Pair:
    """A right column-parallel layer whose hints in between are all false."""
    b = Builder("false-hints", {"tp": 2})
    x, g = b.input("x", (4, 3), {}), b.input("g", (4, 2), {})
    w0, w1 = b.parameter("w0", (3, 3), {0: "tp"}), b.parameter("w1", (2, 3), {1: "tp"})
    h = b.op("linear", x, w0, hint=lineage("a", {1: "tp"}))
    a = b.op("tanh", h, hint=lineage("a", {1: intervals("tp", [(3, 6)], [(0, 3)])}))
    part = b.op("linear", a, w1, hint=lineage("y", {}))
    b.output(b.op("all_reduce", part, out="y", group="tp", hint=lineage("y", {}, scale="2")))
    b.back("linear", [a, w1], part, g, ["da", "dw1"])
    b.back("tanh", [h], a, "da", ["dh"])
    b.back("linear", [x, w0], h, "dh", ["", "dw0"])
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return _two_layers(), b.plan()


def empty_mesh() -> Pair:
    """A mesh without axes on both sides, and another way to write the same."""
    r = Builder("empty")
    r.mesh = ()
    x, w = r.input("x", (4, 3)), r.parameter("w", (2, 3))
    r.output(r.op("linear", x, w, out="y"))
    b = Builder("empty-too")
    b.mesh = ()
    x, w = b.input("x", (4, 3)), b.parameter("w", (2, 3))
    b.output(b.op("matmul", x, b.op("permute", w, permutation=(1, 0)), out="y"))
    return r.plan(), b.plan()


def recomputation() -> Pair:
    """The forward pass is run again before the backward pass."""
    b = Builder("recompute", {"tp": 2})
    x, g = b.input("x", (4, 3), {}), b.input("g", (4, 2), {})
    w0, w1 = b.parameter("w0", (3, 3), {0: "tp"}), b.parameter("w1", (2, 3), {1: "tp"})
    a = b.op("tanh", b.op("linear", x, w0))
    part = b.op("linear", a, w1)
    b.output(b.op("all_reduce", part, out="y", group="tp"))
    h = b.op("linear", x, w0)
    again = b.op("tanh", h)
    y = b.op("linear", again, w1)
    b.back("linear", [again, w1], y, g, ["da", "dw1"])
    b.back("tanh", [h], again, "da", ["dh"])
    b.back("linear", [x, w0], h, "dh", ["", "dw0"])
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return _two_layers(), b.plan()


def zigzag() -> Pair:
    """Zig-zag context parallelism: rank r holds block r and block 3 - r of the sequence."""
    r = Builder("zigzag")
    x, w = r.input("x", (8, 3)), r.parameter("w", (3,))
    y = r.op("rms_norm", x, w, out="y", eps="1/100")
    r.output(y)
    r.back("rms_norm", [x, w], y, r.input("g", (8, 3)), ["dx", "dw"], eps="1/100")
    r.output("dx")
    r.gradient("dw", w)

    rows = intervals("cp", [(0, 2), (6, 8)], [(2, 4), (4, 6)])
    b = Builder("zigzag-cp", {"cp": 2})
    x, w = b.input("x", (4, 3), {0: rows}), b.parameter("w", (3,), {})
    y = b.op("rms_norm", x, w, out="y", eps="1/100")
    b.output(y, spec=lineage("y", {0: rows}))
    b.back("rms_norm", [x, w], y, b.input("g", (4, 3), {0: rows}), ["dx", "dw_own"], eps="1/100")
    b.output("dx", spec=lineage("dx", {0: rows}))
    b.op("all_reduce", "dw_own", out="dw", group="cp")
    b.gradient("dw", w)
    return r.plan(), b.plan()


def shared_parameter() -> Pair:
    """One weight used twice, on two ranks of a pipeline; its two gradients are summed over the
    stages.
    """
    r = Builder("tied")
    x, g, w = r.input("x", (4, 3)), r.input("g", (4, 3)), r.parameter("w", (3, 3))
    h = r.op("linear", x, w)
    y = r.op("linear", h, w, out="y")
    r.output(y)
    r.back("linear", [h, w], y, g, ["dh", "dw_late"])
    r.back("linear", [x, w], h, "dh", ["", "dw_early"])
    r.gradient(r.op("add", "dw_late", "dw_early", out="dw"), w)

    b = Builder("tied-pp", {"pp": 2})
    first, last = {"pp": (0,)}, {"pp": (1,)}
    x, g, w = b.input("x", (4, 3)), b.input("g", (4, 3)), b.parameter("w", (3, 3))
    h = b.op("linear", x, w, where=first)
    b.send(h, 1, first)
    came = b.receive(h, "came", 0, last)
    y = b.op("linear", came, w, out="y", where=last)
    b.output(y)
    b.back("linear", [came, w], y, g, ["dh", "dw_own"], where=last)
    b.send("dh", 0, last)
    b.receive("dh", "dh_came", 1, first)
    b.back("linear", [x, w], h, "dh_came", ["", "dw_own"], where=first)
    b.op("all_reduce", "dw_own", out="dw", group="pp")
    b.gradient("dw", w)
    return r.plan(), b.plan()


PAIRS = {
    "replicated": replicated,
    "groups_of_one": groups_of_one,
    "communication_that_cancels": communication_that_cancels,
    "uneven_rows": uneven_rows,
    "uneven_batch": uneven_batch,
    "reversed_shards": reversed_shards,
    "transposed_weights": transposed_weights,
    "other_orders": other_orders,
    "partial_inputs": partial_inputs,
    "rank_lists": rank_lists,
    "different_ranks": different_ranks,
    "false_hints": false_hints,
    "empty_mesh": empty_mesh,
    "recomputation": recomputation,
    "zigzag": zigzag,
    "shared_parameter": shared_parameter,
}
