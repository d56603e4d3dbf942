"""The parts of parameters that nothing but their shapes tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

from pitcheck.frontends.torch.planning.plan_lineage import Box
from pitcheck.frontends.torch.recording.rank_batch import coordinate_of


class PartsFromShapes:
    """Parts of tensors whose shape is that of the reference, but for one dimension.

    A tensor is taken to be the stretch at the rank's place along the only axis of the ``mesh`` that
    divides the dimension so. The report says so.
    """

    def __init__(self, mesh: Mapping[str, int]) -> None:
        self._mesh = mesh
        self._taken: dict[tuple[int, str], list[str]] = {}

    def of(self, name: str, shape: Sequence[int], whole: Sequence[int], rank: int) -> Box | None:
        """Return the part of ``whole`` that ``rank`` holds as ``shape``.

        Returns None if more than one dimension differs, or if it could be cut along other axes.
        """
        if len(shape) != len(whole):
            return None
        differ = [dim for dim, size in enumerate(shape) if size != whole[dim]]
        if len(differ) != 1 or not shape[differ[0]] or whole[differ[0]] % shape[differ[0]]:
            return None
        (dim,), size = differ, shape[differ[0]]
        axes = self._axes(whole[dim] // size)
        if len(axes) != 1 or len(axes[0]) != 1:
            return None
        ((axis,),) = axes
        names = self._taken.setdefault((dim, axis), [])
        if name not in names:
            names.append(name)
        place = coordinate_of(rank, self._mesh)[axis]
        return tuple(
            ((place * size, (place + 1) * size),) if at == dim else ((0, held),)
            for at, held in enumerate(shape)
        )

    def assumptions(self) -> list[str]:
        """Return the sentences that say which parts were taken."""
        return [
            f"{names[0]!r}{f' and {len(names) - 1} more' if len(names) > 1 else ''} "
            f"{'are' if len(names) > 1 else 'is'} split along dimension {dim} over {axis} in equal "
            f"stretches, as the shape on each rank says"
            for (dim, axis), names in self._taken.items()
        ]

    def _axes(self, count: int) -> list[tuple[str, ...]]:
        """Return every set of axes that has ``count`` places together."""
        axes = [axis for axis, size in self._mesh.items() if size > 1]
        return [
            chosen
            for number in range(1, len(axes) + 1)
            for chosen in combinations(axes, number)
            if prod(self._mesh[axis] for axis in chosen) == count
        ]
