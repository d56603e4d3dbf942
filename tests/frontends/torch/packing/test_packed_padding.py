"""Padding behind documents and behind the last one, and documents in zigzag order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frontends.torch.packing.moves import added_up, gather
from frontends.torch.packing.packed_programs import (
    LENGTH,
    WIDTH,
    Attention,
    Batch,
    alone,
    losses,
    spec,
)
from frontends.torch.packing.test_masks import ONE
from frontends.torch.proving import proven, refuted
from torch.nn import functional

from pitcheck.torch import Input, Packing, Part, Program, Rank, Spec

GIVEN = {
    "ids": Input(packed="document_ids"),
    "mask": Input((1, 1, LENGTH, LENGTH), packed="same_document_mask"),
    "real": Input(packed="token_mask"),
    "rooms": Input(packed="cu_seqlens_padded"),
}
RANKS = 2


def both_ways(q: Any, k: Any, v: Any, batch: Batch) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=batch["mask"])


def padding_seen(q: Any, k: Any, v: Any, batch: Batch) -> Any:
    seen = batch["mask"] | (batch["ids"] < 0)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def masked_losses(inner: Any, counted: bool = True) -> Spec:
    def parallel(_: Rank) -> Program:
        model = Attention(inner)

        def step(batch: Batch) -> torch.Tensor:
            each = losses(model, batch)
            loss = (each * batch["real"]).sum() if counted else each.sum()
            loss.backward()
            return loss

        return Program(model, step)

    return spec(
        parallel, ONE, [Packing([3, 2], multiple=4)], lambda: alone(inner=both_ways), more=GIVEN
    )


@pytest.mark.slow
def test_padding_masked() -> None:
    proven(masked_losses(both_ways))


@pytest.mark.slow
def test_padding_attended() -> None:
    refuted(masked_losses(padding_seen), "loss")


@pytest.mark.slow
def test_padding_in_the_loss() -> None:
    refuted(masked_losses(both_ways, counted=False), "loss")


def zigzag(rooms: torch.Tensor, rank: int) -> torch.Tensor:
    """Return the places of a rank: an early and a late part of each document."""
    found = []
    for start, stop in zip(rooms[:-1].tolist(), rooms[1:].tolist(), strict=True):
        chunks = torch.arange(start, stop).chunk(2 * RANKS)
        found += [chunks[rank], chunks[2 * RANKS - 1 - rank]]
    return torch.cat(found)


def in_zigzag(reordered: bool) -> Spec:
    """``reordered``: the mask knows the order in which keys come from the ranks."""

    def parallel(rank: Rank) -> Program:
        def attend(q: Any, k: Any, v: Any, batch: Batch) -> Any:
            queries = zigzag(batch["rooms"], rank.number)
            every = [zigzag(batch["rooms"], other) for other in range(RANKS)]
            keys = torch.cat(every) if reordered else torch.arange(LENGTH)
            ids = batch["ids"][0]
            seen = (ids[queries][:, None] == ids[keys]) & (queries[:, None] >= keys)
            k, v = gather(k, RANKS), gather(v, RANKS)
            return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)

        model = Attention(attend)

        def step(batch: Batch) -> torch.Tensor:
            own = zigzag(batch["rooms"], rank.number)
            part = {**batch, "x": batch["x"][:, own], "y": batch["y"][:, own]}
            loss = (losses(model, part) * batch["real"][:, own]).sum()
            loss.backward()
            added_up(model)
            return loss

        return Program(model, step)

    packings = [Packing([3, 4], multiple=4)]
    pair = spec(parallel, {"cp": RANKS}, packings, part=Part(sum="cp"), more=GIVEN)
    whole = {name: Input((1, LENGTH, WIDTH), tokens=1) for name in ("x", "y")}
    return Spec(pair.reference, parallel, pair.mesh, GIVEN | whole, pair.outputs, packings=packings)


@pytest.mark.slow
def test_documents_in_zigzag_order() -> None:
    proven(in_zigzag(True))


@pytest.mark.slow
def test_keys_in_the_order_of_the_sequence() -> None:
    refuted(in_zigzag(False), "loss")
