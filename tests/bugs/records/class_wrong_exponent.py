"""Attention scores are divided by the square root of the size of a head."""

from __future__ import annotations

from bugs.cases import Case, llama, spread
from bugs.record import Bug, each
from msgspec.structs import replace

from pitcheck.models.config import Attention
from pitcheck.plan.model import Operator, Plan


def divided_by_size(case: Case) -> Plan:
    """They are divided by the size itself, in forward and backward."""
    plan = case.plans()[1]
    return replace(plan, operators=tuple(_changed(operator) for operator in plan.operators))


def _changed(operator: Operator) -> Operator:
    scaled = operator.kind.startswith("scale_by_size")
    return (
        replace(operator, attributes={**operator.attributes, "exponent": "-1"})
        if scaled
        else operator
    )


BUG = Bug(
    where="TrainVerify, synthetic: a wrong exponent",
    should="scores are divided by the square root of the size of a head",
    was="by the size",
    codes=("PIT102",),
    says=("layers.0.attention",),
    shows=each(
        divided_by_size,
        two_ranks=spread(llama(1), 2, tp=2),
        context_parallel=spread(llama(1), 2, 8, cp=2),
    ),
    silent=each(
        divided_by_size,
        heads_of_size_1=spread(llama(1, attention=Attention(4, 2, 1, rotary=False)), 2, tp=2),
    ),
)
