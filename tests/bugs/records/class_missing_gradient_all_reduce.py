"""Replicas have terms of every gradient."""

from __future__ import annotations

from bugs.cases import Case, llama, spread
from bugs.record import Bug, each
from bugs.surgery import without_collectives

from pitcheck.plan.model import Plan


def of_one_replica(case: Case) -> Plan:
    """The gradient of one weight is that of the replica's own part of the batch."""
    return without_collectives(
        case.plans()[1], lambda operator: operator.id == "grad:layers.0.mlp.up.weight"
    )


BUG = Bug(
    where="TrainVerify, synthetic: a missing all-reduce, of a gradient",
    should="a gradient is summed over the replicas",
    was="that of one weight is not",
    codes=("PIT104",),
    says=("layers.0.mlp.up.weight", "dp"),
    shows=each(
        of_one_replica,
        two_replicas=spread(llama(1), 2, dp=2),
        microbatches=spread(llama(1), 4, dp=2, tp=2, microbatches=2),
    ),
    silent=each(of_one_replica, one_replica=spread(llama(1), 2, tp=2)),
)
