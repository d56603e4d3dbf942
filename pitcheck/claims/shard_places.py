"""Places of shards: where along its axes each coordinate holds its part, as far as is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pitcheck.algebra.dimensions.scaling_class import Dimension
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Batch
from pitcheck.stage.shaped_stage import ShapedStage
from pitcheck.stage.shapes import SymbolicPair


class Places:
    """The places at which shards are known to lie: they decide between several fitting places."""

    def __init__(
        self, symbolic: SymbolicPair, shaped: ShapedStage, known: Mapping[int, Cut]
    ) -> None:
        self.symbolic = symbolic
        self.shaped = shaped
        self._offsets: dict[tuple[int, int], Codes] = {}
        self._starts: dict[tuple[int, int, int], int | None] = {}
        reference = shaped.stage.reference
        self._named = {value.name: number for number, value in enumerate(reference.graph.values)}
        self._origins: Mapping[int, Origin] = _origins(shaped.stage.parallel)
        self._kind_of: dict[Origin | None, int] = {None: 0}
        self._kinds = np.zeros(len(reference.graph.values), dtype=np.int64)
        """The operator that computes every reference value, as a number; 0 for none."""
        for computed, origin in _origins(reference).items():
            self._kinds[computed] = self._kind_of.setdefault(origin, len(self._kind_of))
        for cut in known.values():
            self.learn(cut)

    def preferred(self, value: int, references: Codes) -> Codes:
        """Return reference values in the order in which they are tried, shape (values,).

        Equal tensors abound (a sum hands its gradient on). First comes the one that a hint names,
        then one of the same name, then one computed by the same operator.
        """
        hint, namesake = self.named(value)
        otherwise = self._kinds[references] != self._kind_of.get(self._origins.get(value), -1)
        order = np.lexsort((references, otherwise, references != namesake, references != hint))
        return references[order]

    def named(self, value: int) -> tuple[int, int]:
        """Return the reference values that a hint names and of the same name; -1 for none."""
        tensor = self.shaped.stage.parallel.graph.values[value].tensor
        hint = self._named.get(tensor.lineage.reference, -1) if tensor.lineage is not None else -1
        return hint, self._named.get(tensor.name, -1)

    def computed_like(self, value: int, references: Codes) -> Codes:
        """Return those of some reference values that the operator of ``value`` computes."""
        same: Codes = references[self._kinds[references] == self._kinds[value]]
        return same

    def learn(self, cut: Cut) -> None:
        """Note the offsets of a cut along each axis for which none of that size are known yet."""
        dims = self.symbolic.reference.values.get(cut.reference)
        if dims is None:
            return
        for dim, node in enumerate(dims.dims):
            intervals = [part.box[dim] for part in cut.parts]
            lengths = {i[0][1] - i[0][0] for i in intervals if len(i) == 1 and i[0][0] >= 0}
            if len(lengths) != 1 or any(len(i) != 1 or i[0][0] < 0 for i in intervals):
                continue
            key = self.symbolic.system.number_of(node), lengths.pop()
            offsets = np.where(
                cut.part_of >= 0,
                np.array([i[0][0] for i in intervals])[np.maximum(cut.part_of, 0)],
                -1,
            )
            before = self._offsets.get(key)
            self._offsets[key] = (
                offsets if before is None else np.where(before >= 0, before, offsets)
            )

    def starts(self, node: Dimension) -> list[int]:
        """Return the full offsets, ascending, at which shards along a dimension begin; 0 first."""
        number = self.symbolic.system.number_of(node)
        known = [codes for (of, _), codes in self._offsets.items() if of == number]
        starts = np.unique(np.concatenate([np.zeros(1, dtype=np.int64), *known]))
        return [start for start in starts.tolist() if 0 <= start < node.size]

    def reduced(self, nodes: Sequence[Dimension], offsets: Sequence[int]) -> list[int] | None:
        """Return full offsets at reduced sizes, one per dimension; None if one is no boundary."""
        found = []
        for node, offset in zip(nodes, offsets, strict=True):
            key = self.symbolic.system.number_of(node), node.size, offset
            if key not in self._starts:
                try:
                    self._starts[key] = self.shaped.sizes.position(node, offset)
                except UnsupportedError:
                    self._starts[key] = None
            start = self._starts[key]
            if start is None:
                return None
            found.append(start)
        return found

    def full(self, nodes: Sequence[Dimension], starts: Sequence[int]) -> list[int] | None:
        """Return reduced places at full size, one per dimension.

        Return None if one is no boundary there.
        """
        found = [
            self.shaped.sizes.full_position(node, start)
            for node, start in zip(nodes, starts, strict=True)
        ]
        return [f for f in found if f is not None] if None not in found else None

    def expected(self, value: int, reference: int) -> list[Codes | None]:
        """Return the full offsets at which a value would lie in a reference value, per dimension.

        Each is an array over the coordinates that hold the value, or None if unknown.
        """
        stage = self.shaped.stage
        local = stage.parallel.graph.values[value].shape
        whole = stage.reference.graph.values[reference].shape
        codes = np.flatnonzero(stage.parallel.rows[value] >= 0)
        columns: list[Codes | None] = []
        for node, size, total in zip(
            self.symbolic.reference.values[reference].dims, local, whole, strict=True
        ):
            if size == total:
                columns.append(np.zeros(len(codes), dtype=np.int64))
                continue
            offsets = self._offsets.get((self.symbolic.system.number_of(node), size))
            columns.append(
                None if offsets is None or (offsets[codes] < 0).any() else offsets[codes]
            )
        return columns


Origin = tuple[str, int]
"""The kind of an operator, and which of its outputs a value is."""


def _origins(batch: Batch) -> dict[int, Origin]:
    """Return for every computed value the kind of its operator and the place of the output."""
    return {
        output: (step.kind, place)
        for step in batch.steps
        for place, output in enumerate(step.outputs)
        if output is not None
    }
