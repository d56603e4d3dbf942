"""Lineage from nnScaler's sub-tensors: boxes (``_indmap``) and terms of sums (``_valmap``).

For inputs and parameters it is specification. For all other tensors it is a hint, which is proven
before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, permutations

from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler.layout import Layout
from pitcheck.frontends.nnscaler.tensors import SubTensor
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Shard
from pitcheck.plan.tables import Places

Intervals = Mapping[int, tuple[int, int]]
"""A half-open interval (start, stop) per device of a replica."""

_Part = tuple[tuple[tuple[int, int], ...], tuple[int, int]]


class Lineages:
    """The lineages of one plan."""

    def __init__(self, layout: Layout, microbatches: int) -> None:
        self._axes = [axis.name for axis in layout.mesh[1:] if axis.size > 1]
        self._coordinates = Coordinates(layout.mesh, microbatches)
        sizes = {"dp": layout.replicas, MICROBATCH_AXIS: microbatches}
        self._batch = tuple(axis for axis, size in sizes.items() if size > 1)
        self._places = Places(self._coordinates)
        self._known: dict[tuple[object, ...], tuple[tuple[Shard, ...], tuple[str, ...]] | None] = {}

    def of_input(self, reference: str, rank: int) -> Lineage | None:
        """Return the lineage of an input with ``rank`` dimensions.

        Its first dimension is cut over replicas, then micro-batches.
        """
        shards = (Shard(0, by=self._batch),) if rank and self._batch else ()
        return Lineage(reference, shards)

    def of_parameter(self, reference: str, parts: Mapping[int, SubTensor]) -> Lineage:
        """Return the lineage of a parameter from the part that every device holds.

        Raises PlanError for a box that does not fit the tensor's shape or lies outside of the
        whole.
        """
        for tensor in parts.values():
            for dim, ((start, stop), size, local) in enumerate(
                zip(tensor.box, tensor.whole, tensor.shape, strict=True)
            ):
                if not 0 <= start <= stop <= size or stop - start != local:
                    raise PlanError(
                        f"{tensor.name!r} of shape {tensor.shape} is said to hold {start}:{stop} "
                        f"of dimension {dim} of size {size}"
                    )
        first = next(iter(parts.values()))
        if any(tensor.whole != first.whole for tensor in parts.values()):
            raise PlanError(f"{first.name!r} has different full shapes on different devices")
        shards = [
            self._shard(dim, size, {device: tensor.box[dim] for device, tensor in parts.items()})
            for dim, size in enumerate(first.whole)
        ]
        return Lineage(reference, tuple(shard for shard in shards if shard is not None))

    def of_loss(self) -> Lineage | None:
        """Return the lineage of the loss, with one term per replica and micro-batch.

        Returns None if there is one term.
        """
        return Lineage("loss", partial=self._batch) if self._batch else None

    def hint(
        self,
        reference: str,
        parts: Mapping[int, SubTensor],
        *,
        shape: tuple[int, ...],
        batched: bool,
        partial: bool,
        reduced: bool,
    ) -> Lineage | None:
        """Return the lineage of an intermediate tensor; None if it cannot be written.

        ``batched`` says that the first dimension is cut over replicas and micro-batches.
        ``partial`` says that every replica and micro-batch has a term; with ``reduced`` every
        replica has one. A tensor without dimensions that is ``batched`` has a term per replica and
        micro-batch as well.
        """
        described = tuple(
            (device, (tensor.box, tensor.term), tensor.whole) for device, tensor in parts.items()
        )
        key = (described, shape, batched, partial, reduced)
        if key not in self._known:
            self._known[key] = self._new_hint(
                {device: part for device, part, _ in described}, described[0][2], key
            )
        found = self._known[key]
        return None if found is None else Lineage(reference, found[0], found[1])

    def _new_hint(
        self, parts: Mapping[int, _Part], whole: tuple[int, ...], key: tuple[object, ...]
    ) -> tuple[tuple[Shard, ...], tuple[str, ...]] | None:
        _, shape, batched, partial, reduced = key
        terms = self._terms({device: term for device, (_, term) in parts.items()})
        if terms is None:
            return None
        axes = tuple(
            axis for axis in self._batch if partial and not (reduced and axis == MICROBATCH_AXIS)
        )
        if shape == ():
            return (), (*self._batch, *terms) if batched else (*axes, *terms)
        shards: list[Shard] = []
        for dim, size in enumerate(whole):
            boxes = {device: box[dim] for device, (box, _) in parts.items()}
            if any(stop - start != shape[dim] for start, stop in boxes.values()):  # type: ignore[index]
                return None
            shard = self._shard(dim, size, boxes)
            if batched and dim == 0:
                if shard is not None and shard.intervals is not None:
                    return None
                by = (*self._batch, *(shard.by if shard else ()))
                shard = Shard(0, by=by) if by else None
            if shard is not None:
                shards.append(shard)
        return tuple(shards), (*axes, *terms)

    # --- one dimension

    def _shard(self, dim: int, size: int, boxes: Intervals) -> Shard | None:
        """Return how devices cut a dimension; None if every device holds all of it."""
        if all(box == (0, size) for box in boxes.values()):
            return None
        start, stop = next(iter(boxes.values()))
        width = stop - start
        even = {
            device: box[0] // width
            for device, box in boxes.items()
            if width and box[0] % width == 0 and box[1] - box[0] == width
        }
        if len(even) == len(boxes) and size % width == 0:
            axes = self._counted(size // width, even)
            if axes is not None:
                return Shard(dim, by=axes)
        return Shard(
            dim,
            intervals=self._places.table(
                self._axes, {device: (box,) for device, box in boxes.items()}
            ),
        )

    def _terms(self, terms: Mapping[int, tuple[int, int]]) -> tuple[str, ...] | None:
        """Return the axes over whose members the terms of a sum lie.

        Returns () if there is one term, None if no axes fit.
        """
        counts = {count for _, count in terms.values()}
        if counts == {1}:
            return ()
        if len(counts) > 1:
            return None
        count = counts.pop()
        for size in range(1, len(self._axes) + 1):
            for axes in combinations(self._axes, size):
                if self._coordinates.count(axes) == count and self._separates(axes, count, terms):
                    return axes
        return None

    def _separates(
        self, axes: tuple[str, ...], count: int, terms: Mapping[int, tuple[int, int]]
    ) -> bool:
        """Return True if devices that differ along ``axes`` alone have all terms, in any order."""
        others = self._places.along(tuple(axis for axis in self._axes if axis not in axes))
        groups = {others[device] for device in terms}
        found = {(others[device], number) for device, (number, _) in terms.items()}
        return len(found) == len(terms) == count * len(groups)

    def _counted(self, count: int, numbers: Mapping[int, int]) -> tuple[str, ...] | None:
        """Return axes along which every device stands at its number; None without any.

        The axes have ``count`` positions, and all of them are taken.
        """
        if set(numbers.values()) != set(range(count)):
            return None
        for axes in self._choices():
            if self._coordinates.count(axes) == count:
                places = self._places.along(axes)
                if all(places[device] == number for device, number in numbers.items()):
                    return axes
        return None

    def _choices(self) -> Iterator[tuple[str, ...]]:
        for count in range(1, len(self._axes) + 1):
            for chosen in combinations(self._axes, count):
                yield from permutations(chosen)
