"""The derivative of rotary embedding gives the gradient of queries and that of keys."""

from __future__ import annotations

from bugs.cases import Case, gpt, llama, spread
from bugs.record import Bug, each
from msgspec.structs import replace

from pitcheck.models.config import Attention
from pitcheck.plan.model import Operator, Plan


def swapped(case: Case) -> Plan:
    """Return the plan with the gradients of queries and keys exchanged.

    A plan without a derivative of rotary embedding stays as it is.
    """
    plan = case.plans()[1]
    if not any(operator.kind == "rotary.backward" for operator in plan.operators):
        return plan
    names = {
        f"grad:layers.0.attention.{one}.heads": f"grad:layers.0.attention.{other}.heads"
        for one, other in (("q", "k"), ("k", "q"))
    }
    return replace(plan, operators=tuple(_read(operator, names) for operator in plan.operators))


def _read(operator: Operator, names: dict[str, str]) -> Operator:
    return replace(
        operator,
        inputs=tuple(
            names.get(operand, operand) if isinstance(operand, str) else operand
            for operand in operator.inputs
        ),
    )


MULTIHEAD = llama(1, attention=Attention(4, 4, 4))

BUG = Bug(
    where="TrainVerify, synthetic: outputs of the rotary backward swapped",
    should="the first output of the derivative is the gradient of the queries, the second that of "
    "the keys",
    was="the other way round",
    codes=("PIT103",),
    says=("attention",),
    shows=each(swapped, two_ranks=spread(MULTIHEAD, 2, tp=2), replicas=spread(MULTIHEAD, 2, dp=2)),
    silent=each(swapped, no_rotary_embedding=spread(gpt(1), 2, tp=2)),
    slow=True,
)
