"""Micro-batches, pipelines, optimizers on shards, clipping, masked means."""

from __future__ import annotations

from pitcheck.plan.model import Number, Plan, Use
from zoo.builder import Builder, lineage, table

Pair = tuple[Plan, Plan]


def _sum_loss_reference(rows: int = 4, layers: int = 1, outer: int = 2) -> Plan:
    """loss = sum((x W1' ... - t)^2), its gradients."""
    b = Builder("sum-loss")
    x = b.input("x", (rows, 3))
    t = b.input("t", (rows, outer))
    weights = [b.parameter(f"w{i}", (outer if i == layers - 1 else 3, 3)) for i in range(layers)]
    values = [x]
    for i, w in enumerate(weights):
        values.append(b.op("linear", values[-1], w, out=f"h{i}"))
    d = b.op("sub", values[-1], t)
    q = b.op("square", d)
    loss = b.op("sum", q, out="loss")
    b.output(loss)
    b.back("sum", [q], loss, b.constant("one", 1.0), ["dq"])
    b.back("square", [d], q, "dq", [f"dh{layers - 1}"])
    for i in reversed(range(layers)):
        b.back(
            "linear",
            [values[i], weights[i]],
            values[i + 1],
            f"dh{i}",
            [f"dh{i - 1}" if i else "", f"dw{i}"],
        )
        b.gradient(f"dw{i}", f"w{i}")
    return b.plan()


def microbatches() -> Pair:
    """Loss and gradient are accumulated over three micro-batches."""
    b = Builder("accumulation", {"device": 1}, microbatches=3)
    x = b.input("x", (2, 3), {0: "mb"}, microbatched=True)
    t = b.input("t", (2, 2), {0: "mb"}, microbatched=True)
    w = b.parameter("w0", (2, 3))
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    q = b.op("square", d)
    part = b.op("sum", q)
    b.back("sum", [q], part, b.constant("one", 1.0), ["dq"])
    b.back("square", [d], q, "dq", ["dd"])
    b.back("linear", [x, w], y, "dd", ["", "dw_part"])
    b.output(b.op("accumulate", part, out="loss"))
    b.op("accumulate", "dw_part", out="dw0")
    b.gradient("dw0", w)
    return _sum_loss_reference(rows=6), b.plan()


def microbatches_by_hand() -> Pair:
    """The micro-batches are added one by one, last first."""
    b = Builder("accumulation-by-hand", {"device": 1}, microbatches=3)
    x = b.input("x", (2, 3), {0: "mb"}, microbatched=True)
    t = b.input("t", (2, 2), {0: "mb"}, microbatched=True)
    w = b.parameter("w0", (2, 3))
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    q = b.op("square", d)
    part = b.op("sum", q)
    b.back("sum", [q], part, b.constant("one", 1.0), ["dq"])
    b.back("square", [d], q, "dq", ["dd"])
    b.back("linear", [x, w], y, "dd", ["", "dw_part"])
    late = b.op("add", Use(part, 2), Use(part, 0))
    b.output(b.op("add", late, Use(part, 1), out="loss"))
    first = b.op("add", Use("dw_part", 1), Use("dw_part", 2))
    b.op("add", first, Use("dw_part", 0), out="dw0")
    b.gradient("dw0", w)
    return _sum_loss_reference(rows=6), b.plan()


def data_parallel_microbatches() -> Pair:
    """Two replicas times two micro-batches; the gradient is summed over both."""
    b = Builder("dp-mb", {"dp": 2}, microbatches=2)
    x = b.input("x", (2, 3), {0: ("dp", "mb")}, microbatched=True)
    t = b.input("t", (2, 2), {0: ("dp", "mb")}, microbatched=True)
    w = b.parameter("w0", (2, 3), {})
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    q = b.op("square", d)
    part = b.op("sum", q)
    b.back("sum", [q], part, b.constant("one", 1.0), ["dq"])
    b.back("square", [d], q, "dq", ["dd"])
    b.back("linear", [x, w], y, "dd", ["", "dw_part"])
    local = b.op("accumulate", part)
    b.output(b.op("all_reduce", local, out="loss", group="dp"))
    own = b.op("accumulate", "dw_part")
    b.op("all_reduce", own, out="dw0", group="dp")
    b.gradient("dw0", w)
    return _sum_loss_reference(rows=8), b.plan()


def pipeline() -> Pair:
    """Two stages, two micro-batches, a 1F1B order."""
    b = Builder("pipeline", {"pp": 2}, microbatches=2)
    s0, s1 = {"pp": (0,)}, {"pp": (1,)}
    x = b.input("x", (2, 3), {0: "mb"}, microbatched=True)
    t = b.input("t", (2, 2), {0: "mb"}, microbatched=True)
    w0 = b.parameter("w0", (3, 3))
    w1 = b.parameter("w1", (2, 3))
    one = b.constant("one", 1.0)
    h0 = b.op("linear", x, w0, out="h0", where=s0)
    b.send(h0, 1, s0, protocol="buffered")
    mark = b.block("forward0", 0)
    h_in = b.receive(h0, "h_in", 0, s1)
    h1 = b.op("linear", h_in, w1, where=s1)
    d = b.op("sub", h1, t, where=s1)
    q = b.op("square", d, where=s1)
    part = b.op("sum", q, where=s1)
    mark = b.block("forward1", mark)
    b.back("sum", [q], part, one, ["dq"], where=s1)
    b.back("square", [d], q, "dq", ["dh1"], where=s1)
    b.back("linear", [h_in, w1], h1, "dh1", ["dh_in", "dw1_part"], where=s1)
    b.send("dh_in", 0, s1, protocol="buffered")
    mark = b.block("backward1", mark)
    b.receive("dh_in", "dh0", 1, s0)
    b.back("linear", [x, w0], h0, "dh0", ["", "dw0_part"], where=s0)
    mark = b.block("backward0", mark)
    b.op("accumulate", "dw0_part", out="dw0", where=s0)
    mark = b.block("end0", mark)
    b.op("accumulate", "dw1_part", out="dw1", where=s1)
    b.output(b.op("accumulate", part, out="loss", where=s1))
    b.block("end1", mark)
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    b.program(
        [("forward0", 0), ("forward0", 1), ("backward0", 0), ("backward0", 1), ("end0", None)], s0
    )
    b.program(
        [("forward1", 0), ("backward1", 0), ("forward1", 1), ("backward1", 1), ("end1", None)], s1
    )
    return _sum_loss_reference(rows=4, layers=2), b.plan()


def pipeline_fill_drain() -> Pair:
    """The same two stages without programs: all forward, then all backward, peers from a table."""
    b = Builder("gpipe", {"pp": 2}, microbatches=2)
    s0, s1 = {"pp": (0,)}, {"pp": (1,)}
    peer = table("pp", 1, 0)
    x = b.input("x", (2, 3), {0: "mb"}, microbatched=True)
    t = b.input("t", (2, 2), {0: "mb"}, microbatched=True)
    w0 = b.parameter("w0", (3, 3))
    w1 = b.parameter("w1", (2, 3))
    h0 = b.op("linear", x, w0, out="h0", where=s0)
    b.send(h0, peer, s0)
    h_in = b.receive(h0, "h_in", peer, s1)
    h1 = b.op("linear", h_in, w1, where=s1)
    d = b.op("sub", h1, t, where=s1)
    q = b.op("square", d, where=s1)
    part = b.op("sum", q, where=s1)
    b.back("sum", [q], part, b.constant("one", 1.0), ["dq"], where=s1)
    b.back("square", [d], q, "dq", ["dh1"], where=s1)
    b.back("linear", [h_in, w1], h1, "dh1", ["dh_in", "dw1_part"], where=s1)
    b.send("dh_in", peer, s1)
    b.receive("dh_in", "dh0", peer, s0)
    b.back("linear", [x, w0], h0, "dh0", ["", "dw0_part"], where=s0)
    b.op("accumulate", "dw0_part", out="dw0", where=s0)
    b.op("accumulate", "dw1_part", out="dw1", where=s1)
    last = b.op("accumulate", part, where=s1)
    b.op("identity", last, out="loss_own", where=s1)
    b.op("mul", Number(0), b.constant("nothing", 1.0), out="loss_own", where=s0)
    b.output(b.op("all_reduce", "loss_own", out="loss", group="pp"))
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return _sum_loss_reference(rows=4, layers=2), b.plan()


def _sgd_reference() -> Plan:
    b = Builder("sgd")
    x = b.input("x", (4, 3))
    t = b.input("t", (4, 4))
    w = b.parameter("w0", (4, 3))
    lr = b.input("lr", ())
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    b.back("linear", [x, w], y, d, ["", "dw"])
    step = b.op("mul", "dw", lr)
    b.op("sub", w, step, out="w_new")
    b.update("w_new", w)
    return b.plan()


def zero_sgd() -> Pair:
    """Gradients are reduce-scattered, every rank updates its shard, the parameter is gathered."""
    b = Builder("zero-sgd", {"dp": 2})
    x = b.input("x", (2, 3), {0: "dp"})
    t = b.input("t", (2, 4), {0: "dp"})
    w = b.parameter("w0", (4, 3), {})
    lr = b.input("lr", (), {})
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    b.back("linear", [x, w], y, d, ["", "dw_local"])
    shard = b.op("reduce_scatter", "dw_local", group="dp", axis=0)
    mine = b.op("chunk", w, axis=0, count=2, position=table("dp", 0, 1))
    step = b.op("mul", shard, lr)
    new = b.op("sub", mine, step)
    b.op("all_gather", new, out="w_new", group="dp", axis=0)
    b.update("w_new", w)
    return _sgd_reference(), b.plan()


def _adam(b: Builder, w: str, g: str, m: str, v: str, lr: str) -> tuple[str, str, str]:
    m_new = b.op("add", b.op("mul", m, Number("9/10")), b.op("mul", g, Number("1/10")), out="m_new")
    v_new = b.op(
        "add",
        b.op("mul", v, Number("99/100")),
        b.op("mul", b.op("square", g), Number("1/100")),
        out="v_new",
    )
    root = b.op("add", b.op("sqrt", v_new), Number("1/1000"))
    decayed = b.op("mul", w, Number("999/1000"))
    return b.op("sub", decayed, b.op("mul", b.op("div", m_new, root), lr)), m_new, v_new


def zero_adamw() -> Pair:
    """AdamW with both moments sharded; the moments are state that ends as it began."""
    r = Builder("adamw")
    x, t = r.input("x", (4, 3)), r.input("t", (4, 4))
    w, m, v = r.parameter("w0", (4, 3)), r.state("m", (4, 3)), r.state("v", (4, 3))
    lr = r.input("lr", ())
    y = r.op("linear", x, w)
    d = r.op("sub", y, t)
    r.back("linear", [x, w], y, d, ["", "dw"])
    new, m_new, v_new = _adam(r, w, "dw", m, v, lr)
    for tensor, of in ((new, w), (m_new, m), (v_new, v)):
        r.update(tensor, of)

    b = Builder("zero-adamw", {"dp": 2})
    x, t = b.input("x", (2, 3), {0: "dp"}), b.input("t", (2, 4), {0: "dp"})
    w = b.parameter("w0", (4, 3), {})
    m, v = b.state("m", (2, 3), {0: "dp"}), b.state("v", (2, 3), {0: "dp"})
    lr = b.input("lr", (), {})
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    b.back("linear", [x, w], y, d, ["", "dw_local"])
    shard = b.op("reduce_scatter", "dw_local", group="dp", axis=0)
    mine = b.op("chunk", w, axis=0, count=2, position=table("dp", 0, 1))
    part, m_new, v_new = _adam(b, mine, shard, m, v, lr)
    whole = b.op("all_gather", part, out="w_whole", group="dp", axis=0)
    b.update(whole, w, new)
    b.update(m_new, m)
    b.update(v_new, v)
    return r.plan(), b.plan()


def gradient_clipping() -> Pair:
    """The norm is taken over the shards of a sharded parameter once, and once over a replicated
    one.
    """

    def clipped(b: Builder, grads: list[str], square: str) -> list[str]:
        norm = b.op("sqrt", square)
        ratio = b.op("div", Number("3/2"), norm)
        factor = b.op("clamp", ratio, max=1)
        return [b.op("mul", g, factor, out=f"clipped_{g}") for g in grads]

    r = Builder("clip")
    x, g = r.input("x", (2, 3)), r.input("g", (2, 4))
    w, c = r.parameter("w", (4, 3)), r.parameter("c", (2, 4))
    y = r.op("linear", x, w)
    z = r.op("mul", y, c)
    r.back("mul", [y, c], z, g, ["dy", "dc"])
    r.back("linear", [x, w], y, "dy", ["", "dw"])
    total = r.op("add", r.op("sum", r.op("square", "dw")), r.op("sum", r.op("square", "dc")))
    for name, of in zip(clipped(r, ["dw", "dc"], total), (w, c), strict=True):
        r.gradient(name, of)

    b = Builder("clip-tp", {"tp": 2})
    x, g = b.input("x", (2, 3), {}), b.input("g", (2, 2), {1: "tp"})
    w, c = b.parameter("w", (2, 3), {0: "tp"}), b.parameter("c", (2, 4), {})
    y = b.op("linear", x, w)
    mine = b.op("chunk", c, axis=1, count=2, position=table("tp", 0, 1))
    z = b.op("mul", y, mine)
    b.back("mul", [y, mine], z, g, ["dy", "dc_part"])
    b.back("linear", [x, w], y, "dy", ["", "dw"])
    b.op("all_gather", "dc_part", out="dc", group="tp", axis=1)
    own = b.op("sum", b.op("square", "dw"))
    summed = b.op("all_reduce", own, group="tp")
    total = b.op("add", summed, b.op("sum", b.op("square", "dc")))
    for name, of in zip(clipped(b, ["dw", "dc"], total), (w, c), strict=True):
        b.gradient(name, of)
    return r.plan(), b.plan()


def _masked(b: Builder, x: str, t: str, mask: str, w: str) -> tuple[list[str], str, str]:
    """Squared errors of the tokens that count: (values for the backward pass, their sum, their
    number).
    """
    y = b.op("linear", x, w)
    d = b.op("sub", y, t)
    q = b.op("square", d)
    per = b.op("sum", q, axes=(1,))
    counts = b.op("cast", mask, dtype="float32")
    kept = b.op("mul", per, counts)
    return [y, d, q, per, counts, kept], b.op("sum", kept), b.op("sum", counts)


def _masked_back(
    b: Builder, values: list[str], x: str, w: str, total: str, scale: str, dw: str
) -> None:
    y, d, q, per, counts, kept = values
    b.back("sum", [kept], total, scale, ["d_kept"])
    b.back("mul", [per, counts], kept, "d_kept", ["d_per", ""])
    b.back("sum", [q], per, "d_per", ["dq"], axes=(1,))
    b.back("square", [d], q, "dq", ["dd"])
    b.back("linear", [x, w], y, "dd", ["", dw])


def masked_mean() -> Pair:
    """The mean over the tokens that count, whose number differs from rank to rank: sums are
    reduced, then divided.
    """
    r = Builder("masked")
    x, t = r.input("x", (6, 3)), r.input("t", (6, 2))
    mask = r.input("mask", (6,), dtype="bool")
    w = r.parameter("w", (2, 3))
    values, total, count = _masked(r, x, t, mask, w)
    r.output(r.op("div", total, count, out="loss"))
    _masked_back(r, values, x, w, total, r.op("div", Number(1), count), "dw")
    r.gradient("dw", w)

    b = Builder("masked-dp", {"dp": 3})
    x, t = b.input("x", (2, 3), {0: "dp"}), b.input("t", (2, 2), {0: "dp"})
    mask = b.input("mask", (2,), {0: "dp"}, dtype="bool")
    w = b.parameter("w", (2, 3), {})
    values, own, mine = _masked(b, x, t, mask, w)
    total = b.op("all_reduce", own, group="dp")
    count = b.op("all_reduce", mine, group="dp")
    b.output(b.op("div", total, count, out="loss"))
    _masked_back(b, values, x, w, own, b.op("div", Number(1), count), "dw_local")
    b.op("all_reduce", "dw_local", out="dw", group="dp")
    b.gradient("dw", w)
    return r.plan(), b.plan()


def tensor_and_data_parallel() -> Pair:
    """Two layers, sharded over tp and replicated over dp; the gradient is averaged over dp only."""
    r = Builder("two-layers")
    x, t = r.input("x", (4, 3)), r.input("t", (4, 3))
    w0, w1 = r.parameter("w0", (4, 3)), r.parameter("w1", (3, 4))
    h = r.op("linear", x, w0)
    a = r.op("tanh", h)
    y = r.op("linear", a, w1)
    loss = r.op("mse_loss", y, t, out="loss")
    r.output(loss)
    r.back("mse_loss", [y, t], loss, r.constant("one", 1.0), ["dy", ""])
    r.back("linear", [a, w1], y, "dy", ["da", "dw1"])
    r.back("tanh", [h], a, "da", ["dh"])
    r.back("linear", [x, w0], h, "dh", ["", "dw0"])
    r.gradient("dw0", w0)
    r.gradient("dw1", w1)

    b = Builder("tp-dp", {"dp": 2, "tp": 2})
    x, t = b.input("x", (2, 3), {0: "dp"}), b.input("t", (2, 3), {0: "dp"})
    w0, w1 = b.parameter("w0", (2, 3), {0: "tp"}), b.parameter("w1", (3, 2), {1: "tp"})
    h = b.op("linear", x, w0)
    a = b.op("tanh", h)
    part = b.op("linear", a, w1)
    y = b.op("all_reduce", part, group="tp", hint=lineage(r.operators[2].outputs[0], {0: "dp"}))
    local = b.op("mse_loss", y, t)
    b.output(b.op("all_reduce", local, out="loss", group="dp", reduction="avg"))
    b.back("mse_loss", [y, t], local, b.constant("one", 1.0), ["dy", ""])
    b.back("linear", [a, w1], part, "dy", ["da", "dw1_local"])
    b.back("tanh", [h], a, "da", ["dh"])
    b.back("linear", [x, w0], h, "dh", ["", "dw0_local"])
    b.op("all_reduce", "dw0_local", out="dw0", group="dp", reduction="avg")
    b.op("all_reduce", "dw1_local", out="dw1", group="dp", reduction="avg")
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return r.plan(), b.plan()


PAIRS = {
    "microbatches": microbatches,
    "microbatches_by_hand": microbatches_by_hand,
    "data_parallel_microbatches": data_parallel_microbatches,
    "pipeline": pipeline,
    "pipeline_fill_drain": pipeline_fill_drain,
    "zero_sgd": zero_sgd,
    "zero_adamw": zero_adamw,
    "gradient_clipping": gradient_clipping,
    "masked_mean": masked_mean,
    "tensor_and_data_parallel": tensor_and_data_parallel,
}
