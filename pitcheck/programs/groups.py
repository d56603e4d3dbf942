"""Groups of ranks as products of mesh axes.

Where expert-parallel groups end within the ranks of one kind of parallelism, the mesh axis of that
kind is split into several.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pitcheck.models.config import Attention, Model

if TYPE_CHECKING:
    from pitcheck.programs.layout import Layout

Atom = tuple[str, int, int]
"""(name of a mesh axis, its size, the distance in ranks between neighbours along it)."""

PARTS = ("", "_inner", "_innermost")
"""The endings of the names of an axis's parts, outermost first."""


def copies(model: Model, layout: Layout) -> int:
    """Return the number of tensor-parallel ranks that hold the same keys and values."""
    attention = model.attention
    return max(layout.tp // attention.kv_heads, 1) if isinstance(attention, Attention) else 1


def kinds(model: Model, layout: Layout) -> tuple[tuple[str, int], ...]:
    """Return (kind of parallelism, its size) within a stage, outermost first."""
    same = copies(model, layout)
    return (
        ("replica", layout.replicas),
        ("dp", layout.dp // layout.replicas),
        ("cp", layout.cp),
        ("tp", layout.tp // same),
        ("tp_copy", same),
    )


def atoms(model: Model, layout: Layout) -> dict[str, list[Atom]]:
    """Return kind of parallelism -> its axes, both outermost first, without the pipeline's.

    Sizes may be 1.
    """
    found: dict[str, list[Atom]] = {}
    stride = 1
    for name, size in reversed(kinds(model, layout)):
        found[name] = _parts(name, size, stride, ends(layout))
        stride *= size
    return dict(reversed(found.items()))


def ends(layout: Layout) -> tuple[int, int]:
    """Return where expert-parallel groups end, counted in consecutive ranks of a stage.

    Returns: the number of ranks that share the width of an expert, and the number that have all
    experts together.
    """
    return layout.etp, layout.etp * layout.ep


def cut_at(size: int, stride: int, places: Sequence[int]) -> list[int]:
    """Return those of ``places``, in ranks, that lie within an axis, ascending.

    An axis can be cut at a place that is a multiple of ``stride`` and divides ``size * stride``.
    """
    return sorted({place for place in places if stride < place < stride * size})


def _parts(name: str, size: int, stride: int, places: Sequence[int]) -> list[Atom]:
    bounds = [stride, *cut_at(size, stride, places), stride * size]
    parts = [(high // low, low) for low, high in pairwise(bounds)]
    return [
        (name + ending, count, low)
        for ending, (count, low) in zip(PARTS, reversed(parts), strict=False)
    ]
