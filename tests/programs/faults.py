"""Mistakes put into one place of a built plan: a record is split, and the part of it that runs at some coordinates does something else."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pitcheck.plan.model import MICROBATCH_AXIS, Box, Group, Operator, Plan, Use

Change = Callable[[Operator], Operator]
Place = Mapping[str, int]
"""The coordinate along some axes (``mb`` among them); all coordinates along the others."""


def at_place(plan: Plan, identity: str, place: Place, change: Change) -> Plan:
    """The plan in which operator ``identity`` is changed at ``place`` and runs as before everywhere else. An empty place is everywhere."""
    sizes = {axis.name: axis.size for axis in plan.mesh} | {MICROBATCH_AXIS: plan.microbatches}
    number = next(n for n, operator in enumerate(plan.operators) if operator.id == identity)
    old = plan.operators[number]
    inside: list[Box] = []
    outside: list[Box] = []
    for box in old.where or ({},):
        within = {axis: tuple(i for i in box.get(axis, range(sizes[axis])) if i == at) for axis, at in place.items()}
        if not all(within.values()):
            outside.append(box)
            continue
        inside.append({**box, **within})
        outside.extend(_around(box, place, sizes))
    assert inside, f"{identity} does not run at {place}"
    changed = change(replace(old, id=f"{old.id}!" if outside else old.id, where=tuple(inside)))
    assert changed != replace(old, id=changed.id, where=changed.where)
    return _with(plan, number, *((replace(old, where=tuple(outside)),) if outside else ()), changed)


def _around(box: Box, place: Place, sizes: Mapping[str, int]) -> list[Box]:
    """Boxes that are together ``box`` without the place."""
    result: list[Box] = []
    known = dict(box)
    for axis, at in place.items():
        others = tuple(i for i in box.get(axis, range(sizes[axis])) if i != at)
        if others:
            result.append({**known, axis: others})
        known[axis] = (at,)
    return result


def _with(plan: Plan, number: int, *changed: Operator) -> Plan:
    old = plan.operators[number]
    operators = (*plan.operators[:number], *changed, *plan.operators[number + 1 :])
    ids = tuple(operator.id for operator in changed)
    blocks = {name: tuple(itertools.chain.from_iterable(ids if i == old.id else (i,) for i in members)) for name, members in plan.blocks.items()}
    return replace(plan, operators=operators, blocks=blocks)


# --- changes


def dropped(operator: Operator) -> Operator:
    """No collective: every rank keeps its own."""
    return replace(operator, kind="identity", attributes={}, group=None)


def over(*axes: str) -> Change:
    """The collective runs over these axes."""
    return lambda operator: replace(operator, group=Group(axes=axes))


def over_ranks(groups: Sequence[Sequence[int]]) -> Change:
    """The collective runs over these lists of ranks."""
    return lambda operator: replace(operator, group=Group(ranks=tuple(map(tuple, groups))))


def with_attributes(**attributes: Any) -> Change:
    """Other attributes."""
    return lambda operator: replace(operator, attributes={**operator.attributes, **attributes})


def of_microbatch(operand: int, microbatch: int) -> Change:
    """An operand is read of another micro-batch: the wrong one, or one whose buffer should have been overwritten."""

    def change(operator: Operator) -> Operator:
        name = operator.inputs[operand]
        assert isinstance(name, str)
        return replace(operator, inputs=(*operator.inputs[:operand], Use(name, microbatch), *operator.inputs[operand + 1 :]))

    return change


def reading(operand: int, tensor: str) -> Change:
    """An operand is another tensor."""
    return lambda operator: replace(operator, inputs=(*operator.inputs[:operand], tensor, *operator.inputs[operand + 1 :]))


def first_operand(operator: Operator) -> Operator:
    """The first operand as it is."""
    return replace(operator, kind="identity", inputs=operator.inputs[:1], attributes={})
