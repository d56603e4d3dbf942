"""Positions that start again at each document, learned and rotary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from frontends.torch.packing.moves import added_up
from frontends.torch.packing.packed_programs import LENGTH, Batch, alone, packed, spec
from frontends.torch.packing.test_context_parallel import RANKS, gathering
from frontends.torch.packing.test_masks import ONE, masked
from frontends.torch.proving import caught, check_at_one_mesh, proven
from torch import nn

from pitcheck.torch import Input, Packing, Part, Program, Rank, Spec, over_documents

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


def weighed(positions: Callable[[int, Batch], torch.Tensor]) -> Spec:
    """A model that multiplies by absolute positions, as learned ones are added."""

    def losses(model: nn.Module, x: torch.Tensor, places: torch.Tensor) -> Any:
        return (model(x).sum(-1) * (1 + places)).square()

    def reference() -> Program:
        model = nn.Linear(2, 1, bias=False)

        def step(documents: list[Batch]) -> torch.Tensor:
            loss: torch.Tensor = over_documents(
                documents, lambda each: losses(model, each["x"], each["positions"]), "sum"
            )
            loss.backward()
            return loss

        return Program(model, step)

    def parallel(rank: Rank) -> Program:
        model = nn.Linear(2, 1, bias=False)

        def step(batch: Batch) -> torch.Tensor:
            loss: torch.Tensor = losses(model, batch["x"], positions(rank.number, batch)).sum()
            loss.backward()
            added_up(model)
            return loss

        return Program(model, step)

    split = {1: "cp"}
    batch = {
        "x": Input((1, LENGTH, 2), split=split, tokens=1),
        "positions": Input(packed="position_ids", split=split),
    }
    outputs = {"loss": Part(sum="cp")}
    return Spec(reference, parallel, {"cp": RANKS}, batch, outputs, packings=[Packing([3, 5])])


@pytest.mark.slow
def test_positions_that_start_again() -> None:
    proven(weighed(lambda _, batch: batch["positions"]))


def test_positions_that_continue() -> None:
    """Over the boundary between documents."""
    wrong = weighed(lambda rank, _: torch.arange(rank * OWN, (rank + 1) * OWN)[None])
    caught(wrong, "(1 + places)", "PIT103")
