"""What frameworks find where a program is launched: the variables of torchrun, and a CPU with a
number.
"""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import verdict
from torch import nn

from pitcheck.torch import Input, Options, Program, Spec, check

WIDTH = 3


def spec(ranks: int | None) -> Spec:
    """Gradients are divided by a number of ranks, by default that of the launch."""

    def built(parallel: bool) -> Program:
        device = torch.device("cpu", 0)
        model = nn.Linear(WIDTH, WIDTH, bias=False).to(device)
        size = (int(os.environ["WORLD_SIZE"]) if ranks is None else ranks) if parallel else 1

        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            model.weight.grad = None
            x = batch["x"].to(device) + torch.ones(WIDTH, device=device)
            (model(x) ** 2).mean().backward()
            if parallel:
                dist.all_reduce(model.weight.grad)
                model.weight.grad /= size
            return {}

        return Program(model, step)

    return Spec(
        lambda: built(False),
        lambda _: built(True),
        {"dp": 2},
        {"x": Input((4, WIDTH), split={0: "dp"})},
    )


@pytest.mark.parametrize("ranks", [None, 3])
def test_the_number_of_ranks_is_that_of_the_launch(ranks: int | None) -> None:
    assert verdict(spec(ranks)) == ("equivalent" if ranks is None else "mismatch")


def test_every_rank_has_its_number() -> None:
    def program(expected: int) -> Program:
        if int(os.environ["RANK"]) != expected or os.environ["LOCAL_RANK"] != os.environ["RANK"]:
            raise ValueError(os.environ["RANK"])
        return Program({}, lambda batch: {"y": batch["x"] * 2})

    pair = Spec(
        lambda: Program({}, lambda batch: {"y": batch["x"] * 2}),
        lambda rank: program(rank.number),
        {"dp": 2},
        {"x": Input((2, 2))},
    )
    assert check(pair, Options(seed=1)).verdict == "equivalent"
