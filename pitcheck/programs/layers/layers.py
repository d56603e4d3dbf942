"""A transformer layer on a rank."""

from __future__ import annotations

from pitcheck.models.config import Attention
from pitcheck.programs.layers.context_attention import Placed, attend
from pitcheck.programs.layers.experts import mixture_of_experts
from pitcheck.programs.layers.feed_forward import feed_forward
from pitcheck.programs.layers.latent import latent_attention
from pitcheck.programs.layers.regions import enter
from pitcheck.programs.layers.tensor_parallel import column, norm, parameter, row
from pitcheck.programs.rank import Names, Rank


def layer(rank: Rank, x: str, name: str, placed: Placed, mixture: bool) -> str:
    """Record x + attention(norm x), then that + feed-forward(norm of it).

    With ``mixture`` the feed-forward part is a mixture of experts.
    """
    tape = rank.tape
    with tape.module(name):
        normed = norm(rank, x, f"{name}.attention_norm")
        mixed = _attended(rank, normed, f"{name}.attention", placed)
        x = tape.op("add", x, mixed, name=f"{name}.middle", hint=rank.residual)
        fed = _fed(rank, norm(rank, x, f"{name}.mlp_norm"), f"{name}.mlp", mixture)
        return tape.op("add", x, fed, name=f"{name}.output", hint=rank.residual)


def _attended(rank: Rank, x: str, name: str, placed: Placed) -> str:
    """Record attention of the model's kind."""
    sizes = rank.model.attention
    if isinstance(sizes, Attention):
        return attention(rank, x, name, placed, sizes)
    return latent_attention(rank, x, name, placed.visible, placed.angles, sizes)


def _fed(rank: Rank, x: str, name: str, mixture: bool) -> str:
    """Record the feed-forward part, a mixture of experts with ``mixture``."""
    experts = rank.model.experts
    if mixture and experts is not None:
        return mixture_of_experts(rank, x, name, experts)
    return feed_forward(rank, x, name, rank.model.ffn)


def attention(rank: Rank, x: str, name: str, placed: Placed, sizes: Attention) -> str:
    """Record causal attention, heads cut over tensor-parallel ranks.

    Ranks that share a key-value head all compute its key and value.
    """
    tape = rank.tape
    cuts = (rank.axes.tensor, rank.axes.heads)
    q, k, v = _projections(rank, enter(rank, x), name, sizes)
    if sizes.qk_norm == "rms":
        q, k = (
            _head_norm(rank, t, f"{name}.{part}_norm", axes)
            for t, part, axes in zip((q, k), "qk", cuts, strict=True)
        )
    if placed.angles[0]:
        turned = zip((q, k), cuts, strict=True)
        q, k = (
            tape.op(
                "rotary",
                t,
                *placed.angles,
                name=f"{t}.rotated",
                hint=rank.heads(axes),
                gradient=_complete(rank, axes),
                convention=sizes.rotary_pairs,
            )
            for t, axes in turned
        )
        if sizes.qk_norm == "l2":
            q, k = (
                tape.op(
                    "rms_norm",
                    t,
                    name=f"{t}.normed",
                    hint=rank.heads(axes),
                    gradient=_complete(rank, axes),
                    eps=rank.model.norm_eps,
                )
                for t, axes in zip((q, k), cuts, strict=True)
            )
    if placed.scales:
        hint = rank.heads(rank.axes.tensor)
        q = tape.op("mul", q, placed.scales, name=f"{name}.q.by_place", hint=hint)
    mixed = attend(rank, q, k, v, name, placed.visible, _sinks(rank, name, sizes))
    flat = tape.op(
        "reshape", mixed, name=f"{name}.mixed", hint=rank.wide, sizes=(rank.rows, rank.length, -1)
    )
    return row(rank, flat, f"{name}.o", rank.model.hidden, sizes.bias)


def _head_norm(rank: Rank, x: str, name: str, axes: Names) -> str:
    """Record the RMS norm of every head of ``x``, whose heads are cut over ``axes``.

    All heads share the weight, so its gradients are terms of a sum over tensor-parallel ranks.
    """
    size = rank.tape.tensors[x].shape[-1]
    weight = parameter(rank, f"{name}.weight", (size,), {}, rank.axes.tensor, decays=False)
    return rank.tape.op(
        "rms_norm",
        x,
        weight,
        name=name,
        hint=rank.heads(axes),
        gradient=_complete(rank, axes),
        eps=rank.model.norm_eps,
    )


def _sinks(rank: Rank, name: str, sizes: Attention) -> str:
    """Add the sinks of a rank's heads; return their name, "" without them."""
    if not sizes.sinks:
        return ""
    axes = rank.axes.tensor
    shape = (sizes.heads // rank.axes.size(axes),)
    return parameter(rank, f"{name}.sinks", shape, rank.spread({0: axes}), decays=False)


def _complete(rank: Rank, axes: Names) -> bool:
    """Return True if the gradient of a tensor cut over ``axes`` is not a term of a sum."""
    return axes == rank.axes.tensor


def _projections(rank: Rank, x: str, name: str, sizes: Attention) -> list[str]:
    """Record queries, keys and values, each (sequences, heads, length, size)."""
    tape, axes = rank.tape, rank.axes
    cuts = {"q": axes.tensor, "k": axes.heads, "v": axes.heads}
    counts = {
        part: (sizes.heads if part == "q" else sizes.kv_heads) // axes.size(cut)
        for part, cut in cuts.items()
    }
    if sizes.fused:
        shared = sizes.heads // sizes.kv_heads
        packed = column(
            rank,
            x,
            f"{name}.qkv",
            (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim,
            axes.tensor,
            sizes.bias,
        )
        grouped = tape.op(
            "reshape",
            packed,
            sizes=(rank.rows, rank.length, counts["k"], (shared + 2) * sizes.head_dim),
        )
        names = [f"{name}.{part}.grouped" for part in cuts]
        parts = tape.several(
            "split",
            grouped,
            names=names,
            axis=3,
            sizes=(shared * sizes.head_dim, sizes.head_dim, sizes.head_dim),
        )
    else:
        widths = {
            part: (sizes.heads if part == "q" else sizes.kv_heads) * sizes.head_dim for part in cuts
        }
        parts = tuple(
            column(rank, x, f"{name}.{part}", widths[part], cut, sizes.bias)
            for part, cut in cuts.items()
        )
    split = [
        tape.op("reshape", part, sizes=(rank.rows, rank.length, counts[letter], sizes.head_dim))
        for part, letter in zip(parts, cuts, strict=True)
    ]
    return [
        tape.op(
            "transpose",
            part,
            name=f"{name}.{letter}.heads",
            hint=rank.heads(cut),
            gradient=_complete(rank, cut),
            dim0=1,
            dim1=2,
        )
        for part, (letter, cut) in zip(split, cuts.items(), strict=True)
    ]
