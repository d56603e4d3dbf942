"""Scores of the vocabulary, cut over tensor-parallel ranks; the loss does not change where a
constant is added to all scores of a token.
"""

from __future__ import annotations

from bugs.cases import Case, llama, spread
from bugs.record import Bug, each
from bugs.surgery import intercepted

from pitcheck.plan.model import Number, Plan


def one_more(case: Case) -> Plan:
    """The last tensor-parallel rank adds 1 to its scores."""
    last = case.layout.tp - 1
    return intercepted(
        case.plans()[1], "logits", "add", Number(1), place={"tp": (last,)} if last else None
    )


BUG = Bug(
    where="TrainVerify, synthetic: a constant added on one rank",
    should="all ranks compute their scores alike",
    was="one of them adds a constant",
    codes=("PIT108", "PIT109", "PIT102"),
    says=("logits",),
    shows=each(
        one_more, two_ranks=spread(llama(1), 2, tp=2), over_data_too=spread(llama(1), 2, dp=2, tp=2)
    ),
    silent=each(
        one_more,
        one_rank_with_all_scores=spread(llama(1), 2, dp=2),
        microbatches=spread(llama(1), 2, microbatches=2),
    ),
    slow=True,
)
