"""Gradients that are counts: that of the bias below a plain sum is the number of rows, whatever the
rows are, so nothing that is given has that size.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import proven, verdict
from torch import nn

from pitcheck.torch import Input, Program, Spec

Finish = Callable[[nn.Parameter], object]


def training(finish: Finish) -> Program:
    """A step that returns nothing, whose gradients are all there is to be compared."""
    model = nn.Linear(4, 3)

    def step(batch: dict[str, torch.Tensor]) -> None:
        model(batch["x"]).sum().backward()
        for parameter in model.parameters():
            finish(parameter)

    return Program(model, step)


def spec(finish: Finish, ranks: int = 2) -> Spec:
    return Spec(
        lambda: training(lambda _: None),
        lambda rank: training(finish),
        {"dp": ranks},
        {"x": Input((8, 4), split={0: "dp"})},
    )


def added_up(parameter: nn.Parameter) -> None:
    dist.all_reduce(parameter.grad)


def averaged(parameter: nn.Parameter) -> None:
    dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)


def of_some(parameter: nn.Parameter) -> None:
    """Right for the weight; the bias gets 2 * 3 of 8 ones, which are as many as rows are left at
    reduced shapes.
    """
    if parameter.dim() == 1:
        parameter.grad = torch.ones(3, 3).sum(0)
    dist.all_reduce(parameter.grad)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_number_of_rows(ranks: int) -> None:
    proven(spec(added_up, ranks))


@pytest.mark.parametrize(
    "wrong", [averaged, lambda _: None, of_some], ids=["averaged", "own rows", "some rows"]
)
def test_another_number(wrong: Finish) -> None:
    assert verdict(spec(wrong)) == "mismatch"
