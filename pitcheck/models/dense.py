"""Multi-head attention and the dense feed-forward part."""

from __future__ import annotations

from pitcheck.models.config import Attention
from pitcheck.models.layers import Context, linear, parameter
from pitcheck.plan.model import Number


def attention(context: Context, x: str, name: str, sizes: Attention) -> str:
    """Record causal attention of ``x`` (sequences, length, hidden); return a tensor of that shape.

    The keys and values of a head are repeated for the query heads that share them.
    """
    tape, (rows, length, hidden) = context.tape, context.tape.tensors[x].shape
    q, k, v = _projections(context, x, name, sizes)
    if sizes.qk_norm == "rms":
        q, k = (_head_norm(context, t, f"{name}.{part}_norm") for t, part in ((q, "q"), (k, "k")))
    if context.cos:
        q, k = (
            tape.op(
                "rotary",
                t,
                context.cos,
                context.sin,
                name=f"{t}.rotated",
                convention=sizes.rotary_pairs,
            )
            for t in (q, k)
        )
        if sizes.qk_norm == "l2":
            q, k = (
                tape.op("rms_norm", t, name=f"{t}.normed", eps=context.model.norm_eps)
                for t in (q, k)
            )
    if context.scales:
        q = tape.op("mul", q, context.scales, name=f"{name}.q.by_place")
    shared = sizes.heads // sizes.kv_heads
    if shared > 1:
        k, v = (
            tape.op("repeat_interleave", t, name=f"{t}.repeated", axis=1, count=shared)
            for t in (k, v)
        )
    sinks = parameter(tape, f"{name}.sinks", sizes.heads, decays=False) if sizes.sinks else ""
    mixed = attend(context, q, k, v, name, sinks)
    return linear(
        tape,
        tape.op(
            "reshape",
            mixed,
            name=f"{name}.mixed",
            sizes=(rows, length, sizes.heads * sizes.head_dim),
        ),
        f"{name}.o",
        hidden,
        sizes.bias,
    )


def _head_norm(context: Context, x: str, name: str) -> str:
    """Record the RMS norm of every head of ``x``; all heads share the weight (head size,)."""
    tape = context.tape
    weight = parameter(tape, f"{name}.weight", tape.tensors[x].shape[-1], decays=False)
    return tape.op("rms_norm", x, weight, name=name, eps=context.model.norm_eps)


def attend(context: Context, q: str, k: str, v: str, name: str, sinks: str = "") -> str:
    """Record softmax(q k^T / sqrt(size)) v over visible tokens.

    q, k and v are (sequences, heads, length, size); the result is (sequences, length, heads, size).
    ``sinks`` (heads,) are one more score of every token, which leads to no value.
    """
    tape = context.tape
    scaled = tape.op("scale_by_size", q, name=f"{name}.q.scaled", axis=-1, exponent="-1/2")
    scores = tape.op(
        "matmul", scaled, tape.op("transpose", k, dim0=2, dim1=3), name=f"{name}.scores"
    )
    masked = tape.op("where", context.visible, scores, Number("-inf"), name=f"{name}.masked")
    weights = (
        _beside_sinks(context, masked, f"{name}.weights", sinks)
        if sinks
        else tape.op("softmax", masked, name=f"{name}.weights", axis=-1)
    )
    return tape.op("transpose", tape.op("matmul", weights, v, name=f"{name}.heads"), dim0=1, dim1=2)


def _beside_sinks(context: Context, scores: str, name: str, sinks: str) -> str:
    """Record softmax over [scores, sink] without the sink's share; the shape is that of scores."""
    tape, (rows, heads, length, columns) = context.tape, context.tape.tensors[scores].shape
    column = tape.op("reshape", sinks, sizes=(1, heads, 1, 1))
    wide = tape.op("expand", column, sizes=(rows, heads, length, 1))
    shares = tape.op("softmax", tape.op("cat", scores, wide, axis=3), axis=-1)
    return tape.op("slice", shares, name=name, axis=3, start=0, stop=columns)


def _projections(context: Context, x: str, name: str, sizes: Attention) -> list[str]:
    """Record queries, keys and values, each (sequences, heads, length, size)."""
    tape, (rows, length, _) = context.tape, context.tape.tensors[x].shape
    heads = {"q": sizes.heads, "k": sizes.kv_heads, "v": sizes.kv_heads}
    if sizes.fused:
        shared = sizes.heads // sizes.kv_heads
        packed = linear(
            tape, x, f"{name}.qkv", (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim, sizes.bias
        )
        grouped = tape.op(
            "reshape", packed, sizes=(rows, length, sizes.kv_heads, (shared + 2) * sizes.head_dim)
        )
        names = [f"{name}.{part}.grouped" for part in heads]
        parts = tape.several(
            "split",
            grouped,
            names=names,
            axis=3,
            sizes=(shared * sizes.head_dim, sizes.head_dim, sizes.head_dim),
        )
    else:
        parts = tuple(
            linear(tape, x, f"{name}.{part}", count * sizes.head_dim, sizes.bias)
            for part, count in heads.items()
        )
    split = [
        tape.op("reshape", part, sizes=(rows, length, count, sizes.head_dim))
        for part, count in zip(parts, heads.values(), strict=True)
    ]
    return [
        tape.op("transpose", part, name=f"{name}.{letter}.heads", dim0=1, dim1=2)
        for part, letter in zip(split, heads, strict=True)
    ]


def feed_forward(context: Context, x: str, name: str, ffn: int) -> str:
    """Record the dense feed-forward part: down(silu(gate x) * up x), or as the activation says.

    ``x`` and the result are (sequences, length, hidden); ``ffn`` is the width in between.
    """
    tape, model = context.tape, context.model
    if model.activation == "gelu":
        middle = tape.op(
            "gelu",
            linear(tape, x, f"{name}.up", ffn, model.bias),
            name=f"{name}.middle",
            approximate="tanh",
        )
        return linear(tape, middle, f"{name}.down", model.hidden, model.bias)
    if model.fused_gate:
        packed = linear(tape, x, f"{name}.gate_up", 2 * ffn, model.bias)
        gate, up = tape.several(
            "split", packed, names=(f"{name}.gate", f"{name}.up"), axis=2, sizes=(ffn, ffn)
        )
    else:
        gate, up = (linear(tape, x, f"{name}.{part}", ffn, model.bias) for part in ("gate", "up"))
    middle = gated(context, gate, up, f"{name}.middle")
    return linear(tape, middle, f"{name}.down", model.hidden, model.bias)


def gated(context: Context, gate: str, up: str, name: str) -> str:
    """Record silu(gate) * up, or g * sigmoid(alpha g) * (u + 1) of clamped gate and up."""
    tape, model = context.tape, context.model
    if model.activation == "swiglu":
        return tape.op("mul", tape.op("silu", gate), up, name=name)
    gate = tape.op("clamp", gate, max=model.gate_limit)
    up = tape.op("clamp", up, min=f"-{model.gate_limit}", max=model.gate_limit)
    slope = tape.op("sigmoid", tape.op("mul", gate, Number(model.gate_alpha)))
    return tape.op("mul", tape.op("mul", gate, slope), tape.op("add", up, Number(1)), name=name)
