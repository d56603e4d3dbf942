"""GradScaler: its operators against PyTorch, and programs that scale a loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from frontends.torch.parallelism.averaging import BATCH, average, network
from frontends.torch.proving import check_at_one_mesh, proven
from support.by_day import some_by_day
from torch import nn

from pitcheck.frontends.torch.formulas.loss_scaling import check_and_unscale, update_scale
from pitcheck.frontends.torch.recording.fused_optimizers import ADAM, ADAMW, adagrad, sgd
from pitcheck.torch import Part, Program, Rank, Spec

ADAM_OPTIONS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-3, "amsgrad": False}
STEPS: dict[str, tuple[Callable[..., None], int, dict[str, Any]]] = {
    "_fused_adam_": (ADAM, 4, ADAM_OPTIONS),
    "_fused_adamw_": (ADAMW, 4, ADAM_OPTIONS),
    "_fused_sgd_": (
        sgd,
        3,
        {"momentum": 0.9, "dampening": 0.1, "nesterov": False, "is_first_step": False},
    ),
    "_fused_adagrad_": (adagrad, 3, {"lr_decay": 0.1, "eps": 1e-3}),
}


@pytest.mark.parametrize("number", [1.0, math.inf, math.nan, -math.inf])
def test_gradients_are_divided_and_looked_at(number: float) -> None:
    ours, theirs = ([torch.tensor([3.0, number]), torch.tensor([2.0])] for _ in range(2))
    found, true = torch.zeros(()), torch.zeros(())
    check_and_unscale(ours, found, torch.tensor(0.25))
    torch._amp_foreach_non_finite_check_and_unscale_(theirs, true, torch.tensor(0.25))
    assert found == true == float(not math.isfinite(number))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True) if number == 1.0)


@pytest.mark.parametrize("found", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("count", [0, 3, 4])
@pytest.mark.parametrize("scale", [8.0, 2.0**127])
def test_the_scale_changes_as_in_pytorch(found: float, count: int, scale: float) -> None:
    ours, theirs = (
        (torch.tensor(scale), torch.tensor(count, dtype=torch.int32), torch.tensor(found))
        for _ in range(2)
    )
    assert update_scale(*ours, 2.0, 0.5, 4) is ours[0]
    torch._amp_update_scale_(*theirs, 2.0, 0.5, 4)
    assert ours == theirs


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("found", [0.0, 1.0])
def test_a_fused_optimizer_undoes_the_scale(name: str, found: float) -> None:
    step, lists, options = STEPS[name]
    generator = torch.Generator().manual_seed(0)
    ours = [[torch.rand(3, generator=generator).double()] for _ in range(lists)]
    ours += [[]] if "adam_" in name or "adamw" in name else []
    ours += [] if "sgd" in name else [[torch.tensor(3.0)]]
    theirs = [[each.clone() for each in own] for own in ours]
    said = {**options, "lr": 0.1, "weight_decay": 0.1, "maximize": False}
    said |= {"grad_scale": torch.tensor(4.0), "found_inf": torch.tensor(found)}
    step(*ours, **said)
    getattr(torch.ops.aten, name)(*theirs, **said)
    for own, other in zip(ours, theirs, strict=True):
        assert all(map(torch.allclose, own, other))


# --- programs

Make = Callable[[Any], torch.optim.Optimizer]
Update = Callable[[torch.amp.GradScaler, torch.optim.Optimizer, nn.Module], None]


def plain(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.1, fused=True)


def clipped(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, model: Any) -> None:
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    scaler.step(optimizer)
    scaler.update()


def without_clipping(scaler: Any, optimizer: Any, model: Any) -> None:
    scaler.step(optimizer)
    scaler.update()


def clipped_before(scaler: Any, optimizer: Any, model: Any) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def stepped_twice(scaler: Any, optimizer: Any, model: Any) -> None:
    clipped(scaler, optimizer, model)
    scaler.step(optimizer)
    scaler.update()


def never_divided(scaler: Any, optimizer: Any, model: Any) -> None:
    """The optimizer steps itself; the scaler counts on other gradients."""
    kept = [parameter.grad.clone() for parameter in model.parameters()]
    scaler.unscale_(optimizer)
    for parameter, grad in zip(model.parameters(), kept, strict=True):
        parameter.grad = grad
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def divided_on_the_first(rank: Rank) -> Update:
    return clipped if rank.number == 0 else never_divided


def spec(
    update: Callable[[Rank], Update] = lambda _: clipped,
    true: Update = clipped,
    make: Make = plain,
    interval: int = 2000,
    scale: Callable[[Rank], float] = lambda _: 1024.0,
    synchronise: Callable[[nn.Module], None] = average,
) -> Spec:
    def training(update: Update, scale: float, synchronise: Any) -> Program:
        model = network()
        optimizer = make(model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)

        def step(batch):
            optimizer.zero_grad()
            loss = (model(batch["x"]) - batch["y"]).square().mean()
            scaler.scale(loss).backward()
            synchronise(model)
            update(scaler, optimizer, model)
            return loss

        return Program(model, step, optimizer)

    return Spec(
        lambda: training(true, 1024.0, lambda _: None),
        lambda rank: training(update(rank), scale(rank), synchronise),
        {"dp": 2},
        BATCH,
        {"loss": Part(mean="dp")},
    )


RIGHT: dict[str, Callable[[], Spec]] = {
    "clipped": spec,
    "without clipping": lambda: spec(lambda _: without_clipping, without_clipping),
    "fused": lambda: spec(lambda _: without_clipping, without_clipping, fused),
    "fused and clipped": lambda: spec(make=fused),
    "a scale that grows": lambda: spec(interval=2),
    "another scale on all ranks": lambda: spec(scale=lambda _: 512.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(RIGHT, 2))
def test_a_scaled_loss_is_proven(name: str) -> None:
    report = proven(RIGHT[name]())
    assert any("are finite" in sentence for sentence in report.assumptions)


WRONG: dict[str, Callable[[], Spec]] = {
    "clipped before the division": lambda: spec(lambda _: clipped_before),
    "divided on one rank": lambda: spec(divided_on_the_first),
    "never divided": lambda: spec(lambda _: never_divided),
    "other scales on other ranks": lambda: spec(scale=lambda rank: 1024.0 / (1 + rank.number)),
    "not averaged": lambda: spec(synchronise=lambda _: None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(WRONG, 2))
def test_a_loss_that_is_scaled_otherwise_is_caught(name: str) -> None:
    report = check_at_one_mesh(WRONG[name]())
    assert report.verdict == "mismatch", report.findings


def test_a_scaler_that_steps_twice_counts_twice() -> None:
    """The gradients are divided twice, and the count of steps goes up twice."""
    report = check_at_one_mesh(spec(lambda _: stepped_twice))
    assert report.verdict == "mismatch", report.findings
    assert any("_growth_tracker" in name for name in report.differing), report.differing
