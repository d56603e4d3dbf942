"""Adafactor: its formula against PyTorch, and programs with parameters that are whole or in parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import check_at_one_mesh, proven
from support.by_day import some_by_day
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim import _adafactor

from pitcheck.frontends.torch.formulas.adafactor import adafactor
from pitcheck.torch import Input, Part, Program, Rank, Spec

OPTIONS = list(product((False, True), (0.0, 0.1), (None, 1e-30), (1.0, 1e-3), (0.5, 1e-9)))


@pytest.mark.parametrize(("maximize", "decay", "eps1", "d", "eps2"), OPTIONS)
@pytest.mark.parametrize("name", ["_single_tensor_adafactor", "_multi_tensor_adafactor"])
def test_a_step_is_that_of_pytorch(
    name: str, maximize: bool, decay: float, eps1: float | None, d: float, eps2: float
) -> None:
    def lists() -> list[list[torch.Tensor | None]]:
        generator = torch.Generator().manual_seed(0)
        drawn = [
            [torch.rand(shape, generator=generator, dtype=torch.float64) - less for shape in shapes]
            for shapes, less in (
                (((4, 3), (5,), (2, 3, 2)), 0.5),
                (((4, 3), (5,), (2, 3, 2)), 0.5),
                (((4, 1), (2, 3, 1)), 0.0),
                (((1, 3), (2, 1, 2)), 0.0),
                (((5,),), 0.0),
            )
        ]
        rows, columns, (variance,) = drawn[2:]
        factored = [rows[0], None, rows[1]], [columns[0], None, columns[1]]
        return [*drawn[:2], *factored, [None, variance, None], [torch.tensor(3.0) for _ in "abc"]]

    ours, theirs = lists(), lists()
    options: dict[str, Any] = {"d": d, "lr": 0.1, "beta2_decay": -0.8, "weight_decay": decay}
    options |= {"eps1": eps1, "eps2": eps2, "maximize": maximize, "has_complex": False}
    getattr(_adafactor, name)(*theirs, None, None, **options)
    adafactor(*ours, None, None, **options)  # type: ignore[arg-type]
    for own, other in zip(ours, theirs, strict=True):
        for a, b in zip(own, other, strict=True):
            assert (a is None and b is None) or torch.allclose(a, b, rtol=1e-10)  # type: ignore[arg-type]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def averaged(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2


def training(model: nn.Module, synchronise: Callable[[nn.Module], None], **options: Any) -> Program:
    optimizer = torch.optim.Adafactor(model.parameters(), **options)

    def step(batch):
        loss = model(batch["x"]).square().mean()
        loss.backward()
        synchronise(model)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Program(model, step, optimizer)


def spec(parallel: Callable[[Rank], Program]) -> Spec:
    return Spec(
        lambda: training(network(), lambda _: None),
        parallel,
        {"dp": 2},
        {"x": Input((8, 6), split={0: "dp"})},
        {"loss": Part(mean="dp")},
    )


def sharded(_: Rank) -> Program:
    """Fully sharded: DTensor knows that norms and means are those of all shards."""
    return training(fully_shard(network()), lambda _: None)


def by_local_shards(_: Rank) -> Program:
    """The optimizer sees the shards alone, and takes their norms and means."""
    model = fully_shard(network())
    local = {
        parameter: nn.Parameter(parameter.to_local().detach()) for parameter in model.parameters()
    }
    optimizer = torch.optim.Adafactor(local.values())

    def step(batch):
        loss = model(batch["x"]).square().mean()
        loss.backward()
        for parameter, shard in local.items():
            shard.grad = parameter.grad.to_local()
        optimizer.step()
        with torch.no_grad():
            for parameter, shard in local.items():
                parameter.to_local().copy_(shard)
        for parameter in local:
            parameter.grad = None
        return loss

    return Program(model, step)


RIGHT: dict[str, Callable[[Rank], Program]] = {
    "data parallel": lambda _: training(network(), averaged),
    "all tensors at once": lambda _: training(network(), averaged, foreach=True),
    "fully sharded": sharded,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(RIGHT, 1))
def test_adafactor_is_proven(name: str) -> None:
    proven(spec(RIGHT[name]))


WRONG: dict[str, Callable[[Rank], Program]] = {
    "not averaged": lambda _: training(network(), lambda _: None),
    "another threshold": lambda _: training(network(), averaged, d=1e-6),
    "another decay": lambda _: training(network(), averaged, weight_decay=0.1),
    "another least scale": lambda _: training(network(), averaged, eps=(None, 0.5)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(WRONG, 1))
def test_another_adafactor_is_caught(name: str) -> None:
    report = check_at_one_mesh(spec(WRONG[name]))
    assert report.verdict == "mismatch", report.findings


@pytest.mark.slow
def test_statistics_of_local_shards_are_never_proven() -> None:
    report = check_at_one_mesh(spec(by_local_shards))
    assert report.verdict in ("mismatch", "inconclusive"), report.findings
