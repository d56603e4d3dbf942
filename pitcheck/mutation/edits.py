"""Changes of a plan: a record exchanged for others, at all its coordinates or at some of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from pitcheck.plan.model import MICROBATCH_AXIS, Box, Operand, Operator, Plan

Member = TypeVar("Member")
MARK = "!"
"""The ending of the names of what a mutation adds."""

Edit = Callable[[Operator], tuple[Operator, ...]]
"""The operators that stand in place of one."""
Place = Mapping[str, int]
"""The coordinate along some axes (``mb`` among them); all coordinates along the others."""


def changed_at(plan: Plan, identity: str, place: Place, edit: Edit) -> Plan | None:
    """Return the plan with operator ``identity`` edited at ``place`` and unchanged elsewhere.

    An empty place is everywhere. Return None if the operator does not run at the place, or the edit
    changes nothing.
    """
    number = next(n for n, operator in enumerate(plan.operators) if operator.id == identity)
    old = plan.operators[number]
    inside, outside = split(old.where, place, axis_sizes(plan))
    if not inside:
        return None
    part = replace(
        old, id=f"{old.id}{MARK}" if outside else old.id, where=inside if place else old.where
    )
    changed = edit(part)
    if changed == (part,):
        return None
    rest = (replace(old, where=outside),) if outside else ()
    return complete(exchanged(plan, number, *rest, *changed))


def axis_sizes(plan: Plan) -> dict[str, int]:
    """Return the sizes of the mesh axes and of ``mb``."""
    return {axis.name: axis.size for axis in plan.mesh} | {MICROBATCH_AXIS: plan.microbatches}


def split(
    where: tuple[Box, ...], place: Place, sizes: Mapping[str, int]
) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Return the boxes within the place, and those around it."""
    inside: list[Box] = []
    outside: list[Box] = []
    for box in where or ({},):
        within = {
            axis: tuple(i for i in box.get(axis, range(sizes[axis])) if i == at)
            for axis, at in place.items()
        }
        if not all(within.values()):
            outside.append(box)
            continue
        inside.append({**box, **within})
        outside.extend(_around(box, place, sizes))
    return tuple(inside), tuple(outside)


def _around(box: Box, place: Place, sizes: Mapping[str, int]) -> list[Box]:
    """Return boxes that together are ``box`` without the place."""
    result: list[Box] = []
    known = dict(box)
    for axis, at in place.items():
        others = tuple(i for i in box.get(axis, range(sizes[axis])) if i != at)
        if others:
            result.append({**known, axis: others})
        known[axis] = (at,)
    return result


def exchanged(plan: Plan, number: int, *changed: Operator) -> Plan:
    """Return the plan with other operators in place of operator ``number``, in its blocks, too."""
    old = plan.operators[number]
    operators = put(plan.operators, number, *changed)
    ids = tuple(operator.id for operator in changed)
    blocks = {
        name: tuple(itertools.chain.from_iterable(ids if i == old.id else (i,) for i in members))
        for name, members in plan.blocks.items()
    }
    return replace(plan, operators=operators, blocks=blocks)


def complete(plan: Plan) -> Plan:
    """Return the plan with a tensor for every name that an edit made.

    It has the shape and dtype of the tensor that it stands before.
    """
    known = {tensor.name: tensor for tensor in plan.tensors}
    added = {
        name: replace(
            known[name.rstrip(MARK)],
            name=name,
            gradient_of=None,
            updated=None,
            role="activation",
            lineage=None,
            storage=None,
        )
        for operator in plan.operators
        for name in operator.outputs
        if name and name not in known
    }
    return replace(plan, tensors=(*plan.tensors, *added.values())) if added else plan


def with_attribute(operator: Operator, name: str, value: Any) -> Operator:
    """Return the operator with one attribute changed or added."""
    return replace(operator, attributes={**operator.attributes, name: value})


def with_operand(operator: Operator, place: int, operand: Operand) -> Operator:
    """Return the operator with another operand at ``place``."""
    return replace(operator, inputs=put(operator.inputs, place, operand))


def put(members: tuple[Member, ...], place: int, *new: Member) -> tuple[Member, ...]:
    """Return members with new ones in place of the one at ``place``."""
    return (*members[:place], *new, *members[place + 1 :])


def followed(
    operator: Operator, kind: str, *others: Operand, **fields: Any
) -> tuple[Operator, Operator]:
    """Return the operator, and one more that makes its only result from what it gave."""
    result = operator.outputs[0]
    inner = f"{result}{MARK}"
    first = replace(operator, outputs=(inner,))
    after = Operator(
        f"{operator.id}{MARK}{MARK}",
        kind,
        (inner, *others),
        (result,),
        where=operator.where,
        source=operator.source,
        module=operator.module,
        **fields,
    )
    return first, after
