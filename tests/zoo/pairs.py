"""The table of right pairs: a reference and a parallel plan that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

from pitcheck.plan.model import Plan
from zoo import attention, composed, large, linear, training, unusual, vocabulary

Pair = tuple[Plan, Plan]
TABLES = (
    linear.PAIRS,
    training.PAIRS,
    attention.PAIRS,
    vocabulary.PAIRS,
    unusual.PAIRS,
    composed.PAIRS,
    large.PAIRS,
)


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


def without_hints(plan: Plan) -> Plan:
    """The plan without the lineage of anything that an operator writes."""
    written = {name for operator in plan.operators for name in operator.outputs}
    tensors = tuple(
        msgspec.structs.replace(t, lineage=None) if t.name in written else t for t in plan.tensors
    )
    return msgspec.structs.replace(plan, tensors=tensors)
