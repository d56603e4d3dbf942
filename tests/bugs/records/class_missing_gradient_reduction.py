"""The gradient of what all ranks of a tensor-parallel region read is the sum of theirs: part of the
backward operator of a column-parallel layer.
"""

from __future__ import annotations

from bugs.cases import Case, gpt, llama, spread
from bugs.record import Bug, each
from bugs.surgery import without_collectives

from pitcheck.plan.model import Plan


def not_summed(case: Case) -> Plan:
    """The gradient of the input of the feed-forward part stays a term."""
    return without_collectives(
        case.plans()[1],
        lambda operator: operator.kind == "all_reduce" and operator.id == "grad:layers.0.mlp_norm",
    )


BUG = Bug(
    where="TrainVerify, synthetic: a missing reduction inside a fused backward operator",
    should="the backward operator of a column-parallel layer sums its input's gradient over tp",
    was="it does not",
    codes=("PIT104",),
    says=("mlp_norm", "tp"),
    shows=each(
        not_summed, two_ranks=spread(llama(1), 2, tp=2), one_matrix=spread(gpt(1), 4, dp=2, tp=2)
    ),
    silent=each(
        not_summed,
        one_rank=spread(llama(1), 2, dp=2),
        reduced_and_scattered=spread(llama(1), 2, tp=2, sequence_parallel=True),
    ),
)
