"""Packed sequences over ranks: keys gathered, in a ring, heads exchanged, in zigzag order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from frontends.torch.packing.moves import added_up, around, exchange, gather
from frontends.torch.packing.packed_programs import LENGTH, Batch, packed, spec
from frontends.torch.proving import caught, check_at_one_mesh, proven
from torch.nn import functional

from pitcheck.torch import Input, Packing, Part, Program, Rank, Spec, check

RANKS = 2
OWN = LENGTH // RANKS
SUMMED = Part(sum="cp")
EDGE = Packing([4, 4])
"""A boundary on the edge between ranks."""
BESIDE = Packing([3, 5])
Seen = Callable[[torch.Tensor, torch.Tensor, Batch], torch.Tensor]
"""A mask of (query places, key places) in the whole sequence."""


def same(queries: torch.Tensor, keys: torch.Tensor, batch: Batch) -> torch.Tensor:
    """A token sees itself and earlier ones of its document."""
    ids = batch["ids"][0]
    return (ids[queries][:, None] == ids[keys]) & (queries[:, None] >= keys)


def places(rank: int) -> torch.Tensor:
    return torch.arange(rank * OWN, (rank + 1) * OWN)


def gathering(seen: Seen = same) -> Callable[[Rank], Any]:
    """Keys and values of all ranks are gathered."""

    def inner(rank: Rank) -> Any:
        def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
            k, v = gather(k, RANKS), gather(v, RANKS)
            mask = seen(places(rank.number), torch.arange(LENGTH), batch)
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

        return attend

    return inner


def ring(seen: Seen = same) -> Callable[[Rank], Any]:
    """Blocks of keys go round, and their results are merged by the logarithms of their sums."""

    def inner(rank: Rank) -> Any:
        def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
            masks = [
                seen(places(rank.number), places((rank.number - hop) % RANKS), batch)
                for hop in range(RANKS)
            ]
            return around(q, k, v, masks)

        return attend

    return inner


def ulysses(seen: Seen = same) -> Callable[[Rank], Any]:
    """Every rank has all tokens of some heads."""

    def inner(_: Rank) -> Any:
        def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
            q, k, v = (exchange(x, RANKS, 1, 2) for x in (q, k, v))
            every = torch.arange(LENGTH)
            out = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=seen(every, every, batch)
            )
            return exchange(out, RANKS, 2, 1)

        return attend

    return inner


def over_ranks(
    inner: Callable[[Rank], Any], packings: Sequence[Packing] = (BESIDE,), **more: Any
) -> Spec:
    def parallel(rank: Rank) -> Program:
        return packed(inner(rank), added_up, **more)

    given = {"ids": Input(packed="document_ids"), "ends": Input(packed="cu_seqlens")}
    return spec(parallel, {"cp": RANKS}, packings, part=SUMMED, more=given)


@pytest.mark.parametrize("inner", [gathering, ring, ulysses])
@pytest.mark.slow
def test_boundaries_at_and_beside_the_edge(inner: Any) -> None:
    proven(over_ranks(inner(), [EDGE, BESIDE]))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("inner", [gathering, ring, ulysses])
def test_default_packings(inner: Any) -> None:
    proven(over_ranks(inner(), [Packing()]))


def across(queries: torch.Tensor, keys: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Documents see each other over the edge between ranks, and only there."""
    before = queries[:, None] >= keys
    return before & (same(queries, keys, batch) | (queries[:, None] // OWN != keys // OWN))


@pytest.mark.slow
@pytest.mark.parametrize("inner", [gathering, ring, ulysses])
def test_documents_see_each_other_over_the_edge(inner: Any) -> None:
    """The line of the mask is found, not only what it leads to."""
    report = caught(over_ranks(inner(across)), "before & (same", "PIT102", "PIT107")
    assert report.findings[0].tried is not None


def without_edges(queries: torch.Tensor, keys: torch.Tensor, batch: Batch) -> torch.Tensor:
    """A boundary that lies on the edge between ranks is dropped."""
    starts = batch["ends"][1:-1]
    ids = torch.bucketize(torch.arange(LENGTH), starts[starts % OWN != 0], right=True)
    return same(queries, keys, {"ids": ids[None]})


@pytest.mark.slow
def test_boundary_at_the_edge_dropped() -> None:
    """Right for every packing without such a boundary: the report names the one that has it."""
    report = check(over_ranks(gathering(without_edges), [BESIDE, EDGE]))
    assert report.verdict == "mismatch"
    assert [each.verdict for each in report.variants] == ["equivalent", "mismatch"]
    assert report.findings[0].variants == ("documents of 4, 4 tokens",)


def of_the_shard(queries: torch.Tensor, keys: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The sums of the whole sequence are taken for those of the rank's tokens."""
    starts = batch["ends"][1:-1]
    own = torch.bucketize(queries - queries[0], starts, right=True)
    mask = own[:, None] == torch.bucketize(keys, starts, right=True)
    return (mask & (queries[:, None] >= keys)) | (queries[:, None] == keys)


@pytest.mark.slow
def test_sums_of_the_whole_used_on_a_shard() -> None:
    assert check_at_one_mesh(over_ranks(gathering(of_the_shard))).verdict == "mismatch"
