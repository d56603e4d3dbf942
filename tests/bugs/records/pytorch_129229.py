"""Fully sharded data parallelism over tensor parallelism: what tensor parallelism leaves of a
dimension is cut further by data-parallel ranks.
"""

from __future__ import annotations

from bugs.cases import gpt, llama, spread
from bugs.record import Bug, Patched, each
from msgspec.structs import replace

from pitcheck.plan.model import Shard
from pitcheck.programs.data_parallel.buckets import _cut_further
from pitcheck.programs.rank import Names, Rank


def outer_first(rank: Rank, first: Shard | None, size: int, rows: int, axes: Names) -> Shard:
    """Dimension 0 cut by the mesh's axes in their order: data-parallel ones, then tensor-parallel
    ones.
    """
    found = _cut_further(rank, first, size, rows, axes)
    return replace(found, by=(*axes, *first.by)) if first is not None and found.by else found


buggy = Patched({"data_parallel.buckets._cut_further": outer_first})

BUG = Bug(
    where="pytorch #129229",
    should="a dimension is cut over tp first, and each part over the data-parallel ranks of FSDP",
    was="the other way round, in the order of the mesh",
    codes=("PIT107",),
    says=("weight",),
    shows=each(
        buggy,
        parameter_shards=spread(llama(1), 2, dp=2, tp=2, zero=3),
        learned_positions=spread(gpt(1), 2, dp=2, tp=2, zero=3),
    ),
    silent=each(
        buggy,
        one_tensor_parallel_rank=spread(llama(1), 2, dp=2, zero=3),
        nothing_sharded=spread(llama(1), 2, dp=2, tp=2),
    ),
)
