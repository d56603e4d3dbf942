"""A token's label is the next token: labels are shifted before sequences are cut over ranks."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from bugs.record import Bug, Recorded
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, LENGTH, WIDTH, CLASSES = 2, 4, 3, 5
Batch = dict[str, torch.Tensor]


def loss_of(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The sum over tokens that have a label, by the number of these in the batch."""
    losses = nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="sum")
    return losses / (ROWS * (LENGTH - 1))


def reference() -> Program:
    model = nn.Linear(WIDTH, CLASSES)

    def step(batch: Batch) -> torch.Tensor:
        loss = loss_of(model(batch["x"])[:, :-1], batch["ids"][:, 1:])
        loss.backward()
        return loss

    return Program(model, step)


def program(ranks: int, wrong: bool) -> Spec:
    def parallel(rank: Rank) -> Program:
        model, own, size = nn.Linear(WIDTH, CLASSES), rank.coordinate["sp"], LENGTH // ranks
        last = own == ranks - 1

        def step(batch: Batch) -> torch.Tensor:
            scores = model(batch["x"])
            if wrong:
                # split, then shifted
                loss = loss_of(scores[:, :-1], batch["ids"].chunk(ranks, 1)[own][:, 1:])
            else:
                labels = batch["ids"][:, 1:].split(size, 1)[own]
                loss = loss_of(scores[:, :-1] if last else scores, labels)
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            return loss

        return Program(model, step)

    batch = {
        "x": Input((ROWS, LENGTH, WIDTH), split={1: "sp"}),
        "ids": Input((ROWS, LENGTH), "int64", (0, CLASSES)),
    }
    return Spec(reference, parallel, {"sp": ranks}, batch, {"loss": Part(sum="sp")})


BUG = Bug(
    where="transformers PR 36607",
    should="labels are shifted, then cut along the sequence",
    was="cut, then shifted: the label at every boundary is lost",
    codes=("PIT107", "PIT108"),
    shows={"two ranks": Recorded(partial(program, 2))},
    silent={"one rank": Recorded(partial(program, 1))},
)
