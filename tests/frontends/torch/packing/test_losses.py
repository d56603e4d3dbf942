"""Losses of packed sequences: boundaries, padding, and means over tokens of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.packing.moves import added_up
from frontends.torch.proving import proven, refuted
from torch import nn
from torch.nn import functional

from pitcheck.torch import Input, Packing, Part, Program, Rank, Spec, over_documents

CLASSES, WIDTH = 5, 3
Batch = Mapping[str, torch.Tensor]


class Next(nn.Module):
    """A guess of the next token from the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(CLASSES, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.head(self.embed(tokens))


def of_tokens(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")


def reference(combined: Any = "token mean") -> Program:
    model = Next()

    def of_document(batch: Batch) -> torch.Tensor:
        return of_tokens(model(batch["tokens"])[:, :-1], batch["tokens"][:, 1:])

    def step(documents: Sequence[Batch]) -> torch.Tensor:
        loss: torch.Tensor = over_documents(documents, of_document, combined)
        loss.backward()
        return loss

    return Program(model, step)


def packed(
    total: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], mask: str = "next", ranks: int = 1
) -> Program:
    """``total`` makes one loss of the masked losses and the mask."""
    model = Next()

    def step(batch: Batch) -> torch.Tensor:
        tokens = batch["tokens"]
        counted = batch[mask].flatten()
        labels = tokens.roll(-1, 1)
        losses = of_tokens(model(tokens), labels) * counted
        loss = total(losses, counted)
        loss.backward()
        if ranks > 1:
            added_up(model)
        return loss

    return Program(model, step)


def over_own(losses: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    return losses.sum() / counted.sum()


def over_all(losses: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    count = counted.sum()
    dist.all_reduce(count)
    return losses.sum() / count


def spec(
    parallel: Callable[[Rank], Program],
    packing: Packing,
    rows: int = 1,
    combined: Any = "token mean",
    part: Part | None = None,
) -> Spec:
    split = {0: "dp"}
    batch = {
        "tokens": Input((rows, 8), "int64", (0, CLASSES), split, tokens=1),
        "next": Input(packed="next_token_mask", split=split),
        "every": Input(packed="token_mask", split=split),
    }
    outputs = {} if part is None else {"loss": part}
    return Spec(
        lambda: reference(combined), parallel, {"dp": rows}, batch, outputs, packings=[packing]
    )


@pytest.mark.slow
def test_next_tokens_of_documents() -> None:
    """A document of one token has no loss."""
    proven(spec(lambda _: packed(over_own), Packing([3, 1, 4])))


@pytest.mark.slow
def test_label_of_the_next_document() -> None:
    """The last token of a document predicts the first one of the next."""
    refuted(spec(lambda _: packed(over_own, "every"), Packing([3, 5])), "loss")


UNEVEN = Packing([[3, 5], [4, 2]])


@pytest.mark.slow
def test_mean_over_the_tokens_of_all_ranks() -> None:
    """Ranks have 6 and 4 tokens with a next one, and padding."""
    right = packed_on_ranks(over_all)
    proven(right)


def packed_on_ranks(total: Any, part: Part | None = None) -> Spec:
    return spec(lambda _: packed(total, ranks=2), UNEVEN, 2, part=part or Part(sum="dp"))


@pytest.mark.slow
def test_mean_of_the_means_of_ranks() -> None:
    def halved(losses: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
        return over_own(losses, counted) / 2

    refuted(packed_on_ranks(halved), "loss")


@pytest.mark.slow
def test_mean_of_the_means_of_documents() -> None:
    """Of two documents of other lengths it is no mean over tokens."""
    refuted(spec(lambda _: packed(over_own), Packing([3, 5]), combined="document mean"), "loss")
