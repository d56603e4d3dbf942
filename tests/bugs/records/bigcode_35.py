"""With more tensor-parallel ranks than key-value heads some ranks have the same keys and values,
whose gradients are terms of a sum.
"""

from __future__ import annotations

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each
from msgspec.structs import replace

from pitcheck.models.config import Attention, Model
from pitcheck.programs.layers.layers import _projections
from pitcheck.programs.rank import Rank


def unmarked(rank: Rank, x: str, name: str, sizes: Attention) -> list[str]:
    """Queries, keys and values; weights of keys and values do not say that other ranks have the
    same.
    """
    found = _projections(rank, x, name, sizes)
    for part in ("k", "v"):
        rank.sharing[f"{name}.{part}.weight"] = rank.dense(())
    return found


def shared(kv_heads: int) -> Model:
    """Four query heads share as many key-value heads."""
    model = llama(1)
    assert isinstance(model.attention, Attention)
    return replace(model, attention=replace(model.attention, kv_heads=kv_heads))


buggy = Patched({"layers.layers._projections": unmarked})

BUG = Bug(
    where="bigcode Megatron-LM #35",
    should="the gradient of the one key-value head is summed over tp",
    was="every rank keeps its own term",
    codes=("PIT104",),
    says=("attention", "tp"),
    shows=each(
        buggy,
        one_head=spread(shared(1), 2, tp=2),
        two_heads_on_four_ranks=spread(shared(2), 2, tp=4),
        over_data_too=spread(shared(1), 4, dp=2, tp=2),
    ),
    silent=each(
        buggy,
        a_head_for_each_rank=spread(shared(2), 2, tp=2),
        one_rank=spread(shared(1), 2, dp=2),
    ),
)
