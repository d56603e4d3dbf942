"""Optimizers that step copies of stretches of parameters, which begin in the middle of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.averaging import BATCH, network
from frontends.torch.proving import check_at_one_mesh, proven

from pitcheck.errors import PitcheckError
from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Part, Program, Rank, Spec

Flat = torch.Tensor
Change = Callable[[Flat], Flat]
SIZE = 101
"""The number of elements of all parameters; a stretch of 51 begins in the middle of a row."""
LENGTH = 51


def same(flat: Flat) -> Flat:
    return flat


def spec(
    make: Callable[[Any], torch.optim.Optimizer] = lambda each: torch.optim.Adam(each, lr=0.1),
    gradient: Change = same,
    back: Change = same,
    gathered: bool = True,
    divided: float = 2.0,
    again: bool = True,
) -> Spec:
    """Return a program whose ranks step a stretch of all parameters, and gather the stretches.

    ``gradient`` changes the flat gradient of all parameters, and ``back`` what is copied back.
    ``again``: also in later calls than the first.
    """

    def reference() -> Program:
        model = network()
        optimizer = make(model.parameters())

        def step(batch: Any) -> torch.Tensor:
            loss = (model(batch["x"]) - batch["y"]).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return Program(model, step, optimizer)

    def parallel(rank: Rank) -> Program:
        model = network()
        parameters = list(model.parameters())
        assert sum(each.numel() for each in parameters) == SIZE
        whole = torch.zeros(2 * LENGTH)
        at = 0
        for parameter in parameters:
            part = whole[at : at + parameter.numel()].view_as(parameter)
            part.copy_(parameter.data)
            parameter.data = part
            at += parameter.numel()
        mine = slice(rank.number * LENGTH, (rank.number + 1) * LENGTH)
        held = whole[mine]
        copy = held.clone().requires_grad_()
        optimizer = make([copy])
        calls = []

        def step(batch: Any) -> torch.Tensor:
            loss = (model(batch["x"]) - batch["y"]).square().mean()
            loss.backward()
            flat = torch.cat([each.grad.reshape(-1) for each in parameters] + [torch.zeros(1)])
            dist.all_reduce(flat)
            copy.grad = gradient(flat / divided)[mine].clone()
            optimizer.step()
            optimizer.zero_grad()
            model.zero_grad()
            calls.append(1)
            if again or len(calls) == 1:
                held.copy_(back(copy.detach()))
                if gathered:
                    dist.all_gather_into_tensor(whole, held.clone())
            return loss

        return Program(model, step, optimizer)

    return Spec(reference, parallel, {"dp": 2}, BATCH, {"loss": Part(mean="dp")})


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def plain(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("make", [plain, pytest.param(sgd, marks=pytest.mark.nightly)])
def test_copies_are_proven(make: Any) -> None:
    proven(spec(make))


@pytest.mark.slow
@pytest.mark.nightly
def test_the_state_of_copies_is_compared() -> None:
    proven(spec())


WRONG: dict[str, Callable[[], Spec]] = {
    "gradients of the elements beside": lambda: spec(sgd, lambda flat: flat.roll(1)),
    "parameters not gathered": lambda: spec(sgd, gathered=False),
    "sums not divided": lambda: spec(sgd, divided=1.0),
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", WRONG)
def test_wrong_copies_are_caught(name: str) -> None:
    report = check_at_one_mesh(WRONG[name]())
    assert report.verdict == "mismatch", report.findings


REFUSED: dict[str, tuple[Callable[[], Spec], str]] = {
    "scaled on the way back": (lambda: spec(sgd, back=lambda flat: flat * 2), "no elements of one"),
    "the negative of it": (lambda: spec(sgd, back=torch.neg), "no elements of one"),
    "copied back in the first call alone": (lambda: spec(sgd, again=False), "are not after it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_copy_is_not_taken_for_one(name: str) -> None:
    made, said = REFUSED[name]
    with pytest.raises(PitcheckError, match=said):
        record(made(), "parallel", 2)
