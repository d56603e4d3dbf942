"""Lengths of documents whose boundaries lie where packed programs go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from random import Random

from pitcheck.frontends.torch.program import Spec

Row = tuple[int, ...]
"""The lengths of the documents in one sequence."""


def parts_of(spec: Spec) -> int:
    """Return the greatest number of parts in which inputs split their tokens over ranks."""
    return max(
        prod(spec.mesh.get(axis, 1) for axis in ((over,) if isinstance(over, str) else over))
        for given in spec.batch.values()
        if given.tokens is not None
        for over in (given.split.get(given.tokens, ()),)
    )


def boundaries(size: int, parts: int, seed: int) -> Iterator[Row]:
    """Yield lengths that add up to ``size``, with boundaries at and beside the edges of parts."""
    edge = size // parts
    yield (size,)
    for ends in (
        [edge * part for part in range(1, parts)],
        [edge - 1],
        [edge + 1],
        [1, size - 1],
        [edge * part + (-1) ** part for part in range(1, parts)],
        _random(size, seed),
    ):
        inner = sorted({end for end in ends if 0 < end < size})
        yield tuple(stop - start for start, stop in zip([0, *inner], [*inner, size], strict=True))


def _random(size: int, seed: int) -> list[int]:
    """Return two to four places at which a sequence is cut."""
    random = Random(f"packing {seed}")
    return random.sample(range(1, size), min(random.randint(2, 4), size - 1)) if size > 1 else []


def shortened(units: Row, multiple: int) -> Row:
    """Return lengths of documents that take so many units of ``multiple`` tokens."""
    return tuple(unit * multiple - place % multiple for place, unit in enumerate(units))
