"""Coordinates as people write them: ``tp=0..1 of every dp, pp`` instead of sixteen ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from pitcheck.base.runs import spell_numbers


def describe_ranks(ranks: Sequence[int], mesh: Mapping[str, int]) -> str:
    """Return the ranks as a product of mesh coordinates, or as runs of numbers; "" for no ranks.

    ``mesh`` maps axes to sizes, and ranks are numbered row-major over it. ``tp=0 of every dp, pp``
    names all ranks whose tp is 0.
    """
    wanted = sorted(set(ranks))
    if not wanted:
        return ""
    box = as_box(wanted, mesh)
    if box is None:
        return f"{'rank' if len(wanted) == 1 else 'ranks'} {spell_numbers(wanted)}"
    named = {axis: values for axis, values in box.items() if mesh[axis] > 1}
    whole = [axis for axis, values in named.items() if len(values) == mesh[axis]]
    parts = [
        f"{axis}={spell_numbers(values)}" for axis, values in named.items() if axis not in whole
    ]
    if not parts:
        return "every rank" if len(wanted) > 1 else f"rank {wanted[0]}"
    return ", ".join(parts) + (f" of every {', '.join(whole)}" if whole else "")


def describe_microbatches(microbatches: Sequence[int], total: int) -> str:
    """Return the micro-batches as runs of numbers; "" for none, and for all ``total`` of them."""
    wanted = sorted(set(microbatches))
    if not wanted or len(wanted) >= total:
        return ""
    return f"{'micro-batch' if len(wanted) == 1 else 'micro-batches'} {spell_numbers(wanted)}"


def as_box(ranks: Sequence[int], mesh: Mapping[str, int]) -> dict[str, list[int]] | None:
    """Return the values per axis whose product is ``ranks`` (ascending, distinct), or None."""
    if not mesh or not 0 <= ranks[0] <= ranks[-1] < prod(mesh.values()):
        return None
    box: dict[str, list[int]] = {}
    stride = prod(mesh.values())
    for axis, size in mesh.items():
        stride //= size
        box[axis] = sorted({rank // stride % size for rank in ranks})
    return box if prod(len(values) for values in box.values()) == len(ranks) else None
