"""The records that a tape keeps in order to differentiate operators and to run them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pitcheck.plan.model import Attribute, Group, Lineage, Operand, Shard, Table

Where = tuple[tuple[str, tuple[int, ...]], ...]
"""A box of coordinates as a key: sorted (axis, values)."""

Hook = Callable[[Sequence[str | None]], Sequence[str | None]]
"""A hand-written derivative: gradients of outputs -> gradients of inputs. None: no gradient."""

Spread = Mapping[int, "str | tuple[str, ...] | Table"]
"""Dimension -> the axis or axes by which it is cut, or a table of intervals."""

Hint = Lineage | Spread | None
"""The part of a reference tensor that a tensor holds, as lineage or spread; None if unknown."""


@dataclass(slots=True)
class Entry:
    """One recorded operator, or with ``hook`` a region whose derivative is written by hand.

    ``segment`` is the number of the part of the program that the backward pass runs again.
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
    """The inputs that have a gradient, one entry per use."""
    hook: Hook | None = None
    segment: int | None = None


def held(
    reference: str, spread: Spread | None = None, *, partial: tuple[str, ...] = (), scale: str = "1"
) -> Lineage:
    """Return the lineage of a tensor that holds the part ``spread`` of ``reference``.

    With ``partial`` it holds a term of that part, and the sum over these axes is the part.
    ``scale`` is a rational factor.
    """
    shards = tuple(
        Shard(dim, intervals=how)
        if isinstance(how, Table)
        else Shard(dim, by=(how,) if isinstance(how, str) else tuple(how))
        for dim, how in sorted((spread or {}).items())
    )
    return Lineage(reference, shards, partial=partial, scale=scale)


def gradient_lineage(lineage: Lineage | None) -> Lineage | None:
    """Return the lineage of the complete gradient of a tensor with ``lineage``.

    The gradient holds the same part of the reference's gradient. Return None if ``lineage`` is
    None, a term of a sum, or scaled: then this is not so.
    """
    if lineage is None or lineage.partial or lineage.partial_ranks or lineage.scale != "1":
        return None
    return Lineage(f"grad:{lineage.reference}", lineage.shards)
