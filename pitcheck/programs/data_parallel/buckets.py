"""Flat buffers: many parameters' shards in one collective, as PyTorch's FSDP2 lays them out.

Each parameter is cut by rows into equal shards. A buffer is (shards, elements of a shard). If the
rows of a parameter do not divide, the last shards are padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from msgspec.structs import replace

from pitcheck.models.records import Hint
from pitcheck.plan.model import Lineage, Shard, Table
from pitcheck.programs.rank import Intervals, Names, Rank, portion


@dataclass(frozen=True)
class Piece:
    """One parameter in a buffer.

    ``shape``: of the rank's whole part of it; ``rows``: of a shard; ``shards``: their number, over
    ``axes``.
    """

    name: str
    shape: tuple[int, ...]
    rows: int
    shards: int
    axes: Names
    lineage: Lineage
    """The part of the parameter that a shard holds."""

    @property
    def padding(self) -> int:
        """The number of rows that are added."""
        return self.rows * self.shards - self.shape[0]

    @property
    def own(self) -> tuple[int, ...]:
        """The shape of a shard."""
        return (self.rows, *self.shape[1:])

    @property
    def elements(self) -> int:
        """The number of elements of a shard."""
        return prod(self.own)

    def holds(self, reference: str) -> Lineage:
        """Return the lineage of a tensor that holds the same part of another reference tensor."""
        return Lineage(reference, self.lineage.shards)


def piece(rank: Rank, name: str, shape: tuple[int, ...], lineage: Lineage | None) -> Piece:
    """Return how a rank's part of a parameter, with its lineage, is cut into shards."""
    axes = rank.sharing[name].shards
    shards = rank.axes.size(axes)
    rows = -(-shape[0] // shards)
    others = [shard for shard in lineage.shards if shard.dim] if lineage is not None else []
    first = (
        next((shard for shard in lineage.shards if not shard.dim), None)
        if lineage is not None
        else None
    )
    return Piece(
        name,
        shape,
        rows,
        shards,
        axes,
        Lineage(name, (_cut_further(rank, first, shape[0], rows, axes), *others)),
    )


def _cut_further(rank: Rank, first: Shard | None, size: int, rows: int, axes: Names) -> Shard:
    """Return dimension 0, cut as ``first`` says, cut again over ``axes`` into shards of ``rows``.

    Padding is at the end.
    """
    shards = rank.axes.size(axes)
    if size == rows * shards and (first is None or first.intervals is None):
        return Shard(0, by=(*(first.by if first is not None else ()), *axes))
    outer, values = _intervals(rank, first, size)
    cut = [
        padded(portion(intervals, rows * i, rows * (i + 1)), rows)
        for intervals in values
        for i in range(shards)
    ]
    return Shard(0, intervals=Table((*outer, *axes), tuple(cut)))


def _intervals(rank: Rank, shard: Shard | None, size: int) -> tuple[Names, list[Intervals]]:
    """Return the axes that cut dimension 0, and the intervals at every position along them."""
    if shard is None:
        return (), [((0, size),)]
    if shard.intervals is not None:
        return shard.intervals.over, [_pairs(value) for value in shard.intervals.values]
    return shard.by, [((i * size, (i + 1) * size),) for i in range(rank.axes.size(shard.by))]


def with_zeros(lineage: Lineage) -> Lineage:
    """Return the same part of a tensor, with padding that is zero."""
    return replace(
        lineage,
        shards=tuple(
            shard if shard.intervals is None else replace(shard, intervals=_zeros(shard.intervals))
            for shard in lineage.shards
        ),
    )


def _zeros(table: Table) -> Table:
    return replace(
        table,
        values=tuple(
            tuple((-2 if start < 0 else start, stop) for start, stop in _pairs(value))
            for value in table.values
        ),
    )


def _pairs(value: object) -> Intervals:
    return tuple((start, stop) for start, stop in value) if isinstance(value, tuple) else ()


def portion_of(intervals: object, size: int, number: int) -> Intervals:
    """Return part ``number`` of the concatenation of ``intervals``, cut into parts of ``size``.

    The last parts may be shorter.
    """
    return portion(_pairs(intervals), size * number, size * (number + 1))


def padded(intervals: Intervals, rows: int) -> Intervals:
    """Return the intervals with free places at the end, up to ``rows``."""
    missing = rows - sum(stop - start for start, stop in intervals)
    return (*intervals, (-1, missing)) if missing else intervals


def filled(pieces: Sequence[Piece], most: int) -> Iterator[list[Piece]]:
    """Yield the pieces in order, in buffers that are closed when they have ``most`` elements.

    The last buffer holds the rest.
    """
    bucket: list[Piece] = []
    for one in pieces:
        bucket.append(one)
        if sum(member.elements * member.shards for member in bucket) >= most:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def scatter(
    rank: Rank,
    pieces: Sequence[Piece],
    terms: Sequence[str],
    name: str,
    outputs: Sequence[str],
    hints: Sequence[Hint],
) -> None:
    """Record a reduce-scatter of whole tensors over the same axes, each a term of a sum.

    ``outputs`` are the names of the rank's shards of the sums.
    """
    tape = rank.tape
    parts = [
        tape.op("reshape", _even(rank, one, term), sizes=(one.shards, one.elements))
        for one, term in zip(pieces, terms, strict=True)
    ]
    buffer = parts[0] if len(parts) == 1 else tape.op("cat", *parts, name=f"{name}:buffer", axis=1)
    shard = tape.op("reduce_scatter", buffer, name=f"{name}:shard", group=pieces[0].axes, axis=0)
    cuts = tape.several(
        "split",
        shard,
        names=("",) * len(pieces),
        axis=1,
        sizes=tuple(one.elements for one in pieces),
    )
    for one, own, output, hint in zip(pieces, cuts, outputs, hints, strict=True):
        tape.op("reshape", own, name=output, hint=hint, sizes=one.own)


def gather(
    rank: Rank,
    pieces: Sequence[Piece],
    shards: Sequence[str],
    name: str,
    outputs: Sequence[str],
    hints: Sequence[Hint],
    gradients: Sequence[Lineage | None],
) -> None:
    """Record an all-gather of shards over the same axes.

    ``outputs`` are the names of whole tensors without padding. ``gradients``: what their gradients
    hold, if they have any.
    """
    tape = rank.tape
    parts = [
        tape.op("reshape", shard, sizes=(1, one.elements))
        for one, shard in zip(pieces, shards, strict=True)
    ]
    own = parts[0] if len(parts) == 1 else tape.op("cat", *parts, name=f"{name}:own", axis=1)
    buffer = tape.op("all_gather", own, name=f"{name}:buffer", group=pieces[0].axes, axis=0)
    cuts = tape.several(
        "split",
        buffer,
        names=("",) * len(pieces),
        axis=1,
        sizes=tuple(one.elements for one in pieces),
    )
    for number, (one, part, output, hint) in enumerate(
        zip(pieces, cuts, outputs, hints, strict=True)
    ):
        even = tape.op("reshape", part, sizes=(one.shards * one.rows, *one.shape[1:]))
        tape.op(
            "slice",
            even,
            name=output,
            hint=hint,
            gradient=(gradients[number] if gradients else None) or False,
            axis=0,
            start=0,
            stop=one.shape[0],
        )


def own_part(rank: Rank, one: Piece, whole: str, name: str) -> str:
    """Record the rank's shard of a tensor that it holds whole."""
    return rank.tape.op(
        "chunk",
        _even(rank, one, whole),
        name=name,
        hint=one.lineage,
        axis=0,
        count=one.shards,
        position=rank.position(one.axes),
    )


def _even(rank: Rank, one: Piece, whole: str) -> str:
    """Record a tensor with as many rows as the shards have together."""
    return rank.tape.op("pad", whole, axis=0, before=0, after=one.padding) if one.padding else whole
