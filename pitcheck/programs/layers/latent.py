"""Multi-head latent attention on a rank (DeepSeek-V2, 2024), as Megatron-LM cuts it.

Every tensor-parallel rank has the weights down to the latent vectors, and their norms; only the
weights up to the heads are cut. With sequence parallelism a rank computes the latent vectors of its
part of the sequence. They are gathered where heads are made of them, which sends less than
gathering the hidden state.
"""

from __future__ import annotations

from pitcheck.models.config import LatentAttention
from pitcheck.programs.layers.context_attention import Angles, attend
from pitcheck.programs.layers.regions import enter
from pitcheck.programs.layers.tensor_parallel import column, norm, replicated, row
from pitcheck.programs.rank import Names, Rank


def latent_attention(
    rank: Rank, x: str, name: str, visible: str, angles: Angles, sizes: LatentAttention
) -> str:
    """Record causal attention of the residual stream ``x``, heads cut over tensor-parallel ranks.

    All heads share the rotary part of their keys.
    """
    q = _queries(rank, x, name, angles, sizes)
    k, v = _keys_and_values(rank, x, name, angles, sizes)
    mixed = attend(rank, q, k, v, name, visible)
    flat = rank.tape.op(
        "reshape", mixed, name=f"{name}.mixed", hint=rank.wide, sizes=(rank.rows, rank.length, -1)
    )
    return row(rank, flat, f"{name}.o", rank.model.hidden)


def _queries(rank: Rank, x: str, name: str, angles: Angles, sizes: LatentAttention) -> str:
    """Record a rank's heads (sequences, heads, length, nope + rope), the last part rotated."""
    tape, axes = rank.tape, rank.axes.tensor
    if sizes.query_rank:
        x = norm(rank, replicated(rank, x, f"{name}.q_a", sizes.query_rank), f"{name}.q_norm")
    heads = _by_head(
        rank,
        column(rank, enter(rank, x), f"{name}.q_b", sizes.heads * (sizes.nope + sizes.rope), axes),
        sizes,
    )
    names, hint = (f"{name}.q.own", f"{name}.q.turning"), rank.heads(axes)
    own, turning = tape.several(
        "split", heads, names=names, hints=(hint, hint), axis=3, sizes=(sizes.nope, sizes.rope)
    )
    return tape.op(
        "cat",
        own,
        _turned(rank, turning, f"{name}.q.rotated", angles, axes),
        name=f"{name}.q",
        hint=hint,
        axis=3,
    )


def _keys_and_values(
    rank: Rank, x: str, name: str, angles: Angles, sizes: LatentAttention
) -> tuple[str, str]:
    """Record the keys and values of a rank's heads.

    Returns: (sequences, heads, length, nope + rope) and (sequences, heads, length, value).
    """
    tape, axes = rank.tape, rank.axes.tensor
    packed = replicated(rank, x, f"{name}.kv_a", sizes.kv_rank + sizes.rope)
    names, hints = (f"{name}.latent", f"{name}.shared"), (rank.residual, rank.residual)
    latent, shared = tape.several(
        "split", packed, names=names, hints=hints, axis=2, sizes=(sizes.kv_rank, sizes.rope)
    )
    pairs = column(
        rank,
        enter(rank, norm(rank, latent, f"{name}.kv_norm")),
        f"{name}.kv_b",
        sizes.heads * (sizes.nope + sizes.value),
        axes,
    )
    hint = rank.heads(axes)
    own, v = tape.several(
        "split",
        _by_head(rank, pairs, sizes),
        names=(f"{name}.k.own", f"{name}.v"),
        hints=(hint, hint),
        axis=3,
        sizes=(sizes.nope, sizes.value),
    )
    # Heads of other ranks share the rotary part, so its gradient here is a term of a sum.
    one = tape.op("unsqueeze", enter(rank, shared), axis=1, gradient=False)
    turned = _turned(rank, one, f"{name}.shared.rotated", angles, ())
    wide = tape.op(
        "expand",
        turned,
        sizes=(rank.rows, sizes.heads // rank.axes.size(axes), rank.length, sizes.rope),
    )
    return tape.op("cat", own, wide, name=f"{name}.k", hint=hint, axis=3), v


def _by_head(rank: Rank, x: str, sizes: LatentAttention) -> str:
    """Record (sequences, length, a rank's heads * size) as (sequences, heads, length, size)."""
    tape, axes = rank.tape, rank.axes.tensor
    grouped = tape.op(
        "reshape", x, sizes=(rank.rows, rank.length, sizes.heads // rank.axes.size(axes), -1)
    )
    return tape.op("transpose", grouped, name=f"{x}.heads", hint=rank.heads(axes), dim0=1, dim1=2)


def _turned(rank: Rank, x: str, name: str, angles: Angles, axes: Names) -> str:
    """Record rotary embedding of neighbouring pairs; heads are cut over ``axes``."""
    return rank.tape.op(
        "rotary",
        x,
        *angles,
        name=name,
        hint=rank.heads(axes),
        gradient=axes == rank.axes.tensor,
        convention="interleaved",
    )
