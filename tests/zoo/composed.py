"""Several kinds of parallelism at once: a transformer block, FSDP, pipelines of sharded stages,
dropout over shards.
"""

from __future__ import annotations

from pitcheck.plan.model import Number, Plan
from zoo.builder import Builder, lineage, table

Pair = tuple[Plan, Plan]
EPS = "1/100000"


def _block(
    b: Builder,
    x: str,
    heads: int,
    tokens: int,
    norm: str,
    wqkv: str,
    wo: str,
    up: str,
    down: str,
    spread: bool,
) -> str:
    """A pre-norm block with attention and MLP; ``spread``: sequence parallel over tp around the
    sharded parts.
    """

    def enter(y: str) -> str:
        found: str = b.op("all_gather", y, group="tp", axis=0) if spread else y
        return found

    def leave(y: str) -> str:
        found: str = b.op("reduce_scatter", y, group="tp", axis=0) if spread else y
        return found

    n = enter(b.op("rms_norm", x, norm, eps=EPS))
    qkv = b.op("linear", n, wqkv)
    three = b.op(
        "permute", b.op("view", qkv, sizes=(tokens, heads, 3, 2)), permutation=(2, 1, 0, 3)
    )
    q, k, v = (b.op("select", three, axis=0, index=i) for i in range(3))
    context = b.op("scaled_dot_product_attention", q, k, v, is_causal=True)
    o = b.op("view", b.op("transpose", context, dim0=0, dim1=1), sizes=(tokens, 2 * heads))
    h = b.op("add", x, leave(b.op("linear", o, wo)))
    m = enter(b.op("rms_norm", h, norm, eps=EPS))
    found: str = b.op("add", h, leave(b.op("linear", b.op("silu", b.op("linear", m, up)), down)))
    return found


def transformer_block() -> Pair:
    """Tensor and sequence parallel: heads and hidden units sharded, the residual stream spread over
    tokens.
    """
    r = Builder("block")
    x = r.input("x", (4, 3))
    norm = r.parameter("norm", (3,))
    weights = (
        r.parameter("wqkv", (12, 3)),
        r.parameter("wo", (3, 4)),
        r.parameter("up", (8, 3)),
        r.parameter("down", (3, 8)),
    )
    r.output(r.op("identity", _block(r, x, 2, 4, norm, *weights, spread=False), out="y"))

    b = Builder("block-tp-sp", {"tp": 2})
    x = b.input("x", (2, 3), {0: "tp"})
    norm = b.parameter("norm", (3,), {})
    weights = (
        b.parameter("wqkv", (6, 3), {0: "tp"}),
        b.parameter("wo", (3, 2), {1: "tp"}),
        b.parameter("up", (4, 3), {0: "tp"}),
        b.parameter("down", (3, 4), {1: "tp"}),
    )
    y = b.op("identity", _block(b, x, 1, 4, norm, *weights, spread=True), out="y")
    b.output(y, spec=lineage("y", {0: "tp"}))
    return r.plan(), b.plan()


def grouped_query_attention() -> Pair:
    """Four query heads on two key heads; a rank has one key head and its two query heads."""
    r = Builder("gqa")
    q, k, v = r.input("q", (4, 3, 2)), r.input("k", (2, 5, 2)), r.input("v", (2, 5, 2))
    o = r.op("scaled_dot_product_attention", q, k, v, out="o", enable_gqa=True)
    r.output(o)
    r.back(
        "scaled_dot_product_attention",
        [q, k, v],
        o,
        r.input("g", (4, 3, 2)),
        ["dq", "dk", "dv"],
        enable_gqa=True,
    )
    for name in ("dq", "dk", "dv"):
        r.output(name)

    b = Builder("gqa-tp", {"tp": 2})
    q, k, v = (
        b.input("q", (2, 3, 2), {0: "tp"}),
        b.input("k", (1, 5, 2), {0: "tp"}),
        b.input("v", (1, 5, 2), {0: "tp"}),
    )
    keys, values = b.op("expand", k, sizes=(2, 5, 2)), b.op("cat", v, v, axis=0)
    o = b.op("scaled_dot_product_attention", q, keys, values, out="o")
    b.output(o, spec=lineage("o", {0: "tp"}))
    b.back(
        "scaled_dot_product_attention",
        [q, keys, values],
        o,
        b.input("g", (2, 3, 2), {0: "tp"}),
        ["dq", "d_keys", "d_values"],
    )
    b.op("sum", "d_keys", out="dk", axes=(0,), keepdim=True)
    first, second = b.op("split", "d_values", out=["dv0", "dv1"], axis=0, sizes=(1, 1))
    b.op("add", first, second, out="dv")
    for name in ("dq", "dk", "dv"):
        b.output(name, spec=lineage(name, {0: "tp"}))
    return r.plan(), b.plan()


def fully_sharded() -> Pair:
    """FSDP: parameters are gathered before use and again before the backward pass; gradients are
    reduce-scattered.
    """
    r = Builder("two-layers")
    x, g = r.input("x", (4, 3)), r.input("g", (4, 2))
    w0, w1 = r.parameter("w0", (6, 3)), r.parameter("w1", (2, 6))
    h = r.op("linear", x, w0)
    a = r.op("gelu", h)
    y = r.op("linear", a, w1, out="y")
    r.output(y)
    r.back("linear", [a, w1], y, g, ["da", "dw1"])
    r.back("gelu", [h], a, "da", ["dh"])
    r.back("linear", [x, w0], h, "dh", ["", "dw0"])
    r.gradient("dw0", w0)
    r.gradient("dw1", w1)

    b = Builder("fsdp", {"dp": 2})
    x, g = b.input("x", (2, 3), {0: "dp"}), b.input("g", (2, 2), {0: "dp"})
    w0, w1 = b.parameter("w0", (3, 3), {0: "dp"}), b.parameter("w1", (1, 6), {0: "dp"})
    whole0 = b.op("all_gather", w0, group="dp", axis=0)
    h = b.op("linear", x, whole0)
    a = b.op("gelu", h)
    whole1 = b.op("all_gather", w1, group="dp", axis=0)
    y = b.op("linear", a, whole1, out="y")
    b.output(y, spec=lineage("y", {0: "dp"}))
    again1 = b.op("all_gather", w1, group="dp", axis=0)
    b.back("linear", [a, again1], y, g, ["da", "dw1_own"])
    b.op("reduce_scatter", "dw1_own", out="dw1", group="dp", axis=0)
    b.back("gelu", [h], a, "da", ["dh"])
    again0 = b.op("all_gather", w0, group="dp", axis=0)
    b.back("linear", [x, again0], h, "dh", ["", "dw0_own"])
    b.op("reduce_scatter", "dw0_own", out="dw0", group="dp", axis=0)
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return r.plan(), b.plan()


def scaled_loss_average() -> Pair:
    """A sum over all tokens: every replica scales its loss by their number, and the gradients are
    averaged.
    """
    r = Builder("sum")
    x, t, w = r.input("x", (6, 3)), r.input("t", (6, 2)), r.parameter("w", (2, 3))
    y = r.op("linear", x, w)
    loss = r.op("mse_loss", y, t, out="loss", reduction="sum")
    r.output(loss)
    r.back("mse_loss", [y, t], loss, r.constant("one", 1.0), ["dy", ""], reduction="sum")
    r.back("linear", [x, w], y, "dy", ["", "dw"])
    r.gradient("dw", w)

    b = Builder("scaled-avg", {"dp": 3})
    x, t, w = (
        b.input("x", (2, 3), {0: "dp"}),
        b.input("t", (2, 2), {0: "dp"}),
        b.parameter("w", (2, 3), {}),
    )
    y = b.op("linear", x, w)
    own = b.op("mse_loss", y, t, reduction="sum")
    scaled = b.op("mul", own, Number(3))
    b.output(b.op("all_reduce", scaled, out="loss", group="dp", reduction="avg"))
    b.back("mul", [own, Number(3)], scaled, b.constant("one", 1.0), ["d_own", ""])
    b.back("mse_loss", [y, t], own, "d_own", ["dy", ""], reduction="sum")
    b.back("linear", [x, w], y, "dy", ["", "dw_own"])
    b.op("all_reduce", "dw_own", out="dw", group="dp", reduction="avg")
    b.gradient("dw", w)
    return r.plan(), b.plan()


def three_dimensional() -> Pair:
    """Two pipeline stages, each sharded over tp and replicated over dp, two micro-batches."""
    r = Builder("two-layers")
    x, g = r.input("x", (8, 3)), r.input("g", (8, 4))
    w0, w1 = r.parameter("w0", (4, 3)), r.parameter("w1", (4, 4))
    h = r.op("linear", x, w0)
    a = r.op("silu", h)
    y = r.op("linear", a, w1)
    r.back("linear", [a, w1], y, g, ["da", "dw1"])
    r.back("silu", [h], a, "da", ["dh"])
    r.back("linear", [x, w0], h, "dh", ["", "dw0"])
    r.gradient("dw0", w0)
    r.gradient("dw1", w1)

    b = Builder("3d", {"pp": 2, "dp": 2, "tp": 2}, microbatches=2)
    first, last = {"pp": (0,)}, {"pp": (1,)}
    peer = table(("pp", "dp", "tp"), 4, 5, 6, 7, 0, 1, 2, 3)
    x = b.input("x", (2, 3), {0: ("mb", "dp")}, microbatched=True)
    g = b.input("g", (2, 4), {0: ("mb", "dp")}, microbatched=True)
    w0, w1 = b.parameter("w0", (2, 3), {0: "tp"}), b.parameter("w1", (4, 2), {1: "tp"})
    h = b.op("linear", x, w0, where=first)
    a = b.op("silu", h, where=first)
    b.send(a, peer, first)
    came = b.receive(a, "came", peer, last)
    part = b.op("linear", came, w1, where=last)
    b.back("linear", [came, w1], part, g, ["d_came", "dw1_mb"], where=last)
    b.send("d_came", peer, last)
    b.receive("d_came", "da", peer, first)
    b.back("silu", [h], a, "da", ["dh"], where=first)
    b.back("linear", [x, w0], h, "dh", ["", "dw0_mb"], where=first)
    b.op("accumulate", "dw0_mb", out="dw0_own", where=first)
    b.op("accumulate", "dw1_mb", out="dw1_own", where=last)
    b.op("all_reduce", "dw0_own", out="dw0", group="dp", where=first)
    b.op("all_reduce", "dw1_own", out="dw1", group="dp", where=last)
    b.gradient("dw0", w0)
    b.gradient("dw1", w1)
    return r.plan(), b.plan()


def dropout_over_shards() -> Pair:
    """The mask of a shard is drawn at its own place of the whole."""
    r = Builder("dropout")
    x, w = r.input("x", (4, 3)), r.parameter("w", (2, 3))
    mask = r.op("dropout_mask", x, stream="s", probability="1/4")
    r.output(r.op("linear", r.op("dropout", x, mask, probability="1/4"), w, out="y"))

    b = Builder("dropout-dp", {"dp": 2})
    x, w = b.input("x", (2, 3), {0: "dp"}), b.parameter("w", (2, 3), {})
    mask = b.op(
        "dropout_mask",
        x,
        stream="s",
        probability="1/4",
        whole=(4, 3),
        start=table("dp", (0, 0), (2, 0)),
    )
    own = b.op("linear", b.op("dropout", x, mask, probability="1/4"), w)
    b.output(b.op("all_gather", own, out="y", group="dp", axis=0))
    return r.plan(), b.plan()


PAIRS = {
    "transformer_block": transformer_block,
    "grouped_query_attention": grouped_query_attention,
    "fully_sharded": fully_sharded,
    "scaled_loss_average": scaled_loss_average,
    "three_dimensional": three_dimensional,
    "dropout_over_shards": dropout_over_shards,
}
