"""A row-parallel layer whose terms are not added up."""

from __future__ import annotations

from bugs.cases import Case, llama, spread
from bugs.record import Bug, each
from bugs.surgery import without_collectives

from pitcheck.plan.model import Plan


def not_summed(case: Case) -> Plan:
    """The output of the feed-forward part of a layer is each rank's own term."""
    return without_collectives(case.plans()[1], lambda operator: operator.id == "layers.0.mlp.down")


BUG = Bug(
    where="TrainVerify, synthetic: a missing all-reduce",
    should="the terms of a row-parallel layer are summed over tp",
    was="every rank goes on with its own",
    codes=("PIT104",),
    says=("layers.0.mlp.down", "tp"),
    shows=each(
        not_summed,
        two_ranks=spread(llama(1), 2, tp=2),
        over_data_too=spread(llama(1), 4, dp=2, tp=2, microbatches=2),
    ),
    silent=each(not_summed, one_rank=spread(llama(1), 2, dp=2)),
)
