"""Bags of rows of a table, held against what PyTorch computes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from frontends.torch.checking import check
from torch import nn

from pitcheck.torch import Input, Program, Spec

ROWS, BAG, VOCABULARY, WIDTH = 4, 3, 7, 5
BATCH = {
    "x": Input((ROWS, BAG), "int64", bounds=(0, VOCABULARY), split={0: "dp"}),
    "w": Input((ROWS, BAG), split={0: "dp"}),
    "y": Input((ROWS, WIDTH), split={0: "dp"}),
}


@pytest.mark.parametrize("mode", ["sum", "mean", "weighed"])
def test_embedding_bags(mode: str) -> None:
    def program(ranks: int) -> Program:
        model = nn.EmbeddingBag(VOCABULARY, WIDTH, mode="mean" if mode == "mean" else "sum")

        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            model.zero_grad()
            weights = batch["w"] if mode == "weighed" else None
            loss = (model(batch["x"], per_sample_weights=weights) * batch["y"]).sum()
            loss.backward()
            if ranks > 1:
                dist.all_reduce(model.weight.grad)
            return loss

        return Program(model, step)

    check(Spec(lambda: program(1), lambda rank: program(2), {"dp": 2}, BATCH))
