"""The table of right pairs: a reference and a parallel plan that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from pitcheck.plan.model import Plan

from zoo import linear

Pair = tuple[Plan, Plan]
TABLES = (linear.PAIRS,)


@cache
def builders() -> dict[str, Callable[[], Pair]]:
    """Every pair's builder by name."""
    found: dict[str, Callable[[], Pair]] = {}
    for table in TABLES:
        for name, build in table.items():
            if name in found:
                raise ValueError(f"{name} stands twice")
            found[name] = build
    return found


@cache
def pair(name: str) -> Pair:
    """(reference, parallel)."""
    return builders()[name]()
