"""Linear layers and MLPs: tensor, sequence and data parallel."""

from __future__ import annotations

from pitcheck.plan.model import Number, Plan
from zoo.builder import Builder, intervals, lineage

Pair = tuple[Plan, Plan]


def _linear_reference(bias: bool = False, rows: int = 3, inner: int = 4, outer: int = 6) -> Plan:
    b = Builder("linear")
    x = b.input("x", (rows, inner))
    w = b.parameter("w", (outer, inner))
    g = b.input("g", (rows, outer))
    operands = [x, w, b.parameter("c", (outer,))] if bias else [x, w]
    y = b.op("linear", *operands, out="y")
    b.back("linear", operands, y, g, ["dx", "dw", "dc"][: len(operands)])
    b.output(y)
    b.output("dx")
    b.gradient("dw", w)
    if bias:
        b.gradient("dc", "c")
    return b.plan()


def column_parallel() -> Pair:
    """Every rank computes some columns; the input's gradient is summed, the output gathered."""
    b = Builder("column", {"tp": 2})
    x = b.input("x", (3, 4), {})
    w = b.parameter("w", (3, 4), {0: "tp"})
    c = b.parameter("c", (3,), {0: "tp"})
    g = b.input("g", (3, 3), {1: "tp"})
    y = b.op("linear", x, w, c, out="y_local", hint=lineage("y", {1: "tp"}))
    b.output(b.op("all_gather", y, out="y", group="tp", axis=1))
    b.back("linear", [x, w, c], y, g, ["dx_local", "dw", "dc"])
    b.output(b.op("all_reduce", "dx_local", out="dx", group="tp"))
    b.gradient("dw", w)
    b.gradient("dc", c)
    return _linear_reference(bias=True), b.plan()


def row_parallel() -> Pair:
    """Every rank computes a term of the result."""
    b = Builder("row", {"tp": 2})
    x = b.input("x", (3, 2), {1: "tp"})
    w = b.parameter("w", (6, 2), {1: "tp"})
    g = b.input("g", (3, 6), {})
    part = b.op("linear", x, w, hint=lineage("y", partial=("tp",)))
    y = b.op("all_reduce", part, out="y", group="tp")
    b.output(y)
    b.back("linear", [x, w], part, g, ["dx_local", "dw"])
    b.output(b.op("all_gather", "dx_local", out="dx", group="tp", axis=1))
    b.gradient("dw", w)
    return _linear_reference(), b.plan()


def row_parallel_bias_after() -> Pair:
    """The bias is added once, after the sum."""
    b = Builder("row-bias", {"tp": 2})
    x = b.input("x", (3, 2), {1: "tp"})
    w = b.parameter("w", (6, 2), {1: "tp"})
    c = b.parameter("c", (6,), {})
    g = b.input("g", (3, 6), {})
    part = b.op("linear", x, w)
    whole = b.op("all_reduce", part, group="tp")
    y = b.op("add", whole, c, out="y")
    b.output(y)
    b.back("add", [whole, c], y, g, ["d_whole", "dc"])
    b.back("linear", [x, w], part, "d_whole", ["dx_local", "dw"])
    b.output(b.op("all_gather", "dx_local", out="dx", group="tp", axis=1))
    b.gradient("dw", w)
    b.gradient("dc", c)
    return _linear_reference(bias=True), b.plan()


def row_parallel_scatter_gather() -> Pair:
    """Reduce-scatter and all-gather instead of an all-reduce."""
    b = Builder("row-rs-ag", {"tp": 2})
    x = b.input("x", (4, 2), {1: "tp"})
    w = b.parameter("w", (6, 2), {1: "tp"})
    g = b.input("g", (4, 6), {})
    part = b.op("linear", x, w)
    scattered = b.op("reduce_scatter", part, group="tp", axis=0)
    b.output(b.op("all_gather", scattered, out="y", group="tp", axis=0))
    b.back("linear", [x, w], part, g, ["dx_local", "dw"])
    b.output(b.op("all_gather", "dx_local", out="dx", group="tp", axis=1))
    b.gradient("dw", w)
    return _linear_reference(rows=4), b.plan()


def uneven_columns() -> Pair:
    """Seven columns over two ranks: each has four, one of rank 1's is padding; every rank reads
    only its own part.
    """
    b = Builder("uneven", {"tp": 2})
    x = b.input("x", (3, 4), {})
    cut = intervals("tp", [(0, 4)], [(4, 7), (-1, 1)])
    w = b.parameter("w", (4, 4), {0: cut})
    g = b.input("g", (3, 4), {1: cut})
    y = b.op("linear", x, w, out="y_local")
    whole = b.op("all_gather", y, group="tp", axis=1)
    b.output(b.op("slice", whole, out="y", axis=1, start=0, stop=7))
    mask = b.constant("zero", 0.0, (3, 1))
    kept0 = b.op("identity", g, out="g_kept", where={"tp": (0,)})
    short = b.op("slice", g, axis=1, start=0, stop=3, where={"tp": (1,)})
    b.op("cat", short, mask, out=kept0, axis=1, where={"tp": (1,)})
    b.back("linear", [x, w], y, kept0, ["dx_local", "dw"])
    b.output(b.op("all_reduce", "dx_local", out="dx", group="tp"))
    b.gradient("dw", w)
    return _linear_reference(outer=7), b.plan()


def _mlp_reference(activation: str = "silu", gated: bool = False) -> Plan:
    b = Builder("mlp")
    x = b.input("x", (4, 3))
    g = b.input("g", (4, 3))
    up = b.parameter("up", (8, 3))
    down = b.parameter("down", (3, 8))
    h = b.op("linear", x, up, out="h")
    a = b.op(activation, h, out="a")
    if gated:
        gate = b.parameter("gate", (8, 3))
        s = b.op("linear", x, gate, out="s")
        m = b.op("mul", a, s, out="m")
    else:
        m = a
    y = b.op("linear", m, down, out="y")
    b.output(y)
    b.back("linear", [m, down], y, g, ["dm", "d_down"])
    if gated:
        b.back("mul", [a, s], m, "dm", ["da", "ds"])
        b.back("linear", [x, gate], s, "ds", ["dx_gate", "d_gate"])
        b.gradient("d_gate", gate)
    b.back(activation, [h], a, "da" if gated else "dm", ["dh"])
    b.back("linear", [x, up], h, "dh", ["dx_up", "d_up"])
    b.output(
        b.op("add", "dx_up", "dx_gate", out="dx") if gated else b.op("identity", "dx_up", out="dx")
    )
    b.gradient("d_up", up)
    b.gradient("d_down", down)
    return b.plan()


def _mlp_parallel(activation: str, tp: int, hints: bool = True) -> Plan:
    b = Builder("mlp-tp", {"tp": tp})
    x = b.input("x", (4, 3), {})
    g = b.input("g", (4, 3), {})
    up = b.parameter("up", (8 // tp, 3), {0: "tp"})
    down = b.parameter("down", (3, 8 // tp), {1: "tp"})
    h = b.op("linear", x, up, out="h", hint={1: "tp"} if hints else None)
    a = b.op(activation, h, out="a", hint={1: "tp"} if hints else None)
    part = b.op("linear", a, down)
    y = b.op("all_reduce", part, out="y", group="tp")
    b.output(y)
    b.back("linear", [a, down], part, g, ["da", "d_down"])
    b.back(activation, [h], a, "da", ["dh"])
    b.back("linear", [x, up], h, "dh", ["dx_local", "d_up"])
    b.output(b.op("all_reduce", "dx_local", out="dx", group="tp"))
    b.gradient("d_up", up)
    b.gradient("d_down", down)
    return b.plan()


def megatron_mlp_silu() -> Pair:
    """Column, SiLU, row."""
    return _mlp_reference("silu"), _mlp_parallel("silu", 2)


def megatron_mlp_gelu() -> Pair:
    """Column, GELU, row on four ranks."""
    return _mlp_reference("gelu"), _mlp_parallel("gelu", 4, hints=False)


def megatron_mlp_relu() -> Pair:
    """Column, ReLU, row."""
    return _mlp_reference("relu"), _mlp_parallel("relu", 2)


def gated_mlp() -> Pair:
    """SwiGLU with gate and up in one weight: rank r holds its rows of gate and of up."""
    reference = _mlp_reference("silu", gated=True)
    b = Builder("gated-tp", {"tp": 2})
    x = b.input("x", (4, 3), {})
    g = b.input("g", (4, 3), {})
    up = b.parameter("up", (4, 3), {0: "tp"})
    gate = b.parameter("gate", (4, 3), {0: "tp"})
    down = b.parameter("down", (3, 4), {1: "tp"})
    fused = b.op("cat", up, gate, axis=0)
    hs = b.op("linear", x, fused)
    h = b.op("chunk", hs, axis=1, count=2, position=0)
    s = b.op("chunk", hs, axis=1, count=2, position=1)
    a = b.op("silu", h)
    m = b.op("mul", a, s)
    part = b.op("linear", m, down)
    b.output(b.op("all_reduce", part, out="y", group="tp"))
    b.back("linear", [m, down], part, g, ["dm", "d_down"])
    b.back("mul", [a, s], m, "dm", ["da", "ds"])
    b.back("silu", [h], a, "da", ["dh"])
    d = b.op("cat", "dh", "ds", axis=1)
    b.back("linear", [x, fused], hs, d, ["dx_local", "d_fused"])
    b.op("chunk", "d_fused", out="d_up", axis=0, count=2, position=0)
    b.op("chunk", "d_fused", out="d_gate", axis=0, count=2, position=1)
    b.output(b.op("all_reduce", "dx_local", out="dx", group="tp"))
    b.gradient("d_gate", gate)
    b.gradient("d_up", up)
    b.gradient("d_down", down)
    return reference, b.plan()


def sequence_parallel_mlp() -> Pair:
    """The sequence is spread outside the MLP: all-gather before, reduce-scatter after, and the
    reverse backward.
    """
    b = Builder("mlp-sp", {"tp": 2})
    x = b.input("x", (2, 3), {0: "tp"})
    g = b.input("g", (2, 3), {0: "tp"})
    up = b.parameter("up", (4, 3), {0: "tp"})
    down = b.parameter("down", (3, 4), {1: "tp"})
    whole = b.op("all_gather", x, group="tp", axis=0)
    h = b.op("linear", whole, up)
    a = b.op("silu", h)
    part = b.op("linear", a, down)
    y = b.op("reduce_scatter", part, out="y", group="tp", axis=0)
    b.output(y, spec=lineage("y", {0: "tp"}))
    g_whole = b.op("all_gather", g, group="tp", axis=0)
    b.back("linear", [a, down], part, g_whole, ["da", "d_down"])
    b.back("silu", [h], a, "da", ["dh"])
    b.back("linear", [whole, up], h, "dh", ["dx_part", "d_up"])
    dx = b.op("reduce_scatter", "dx_part", out="dx", group="tp", axis=0)
    b.output(dx, spec=lineage("dx", {0: "tp"}))
    b.gradient("d_up", up)
    b.gradient("d_down", down)
    return _mlp_reference("silu"), b.plan()


def _mean_loss_reference(rows: int = 8) -> Plan:
    b = Builder("mean-loss")
    x = b.input("x", (rows, 3))
    t = b.input("t", (rows, 2))
    w = b.parameter("w", (2, 3))
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    q = b.op("mul", d, d)
    loss = b.op("mean", q, out="loss")
    b.output(loss)
    b.back("mean", [q], loss, b.constant("one", 1.0), ["dq"])
    b.back("mul", [d, d], q, "dq", ["dd1", "dd2"])
    dd = b.op("add", "dd1", "dd2")
    b.back("linear", [x, w], y, dd, ["", "dw"])
    b.gradient("dw", w)
    return b.plan()


def _local_mean_loss(b: Builder, rows: int) -> tuple[str, str]:
    x = b.input("x", (rows, 3), {0: "dp"})
    t = b.input("t", (rows, 2), {0: "dp"})
    w = b.parameter("w", (2, 3), {})
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    q = b.op("mul", d, d)
    loss = b.op("mean", q)
    b.back("mean", [q], loss, b.constant("one", 1.0), ["dq"])
    b.back("mul", [d, d], q, "dq", ["dd1", "dd2"])
    dd = b.op("add", "dd1", "dd2")
    b.back("linear", [x, w], y, dd, ["", "dw_local"])
    return loss, "dw_local"


def data_parallel_avg() -> Pair:
    """Mean of equal means: gradients and loss averaged."""
    b = Builder("dp-avg", {"dp": 4})
    loss, dw = _local_mean_loss(b, 2)
    b.output(b.op("all_reduce", loss, out="loss", group="dp", reduction="avg"))
    b.op("all_reduce", dw, out="dw", group="dp", reduction="avg")
    b.gradient("dw", "w")
    return _mean_loss_reference(), b.plan()


def data_parallel_scaled_sum() -> Pair:
    """The gradient is divided first, then summed; the loss summed, then divided."""
    b = Builder("dp-sum", {"dp": 4})
    loss, dw = _local_mean_loss(b, 2)
    total = b.op("all_reduce", loss, group="dp")
    b.output(b.op("div", total, Number(4), out="loss"))
    small = b.op("mul", dw, Number("1/4"))
    b.op("all_reduce", small, out="dw", group="dp")
    b.gradient("dw", "w")
    return _mean_loss_reference(), b.plan()


PAIRS = {
    "column_parallel": column_parallel,
    "row_parallel": row_parallel,
    "row_parallel_bias_after": row_parallel_bias_after,
    "row_parallel_scatter_gather": row_parallel_scatter_gather,
    "uneven_columns": uneven_columns,
    "megatron_mlp_silu": megatron_mlp_silu,
    "megatron_mlp_gelu": megatron_mlp_gelu,
    "megatron_mlp_relu": megatron_mlp_relu,
    "gated_mlp": gated_mlp,
    "sequence_parallel_mlp": sequence_parallel_mlp,
    "data_parallel_avg": data_parallel_avg,
    "data_parallel_scaled_sum": data_parallel_scaled_sum,
}
