"""FSDP2 where rows do not divide: shards of several sizes, and ranks that have none."""

from __future__ import annotations

import pytest
import torch
from frontends.torch.proving import check_at_one_mesh, proven
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pitcheck.torch import Input, Program, Rank, Spec

ROWS, FEATURES, RANKS = 12, 3, 4


def spec(outputs: int, factor: float) -> Spec:
    """A layer of so many rows on four ranks; gradients of a sum are divided by a factor."""

    def training(model: nn.Module) -> Program:
        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            model.zero_grad()
            model(batch["x"]).square().sum().backward()
            return {}

        return Program(model, step)

    def parallel(_: Rank) -> Program:
        model = nn.Linear(FEATURES, outputs)
        fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
        model.set_gradient_divide_factor(factor)
        return training(model)

    return Spec(
        lambda: training(nn.Linear(FEATURES, outputs)),
        parallel,
        {"dp": RANKS},
        {"x": Input((ROWS, FEATURES), split={0: "dp"})},
    )


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [pytest.param(7, marks=pytest.mark.nightly), 5])
def test_uneven_shards_are_proven(outputs: int) -> None:
    """Of 7 rows the last rank has one, and of 5 none."""
    assert proven(spec(outputs, 1.0)).outputs.total == 2


@pytest.mark.slow
def test_a_wrong_factor_is_caught() -> None:
    assert check_at_one_mesh(spec(5, 4.0)).verdict == "mismatch"
