"""FullyShardedDataParallel: flat parameters, whose parts begin in the middle of a row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from frontends.torch.proving import check_at_one_mesh, proven
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel

from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, FEATURES, HIDDEN, CLASSES = 6, 3, 5, 4
Batch = dict[str, torch.Tensor]
Change = Callable[[FullyShardedDataParallel, torch.optim.Optimizer, int], None]


def network() -> nn.Module:
    """Of 20 + 20 parameters in two layers, none of which divides by three."""
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, CLASSES, bias=False)
    )


def training(model: nn.Module, optimizer: torch.optim.Optimizer) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Program(model, step, optimizer)


def stepper(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)


def spec(ranks: int, original: bool, change: Change = lambda *_: None) -> Spec:
    def reference() -> Program:
        model = network()
        return training(model, stepper(model))

    def parallel(rank: Rank) -> Program:
        model = FullyShardedDataParallel(
            network(),
            device_mesh=init_device_mesh("cpu", (ranks,)),
            device_id=torch.device("cpu"),
            use_orig_params=original,
        )
        optimizer = stepper(model)
        change(model, optimizer, rank.number)
        return training(model, optimizer)

    split = {0: "dp"}
    batch = {
        "x": Input((ROWS, FEATURES), split=split),
        "labels": Input((ROWS,), "int64", (0, CLASSES), split),
    }
    return Spec(reference, parallel, {"dp": ranks}, batch, {"loss": Part(mean="dp")})


@pytest.mark.slow
def test_stretches_of_parameters_are_proven() -> None:
    report = proven(spec(3, False))
    assert report.outputs.total == 1 + 3 * 3


def test_a_stretch_begins_in_the_middle_of_a_row() -> None:
    first, second, third = record(spec(3, False), "parallel", 2)
    held = {
        (trace.rank, given.name): given.box
        for trace in (first, second, third)
        for given in trace.given
        if given.role == "parameter"
    }
    # 15 + 5 + 20 elements and two of padding are 14 for each of three ranks.
    assert held[0, "0.weight"] == (((0, 14),),)
    assert held[1, "0.weight"] == (((14, 15),),)
    assert held[1, "2.weight"] == (((0, 8),),)
    assert held[2, "2.weight"] == (((8, 20), (-1, 2)),)


def summed(model: FullyShardedDataParallel, *_: object) -> None:
    model._gradient_predivide_factor = model._gradient_postdivide_factor = 1.0


def faster(_: object, optimizer: torch.optim.Optimizer, rank: int) -> None:
    optimizer.param_groups[0]["lr"] *= 1 + rank


@pytest.mark.slow
@pytest.mark.parametrize("change", [summed, pytest.param(faster, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("original", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_mistakes_are_caught(change: Change, original: bool) -> None:
    report = check_at_one_mesh(spec(3, original, change))
    assert report.verdict == "mismatch", report.findings


@pytest.mark.nightly
@pytest.mark.slow
def test_a_result_that_depends_on_padding_is_not_proven() -> None:
    """The sum of squares of what a rank holds has its padding in it."""

    def penalised(rank: Rank) -> Program:
        program = spec(3, False).parallel(rank)
        inner, model = program.step, program.model

        def step(batch: Batch) -> dict[str, torch.Tensor]:
            penalty = model._handle.flat_param.detach().square().sum()
            torch.distributed.all_reduce(penalty)
            return {"loss": inner(batch), "penalty": penalty}

        return Program(model, step, program.optimizer)

    def reference() -> Program:
        program = spec(3, False).reference()
        inner, model = program.step, program.model

        def step(batch: Batch) -> dict[str, torch.Tensor]:
            penalty = sum(p.detach().square().sum() for p in model.parameters())
            return {"loss": inner(batch), "penalty": penalty}

        return Program(model, step, program.optimizer)

    right = spec(3, False)
    report = check_at_one_mesh(Spec(reference, penalised, right.mesh, right.batch, right.outputs))
    assert report.verdict in ("mismatch", "inconclusive"), report.findings
