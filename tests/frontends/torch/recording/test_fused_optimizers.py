"""Fused optimizers, against PyTorch's own operators on float64 and as part of a program."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from frontends.torch.proving import check_at_one_mesh, proven
from torch import nn

from pitcheck.frontends.torch.recording.fused_optimizers import ADAM, ADAMW, FUSED, adagrad, sgd
from pitcheck.torch import Input, Program, Rank, Spec

Tensors = list[torch.Tensor]
SHAPES = ((3, 2), (5,))
FLAGS = list(product((False, True), (False, True), (0.0, 0.1)))


def tensors(seed: int, positive: bool = False) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [each.abs() for each in drawn] if positive else drawn


def steps(number: int) -> Tensors:
    return [torch.tensor(float(number)) for _ in SHAPES]


def agrees(ours: Callable[..., None], theirs: Any, lists: list[Tensors], **options: Any) -> bool:
    """Return True if both change all tensors to the same numbers."""
    copies = [[each.clone() for each in own] for own in lists]
    theirs(*lists, **options)
    ours(*copies, **options)
    return all(
        torch.allclose(a, b, rtol=1e-12, atol=1e-14)
        for own, other in zip(copies, lists, strict=True)
        for a, b in zip(own, other, strict=True)
    )


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(ADAM, torch.ops.aten._fused_adam_), (ADAMW, torch.ops.aten._fused_adamw_)],
    ids=["adam", "adamw"],
)
@pytest.mark.parametrize(("amsgrad", "maximize", "decay"), FLAGS)
def test_a_step_of_adam(
    ours: Callable[..., None], theirs: Any, amsgrad: bool, maximize: bool, decay: float
) -> None:
    largest = tensors(5, positive=True) if amsgrad else []
    lists = [tensors(1), tensors(2), tensors(3), tensors(4, positive=True), largest, steps(3)]
    options = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "weight_decay": decay, "eps": 1e-3}
    assert agrees(ours, theirs, lists, amsgrad=amsgrad, maximize=maximize, **options)


@pytest.mark.parametrize(("nesterov", "first", "decay"), FLAGS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_of_sgd(nesterov: bool, first: bool, decay: float, momentum: float) -> None:
    lists = [tensors(1), tensors(2), tensors(3) if momentum else []]
    options = {"weight_decay": decay, "momentum": momentum, "lr": 0.1, "is_first_step": first}
    options |= {"dampening": 0.0 if nesterov else 0.3, "nesterov": nesterov, "maximize": first}
    assert agrees(sgd, torch.ops.aten._fused_sgd_, lists, **options)


@pytest.mark.parametrize("maximize", [False, True])
def test_a_step_of_adagrad(maximize: bool) -> None:
    lists = [tensors(1), tensors(2), tensors(3, positive=True), steps(4)]
    options = {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "eps": 1e-3, "maximize": maximize}
    assert agrees(adagrad, torch.ops.aten._fused_adagrad_, lists, **options)


ADAM_OPTIONS = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "amsgrad": False}
SGD_OPTIONS = {
    "lr": 0.1,
    "dampening": 0.0,
    "nesterov": False,
    "maximize": False,
    "is_first_step": False,
    "weight_decay": 0.0,
    "momentum": 0.9,
}


@pytest.mark.parametrize(
    ("name", "lists", "options"),
    [
        *(
            (name, 4, {**ADAM_OPTIONS, "lr": lr, "weight_decay": decay, "maximize": not decay})
            for name in ("_fused_adam", "_fused_adamw")
            for lr in (0.01, torch.tensor(0.125, dtype=torch.float64))
            for decay in (0.0, 0.1)
        ),
        *(
            ("_fused_sgd", 3, {**SGD_OPTIONS, **more})
            for more in (
                {},
                {"dampening": 0.5, "weight_decay": 0.1},
                {"nesterov": True},
                {"maximize": True},
                {"is_first_step": True, "weight_decay": 0.1},
            )
        ),
        ("_fused_sgd", 2, {**SGD_OPTIONS, "momentum": 0.0, "weight_decay": 0.1}),
    ],
)
def test_a_step_that_changes_nothing_gives_the_new_tensors(
    name: str, lists: int, options: dict[str, Any]
) -> None:
    given = [tensors(n, positive=n == 3) for n in range(lists)]
    given += [[]] if lists != 3 else []
    given += [steps(3)] if lists == 4 else []
    before = [[each.clone() for each in own] for own in given]
    ours = FUSED["aten", name](*given, **options)
    theirs = getattr(torch.ops.aten, name)(*given, **options)
    for own, other in zip(ours, theirs, strict=True):
        assert all(map(torch.allclose, own, other))
        assert len(own) == len(other)
    for own, earlier in zip(given, before, strict=True):
        assert all(map(torch.equal, own, earlier))


def spec_of(make: Callable[[Any], torch.optim.Optimizer]) -> Spec:
    """A reference with AdamW tensor by tensor, and ranks that step with another optimizer."""

    def program(optimizer_of: Callable[[Any], torch.optim.Optimizer]) -> Program:
        model = nn.Linear(6, 4)
        optimizer = optimizer_of(model.parameters())

        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss = model(batch["x"]).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        return Program(model, step, optimizer)

    def plain(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=0.01, foreach=False)

    def parallel(_: Rank) -> Program:
        return program(make)

    return Spec(lambda: program(plain), parallel, mesh={"dp": 2}, batch={"x": Input((8, 6))})


def test_a_fused_step_is_the_plain_one() -> None:
    proven(spec_of(lambda p: torch.optim.AdamW(p, lr=0.01, fused=True)))


@pytest.mark.parametrize(
    "options", [{"betas": (0.9, 0.99)}, {"weight_decay": 0.02}, {"maximize": True}], ids=str
)
def test_another_fused_step_is_caught(options: dict[str, Any]) -> None:
    report = check_at_one_mesh(
        spec_of(lambda p: torch.optim.AdamW(p, lr=0.01, fused=True, **options))
    )
    assert report.verdict == "mismatch", report.findings
