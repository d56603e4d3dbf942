"""Every evident cause: a right plan, and the same plan with one mistake, which is named with its
operator, ranks and micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from support.explain_plans import Pair, row_parallel, run, said
from zoo.builder import Builder, intervals, table

from pitcheck.plan.model import Number, Plan, Use


@dataclass(frozen=True)
class Case:
    """``pair(True)`` is right, ``pair(False)`` has the mistake. ``words`` must stand in title,
    cause or repair.
    """

    pair: Callable[[bool], Pair]
    code: str
    operator: str
    words: tuple[str, ...]
    ranks: tuple[int, ...] = (0, 1)
    microbatches: tuple[int, ...] = ()


def model(kind: str = "gelu", layers: int = 2) -> Plan:
    """Linear layers with an activation after each; the loss is the sum of the last."""
    b = Builder("model")
    y = b.input("x", (4, 6))
    for n in range(layers):
        y = b.op(kind, b.op("linear", y, b.parameter(f"w{n}", (6, 6)), out=f"h{n}"), out=f"a{n}")
    b.output(b.op("sum", y, out="loss"))
    return b.plan()


def megatron(change: str = "") -> Pair:
    """The first layer by columns, the second by rows."""
    b = Builder("megatron", {"tp": 2})
    x = b.input("x", (4, 6), {})
    w0 = b.parameter("w0", (3, 6), {0: "tp"})
    w1 = b.parameter("w1", (6, 3), {1: "tp"})
    h = b.op("linear", x, w0, out="h0")
    if change == "literal":
        h = b.op("mul", h, Number("1/2"))
    a = b.op("gelu", h, out="a0", **({"approximate": "tanh"} if change == "attribute" else {}))
    part = b.op("linear", a, w1, out="part")
    whole = (
        part
        if change == "no sum"
        else b.op(
            "all_reduce", part, out="h1", group="tp", reduction="avg" if change == "avg" else "sum"
        )
    )
    if change == "twice":
        whole = b.op("all_reduce", whole, out="h1_again", group="tp")
    b.output(b.op("sum", b.op("gelu", whole, out="a1"), out="loss"))
    return model(), b.plan()


def scaled(right: bool) -> Pair:
    """A gradient averaged over dp, of a loss that is a sum."""
    r = Builder("reference")
    x, w, g = r.input("x", (4, 3)), r.parameter("w", (5, 3)), r.input("g", (4, 5))
    y = r.op("linear", x, w)
    r.back("linear", [x, w], y, g, ["", "dw"])
    r.gradient("dw", w)
    b = Builder("dp", {"dp": 2})
    x, w, g = (
        b.input("x", (2, 3), {0: "dp"}),
        b.parameter("w", (5, 3), {}),
        b.input("g", (2, 5), {0: "dp"}),
    )
    y = b.op("linear", x, w)
    b.back("linear", [x, w], y, g, ["", "dw_local"])
    b.op("all_reduce", "dw_local", out="dw", group="dp", reduction="sum" if right else "avg")
    b.gradient("dw", w)
    return r.plan(), b.plan()


def attention(scale: int = 2, axis: int = 1, swapped: bool = False) -> Plan:
    b = Builder("scores")
    q, k, v = (b.input(n, (4, 4)) for n in "qkv")
    s = b.op("div", b.op("matmul", q, b.op("transpose", k, dim0=0, dim1=1)), Number(scale))
    p = b.op("softmax", s, axis=axis)
    b.output(b.op("matmul", p, k if swapped else v, out="y"))
    return b.plan()


def batches(right: bool, missing: str = "") -> Pair:
    """A sum over micro-batches by hand, or the accumulation left out."""
    r = Builder("reference")
    r.output(r.op("sum", r.op("square", r.input("x", (6, 3))), out="loss"))
    b = Builder("batches", {"device": 1}, microbatches=3)
    part = b.op(
        "sum", b.op("square", b.input("x", (2, 3), {0: "mb"}, microbatched=True)), out="part"
    )
    if missing == "sum" and not right:
        b.output(part, "loss")
        return r.plan(), b.plan()
    first = b.op("add", Use(part, 0), Use(part, 1), out="first")
    last = {"": 2, "missing": 1, "doubled": 1}["" if right else missing]
    b.output(b.op("add", first, Use(part, last), out="loss"))
    return r.plan(), b.plan()


def gradients(right: bool, group: str | tuple[str, ...] = "dp", wrong: str = "") -> Pair:
    """Gradients of a layer on dp x tp: terms over dp."""
    r = Builder("reference")
    x, w, g = r.input("x", (4, 3)), r.parameter("w", (5, 3)), r.input("g", (4, 5))
    r.back("linear", [x, w], r.op("linear", x, w), g, ["", "dw"])
    r.gradient("dw", w)
    b = Builder("grid", {"dp": 2, "tp": 2})
    x, w, g = (
        b.input("x", (2, 3), {0: "dp"}),
        b.parameter("w", (5, 3), {}),
        b.input("g", (2, 5), {0: "dp"}),
    )
    b.back("linear", [x, w], b.op("linear", x, w), g, ["", "dw_local"])
    if right or wrong == "group":
        b.op("all_reduce", "dw_local", out="dw", group="dp" if right else "tp")
    elif wrong == "missing":
        b.op("identity", "dw_local", out="dw")
    elif wrong == "twice":
        b.op("all_reduce", "dw_local", out="once", group="dp")
        b.op("all_reduce", "once", out="dw", group="tp")
    b.gradient("dw", w)
    return r.plan(), b.plan()


def sliced(right: bool) -> Pair:
    """Each rank takes its rows of x by an offset, off by one on rank 1."""
    r = Builder("reference")
    x, w = r.input("x", (8, 3)), r.parameter("w", (5, 3))
    r.output(r.op("linear", x, w, out="y"))
    b = Builder("sliced", {"tp": 2})
    x, w = b.input("x", (8, 3), {}), b.parameter("w", (5, 3), {})
    own = b.op(
        "slice",
        x,
        axis=0,
        start=table("tp", 0, 4 if right else 3),
        stop=table("tp", 4, 8 if right else 7),
        out="own",
    )
    b.output(b.op("all_gather", b.op("linear", own, w, out="rows"), out="y", group="tp", axis=0))
    return r.plan(), b.plan()


def replicas(right: bool) -> Pair:
    """Rank 1 alone adds the bias twice."""
    r = Builder("reference")
    x, w, c = r.input("x", (4, 3)), r.parameter("w", (5, 3)), r.parameter("c", (5,))
    r.output(r.op("linear", x, w, c, out="y"))
    b = Builder("replicas", {"tp": 2})
    x, w, c = b.input("x", (4, 3), {}), b.parameter("w", (5, 3), {}), b.parameter("c", (5,), {})
    h = b.op("linear", x, w, c, out="h")
    b.op("identity", h, out="y", where={"tp": (0,)})
    if right:
        b.op("identity", h, out="y", where={"tp": (1,)})
    else:
        b.op("square", h, out="y", where={"tp": (1,)})
    b.output("y")
    return r.plan(), b.plan()


def residual(right: bool) -> Pair:
    """The residual is left out."""
    r = Builder("reference")
    x, w = r.input("x", (4, 3)), r.parameter("w", (3, 3))
    r.output(r.op("add", r.op("linear", x, w, out="h"), r.op("neg", x, out="n"), out="y"))
    b = Builder("residual", {"tp": 2})
    x, w = b.input("x", (4, 3), {}), b.parameter("w", (3, 3), {})
    h, n = b.op("linear", x, w, out="h"), b.op("neg", x, out="n")
    b.output(b.op("add", h, n, out="y") if right else b.op("identity", h, out="y"))
    return r.plan(), b.plan()


def covered(right: bool) -> Pair:
    """Both ranks hold the same columns."""
    r = Builder("reference")
    r.output(r.op("linear", r.input("x", (4, 6)), r.parameter("w", (5, 6)), out="y"))
    b = Builder("covered", {"tp": 2})
    cut = intervals("tp", [(0, 3)], [(3, 6)] if right else [(0, 3)])
    x, w = b.input("x", (4, 3), {1: cut}), b.parameter("w", (5, 3), {1: cut})
    b.output(b.op("all_reduce", b.op("linear", x, w, out="part"), out="y", group="tp"))
    return r.plan(), b.plan()


CASES: dict[str, Case] = {
    "average for sum": Case(
        scaled, "PIT111", "all_reduce", ("takes the mean", "reduce with 'sum'")
    ),
    "literal": Case(
        lambda right: (attention(), attention(2 if right else 4)),
        "PIT102",
        "div",
        ("literal 4", "reference has 2"),
        (0,),
    ),
    "attribute": Case(
        lambda right: (attention(), attention(axis=1 if right else 0)),
        "PIT102",
        "softmax",
        ("axis = 0", "reference has 1"),
        (0,),
    ),
    "gelu form": Case(
        lambda right: megatron("" if right else "attribute"), "PIT102", "gelu", ("approximate",)
    ),
    "operand": Case(
        lambda right: (attention(), attention(swapped=not right)),
        "PIT103",
        "matmul",
        ("'k'", "'v'"),
        (0,),
    ),
    "no sum over tp": Case(
        lambda right: megatron("" if right else "no sum"), "PIT104", "linear", ("over tp", "part")
    ),
    "no sum at the end": Case(row_parallel, "PIT104", "linear", ("over tp", "'y'")),
    "no sum over dp": Case(
        lambda right: gradients(right, wrong="missing"),
        "PIT104",
        "linear.backward",
        ("over dp", "'dw"),
        (0, 1, 2, 3),
    ),
    "no sum over micro-batches": Case(
        lambda right: batches(right, "sum"), "PIT104", "sum", ("over mb",), (0,), (0, 1, 2)
    ),
    "summed twice": Case(
        lambda right: megatron("" if right else "twice"),
        "PIT105",
        "all_reduce",
        ("h1_again", "size of tp", "once more"),
    ),
    "summed over dp and tp": Case(
        lambda right: gradients(right, wrong="twice"),
        "PIT105",
        "all_reduce",
        ("size of", "'dw' once more"),
        (0, 1, 2, 3),
    ),
    "other group": Case(
        lambda right: gradients(right, wrong="group"),
        "PIT106",
        "all_reduce",
        ("over dp",),
        (0, 1, 2, 3),
    ),
    "other slice": Case(
        sliced,
        "PIT107",
        "slice",
        ("start = 3 on rank 1", "should be 4", "in the order of tp"),
        (1,),
    ),
    "micro-batch missing": Case(
        lambda right: batches(right, "missing"),
        "PIT108",
        "add",
        ("'part' of micro-batch 1 where it should read micro-batch 2", "tested"),
        (0,),
    ),
    "residual missing": Case(residual, "PIT108", "linear", ("'n'",)),
    "replicas differ": Case(replicas, "PIT109", "square", ("'y'",), (1,)),
    "gap": Case(covered, "PIT110", "", ("3:6", "held by no rank")),
}


@pytest.mark.parametrize("name", CASES)
def test_right_plan_is_equivalent(name: str) -> None:
    report = run(CASES[name].pair(True))
    assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("name", CASES)
def test_cause_is_named(name: str) -> None:
    case = CASES[name]
    report = run(case.pair(False))
    assert report.verdict == "mismatch", said(report)
    finding = next((f for f in report.findings if f.code == case.code), None)
    assert finding is not None, said(report)
    assert case.operator in (finding.operator or ""), said(report)
    text = " ".join(filter(None, (finding.title, finding.cause, finding.repair)))
    assert all(word in text for word in case.words), said(report)
    if case.code != "PIT110":
        assert report.findings[0].code == case.code, said(report)
        assert (finding.ranks, finding.microbatches) == (case.ranks, case.microbatches), said(
            report
        )
