"""Pairs of plans by the sizes of their mesh axes, each right or with one mistake."""

from __future__ import annotations

from collections.abc import Mapping

from support.explain_plans import Pair
from zoo.builder import Builder, lineage, table

from pitcheck.plan.model import Number

Mesh = Mapping[str, int]


def halved_sum(mesh: Mesh, reduction: str = "sum", *factors: str) -> Pair:
    """Half the sum of squares of all ranks' rows, reduced with ``reduction``, times ``factors``."""
    r = Builder("reference")
    squares = r.op("square", r.op("linear", r.input("x", (8, 3)), r.parameter("w", (5, 3))))
    r.output(r.op("mul", r.op("sum", squares), Number("1/2"), out="loss"))

    b = Builder("dp", dict(mesh))
    x = b.input("x", (8 // mesh["dp"], 3), {0: "dp"})
    total = b.op("sum", b.op("square", b.op("linear", x, b.parameter("w", (5, 3), {}))))
    half = b.op("mul", total, Number("1/2"), out="half")
    for number, factor in enumerate(factors):
        half = b.op("mul", half, Number(factor), out=f"scaled{number}")
    b.output(b.op("all_reduce", half, group="dp", reduction=reduction, out="loss"))
    return r.plan(), b.plan()


def in_pairs(mesh: Mesh) -> Pair:
    """Thrice the sum of halves of a tensor over ranks in pairs, whatever the mesh is."""
    r = Builder("reference")
    r.output(r.op("sum", r.input("x", (8, 3)), out="y"))
    b = Builder("dp", dict(mesh))
    places = table("dp", *(n % 2 for n in range(mesh["dp"])))
    half = b.op("chunk", b.input("x", (8, 3), {}), axis=0, count=2, position=places)
    own = b.op("sum", half)
    pairs = tuple((n, n + 1) for n in range(0, mesh["dp"], 2))
    total = b.op("all_reduce", b.op("mul", own, Number("3")), group=pairs, out="total")
    b.output(total, "y")
    return r.plan(), b.plan()


def mean_over(mesh: Mesh, divisor: int) -> Pair:
    """The mean of all ranks' means, which are added up and divided by ``divisor``."""
    r = Builder("reference")
    r.output(r.op("mean", r.op("square", r.input("x", (8, 3))), out="loss"))
    b = Builder("dp", dict(mesh))
    own = b.op("mean", b.op("square", b.input("x", (8 // mesh["dp"], 3), {0: "dp"})))
    b.output(b.op("div", b.op("all_reduce", own, group="dp"), Number(divisor), out="loss"))
    return r.plan(), b.plan()


def two_axes(mesh: Mesh, divisor: int) -> Pair:
    """Products of columns over ``tp`` of rows over ``dp``, divided by ``divisor``."""
    r = Builder("reference")
    r.output(r.op("linear", r.input("x", (8, 8)), r.parameter("w", (5, 8)), out="y"))
    b = Builder("dp and tp", dict(mesh))
    x = b.input("x", (8 // mesh["dp"], 8 // mesh["tp"]), {0: "dp", 1: "tp"})
    w = b.parameter("w", (5, 8 // mesh["tp"]), {1: "tp"})
    total = b.op("all_reduce", b.op("linear", x, w), group="tp", out="total")
    y = b.op("mul", total, Number(f"1/{divisor}"), out="y")
    b.output(y, "y", lineage("y", {0: "dp"}))
    return r.plan(), b.plan()


def taken_rows(mesh: Mesh, *places: int) -> Pair:
    """Every rank takes its rows of a whole tensor, at ``places`` by rank."""
    r = Builder("reference")
    r.output(r.op("tanh", r.input("x", (8, 3)), out="y"))
    b = Builder("dp", dict(mesh))
    own = b.op(
        "chunk",
        b.input("x", (8, 3), {}),
        axis=0,
        count=mesh["dp"],
        position=table("dp", *places),
        out="own",
    )
    b.output(b.op("tanh", own, out="y"), "y", lineage("y", {0: "dp"}))
    return r.plan(), b.plan()
