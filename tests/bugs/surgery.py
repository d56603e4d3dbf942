"""Changes of built plans, where buggy code is best said as another record."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pitcheck.plan.model import Operator, Plan


def all_true(plan: Plan, name: str) -> Plan:
    """The plan whose boolean input ``name`` is true everywhere."""
    tensors = tuple(
        replace(tensor, role="constant", value=1, lineage=None, bounds=None, microbatched=False) if tensor.name == name else tensor for tensor in plan.tensors
    )
    return replace(plan, tensors=tensors)


def without_collectives(plan: Plan, which: Callable[[Operator], bool]) -> Plan:
    """The plan in which some collectives leave every rank what it has."""
    dropped = (replace(o, kind="identity", attributes={}, group=None) if o.group is not None and which(o) else o for o in plan.operators)
    return replace(plan, operators=tuple(dropped))
