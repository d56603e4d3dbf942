"""Changes of built plans, where buggy code is best said as another record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from pitcheck.plan.model import Box, Operand, Operator, Plan


def all_true(plan: Plan, name: str) -> Plan:
    """The plan whose boolean input ``name`` is true everywhere."""
    tensors = tuple(
        replace(tensor, role="constant", value=1, lineage=None, bounds=None, microbatched=False)
        if tensor.name == name
        else tensor
        for tensor in plan.tensors
    )
    return replace(plan, tensors=tensors)


def without_collectives(plan: Plan, which: Callable[[Operator], bool]) -> Plan:
    """The plan in which some collectives leave every rank what it has."""
    dropped = (
        replace(o, kind="identity", attributes={}, group=None)
        if o.group is not None and which(o)
        else o
        for o in plan.operators
    )
    return replace(plan, operators=tuple(dropped))


def intercepted(
    plan: Plan,
    name: str,
    kind: str,
    *operands: Operand,
    place: Box | None = None,
    **attributes: Any,
) -> Plan:
    """The plan in which ``name`` is what ``kind`` makes of it and ``operands``, at ``place`` alone;
    elsewhere it stays as it is.
    """
    before = f"{name}:before"
    writers = [operator for operator in plan.operators if name in operator.outputs]
    where = tuple(box for operator in writers for box in operator.where)
    tensor = next(tensor for tensor in plan.tensors if tensor.name == name)
    added = [
        Operator(
            f"{name}:changed",
            kind,
            (before, *operands),
            (name,),
            attributes,
            where=where,
            source=writers[-1].source,
        )
    ]
    if place is not None:
        axis, at = next(iter(place.items()))
        elsewhere = {
            axis: tuple(
                i for i in range(next(a.size for a in plan.mesh if a.name == axis)) if i not in at
            )
        }
        added = [
            replace(added[0], where=(place,)),
            Operator(
                f"{name}:kept",
                "identity",
                (before,),
                (name,),
                where=(elsewhere,),
                source=writers[-1].source,
            ),
        ]
    operators: list[Operator] = []
    for operator in plan.operators:
        operators.append(operator)
        if operator in writers:
            operators[-1] = replace(
                operator,
                outputs=tuple(before if output == name else output for output in operator.outputs),
            )
        if operator == writers[-1]:
            operators += added
    ids = [operator.id for operator in added]
    blocks = {
        block: tuple(
            i for old in members for i in ((old, *ids) if old == writers[-1].id else (old,))
        )
        for block, members in plan.blocks.items()
    }
    tensors = (
        *plan.tensors,
        replace(
            tensor, name=before, role="activation", lineage=None, gradient_of=None, updated=None
        ),
    )
    return replace(plan, tensors=tensors, operators=tuple(operators), blocks=blocks)


def without_hints(plan: Plan) -> Plan:
    """The plan without what it says that computed tensors hold; outputs keep it, because that is
    specification.
    """
    written = {name for operator in plan.operators for name in operator.outputs}
    outputs = {output.tensor for output in plan.outputs}
    return replace(
        plan,
        tensors=tuple(
            replace(t, lineage=None) if t.name in written - outputs else t for t in plan.tensors
        ),
    )
