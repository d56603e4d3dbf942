"""An autograd function that sums its argument in place, and says so."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import proven, verdict
from torch import nn

from pitcheck.torch import Input, Part, Program, Spec

RANKS, WIDTH = 2, 4


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, summed):
        x = x.contiguous()
        if summed:
            dist.all_reduce(x)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def row_parallel(summed: bool) -> Spec:
    def program(ranks: int) -> Program:
        model = nn.Linear(WIDTH // ranks, 3, bias=False)

        def step(batch):
            model.zero_grad()
            y = model(batch["x"])
            y = InPlace.apply(y, summed) if ranks > 1 else y
            loss = (y * y).sum()
            loss.backward()
            return loss

        return Program(model, step, parts={"weight": Part(split={1: "tp"})} if ranks > 1 else {})

    return Spec(
        lambda: program(1),
        lambda rank: program(RANKS),
        {"tp": RANKS},
        {"x": Input((5, WIDTH), split={1: "tp"})},
    )


@pytest.mark.slow
def test_marked_writes() -> None:
    proven(row_parallel(summed=True))
    assert verdict(row_parallel(summed=False)) == "mismatch"
