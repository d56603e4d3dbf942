"""What ranks compute at one line has one name, also where they run a loop a different number of
times.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, proven
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec, capture

RANKS, WIDTH = 2, 4


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x, terms):
        total = torch.zeros(WIDTH)
        for term in range(terms):
            total = total + x[term] * self.weight
        return total * total.cos()


def prefix_sums(wrong: bool = False) -> Spec:
    """Row r of the result is made of the rows up to r; a rank computes one of them."""

    def reference() -> Program:
        model = Doubled()
        return Program(
            model, lambda batch: torch.stack([model(batch["x"], row + 1) for row in range(RANKS)])
        )

    def parallel(rank: Rank) -> Program:
        model = Doubled()

        def step(batch):
            rows = batch["x"].new_empty(RANKS, WIDTH)
            dist.all_gather_into_tensor(rows, batch["x"])
            return model(rows.flip(0) if wrong else rows, dist.get_rank() + 1).unsqueeze(0)

        return Program(model, step)

    return Spec(
        reference,
        parallel,
        {"cp": RANKS},
        {"x": Input((RANKS, WIDTH), split={0: "cp"})},
        {"loss": Part(split={0: "cp"})},
    )


def test_lines_after_an_uneven_loop_are_common() -> None:
    _, plan = capture(prefix_sums())
    after = {op.outputs for op in plan.operators if op.kind == "mul" and "cos" in op.inputs}
    sums = {op.outputs for op in plan.operators if op.kind == "add"}
    assert len(after) == 1
    # The first rank's sum of one term is whole, and the other's first sum is not.
    assert len(sums) == 1 + RANKS


@pytest.mark.slow
def test_uneven_loops() -> None:
    proven(prefix_sums())
    caught(prefix_sums(wrong=True), "x[term]", "PIT102")
