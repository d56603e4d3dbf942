"""Attention over sequences that are cut over ranks, which see each other's keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from pitcheck.models.config import Attention
from pitcheck.models.layers import QUERY_SCALES
from pitcheck.models.records import Spread
from pitcheck.plan.model import Number
from pitcheck.programs.layers.regions import exchanged, gathered
from pitcheck.programs.layers.ring import Ring, ring_mask
from pitcheck.programs.layers.visible import seen
from pitcheck.programs.rank import Rank
from pitcheck.programs.token_order import by_rank, in_order, places

Angles = tuple[str, str]
"""The cosines and sines of the rotary embedding at a rank's places; "" without one."""


@dataclass(frozen=True)
class Placed:
    """The tensors by which attention knows the places of tokens in their sequence.

    ``visible``: the mask, with a ring the stem of one name per hop. ``scales`` (length, 1): the
    factors of queries at the rank's places, "" without them.
    """

    visible: str
    angles: Angles
    scales: str


def mask(rank: Rank, tokens: str, name: str, local: bool = False) -> str:
    """Record a boolean per (row, column): True if the row's token may attend to the column's.

    Rows are those of a rank's attention, columns those that it sees. With ``local`` the layers have
    a window or a chunk. Return the name, with a ring the stem of one name per hop.
    """
    tape = rank.tape
    with tape.untracked():
        if rank.ring:
            return ring_mask(rank, tokens, name, local)
        own = places(rank, tokens, f"{name}.places")
        every = _joined(rank, own, f"{name}.ordered")
        rows = tape.op("unsqueeze", every if rank.layout.context == "ulysses" else own, axis=1)

        def columns(ahead: int) -> str:
            if not ahead:
                return every
            further = places(rank, tokens, f"{name}.ahead", ahead=ahead)
            return _joined(rank, further, f"{name}.ahead.ordered")

        return seen(rank, rows, columns, name, local)


def query_scales(rank: Rank, tokens: str, name: str, sizes: Attention) -> str:
    """Record the factors of queries at a rank's places in the whole sequence, (length, 1).

    ``tokens`` is (sequences, length).
    """
    tape = rank.tape
    with tape.untracked():
        counted = places(rank, tokens, f"{name}.counted", ahead=1)
        floor = tape.op("full_like", counted, name=f"{name}.floor", value=sizes.query_floor)
        steps = tape.op("floor_divide", counted, floor, name=f"{name}.steps")
        logarithm = tape.op(
            "log", tape.op("add", tape.op("cast", steps, dtype="float32"), Number(1))
        )
        grown = tape.op("mul", logarithm, Number(sizes.query_scale), name=f"{name}.grown")
        hint = rank.hint(QUERY_SCALES, rank.spread({0: rank.sequence()}))
        factors = tape.op("add", grown, Number(1))
        return tape.op("unsqueeze", factors, name=name, hint=hint, axis=1)


def _joined(rank: Rank, own: str, name: str) -> str:
    """Record the places of all context-parallel ranks' tokens in the order of the sequence."""
    if not rank.axes.context:
        return own
    gathered_places = rank.tape.op("all_gather", own, group=rank.axes.context, axis=0)
    return in_order(rank, gathered_places, 0, name)


def attend(rank: Rank, q: str, k: str, v: str, name: str, visible: str, sinks: str = "") -> str:
    """Record causal attention of q to the k and v of all context-parallel ranks.

    q is (sequences, heads, length, size), k and v are (sequences, key-value heads, length, size).
    The result is (sequences, length, heads, size). ``sinks`` (heads,): one more score per token,
    which leads to no value.
    """
    if rank.axes.context and rank.layout.context == "ulysses":
        return _by_heads(rank, q, k, v, name, visible, sinks)
    if rank.ring:
        ring = Ring(rank, (q, k, v), name, visible, sinks)
        return rank.tape.op("transpose", ring.run(), dim0=1, dim1=2)
    k, v = (
        in_order(
            rank, gathered(rank.tape, t, rank.axes.context, 2, f"{t}:gathered"), 2, f"{t}:ordered"
        )
        for t in (k, v)
    )
    k, v = (_repeated(rank, t, q) for t in (k, v))
    return _softmax(rank, (q, k, v), name, visible, rank.axes.tensor, sinks, whole=False)


def _repeated(rank: Rank, x: str, q: str) -> str:
    """Record every key-value head once per query head that shares it."""
    tape = rank.tape
    count = tape.tensors[q].shape[1] // tape.tensors[x].shape[1]
    return (
        x
        if count == 1
        else tape.op("repeat_interleave", x, name=f"{x}.repeated", axis=1, count=count)
    )


def _by_heads(rank: Rank, q: str, k: str, v: str, name: str, visible: str, sinks: str) -> str:
    """Record DeepSpeed-Ulysses (Jacobs et al. 2023).

    An all-to-all gives every rank whole sequences of some of the heads, another one takes the
    result back.
    """
    tape, axes = rank.tape, rank.axes.context
    cp = rank.layout.cp
    held = [
        t
        if tape.tensors[t].shape[1] % cp == 0
        else tape.op("repeat_interleave", t, axis=1, count=cp // tape.tensors[t].shape[1])
        for t in (k, v)
    ]
    q, k, v = (
        in_order(rank, exchanged(tape, t, axes, 1, 2, f"{t}:exchanged", None), 2, f"{t}:ordered")
        for t in (q, *held)
    )
    k, v = (_repeated(rank, t, q) for t in (k, v))
    own = _part_of(rank, sinks) if sinks else ""
    mixed = _softmax(rank, (q, k, v), name, visible, (*rank.axes.tensor, *axes), own, whole=True)
    return exchanged(
        tape, by_rank(rank, mixed, 1, f"{name}.by_rank"), axes, 1, 2, f"{name}.back", None
    )


def _part_of(rank: Rank, sinks: str) -> str:
    """Record the sinks of the heads that a context-parallel rank has of whole sequences."""
    tape, axes = rank.tape, rank.axes.context
    with tape.every_microbatch():
        return tape.op(
            "chunk",
            sinks,
            name=f"{sinks}:part",
            axis=0,
            count=rank.axes.size(axes),
            position=rank.position(axes),
            gradient=False,
        )


def _softmax(
    rank: Rank,
    operands: tuple[str, str, str],
    name: str,
    visible: str,
    heads: tuple[str, ...],
    sinks: str,
    whole: bool,
) -> str:
    """Record softmax(q k^T / sqrt(size)) v over visible tokens.

    The result is (sequences, length, heads, size).
    """
    tape, (q, k, v) = rank.tape, operands
    spread = rank.spread({0: rank.by_batch, 1: heads, 2: () if whole else rank.sequence()})
    scaled = tape.op(
        "scale_by_size", q, name=f"{name}.q.scaled", hint=spread, axis=-1, exponent="-1/2"
    )
    scores = tape.op(
        "matmul",
        scaled,
        tape.op("transpose", k, dim0=2, dim1=3),
        name=f"{name}.scores",
        hint=spread,
    )
    masked = tape.op("where", visible, scores, Number("-inf"), name=f"{name}.masked")
    if sinks:
        weights = _beside_sinks(rank, masked, f"{name}.weights", sinks, spread)
    else:
        weights = tape.op("softmax", masked, name=f"{name}.weights", hint=spread, axis=-1)
    return tape.op(
        "transpose",
        tape.op("matmul", weights, v, name=f"{name}.heads", hint=spread),
        dim0=1,
        dim1=2,
    )


def _beside_sinks(rank: Rank, scores: str, name: str, sinks: str, spread: Spread) -> str:
    """Record softmax over [scores, sink] without the sink's share; the shape is that of scores."""
    tape, (rows, heads, length, columns) = rank.tape, rank.tape.tensors[scores].shape
    with tape.every_microbatch():
        column = tape.op("reshape", sinks, sizes=(1, heads, 1, 1), gradient=False)
        wide = tape.op("expand", column, sizes=(rows, heads, length, 1), gradient=False)
    shares = tape.op("softmax", tape.op("cat", scores, wide, axis=3), axis=-1)
    return tape.op("slice", shares, name=name, hint=spread, axis=3, start=0, stop=columns)
