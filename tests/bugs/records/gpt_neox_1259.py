"""Under sequence parallelism the gradients of layer norms are summed over tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Sequence

from bugs.cases import gpt, llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.models.records import Hint
from pitcheck.plan.model import Group
from pitcheck.programs.rank import Rank


def averaged(
    rank: Rank, total: str, over: Sequence[Group], names: Sequence[str], hint: Hint
) -> str:
    """The sum over one group after the other; over tensor-parallel ranks the mean."""
    for group, name in zip(over, names, strict=False):
        kind = "avg" if group.axes == rank.axes.tensor else "sum"
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
    where="GPT-NeoX #1259",
    should="gradients of layer norms are summed over tp",
    was="averaged",
    codes=("PIT111", "PIT102"),
    says=("norm.weight", "tp"),
    shows=each(
        buggy,
        sequence_parallel=spread(llama(1), 2, tp=2, sequence_parallel=True),
        over_data_too=spread(gpt(1), 4, dp=2, tp=2, sequence_parallel=True),
    ),
    silent=each(
        buggy,
        without_sequence_parallelism=spread(llama(1), 4, dp=2, tp=2),
        one_rank=spread(llama(1), 2, dp=2),
    ),
)
