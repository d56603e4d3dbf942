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


def halved_square(mesh: Mesh, reduction: str = "avg") -> Pair:
    """Gradients of half a mean of squares, ``y * y / 2``, reduced over ``dp`` with ``reduction``.

    The gradient of ``y`` is one product for each of the two factors, added up.
    """

    def gradients(b: Builder, x: str, w: str, c: str, rows: int) -> tuple[str, str]:
        y = b.op("linear", x, w, c, out="y")
        share = b.op("mul", y, Number(f"1/{10 * rows}"), out="share")
        both = b.op("add", share, b.op("mul", y, Number(f"1/{10 * rows}")), out="both")
        own_w = b.op("matmul", b.op("transpose", both, dim0=0, dim1=1), x, out="own_w")
        return own_w, b.op("sum", both, axes=(0,), out="own_c")

    r, b = Builder("reference"), Builder("dp", dict(mesh))
    w, c = r.parameter("w", (5, 3)), r.parameter("c", (5,))
    for total, weight in zip(gradients(r, r.input("x", (8, 3)), w, c, 8), (w, c), strict=True):
        r.gradient(total, weight)
    rows = 8 // mesh["dp"]
    w, c = b.parameter("w", (5, 3), {}), b.parameter("c", (5,), {})
    terms = gradients(b, b.input("x", (rows, 3), {0: "dp"}), w, c, rows)
    for term, weight in zip(terms, (w, c), strict=True):
        total = b.op("all_reduce", term, group="dp", reduction=reduction, out=f"d{weight}")
        b.gradient(total, weight, f"own_{weight}")
    return r.plan(), b.plan()


def biased(mesh: Mesh) -> Pair:
    """A row-parallel layer whose bias is added on every rank, before the sum."""
    r, b = Builder("reference"), Builder("tp", dict(mesh))
    x, w, c = r.input("x", (4, 8)), r.parameter("w", (8, 5)), r.parameter("c", (5,))
    r.output(r.op("tanh", r.op("add", r.op("matmul", x, w), c), out="y"))
    own = 8 // mesh["tp"]
    x, w = b.input("x", (4, own), {1: "tp"}), b.parameter("w", (own, 5), {0: "tp"})
    term = b.op("add", b.op("matmul", x, w), b.parameter("c", (5,), {}), out="term")
    b.output(b.op("tanh", b.op("all_reduce", term, group="tp"), out="y"))
    return r.plan(), b.plan()
