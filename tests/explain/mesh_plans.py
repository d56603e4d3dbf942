"""Right plans and the same with one mistake that the size of a mesh axis, or chance, makes look
like another.
"""

from __future__ import annotations

from support.explain_plans import Pair
from zoo.builder import Builder, lineage, table

from pitcheck.plan.model import Number, Plan


def squared_loss(size: int, averaged: tuple[int, ...] = (0, 1)) -> Pair:
    """The gradients of two layers of a mean of squares on ``size`` ranks; those of the layers in
    ``averaged`` are divided by that number.
    """

    def layers(b: Builder, x: str, t: str, given: tuple[dict[int, str], ...], mean: str) -> None:
        v, w = b.parameter("v", (6, 3), *given), b.parameter("w", (5, 6), *given)
        h = b.op("linear", x, v, out="h")
        a = b.op("tanh", h, out="a")
        y = b.op("linear", a, w, out="y")
        e = b.op("sub", y, t, out="e")
        q = b.op("pow", e, exponent=2, out="q")
        loss = b.op("mean", q, out=mean)
        b.back("mean", [q], loss, b.constant("one", 1.0), ["dq"])
        b.back("pow", [e], q, "dq", ["de"], exponent=2)
        b.back("linear", [a, w], y, "de", ["da", "dw" if not given else "own0"])
        b.back("tanh", [h], a, "da", ["dh"])
        b.back("linear", [x, v], h, "dh", ["", "dv" if not given else "own1"])

    r, b = Builder("reference"), Builder("dp", {"dp": size})
    layers(r, r.input("x", (8, 3)), r.input("t", (8, 5)), (), "loss")
    for weight in "vw":
        r.gradient(f"d{weight}", weight)
    r.output("loss")
    layers(
        b,
        b.input("x", (8 // size, 3), {0: "dp"}),
        b.input("t", (8 // size, 5), {0: "dp"}),
        ({},),
        "mean",
    )
    b.output(b.op("all_reduce", "mean", group="dp", reduction="avg", out="loss"))
    for number, weight in enumerate("wv"):
        right = number in averaged
        total = b.op(
            "all_reduce", f"own{number}", group="dp", out=f"sum{number}" if right else f"d{weight}"
        )
        if right:
            b.op("div", total, Number(size), out=f"d{weight}")
        b.gradient(f"d{weight}", weight)
    return r.plan(), b.plan()


def gathered_hidden(backward: str) -> Pair:
    """Columns of a layer, gathered for a layer that is split, too; ``backward``: how the gradient
    of what was gathered goes back to the ranks.
    """

    def reference() -> Plan:
        r = Builder("reference")
        x, v, w, g = (
            r.input("x", (4, 3)),
            r.parameter("v", (6, 3)),
            r.parameter("w", (8, 6)),
            r.input("g", (4, 8)),
        )
        h = r.op("linear", x, v, out="h")
        y = r.op("linear", h, w, out="y")
        r.output(y)
        r.back("linear", [h, w], y, g, ["dh", "dw"])
        r.back("linear", [x, v], h, "dh", ["", "dv"])
        r.gradient("dv", v)
        r.gradient("dw", w)
        return r.plan()

    b = Builder("tp", {"tp": 2})
    x, v, w = (
        b.input("x", (4, 3), {}),
        b.parameter("v", (3, 3), {0: "tp"}),
        b.parameter("w", (4, 6), {0: "tp"}),
    )
    g = b.input("g", (4, 4), {1: "tp"})
    own = b.op("linear", x, v, out="own")
    h = b.op("all_gather", own, axis=1, group="tp", out="h")
    b.output(b.op("linear", h, w, out="y"), "y", lineage("y", {1: "tp"}))
    b.back("linear", [h, w], "y", g, ["dh", "dw"])
    if backward == "reduce_scatter":
        b.op("reduce_scatter", "dh", axis=1, group="tp", out="down")
    else:
        b.op("chunk", "dh", axis=1, count=2, position=table("tp", 0, 1), out="down")
    b.back("linear", [x, v], own, "down", ["", "dv"])
    b.gradient("dv", v)
    b.gradient("dw", w)
    return reference(), b.plan()


def many_gradients(count: int, missing: int) -> Pair:
    """Gradients of ``count`` layers beside one another, of which the first ``missing`` are not
    added up over ranks.
    """
    r, b = Builder("reference"), Builder("dp", {"dp": 2})
    for n in range(count):
        x, w, g = r.input(f"x{n}", (4, 3)), r.parameter(f"w{n}", (5, 3)), r.input(f"g{n}", (4, 5))
        r.back("linear", [x, w], r.op("linear", x, w), g, ["", f"dw{n}"])
        r.gradient(f"dw{n}", w)
        x, w, g = (
            b.input(f"x{n}", (2, 3), {0: "dp"}),
            b.parameter(f"w{n}", (5, 3), {}),
            b.input(f"g{n}", (2, 5), {0: "dp"}),
        )
        b.back(
            "linear", [x, w], b.op("linear", x, w), g, ["", f"dw{n}" if n < missing else f"own{n}"]
        )
        if n >= missing:
            b.op("all_reduce", f"own{n}", out=f"dw{n}", group="dp")
        b.gradient(f"dw{n}", w)
    return r.plan(), b.plan()


def biased_terms(right: bool) -> Pair:
    """A row-parallel layer whose bias is added to the sum, or (wrong) to what every rank adds to
    it.
    """
    r, b = Builder("reference"), Builder("tp", {"tp": 2})
    x, w, c = r.input("x", (4, 6)), r.parameter("w", (6, 5)), r.parameter("c", (5,))
    r.output(r.op("tanh", r.op("add", r.op("matmul", x, w), c), out="y"))
    term = b.op(
        "matmul", b.input("x", (4, 3), {1: "tp"}), b.parameter("w", (3, 5), {0: "tp"}), out="o.mm"
    )
    c = b.parameter("c", (5,), {})
    if right:
        total = b.op("add", b.op("all_reduce", term, group="tp"), c, out="total")
    else:
        total = b.op("all_reduce", b.op("add", term, c, out="o.add"), group="tp", out="total")
    b.output(b.op("tanh", total, out="y"))
    return r.plan(), b.plan()


def masked_rows(right: bool) -> Pair:
    """Scores of two ranks' rows under a causal mask of which each takes its rows, or (wrong) those
    of the other.
    """

    def attend(b: Builder, q: str, k: str, rows: str, columns: str) -> str:
        mask = b.op(
            "gt", b.op("unsqueeze", columns, axis=0), b.op("unsqueeze", rows, axis=1), out="m"
        )
        return b.op(
            "softmax",
            b.op("masked_fill", b.op("linear", q, k, out="s"), mask, Number("-inf"), out="filled"),
            axis=1,
            out="p",
        )

    r, b = Builder("reference"), Builder("cp", {"cp": 2})
    i = r.input("i", (6,), dtype="int64", bounds=(0, 6))
    r.output(attend(r, r.input("q", (6, 4)), r.input("k", (6, 4)), i, i))
    i = b.input("i", (6,), {}, dtype="int64", bounds=(0, 6))
    rows = b.op(
        "chunk",
        i,
        axis=0,
        count=2,
        position=table("cp", *((0, 1) if right else (1, 0))),
        out="rows",
    )
    own = attend(b, b.input("q", (3, 4), {0: "cp"}), b.input("k", (6, 4), {}), rows, i)
    b.output(b.op("all_gather", own, axis=0, group="cp", out="all"), "p", lineage("p", {}))
    return r.plan(), b.plan()


def left_as_it_was(right: bool) -> Pair:
    """Two parameters and what a step makes of them; (wrong) they are as they were, and nothing
    computes an update.
    """

    def plan(name: str, mesh: dict[str, int] | None, right: bool) -> Plan:
        b = Builder(name, mesh)
        given = () if mesh is None else ({},)
        for n in range(2):
            w, g = b.parameter(f"w{n}", (4, 3), *given), b.input(f"g{n}", (4, 3), *given)
            step = b.op("mul", g, Number("1/10"), out=f"step{n}")
            if right:
                b.update(b.op("sub", w, step, out=f"new{n}"), w)
            else:
                b.output(w, f"new{n}", lineage(f"new{n}", {}))
        return b.plan()

    return plan("reference", None, True), plan("dp", {"dp": 2}, right)


def long_chain(count: int, kind: str) -> Pair:
    """A layer and ``count`` operators one behind the other that only move its elements; ``kind``:
    what is run instead of tanh before them.
    """

    def plan(name: str, mesh: dict[str, int] | None, kind: str) -> Plan:
        b = Builder(name, mesh)
        given = () if mesh is None else ({},)
        y = b.op(
            kind, b.op("linear", b.input("x", (4, 6), *given), b.parameter("w", (6, 6), *given))
        )
        for n in range(count):
            y = (
                b.op("cat", y, y, axis=0)
                if n == count // 2
                else b.op("slice", y, axis=0, start=0, stop=4)
            )
        b.output(b.op("sum", b.op("square", y), out="loss"))
        return b.plan()

    return plan("reference", None, "tanh"), plan("tp", {"tp": 2}, kind)


def updated_on(ranks: tuple[int, ...]) -> Pair:
    """Rows of a parameter over two ranks, of which ``ranks`` update theirs."""
    r, b = Builder("reference"), Builder("dp", {"dp": 2})
    w, g = r.parameter("w", (4, 3)), r.op("tanh", r.input("x", (4, 3)), out="g")
    r.output(g)
    r.update(r.op("sub", w, r.op("mul", g, Number("1/10")), out="new"), w)
    w, g = (
        b.parameter("w", (2, 3), {0: "dp"}),
        b.op("tanh", b.input("x", (2, 3), {0: "dp"}), out="g"),
    )
    b.output(g, "g", lineage("g", {0: "dp"}))
    for rank in range(2):
        where = {"dp": (rank,)}
        if rank in ranks:
            step = b.op("mul", g, Number("1/10"), out="step", where=where)
            b.op("sub", w, step, out="new", where=where)
        else:
            b.op("identity", w, out="new", where=where)
    b.update("new", w, "new")
    return r.plan(), b.plan()


def norm_of_joined(twice: bool) -> Pair:
    """The norm of two gradients; each of two stages joins what it has. ``twice``: both have one."""
    r, b = Builder("reference"), Builder("pp", {"pp": 2})
    squares = [
        r.op("sum", r.op("square", r.input(name, (4,)))) for name in ("first", "last", "tied")
    ]
    r.output(r.op("sqrt", r.op("add", r.op("add", *squares[:2]), squares[2]), out="norm"))
    given = {name: b.input(name, (4,), {}) for name in ("first", "last", "tied")}
    for rank, name in enumerate(("first", "last")):
        joined = [given[name], *([given["tied"]] if twice or not rank else [])]
        where = {"pp": (rank,)}
        flat = b.op("cat", *joined, axis=0, where=where)
        b.op("sum", b.op("square", flat, where=where), out="squares", where=where)
    b.output(b.op("sqrt", b.op("all_reduce", "squares", group="pp"), out="norm"))
    return r.plan(), b.plan()


def norm_of_rows(summed: bool) -> Pair:
    """The norm of a product of rows over two ranks, squared as ``y * y``; ``summed`` over them."""
    r, b = Builder("reference"), Builder("dp", {"dp": 2})
    y = r.op("mul", r.input("x", (4, 3)), r.parameter("w", (3,)), out="y")
    y = r.op("mul", y, r.op("full", sizes=(3,), value=2))
    r.output(r.op("sqrt", r.op("sum", r.op("mul", y, y)), out="norm"))
    y = b.op("mul", b.input("x", (2, 3), {0: "dp"}), b.parameter("w", (3,), {}), out="y")
    y = b.op("mul", y, b.op("full", sizes=(3,), value=2))
    squares = b.op("sum", b.op("mul", y, y), out="squares")
    total = b.op("all_reduce", squares, group="dp") if summed else squares
    b.output(b.op("sqrt", total, out="norm"))
    return r.plan(), b.plan()
