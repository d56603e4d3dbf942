"""The order in which context-parallel ranks have the tokens of a sequence.

A rank has one run of consecutive places or, in zig-zag order, one early and one late run, so that
all ranks have equal work under a causal mask. What is gathered from all ranks then is in the order
of the ranks, not of the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.plan.model import Table
from pitcheck.programs.rank import Rank


def places(rank: Rank, tokens: str, name: str = "", hop: int = 0, ahead: int = 0) -> str:
    """Record the places in their sequence of a rank's tokens, (length,).

    ``tokens`` is (sequences, length). With ``hop`` the tokens are those of the context-parallel
    rank so many places before. ``ahead`` is added to every place.
    """
    tape, runs = rank.tape, rank.runs()
    if len(runs) == 1:
        return tape.op(
            "positions", tokens, name=name, axis=1, offset=behind(runs[0][0], hop, ahead)
        )
    halves = [tape.op("chunk", tokens, axis=1, count=2, position=half) for half in range(2)]
    parts = [
        tape.op("positions", half, axis=1, offset=behind(begun, hop, ahead))
        for half, (begun, _) in zip(halves, runs, strict=True)
    ]
    return tape.op("cat", *parts, name=name, axis=0)


def behind(value: int | Table, hop: int, ahead: int = 0) -> int | Table:
    """Return the values of a table over context-parallel ranks of the rank ``hop`` places before.

    A number is the same for all ranks. ``ahead`` is added to every value.
    """
    if not isinstance(value, Table):
        return value + ahead
    count = len(value.values)
    moved = (value.values[(place - hop) % count] for place in range(count))
    return Table(value.over, tuple(at + ahead if isinstance(at, int) else at for at in moved))


def in_order(rank: Rank, x: str, axis: int, name: str) -> str:
    """Record whole sequences in the order of their tokens, from ``x`` in the order of the ranks."""
    if not rank.zigzag:
        return x
    last = 2 * rank.layout.cp - 1
    return _rearranged(
        rank,
        x,
        axis,
        [2 * run if run < rank.layout.cp else 2 * (last - run) + 1 for run in range(last + 1)],
        name,
    )


def by_rank(rank: Rank, x: str, axis: int, name: str) -> str:
    """Record whole sequences in the order of the ranks that get them, undoing ``in_order``."""
    if not rank.zigzag:
        return x
    last = 2 * rank.layout.cp - 1
    return _rearranged(
        rank,
        x,
        axis,
        [run for place in range(rank.layout.cp) for run in (place, last - place)],
        name,
    )


def _rearranged(rank: Rank, x: str, axis: int, order: Sequence[int], name: str) -> str:
    """Record equal parts along ``axis`` in another order."""
    tape = rank.tape
    size = tape.tensors[x].shape[axis] // len(order)
    parts = tape.several(
        "split", x, names=("",) * len(order), axis=axis, sizes=(size,) * len(order)
    )
    return tape.op("cat", *(parts[number] for number in order), name=name, axis=axis)
