"""The relation between two plans: the part of a reference tensor that a tensor holds on a rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.certificate.arithmetic import Residues
from pitcheck.certificate.modular import Array
from pitcheck.certificate.moves import Value
from pitcheck.errors import UnsupportedError
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Shard, Tensor
from pitcheck.plan.rules.lineage_rules import FREE

Interval = tuple[int, int]
Box = tuple[tuple[Interval, ...], ...]


@dataclass(frozen=True)
class Part:
    """``scale`` times a box of a reference tensor, or term ``term`` of ``terms`` of such a sum.

    ``group`` is the sum that a term belongs to. ``owner`` is the coordinate that holds free
    elements, -1 if there are none. ``holder`` is the tensor of which terms or free elements are.
    """

    reference: str
    box: Box
    scale: Fraction
    term: int = 0
    terms: int = 1
    group: int = -1
    owner: int = -1
    holder: str = ""


class Relation:
    """The parts of a reference tensor that a tensor of the parallel plan holds, by coordinate.

    The lineage must keep the rules of valid plans (``pitcheck/plan/rules/lineage_rules.py``).

    Raises:
        UnsupportedError: it has no meaning here.
    """

    def __init__(
        self, lineage: Lineage, tensor: Tensor, shape: tuple[int, ...], mesh: Coordinates
    ) -> None:
        self.lineage = lineage
        self._mesh = mesh
        self._name = tensor.name
        if (lineage.partial or lineage.partial_ranks) and lineage.reduction != "sum":
            raise UnsupportedError(f"terms of a {lineage.reduction} are not verified")
        self._columns = {shard.dim: self._column(shard, shape) for shard in lineage.shards}
        self._whole = tuple(((0, size),) for size in shape)
        self._term, self.terms, self._group = self._terms()

    def _column(self, shard: Shard, shape: tuple[int, ...]) -> tuple[Array, Sequence[Any]]:
        """Return the number of the entry at every coordinate, and the entries."""
        table = shard.intervals
        if table is not None:
            return self._mesh.row_major(table.over), table.values
        count = self._mesh.count(shard.by)
        step = shape[shard.dim] // count
        entries = [((i * step, (i + 1) * step),) for i in range(count)]
        return self._mesh.row_major(shard.by), entries

    def _terms(self) -> tuple[Array, int, Array]:
        """Return by coordinate the number of its term, and its sum; and the number of terms."""
        lineage, mesh = self.lineage, self._mesh
        if lineage.partial:
            axes = (*mesh.sizes, MICROBATCH_AXIS)
            others = tuple(axis for axis in axes if axis not in lineage.partial)
            term = mesh.row_major(lineage.partial)
            return term, mesh.count(lineage.partial), mesh.row_major(others)
        shape = (mesh.ranks, mesh.microbatches)
        term, group = np.zeros(shape, dtype=np.int64), np.arange(np.prod(shape)).reshape(shape)
        listed = sum(map(len, lineage.partial_ranks))
        counts = {len(ranks) for ranks in lineage.partial_ranks}
        if lineage.partial_ranks and (listed != mesh.ranks or len(counts) > 1):
            raise UnsupportedError("rank lists that leave out ranks, or differ, are not verified")
        for ranks in lineage.partial_ranks:
            term[list(ranks)] = np.arange(len(ranks))[:, None]
            group[list(ranks)] = group[min(ranks)]
        return term, counts.pop() if counts else 1, group

    def at(self, rank: int, microbatch: int) -> Part:
        """Return what a coordinate holds."""
        box = list(self._whole)
        for dim, (places, entries) in self._columns.items():
            box[dim] = entries[places[rank, microbatch]]
        code = rank * self._mesh.microbatches + microbatch
        free = any(start == FREE for own in box for start, _ in own)
        return Part(
            self.lineage.reference,
            tuple(box),
            Fraction(self.lineage.scale),
            int(self._term[rank, microbatch]),
            self.terms,
            int(self._group[rank, microbatch]) if self.terms > 1 else -1,
            code if free else -1,
            self._name if free or self.terms > 1 else "",
        )


def _length(interval: Interval) -> int:
    start, stop = interval
    return stop if start < 0 else stop - start


def taken(
    algebra: Residues, whole: Value, part: Part, free: Callable[[tuple[int, ...]], Value]
) -> Value:
    """Return the scaled box of a reference value; ``free`` makes what nobody knows."""
    result = whole
    for dim, intervals in enumerate(part.box):
        pieces = []
        for start, stop in intervals:
            if start >= 0:
                pieces.append(algebra.slice(result, dim, start, stop))
                continue
            shape = (*result.shape[:dim], stop, *result.shape[dim + 1 :])
            zeros = algebra.constant(Fraction(0), result.kind)
            pieces.append(free(shape) if start == FREE else algebra.expand(zeros, shape))
        result = pieces[0] if len(pieces) == 1 else algebra.concatenate(pieces, dim)
    if part.scale == 1:
        return result
    if result.kind != "field":
        raise UnsupportedError("integers that are scaled are not verified")
    return algebra.multiply(algebra.constant(part.scale), result)


def judged(part: Part) -> Array:
    """Return True for every element of a part that is no free one."""
    result = np.ones(tuple(sum(map(_length, own)) for own in part.box), dtype=np.bool_)
    for dim, intervals in enumerate(part.box):
        place = 0
        for interval in intervals:
            if interval[0] == FREE:
                np.moveaxis(result, dim, 0)[place : place + interval[1]] = False
            place += _length(interval)
    return result


def uncovered(parts: list[Part], shape: tuple[int, ...]) -> bool:
    """Return True unless the parts, with all terms of each sum, cover the whole tensor."""
    terms: dict[tuple[Box, int], set[int]] = {}
    for part in parts:
        terms.setdefault((part.box, part.group), set()).add(part.term)
    held = np.zeros(shape, dtype=np.bool_)
    for (box, _), found in terms.items():
        if len(found) == parts[0].terms:
            places = [
                np.concatenate([np.arange(*i) for i in own if i[0] >= 0] or [np.arange(0)])
                for own in box
            ]
            held[np.ix_(*places) if places else ()] = True
    return not held.all()
