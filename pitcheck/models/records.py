"""What the tape notes down of an operator so that it can be differentiated and run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pitcheck.plan.model import Attribute, Group, Lineage, Operand, Shard, Table

Where = tuple[tuple[str, tuple[int, ...]], ...]
"""A box of coordinates as a key: sorted (axis, values)."""

Hook = Callable[[Sequence[str | None]], Sequence[str | None]]
"""A derivative written by hand: gradients of the outputs (None where there is none) -> gradients of
the inputs.
"""

Spread = Mapping[int, "str | tuple[str, ...] | Table"]
"""Dimension -> the axis or axes by which it is cut, or a table of intervals."""


@dataclass(slots=True)
class Entry:
    """One recorded operator; with ``hook``, a region whose derivative is written by hand.
    ``segment`` is the part of the program run again in backward.
    """

    kind: str
    inputs: tuple[Operand, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]
    group: Group | None
    where: Where
    block: str
    module: str
    source: str
    tracked: tuple[str, ...]
    """The inputs that have a gradient, one per use."""
    hook: Hook | None = None
    segment: int | None = None


def held(
    reference: str, spread: Spread | None = None, *, partial: tuple[str, ...] = (), scale: str = "1"
) -> Lineage:
    """The lineage of a tensor that holds the part ``spread`` of ``reference``, or, over the axes
    ``partial``, a term of the sum that it is.
    """
    shards = tuple(
        Shard(dim, intervals=how)
        if isinstance(how, Table)
        else Shard(dim, by=(how,) if isinstance(how, str) else tuple(how))
        for dim, how in sorted((spread or {}).items())
    )
    return Lineage(reference, shards, partial=partial, scale=scale)


def gradient_lineage(lineage: Lineage | None) -> Lineage | None:
    """What the complete gradient of a tensor with this lineage holds: the same part of the
    reference's gradient; None where that is not so.
    """
    if lineage is None or lineage.partial or lineage.partial_ranks or lineage.scale != "1":
        return None
    return Lineage(f"grad:{lineage.reference}", lineage.shards)
