"""Positions that start again at each document, learned and rotary."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from frontends.torch.packing.moves import added_up
from frontends.torch.packing.packed_programs import LENGTH, Batch, alone, packed, spec
from frontends.torch.packing.test_context_parallel import RANKS, gathering
from frontends.torch.packing.test_masks import ONE, masked
from frontends.torch.proving import check_at_one_mesh, proven

from pitcheck.torch import Input, Part, Program, Rank, Spec

GIVEN = {"ids": Input(packed="document_ids"), "positions": Input(packed="position_ids")}
OWN = LENGTH // RANKS


def rotary(positions: Callable[[Batch], torch.Tensor] = lambda batch: batch["positions"]) -> Spec:
    def parallel(_: Rank) -> Program:
        return packed(masked, rotary=positions)

    return spec(parallel, ONE, reference=lambda: alone(rotary=of_document), more=GIVEN)


def of_document(batch: Batch) -> torch.Tensor:
    return batch["positions"]


@pytest.mark.slow
def test_rotary() -> None:
    proven(rotary())


def on_each_rank(positions: Callable[[int], Callable[[Batch], torch.Tensor]]) -> Spec:
    def parallel(rank: Rank) -> Program:
        inner = gathering()(rank)
        return packed(inner, added_up, rotary=positions(rank.number))

    return spec(
        parallel,
        {"cp": RANKS},
        reference=lambda: alone(rotary=of_document),
        part=Part(sum="cp"),
        more=GIVEN,
    )


@pytest.mark.slow
def test_rotary_over_ranks() -> None:
    proven(on_each_rank(lambda rank: lambda batch: batch["positions"][:, rank * OWN :][:, :OWN]))


@pytest.mark.slow
def test_rotary_from_the_first_token_of_each_rank() -> None:
    """A document that goes over the edge has positions that start again in its middle."""
    wrong = on_each_rank(lambda _: lambda __: torch.arange(OWN))
    assert check_at_one_mesh(wrong).verdict == "mismatch"
