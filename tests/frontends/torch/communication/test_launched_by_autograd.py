"""Communication in a backward pass: the reducer of DistributedDataParallel, which is C++, waits for
it before the pass ends; a hook of a program waits if it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import check_at_one_mesh, proven
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, FEATURES = 4, 3


def training(model: nn.Module) -> Program:
    def step(batch: Any) -> torch.Tensor:
        model.zero_grad()
        loss = model(batch["x"]).square().mean()
        loss.backward()
        return loss

    return Program(model, step, names=lambda name: name.removeprefix("module."))


def layer() -> nn.Module:
    return nn.Linear(FEATURES, 1, bias=False)


def spec(parallel: Callable[[Rank], Program]) -> Spec:
    return Spec(
        lambda: training(layer()),
        parallel,
        {"dp": 2},
        {"x": Input((ROWS, FEATURES), split={0: "dp"})},
        {"loss": Part(mean="dp")},
    )


# --- the reducer, which tells other ranks which parameters a rank has used


def replicated(quiet: bool = False, option: str = "find_unused_parameters") -> Spec:
    """``quiet``: gradients stay on their ranks."""

    def parallel(_: Rank) -> Program:
        model = layer()
        spread = DistributedDataParallel(model, **{option: True})
        return training(model if quiet else spread)

    return spec(parallel)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_the_reducer_waits_for_what_it_has_launched(option: str) -> None:
    """With ``static_graph`` it reduces all buckets when the backward pass has ended."""
    proven(replicated(option=option))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_gradients_that_stay(option: str) -> None:
    assert check_at_one_mesh(replicated(quiet=True, option=option)).verdict == "mismatch"


# --- hooks of a program


def hooked(waits: bool) -> Spec:
    """Gradients that a hook of the program averages."""

    def parallel(_: Rank) -> Program:
        model = layer()

        def averaged(parameter: torch.Tensor) -> None:
            parameter.grad /= 2
            work = dist.all_reduce(parameter.grad, async_op=True)
            if waits and work is not None:
                work.wait()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(averaged)
        return training(model)

    return spec(parallel)


@pytest.mark.slow
def test_a_hook_that_waits() -> None:
    proven(hooked(waits=True))


def test_a_hook_that_does_not_wait() -> None:
    report = check_at_one_mesh(hooked(waits=False))
    assert report.verdict == "invalid"
    assert "is in flight" in report.findings[0].title
