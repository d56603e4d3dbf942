"""One typical mistake, put into a built plan, and what must be said about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from programs.program_cases import said

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Group, Operator, Plan, Use

Change = Callable[[Operator], Operator]


def changed(plan: Plan, identity: str, change: Change) -> Plan:
    """The plan with one operator changed."""
    assert identity in {operator.id for operator in plan.operators}, identity
    return replace(
        plan, operators=tuple(change(o) if o.id == identity else o for o in plan.operators)
    )


def assert_caught(reference: Plan, wrong: Plan) -> None:
    """Different by the independent executor, and said to be."""
    assert not judge_often(reference, wrong, range(6)).same
    report = check(reference, wrong, Options(seed=1, explain=False))
    assert report.verdict in ("mismatch", "invalid"), said(report)


# --- changes


def dropped(operator: Operator) -> Operator:
    """No collective: every rank keeps its own."""
    return replace(operator, kind="identity", attributes={}, group=None)


def over(*axes: str) -> Change:
    """The collective runs over these axes."""
    return lambda operator: replace(operator, group=Group(axes=axes))


def with_attributes(**attributes: Any) -> Change:
    """Other attributes."""
    return lambda operator: replace(operator, attributes={**operator.attributes, **attributes})


def reading(place: int, operand: Any) -> Change:
    """Another operand."""
    return lambda operator: replace(
        operator, inputs=(*operator.inputs[:place], operand, *operator.inputs[place + 1 :])
    )


def first_only(operator: Operator) -> Operator:
    """The first operand as it is."""
    return replace(operator, kind="identity", inputs=operator.inputs[:1], attributes={})


def of_microbatch_0(place: int) -> Change:
    """An operand is read of the first micro-batch."""

    def change(operator: Operator) -> Operator:
        operand = operator.inputs[place]
        assert isinstance(operand, str)
        return reading(place, Use(operand, 0))(operator)

    return change
