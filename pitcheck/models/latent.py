"""Multi-head latent attention (DeepSeek-V2, 2024, section 2.1)."""

from __future__ import annotations

from pitcheck.models.config import LatentAttention
from pitcheck.models.dense import attend
from pitcheck.models.layers import Context, linear, norm


def latent_attention(context: Context, x: str, name: str, sizes: LatentAttention) -> str:
    """Record causal attention of ``x`` from one latent vector per token.

    ``x`` and the result are (sequences, length, hidden). A key is [its part of the latent vector,
    one rotary part that all heads share]; a query has both parts per head.
    """
    tape, (rows, length, hidden) = context.tape, context.tape.tensors[x].shape
    q = _queries(context, x, name, sizes)
    packed = linear(tape, x, f"{name}.kv_a", sizes.kv_rank + sizes.rope)
    latent, shared = tape.several(
        "split",
        packed,
        names=(f"{name}.latent", f"{name}.shared"),
        axis=2,
        sizes=(sizes.kv_rank, sizes.rope),
    )
    pairs = linear(
        tape,
        norm(context, latent, f"{name}.kv_norm"),
        f"{name}.kv_b",
        sizes.heads * (sizes.nope + sizes.value),
    )
    heads = _by_head(context, pairs, sizes.heads)
    own, v = tape.several(
        "split",
        heads,
        names=(f"{name}.k.own", f"{name}.v"),
        axis=3,
        sizes=(sizes.nope, sizes.value),
    )
    turned = _rotated(context, tape.op("unsqueeze", shared, axis=1), f"{name}.shared.rotated")
    wide = tape.op("expand", turned, sizes=(rows, sizes.heads, length, sizes.rope))
    k = tape.op("cat", own, wide, name=f"{name}.k", axis=3)
    mixed = attend(context, q, k, v, name)
    return linear(
        tape,
        tape.op(
            "reshape", mixed, name=f"{name}.mixed", sizes=(rows, length, sizes.heads * sizes.value)
        ),
        f"{name}.o",
        hidden,
    )


def _queries(context: Context, x: str, name: str, sizes: LatentAttention) -> str:
    """Record queries (sequences, heads, length, nope + rope), the last part rotated."""
    tape = context.tape
    if sizes.query_rank:
        x = norm(context, linear(tape, x, f"{name}.q_a", sizes.query_rank), f"{name}.q_norm")
    heads = _by_head(
        context,
        linear(tape, x, f"{name}.q_b", sizes.heads * (sizes.nope + sizes.rope)),
        sizes.heads,
    )
    own, turning = tape.several(
        "split",
        heads,
        names=(f"{name}.q.own", f"{name}.q.turning"),
        axis=3,
        sizes=(sizes.nope, sizes.rope),
    )
    return tape.op(
        "cat", own, _rotated(context, turning, f"{name}.q.rotated"), name=f"{name}.q", axis=3
    )


def _by_head(context: Context, x: str, heads: int) -> str:
    """Record (sequences, length, heads * size) as (sequences, heads, length, size)."""
    tape, (rows, length, width) = context.tape, context.tape.tensors[x].shape
    return tape.op(
        "transpose",
        tape.op("reshape", x, sizes=(rows, length, heads, width // heads)),
        name=f"{x}.heads",
        dim0=1,
        dim1=2,
    )


def _rotated(context: Context, x: str, name: str) -> str:
    return context.tape.op(
        "rotary", x, context.cos, context.sin, name=name, convention="interleaved"
    )
