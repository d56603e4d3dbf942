"""Right plans and the same with one mistake, of the causes that only a repair tells."""

from __future__ import annotations

from support.explain_plans import Pair
from zoo.builder import Builder, intervals, table

from pitcheck.plan.model import Number, Plan


def masked_mean(change: str = "") -> Pair:
    """The mean of the elements that count, on two ranks with their own counts."""
    r = Builder("reference")
    x, m = r.input("x", (8, 3)), r.input("m", (8, 3), dtype="int64", bounds=(0, 2))
    total, count = (
        r.op("sum", r.op("mul", x, r.op("cast", m, dtype="float32"))),
        r.op("sum", r.op("cast", m, dtype="float32")),
    )
    r.output(r.op("div", total, count, out="loss"))
    b = Builder("dp", {"dp": 2})
    x, m = (
        b.input("x", (4, 3), {0: "dp"}),
        b.input("m", (4, 3), {0: "dp"}, dtype="int64", bounds=(0, 2)),
    )
    total, count = (
        b.op("sum", b.op("mul", x, b.op("cast", m, dtype="float32")), out="total"),
        b.op("sum", b.op("cast", m, dtype="float32"), out="count"),
    )
    if change == "means":
        b.op(
            "all_reduce",
            b.op("div", total, count, out="mean"),
            out="loss",
            group="dp",
            reduction="avg",
        )
    else:
        whole = b.op(
            "all_reduce",
            total,
            group="dp",
            out="whole",
            reduction="avg" if change == "kind" else "sum",
        )
        b.op("div", whole, b.op("all_reduce", count, group="dp", out="counted"), out="loss")
    b.output("loss")
    return r.plan(), b.plan()


def norm(change: str = "", by_powers: bool = False) -> Pair:
    """Two tensors divided by their common norm; one is split over ranks.

    ``by_powers``: squares and roots are powers with exponents 2 and 1/2.
    """

    def power(b: Builder, kind: str, x: str, out: str = "") -> str:
        if by_powers:
            return b.op("pow", x, exponent=2 if kind == "square" else "1/2", out=out)
        return b.op(kind, x, out=out)

    r = Builder("reference")
    u, v = r.input("u", (4, 3)), r.input("v", (5,))
    squares = [r.op("sum", power(r, "square", x)) for x in (u, v)]
    total = power(r, "sqrt", r.op("add", *squares))
    r.output(r.op("div", u, total, out="u_new"))
    b = Builder("tp", {"tp": 2})
    u, v = b.input("u", (2, 3), {0: "tp"}), b.input("v", (5,), {})
    own = b.op("sum", power(b, "square", u), out="own")
    total_squares = (
        own
        if change == "part"
        else b.op(
            "all_reduce", own, group="tp", out="all", reduction="max" if change == "kind" else "sum"
        )
    )
    of_v = b.op("sum", power(b, "square", v), out="of_v")
    total = power(b, "sqrt", b.op("add", total_squares, of_v), out="norm")
    b.op("div", u, total, out="own_new")
    b.output(b.op("all_gather", "own_new", axis=0, group="tp", out="u_new"))
    return r.plan(), b.plan()


def stacked(change: str = "") -> Pair:
    """Three layers with a residual each."""

    def plan(name: str, mesh: dict[str, int] | None, lost: bool, other: bool) -> Plan:
        b = Builder(name, mesh)
        given = {} if mesh is None else {"shards": {}}
        y = b.input("x", (4, 6), *given.values())
        for n in range(3):
            h = b.op(
                "gelu",
                b.op("linear", y, b.parameter(f"w{n}", (6, 6), *given.values()), out=f"h{n}"),
                out=f"a{n}",
            )
            y = b.op("add", y, h, out=f"y{n}")
        b.output(b.op("square", "y1" if lost else "a2" if other else y, out="loss"))
        return b.plan()

    return plan("reference", None, False, False), plan(
        "pp", {"pp": 2}, change == "lost", change == "other"
    )


def gradients(wrong: dict[int, str]) -> Pair:
    """Gradients of three independent layers, each summed over ranks; ``wrong``: what becomes of the
    sum of some.
    """
    r = Builder("reference")
    b = Builder("dp", {"dp": 2})
    for n in range(3):
        x, w, g = r.input(f"x{n}", (4, 3)), r.parameter(f"w{n}", (5, 3)), r.input(f"g{n}", (4, 5))
        r.back("linear", [x, w], r.op("linear", x, w), g, ["", f"dw{n}"])
        r.gradient(f"dw{n}", w)
        x, w, g = (
            b.input(f"x{n}", (2, 3), {0: "dp"}),
            b.parameter(f"w{n}", (5, 3), {}),
            b.input(f"g{n}", (2, 5), {0: "dp"}),
        )
        b.back("linear", [x, w], b.op("linear", x, w), g, ["", f"own{n}"])
        change = wrong.get(n, "")
        if change == "missing":
            b.op("identity", f"own{n}", out=f"dw{n}")
        else:
            b.op("all_reduce", f"own{n}", out=f"dw{n}", group="dp", reduction=change or "sum")
        b.gradient(f"dw{n}", w)
    return r.plan(), b.plan()


def chain(scale: bool) -> Pair:
    """Everything depends on the first operator."""

    def plan(name: str, mesh: dict[str, int] | None, scaled: bool) -> Plan:
        b = Builder(name, mesh)
        given = () if mesh is None else ({},)
        y = b.input("x", (4, 6), *given)
        y = b.op("gelu", y, out="start")
        if scaled:
            y = b.op("mul", y, Number(3), out="tripled")
        for n in range(3):
            y = b.op(
                "tanh",
                b.op("linear", y, b.parameter(f"w{n}", (6, 6), *given), out=f"h{n}"),
                out=f"y{n}",
            )
            b.output(y)
        return b.plan()

    return plan("reference", None, False), plan("tp", {"tp": 2}, scale)


def sliced(change: str = "") -> Pair:
    """Each rank takes its rows of x."""
    r = Builder("reference")
    r.output(r.op("gelu", r.input("x", (8, 3)), out="y"))
    b = Builder("tp", {"tp": 2})
    first, second = {"": (0, 4), "swapped": (4, 0), "late": (0, 3)}[change]
    own = b.op(
        "slice",
        b.input("x", (8, 3), {}),
        axis=0,
        start=table("tp", first, second),
        stop=table("tp", first + 4, second + 4),
        out="own",
    )
    b.output(b.op("all_gather", b.op("gelu", own, out="rows"), out="y", group="tp", axis=0))
    return r.plan(), b.plan()


def gated(change: str = "") -> Pair:
    """Gate and up in one weight; a rank has a part of each, or (wrong) a part of the two as one
    stretch, or (wrong, too) the two in turn.
    """
    r = Builder("reference")
    h = r.op("linear", r.input("x", (4, 6)), r.parameter("w", (8, 6)), out="h")
    gate, up = (
        r.op("slice", h, axis=1, start=0, stop=4, out="gate"),
        r.op("slice", h, axis=1, start=4, stop=8, out="up"),
    )
    r.output(r.op("mul", r.op("silu", gate), up, out="y"))
    b = Builder("tp", {"tp": 2})
    parts = (
        intervals("tp", [(0, 2), (4, 6)], [(2, 4), (6, 8)])
        if change != "stretch"
        else intervals("tp", [(0, 4)], [(4, 8)])
    )
    h = b.op("linear", b.input("x", (4, 6), {}), b.parameter("w", (4, 6), {0: parts}), out="h")
    first, second = ((2, 4), (0, 2)) if change == "swapped" else ((0, 2), (2, 4))
    gate, up = (
        b.op("slice", h, axis=1, start=start, stop=stop, out=name)
        for name, (start, stop) in (("gate", first), ("up", second))
    )
    b.output(
        b.op(
            "all_gather",
            b.op("mul", b.op("silu", gate), up, out="part"),
            axis=1,
            group="tp",
            out="y",
        )
    )
    return r.plan(), b.plan()
