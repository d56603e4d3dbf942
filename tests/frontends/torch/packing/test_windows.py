"""Sliding windows over the edges of ranks: each gets the last keys of the rank before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.packing.moves import added_up, with_halo
from frontends.torch.packing.packed_programs import (
    LENGTH,
    Batch,
    Inner,
    alone,
    packed,
    spec,
)
from frontends.torch.proving import caught, check_at_one_mesh, proven
from torch.nn import functional

from pitcheck.torch import Input, Packing, Part, Program, Rank, Spec

RANKS, WINDOW = 2, 3
OWN = LENGTH // RANKS


def window(q: Any, k: Any, v: Any, _: Batch) -> Any:
    """Attend by a mask: token i sees tokens i - WINDOW + 1 to i."""
    place = torch.arange(q.shape[2])
    apart = place[:, None] - place
    seen = (apart >= 0) & (apart < WINDOW)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def by_halo(halo: int, size: int, documents: bool = True) -> Inner:
    """Attend to ``halo`` tokens of the rank before and to own ones, as far as ``size`` reaches."""

    def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
        k, v = with_halo(k, halo), with_halo(v, halo)
        first = dist.get_rank() * OWN
        queries, keys = torch.arange(first, first + OWN), torch.arange(first - halo, first + OWN)
        apart = queries[:, None] - keys
        seen = (apart >= 0) & (apart < size) & (keys >= 0)
        if documents:
            ids = batch["ids"][0]
            seen &= ids[queries][:, None] == ids[keys.clamp(min=0)]
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    return attend


def over_ranks(inner: Inner, packing: Packing | None = None) -> Spec:
    def parallel(_: Rank) -> Program:
        return packed(inner, added_up)

    return spec(
        parallel,
        {"cp": RANKS},
        [packing or Packing([3, 5])],
        lambda: alone(inner=window),
        Part(sum="cp"),
        {"ids": Input(packed="document_ids")},
    )


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [[3, 5], [8]])
def test_window_over_the_edge(lengths: list[int]) -> None:
    proven(over_ranks(by_halo(WINDOW - 1, WINDOW), Packing(lengths)))


@pytest.mark.slow
def test_window_one_too_wide() -> None:
    caught(over_ranks(by_halo(WINDOW - 1, WINDOW + 1)), "apart < size", "PIT102")


@pytest.mark.slow
def test_boundary_dropped() -> None:
    wrong = over_ranks(by_halo(WINDOW - 1, WINDOW, documents=False))
    caught(wrong, "scaled_dot_product_attention", "PIT100")


@pytest.mark.slow
def test_halo_too_short() -> None:
    wrong = over_ranks(by_halo(WINDOW - 2, WINDOW), Packing([8]))
    assert check_at_one_mesh(wrong).verdict == "mismatch"


@pytest.mark.slow
def test_halo_as_long_as_the_document_needs() -> None:
    """A boundary beside the edge hides what a halo that is too short leaves out."""
    proven(over_ranks(by_halo(WINDOW - 2, WINDOW)))
