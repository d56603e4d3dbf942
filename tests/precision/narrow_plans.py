"""Plans that are right over exact numbers, each with the nearest one that rounds as little as the
reference, and one that breaks a precision rule.

A builder takes the dtype in question: wide is right, narrow breaks the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pitcheck.base.dtypes import DType
from pitcheck.plan.model import Number, Plan, Use
from precision.mixed import NARROW, WIDE, Mixed


class Case(NamedTuple):
    """The reference, the plan with the dtype in question, the code of the rule, the kind of
    operator that breaks it.
    """

    reference: Callable[[], Plan]
    parallel: Callable[[DType], Plan]
    code: str
    kind: str


# --- the gradient of a wide parameter, computed in a narrow dtype


def _gradient_reference() -> Plan:
    b = Mixed("reference")
    b.weight("w", (6, 6))
    product = b.op(
        "matmul", b.input("xt", (6, 8), dtype=NARROW), b.input("dy", (8, 6), dtype=NARROW)
    )
    b.gradient(b.cast(product, WIDE, out="dw"), "w")
    return b.plan()


def _gradient_reduced(dtype: DType) -> Plan:
    """Data parallel: cast before or after the all-reduce."""
    b = Mixed("train", {"dp": 2})
    b.weight("w", (6, 6), {})
    product = b.op(
        "matmul",
        b.input("xt", (6, 4), {1: "dp"}, dtype=NARROW),
        b.input("dy", (4, 6), {0: "dp"}, dtype=NARROW),
    )
    reduced = b.op("all_reduce", b.cast(product, dtype), group="dp", reduction="sum")
    b.gradient(b.cast(reduced, WIDE, out="dw"), "w")
    return b.plan()


def _gradient_averaged(dtype: DType) -> Plan:
    """FSDP: each rank keeps rows; divided by 2 before and multiplied after."""
    b = Mixed("train", {"dp": 2})
    b.weight("w", (3, 6), {0: "dp"})
    product = b.op(
        "matmul",
        b.input("xt", (6, 4), {1: "dp"}, dtype=NARROW),
        b.input("dy", (4, 6), {0: "dp"}, dtype=NARROW),
    )
    halved = b.op("div", b.cast(product, dtype), Number(2))
    reduced = b.op("reduce_scatter", halved, group="dp", axis=0, reduction="sum")
    b.gradient(b.op("mul", b.cast(reduced, WIDE), Number(2), out="dw"), "w")
    return b.plan()


# --- gradients of micro-batches


def _added_reference() -> Plan:
    """The reference adds the gradients of two halves of the batch up in a wide buffer."""
    b = Mixed("reference")
    b.weight("w", (6, 6))
    xt, dy = b.input("xt", (2, 6, 4), dtype=NARROW), b.input("dy", (2, 4, 6), dtype=NARROW)
    halves = b.cast(b.op("bmm", xt, dy), WIDE)
    b.gradient(b.op("sum", halves, axes=(0,), out="dw"), "w")
    return b.plan()


def _accumulated(dtype: DType) -> Plan:
    b = Mixed("train", microbatches=2)
    b.weight("w", (6, 6), {})
    xt = b.input("xt", (1, 6, 4), {0: "mb"}, dtype=NARROW, microbatched=True)
    dy = b.input("dy", (1, 4, 6), {0: "mb"}, dtype=NARROW, microbatched=True)
    half = b.op("squeeze", b.op("bmm", xt, dy), axis=0)
    b.gradient(b.cast(b.op("accumulate", b.cast(half, dtype)), WIDE, out="dw"), "w")
    return b.plan()


# --- clipping


def _norm_reference() -> Plan:
    b = Mixed("reference")
    wide = b.cast(b.input("g", (8, 6), dtype=NARROW), WIDE)
    b.output(b.op("sqrt", b.op("sum", b.op("square", wide)), out="norm"))
    return b.plan()


def _norm(dtype: DType) -> Plan:
    b = Mixed("train", {"dp": 2})
    own = b.op("sum", b.op("square", b.cast(b.input("g", (4, 6), {0: "dp"}, dtype=NARROW), dtype)))
    total = b.op("all_reduce", b.cast(own, WIDE), group="dp", reduction="sum")
    b.output(b.op("sqrt", total, out="norm"), "norm")
    return b.plan()


# --- a norm as one operator, something else than a sum, and an activation on its way


def _normed(b: Mixed, rows: int, dtype: DType) -> Plan:
    sharded = {0: "dp"} if len(b.sizes) and "dp" in b.sizes else None
    x = b.cast(b.input("x", (rows, 6), sharded, dtype=NARROW), dtype)
    w = b.cast(b.weight("w", (6,), {} if sharded else None), dtype)
    y = b.cast(b.op("rms_norm", x, w, eps=1e-5), WIDE, out="y")
    return _rows(b, y)


def _rows(b: Mixed, y: str) -> Plan:
    """The plan whose output is ``y``, of which ranks have rows."""
    if "dp" in b.sizes:
        y = b.op("all_gather", y, out="whole", group="dp", axis=0)
    b.output(y, "y")
    return b.plan()


def _scores(b: Mixed, rows: int, dtype: DType) -> Plan:
    sharded = {0: "dp"} if "dp" in b.sizes else None
    x = b.cast(b.input("x", (rows, 6), sharded, dtype=NARROW), dtype)
    return _rows(b, b.cast(b.op("sigmoid", x), WIDE, out="y"))


def _sent(b: Mixed, rows: int, dtype: DType) -> Plan:
    sharded = {0: "dp"} if "dp" in b.sizes else None
    x = b.op("silu", b.input("x", (rows, 6), sharded))
    return _rows(b, b.op("square", b.cast(b.cast(x, dtype), WIDE), out="y"))


def _ending(b: Mixed, rows: int, dtype: DType) -> Plan:
    sharded = {0: "dp"} if "dp" in b.sizes else None
    return _rows(b, b.cast(b.op("silu", b.input("x", (rows, 6), sharded)), dtype, out="y"))


def _both(write: Callable[[Mixed, int, DType], Plan], code: str, kind: str) -> Case:
    return Case(
        lambda: write(Mixed("reference"), 8, WIDE),
        lambda dtype: write(Mixed("train", {"dp": 2}), 4, dtype),
        code,
        kind,
    )


# --- two buffers


def _tied_reference() -> Plan:
    b = Mixed("reference")
    b.weight("w", (6, 6))
    first = b.op(
        "bmm", b.input("a", (2, 6, 4), dtype=NARROW), b.input("da", (2, 4, 6), dtype=NARROW)
    )
    second = b.op(
        "bmm", b.input("c", (2, 6, 4), dtype=NARROW), b.input("dc", (2, 4, 6), dtype=NARROW)
    )
    b.gradient(
        b.op("add", *(b.op("sum", b.cast(x, WIDE), axes=(0,)) for x in (first, second)), out="dw"),
        "w",
    )
    return b.plan()


def _tied(dtype: DType) -> Plan:
    """The terms of a tied weight are accumulated in a buffer for each of its uses."""
    b = Mixed("train", microbatches=2)
    b.weight("w", (6, 6), {})
    sums = []
    for names, own in ((("a", "da"), WIDE), (("c", "dc"), dtype)):
        x, dy = (
            b.input(n, (1, *s), {0: "mb"}, dtype=NARROW, microbatched=True)
            for n, s in zip(names, ((6, 4), (4, 6)), strict=True)
        )
        term = b.cast(b.op("squeeze", b.op("bmm", x, dy), axis=0), own)
        parts = [b.op("mul", Use(term, number), Number(1)) for number in range(2)]
        sums.append(b.cast(b.op("add", *parts), WIDE))
    b.gradient(b.op("add", *sums, out="dw"), "w")
    return b.plan()


CASES = {
    "gradient reduced": Case(_gradient_reference, _gradient_reduced, "PIT301", "all_reduce"),
    "gradient averaged": Case(_gradient_reference, _gradient_averaged, "PIT301", "reduce_scatter"),
    "gradient accumulated": Case(_added_reference, _accumulated, "PIT301", "accumulate"),
    "gradient norm": Case(_norm_reference, _norm, "PIT301", "sum"),
    "rms norm": _both(_normed, "PIT301", "rms_norm"),
    "missing cast": _both(_scores, "PIT302", "sigmoid"),
    "cast on the way": _both(_sent, "PIT302", "cast"),
    "cast at the end": _both(_ending, "PIT302", "cast"),
    "two buffers": Case(_tied_reference, _tied, "PIT303", "add"),
}
