"""The gradient of the output projection's weight is computed late, when the pipeline has run dry,
and only then summed over ranks that share the weight.
"""

from __future__ import annotations

from collections.abc import Mapping

from bugs.cases import gpt, llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.plan.model import Use
from pitcheck.programs.data_parallel.buckets import Piece
from pitcheck.programs.data_parallel.summed_gradients import _at_ends, ends, reduced
from pitcheck.programs.rank import Rank


def reduced_before(
    rank: Rank, gradients: Mapping[str, str], pieces: Mapping[str, Piece]
) -> dict[str, str]:
    """Complete gradients; that of a weight of both ends of the pipeline is summed while on the last
    stage that of the last micro-batch is still to come.
    """
    early = {name: gradient for name, gradient in gradients.items() if _at_ends(rank, name)}
    complete = reduced(
        rank, {name: gradient for name, gradient in gradients.items() if name not in early}, pieces
    )
    return {
        name: _early(rank, name, gradient) if name in early else complete[name]
        for name, gradient in gradients.items()
    }


def _early(rank: Rank, name: str, gradient: str) -> str:
    tape, count = rank.tape, rank.layout.microbatches
    first, last = rank.homes[name][0], rank.homes[name][-1]
    with rank.at(first):
        tape.op("accumulate", gradient, name=f"buffer:{name}")
    with rank.at(last):
        tape.op("accumulate", gradient, name=f"buffer:{name}", microbatches=tuple(range(count - 1)))
    with rank.at(first, last):
        both = tape.op("all_reduce", f"buffer:{name}", group=ends(rank), name=f"ends:{name}")
    whole = rank.like(f"grad:{name}", name)
    with rank.at(first):
        tape.op("identity", both, name=f"grad:{name}", hint=whole)
    with rank.at(last):
        return tape.op("add", both, Use(gradient, count - 1), name=f"grad:{name}", hint=whole)


buggy = Patched({"parallel_plan.reduced": reduced_before})

BUG = Bug(
    where="Megatron-LM #1012",
    should="the late gradient of the embedding's weight is summed over the pipeline's ends when "
    "it is complete",
    was="the all-reduce was before the last micro-batch's gradient was there",
    codes=("PIT116", "PIT108"),
    says=("embedding",),
    shows=each(
        buggy,
        late_weights=spread(gpt(2), 2, pp=2, microbatches=2, schedule="zero-bubble"),
        three_microbatches=spread(gpt(2), 3, pp=2, microbatches=3, schedule="zero-bubble"),
    ),
    silent=each(
        buggy,
        one_stage=spread(gpt(1), 2, microbatches=2),
        not_tied=spread(llama(2), 2, pp=2, microbatches=2, schedule="zero-bubble"),
    ),
    slow=True,
)
