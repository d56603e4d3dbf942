"""A layer that is computed again in the backward pass communicates again."""

from __future__ import annotations

from bugs.cases import Case, llama, spread
from bugs.record import Bug, each
from bugs.surgery import without_collectives

from pitcheck.plan.model import Plan


def silent_again(case: Case) -> Plan:
    """The plan in which no all-reduce is done again where layers are computed again."""
    return without_collectives(
        case.plans()[1],
        lambda operator: operator.kind == "all_reduce" and operator.id.endswith(":again"),
    )


BUG = Bug(
    where="DeepSpeed #8357",
    should="row-parallel layers sum over tp in the regions that are computed again, too",
    was="there every rank goes on with its own term",
    codes=("PIT104",),
    says=("again", "tp"),
    shows=each(
        silent_again,
        recomputed=spread(llama(1), 2, tp=2, recompute=True),
        over_data_too=spread(llama(1), 4, dp=2, tp=2, recompute=True, microbatches=2),
    ),
    silent=each(
        silent_again,
        one_tensor_parallel_rank=spread(llama(1), 2, dp=2, recompute=True),
        nothing_computed_again=spread(llama(1), 2, tp=2),
    ),
)
