"""Integer and bool tensors with known elements, as operators that make them.

They are runs of equal elements, joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.planning.families import RankNames
from pitcheck.frontends.torch.trace import Value
from pitcheck.plan.fold import Instance

MOST_RUNS = 4096
"""The greatest number of runs of equal elements."""


def known_integers(
    elements: Sequence[int], value: Value, name: str, names: RankNames
) -> Iterator[Instance]:
    """Yield the operators that make a tensor of known elements, given row-major.

    Raises UnsupportedError for a tensor of more than ``MOST_RUNS`` runs.
    """
    runs = [(element, len(list(same))) for element, same in groupby(elements)]
    if len(runs) > MOST_RUNS:
        raise UnsupportedError(
            f"{name!r} has known elements that change {len(runs):,} times, more than "
            f"{MOST_RUNS:,}; let the program compute it"
        )
    parts = []
    for element, length in runs:
        own = Value((length,), value.dtype)
        parts.append(names.new(f"{name}.run", own))
        filled = bool(element) if value.dtype == "bool" else int(element)
        yield Instance(
            "full", (), (parts[-1],), {"sizes": (length,), "value": filled, "dtype": value.dtype}
        )
    flat = (
        parts[0]
        if len(parts) == 1
        else names.new(f"{name}.flat", Value((len(elements),), value.dtype))
    )
    if len(parts) > 1:
        yield Instance("cat", tuple(parts), (flat,), {"axis": 0})
    yield Instance("reshape", (flat,), (name,), {"sizes": value.shape})
