"""The loss is a mean over data-parallel ranks, so its gradients are to be summed; or a sum, and
they are to be averaged.
"""

from __future__ import annotations

from collections.abc import Sequence

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.models.records import Hint
from pitcheck.plan.model import Group
from pitcheck.programs.rank import Rank


def averaged(
    rank: Rank, total: str, over: Sequence[Group], names: Sequence[str], hint: Hint
) -> str:
    """Sums over one group after the other; over data-parallel ranks the mean."""
    for group, name in zip(over, names, strict=False):
        kind = "avg" if group.axes == (*rank.axes.data, *rank.axes.context) else "sum"
        total = rank.tape.op(
            "all_reduce",
            total,
            group=group,
            name=name,
            reduction=kind,
            hint=hint if group == over[-1] else None,
        )
    return total


buggy = Patched({"data_parallel.summed_gradients._summed": averaged})

BUG = Bug(
    where="TrainVerify, synthetic: inconsistent scaling, of loss and gradients",
    should="gradients of a loss that is divided by all tokens are summed over data-parallel ranks",
    was="averaged",
    codes=("PIT111", "PIT101", "PIT102"),
    says=("dp",),
    shows=each(
        buggy, two_ranks=spread(llama(1), 2, dp=2), three_ranks=spread(llama(1), 3, dp=3, tp=2)
    ),
    silent=each(
        buggy,
        one_rank=spread(llama(1), 2, tp=2, sequence_parallel=True),
        one_rank_and_microbatches=spread(llama(1), 2, microbatches=2),
    ),
)
