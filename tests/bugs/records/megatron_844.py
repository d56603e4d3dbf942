"""A tied embedding at both ends of the pipeline: its gradient is summed over the ends first, then
the sums of the data-parallel ranks are cut into shards.

Every stage lays its parameters one after the other into a flat buffer and cuts that evenly over the
data-parallel ranks. A reduce-scatter leaves in a rank's own part of the buffer the sum over all
ranks, and in the rest what the rank had.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from bugs.cases import gpt, llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.data_parallel.buckets import Piece
from pitcheck.programs.data_parallel.summed_gradients import AT_ENDS, _all_reduced, _at_ends, ends
from pitcheck.programs.rank import Rank


def scattered_first(rank: Rank, name: str, total: str, pieces: Mapping[str, Piece]) -> str:
    """The shard of a tied embedding's gradient: the buffers, each with the sum in the rank's part
    of it, are summed over the ends, and the shard is cut out.
    """
    if name not in pieces or not _at_ends(rank, name):
        return _all_reduced(rank, name, total, pieces)
    tape, one = rank.tape, pieces[name]
    for stage in rank.homes[name]:
        for place, (low, high) in enumerate(_parts(rank, name, stage)):
            with rank.at(stage), tape.at(dp=(place,)):
                _buffer(rank, name, stage, low, high)
    with rank.at(*rank.homes[name]):
        both = tape.op("all_reduce", f"buffer:{name}", group=ends(rank), name=f"ends:{name}")
        return tape.op(
            "chunk",
            both,
            name=f"grad:{name}",
            hint=one.holds(f"grad:{name}"),
            axis=0,
            count=one.shards,
            position=rank.position(one.axes),
        )


def _parts(rank: Rank, name: str, stage: int) -> list[tuple[int, int]]:
    """Per data-parallel rank the rows of the parameter in its part of the stage's buffer; a buffer
    that is full after every parameter has just this one.
    """
    tensors, shards = rank.tape.tensors, rank.layout.dp
    order = [other for other, stages in rank.homes.items() if stage in stages]
    alone = rank.layout.bucket < prod(tensors[name].shape)
    members = (
        [name]
        if alone
        else order
        if stage
        else [name, *(other for other in order if other != name)]
    )
    begun = sum(prod(tensors[other].shape) for other in members[: members.index(name)])
    size = sum(prod(tensors[other].shape) for other in members)
    rows, width = tensors[name].shape
    bounds = [
        min(max((size * place // shards - begun) // width, 0), rows) for place in range(shards + 1)
    ]
    return [(low, high) for low, high in zip(bounds, [*bounds[1:-1], rows], strict=False)]


def _buffer(rank: Rank, name: str, stage: int, low: int, high: int) -> None:
    tape, own = rank.tape, f"{AT_ENDS}{name}"
    rows = tape.tensors[own].shape[0]
    summed = tape.op("all_reduce", own, group=rank.axes.data, name=f"summed:{name}")
    parts = [(own, 0, low), (summed, low, high), (own, high, rows)]
    cut = [
        tape.op("slice", part, axis=0, start=start, stop=stop)
        for part, start, stop in parts
        if start < stop
    ]
    tape.op("cat", *cut, name=f"buffer:{name}", axis=0)


buggy = Patched({"data_parallel.summed_gradients._all_reduced": scattered_first})

BUG = Bug(
    where="Megatron-LM #844",
    should="the gradient of a tied embedding is summed over the pipeline's ends, then "
    "reduce-scattered",
    was="the other way round, over buffers with different boundaries: g0 + (g2 + g3) / 2",
    codes=("PIT104", "PIT116", "PIT108"),
    says=("embedding",),
    shows=each(
        buggy,
        with_microbatches=spread(gpt(2), 4, dp=2, pp=2, zero=1, microbatches=2),
        other_boundaries_at_the_last_stage=spread(gpt(2), 4, dp=2, pp=2, zero=1),
    ),
    silent=each(
        buggy,
        the_same_boundaries=spread(gpt(2), 4, dp=2, pp=2, zero=1, bucket=100),
        one_stage=spread(gpt(1), 2, dp=2, zero=1),
        not_tied=spread(llama(2), 4, dp=2, pp=2, zero=1),
    ),
    slow=True,
)
