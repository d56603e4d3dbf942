"""Right plans and the same with one mistake, or one made several times, that are found along the
program.
"""

from __future__ import annotations

from collections.abc import Sequence

from support.explain_plans import Pair
from zoo.builder import Builder, table

from pitcheck.plan.model import Number, Plan, Use


def biased(wrong: bool, layers: int = 2) -> Pair:
    """Row-parallel layers with a bias, which is added to the sum, or (wrong) to the term of every
    rank.
    """
    r, b = Builder("reference"), Builder("tp", {"tp": 2})
    x, y = r.input("x", (4, 6)), b.input("x", (4, 3), {1: "tp"})
    for n in range(layers):
        x = r.op(
            "tanh",
            r.op(
                "linear", x, r.parameter(f"w{n}", (6, 6)), r.parameter(f"b{n}", (6,)), out=f"h{n}"
            ),
            out=f"y{n}",
        )
        weight, bias = b.parameter(f"w{n}", (6, 3), {1: "tp"}), b.parameter(f"b{n}", (6,), {})
        term = b.op("linear", y, weight, *([bias] if wrong else []), out=f"term{n}")
        total = b.op("all_reduce", term, group="tp", out=f"sum{n}")
        y = b.op(
            "tanh",
            total if wrong else b.op("add", total, bias, out=f"h{n}", hint={}),
            out=f"y{n}",
            hint={},
        )
        y = (
            y
            if n == layers - 1
            else b.op("chunk", y, axis=1, count=2, position=table("tp", 0, 1), out=f"part{n}")
        )
    r.output(r.op("square", x, out="loss"))
    b.output(b.op("square", y, out="loss"))
    return r.plan(), b.plan()


def buffered(doubled: bool) -> Pair:
    """Three micro-batches added to a buffer one after the other; (wrong) the buffer is added to
    itself each time.
    """
    r = Builder("reference")
    r.output(r.op("sum", r.op("square", r.input("x", (6, 3))), out="loss"))
    b = Builder("batches", {"device": 1}, microbatches=3)
    part = b.op(
        "sum", b.op("square", b.input("x", (2, 3), {0: "mb"}, microbatched=True)), out="part"
    )
    buffer = ""
    for n in range(3):
        last = {"out": "loss"} if n == 2 and not doubled else {}
        buffer = (
            b.op("add", buffer, Use(part, n), **last) if buffer else b.op("identity", Use(part, n))
        )
        buffer = (
            b.op("add", buffer, buffer, **({"out": "loss"} if n == 2 else {}))
            if doubled
            else buffer
        )
    b.output("loss")
    return r.plan(), b.plan()


def norms(left_out: Sequence[int]) -> Pair:
    """The norm of four tensors; (wrong) of some of them nothing is added."""

    def plan(name: str, mesh: dict[str, int] | None, without: Sequence[int]) -> Plan:
        b = Builder(name, mesh)
        given = () if mesh is None else ({},)
        total = ""
        for n in range(4):
            own = b.op(
                "sum",
                b.op("square", b.input(f"g{n}", (3 + n, 2), *given), out=f"squared{n}"),
                out=f"own{n}",
            )
            if n not in without:
                total = b.op("add", total, own) if total else own
        norm = b.op("sqrt", total, out="norm")
        b.output(b.op("div", f"g{3}", norm, out="clipped"))
        return b.plan()

    return plan("reference", None, ()), plan("tp", {"tp": 2}, left_out)


def scores(wrong: bool) -> Pair:
    """The log of a sum of exponentials over scores of all ranks, side by side, or (wrong)
    added up.
    """
    r = Builder("reference")
    r.output(r.op("logsumexp", r.input("s", (4, 6)), axis=1, out="lse"))
    b = Builder("tp", {"tp": 2})
    own = b.input("s", (4, 3), {1: "tp"})
    every = (
        b.op("all_reduce", own, group="tp", out="all")
        if wrong
        else b.op("all_gather", own, axis=1, group="tp", out="all")
    )
    b.output(b.op("logsumexp", every, axis=1, out="lse"))
    return r.plan(), b.plan()


def one_operator(change: str) -> Pair:
    """The difference of two layers, divided by a third tensor."""

    def plan(name: str, mesh: dict[str, int] | None, change: str) -> Plan:
        b = Builder(name, mesh)
        given = () if mesh is None else ({},)
        x, y = b.input("x", (4, 6), *given), b.input("y", (4, 6), *given)
        first, second = (
            b.op("tanh", x, out="first"),
            b.op("sigmoid" if change == "function" else "gelu", y, out="second"),
        )
        taken = b.op(
            "sub", *((second, first) if change == "exchanged" else (first, second)), out="taken"
        )
        b.output(b.op("linear", taken, b.parameter("w", (6, 6), *given), out="h"))
        return b.plan()

    return plan("reference", None, ""), plan("tp", {"tp": 2}, change)


def reshaped(wrong: bool) -> Pair:
    """Columns of two ranks side by side; (wrong) rows of both in turn."""
    r = Builder("reference")
    x = r.input("x", (4, 6))
    r.output(r.op("linear", r.op("gelu", x, out="a"), r.parameter("w", (5, 6)), out="y"))
    b = Builder("tp", {"tp": 2})
    own = b.op("gelu", b.input("x", (4, 3), {1: "tp"}), out="own")
    if wrong:
        every = b.op(
            "reshape",
            b.op("all_gather", own, axis=0, group="tp", out="stacked"),
            sizes=(4, 6),
            out="a",
            hint={},
        )
    else:
        every = b.op("all_gather", own, axis=1, group="tp", out="a", hint={})
    b.output(b.op("linear", every, b.parameter("w", (5, 6), {}), out="y"))
    return r.plan(), b.plan()


def updated(lost: bool) -> Pair:
    """A parameter and what a step makes of it; (wrong) the parameter as it was."""
    r, b = Builder("reference"), Builder("dp", {"dp": 2})
    w, g = r.parameter("w", (4, 3)), r.input("g", (4, 3))
    r.update(r.op("sub", w, r.op("mul", g, Number("1/10"), out="step"), out="new"), w)
    w, g = b.parameter("w", (4, 3), {}), b.input("g", (4, 3), {})
    step = b.op("mul", g, Number("1/10"), out="step")
    b.update(b.op("identity", w, out="new") if lost else b.op("sub", w, step, out="new"), w)
    return r.plan(), b.plan()


def scaled(wrong: bool) -> Pair:
    """A loss and its gradient; (wrong) both are halved, by one operator and its derivative."""

    def plan(name: str, mesh: dict[str, int] | None, wrong: bool) -> Plan:
        b = Builder(name, mesh)
        given = () if mesh is None else ({},)
        x, w, g = (
            b.input("x", (4, 3), *given),
            b.parameter("w", (5, 3), *given),
            b.input("g", (4, 5), *given),
        )
        h = b.op("linear", x, w, out="h")
        if wrong:
            half = b.op("mul", h, Number("1/2"), out="half")
            b.back("mul", [h, Number("1/2")], half, g, ["dh", ""])
        b.output(b.op("tanh", half if wrong else h, out="y"))
        b.back("linear", [x, w], h, "dh" if wrong else g, ["", "dw"])
        b.gradient("dw", w)
        return b.plan()

    return plan("reference", None, False), plan("tp", {"tp": 2}, wrong)


def activated(left_out: str) -> Pair:
    """Two layers with an activation between them; (wrong) it is left out, on all ranks or on the
    second.
    """

    def plan(name: str, mesh: dict[str, int] | None, left_out: str) -> Plan:
        b = Builder(name, mesh)
        given = () if mesh is None else ({},)
        h = b.op("linear", b.input("x", (4, 6), *given), b.parameter("w", (6, 6), *given), out="h")
        if left_out == "one rank":
            b.op("gelu", h, out="a", where={"tp": (0,)})
            b.op("identity", h, out="a", where={"tp": (1,)})
        else:
            b.op("identity" if left_out else "gelu", h, out="a")
        b.output(b.op("linear", "a", b.parameter("v", (5, 6), *given), out="y"))
        return b.plan()

    return plan("reference", None, ""), plan("tp", {"tp": 2}, left_out)


def gathered(*exchanged: str) -> Pair:
    """Two layers whose weights are cut over tp first, and then over dp, with their updates;
    ``exchanged``: weights that are cut the other way round.
    """

    def plan(name: str, mesh: dict[str, int] | None) -> Plan:
        b = Builder(name, mesh)
        y = b.input("x", (4, 3), *([] if mesh is None else [{}]))
        for n, weight in enumerate(("w", "v")):
            axes = ("dp", "tp") if weight in exchanged else ("tp", "dp")
            shape = (8, 3) if n == 0 else (4, 8)
            own = every = (
                b.parameter(weight, shape)
                if mesh is None
                else b.parameter(weight, (shape[0] // 4, shape[1]), {0: axes})
            )
            for axis in () if mesh is None else ("dp", "tp"):
                every = b.op("all_gather", every, group=axis, axis=0)
            y = b.op("tanh", b.op("linear", y, every), out=f"y{n}")
            b.update(b.op("mul", own, Number("9/10"), out=f"new:{weight}"), own)
        b.output(y)
        return b.plan()

    return plan("reference", None), plan("fsdp", {"dp": 2, "tp": 2})
