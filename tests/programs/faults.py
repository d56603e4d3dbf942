"""Mistakes put into one place of a built plan: a record is split, and the part of it that runs at
some coordinates does something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from pitcheck.mutation.edits import Place, changed_at
from pitcheck.plan.model import Group, Operator, Plan, Use

Change = Callable[[Operator], Operator]


def at_place(plan: Plan, identity: str, place: Place, change: Change) -> Plan:
    """The plan in which operator ``identity`` is changed at ``place`` and runs as before everywhere
    else. An empty place is everywhere.
    """
    changed = changed_at(plan, identity, place, lambda operator: (change(operator),))
    assert changed is not None, f"{identity} does not run at {place}, or is not changed"
    return changed


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
    """An operand is read of another micro-batch: the wrong one, or one whose buffer should have
    been overwritten.
    """

    def change(operator: Operator) -> Operator:
        name = operator.inputs[operand]
        assert isinstance(name, str)
        return replace(
            operator,
            inputs=(
                *operator.inputs[:operand],
                Use(name, microbatch),
                *operator.inputs[operand + 1 :],
            ),
        )

    return change


def reading(operand: int, tensor: str) -> Change:
    """An operand is another tensor."""
    return lambda operator: replace(
        operator, inputs=(*operator.inputs[:operand], tensor, *operator.inputs[operand + 1 :])
    )


def first_operand(operator: Operator) -> Operator:
    """The first operand as it is."""
    return replace(operator, kind="identity", inputs=operator.inputs[:1], attributes={})
