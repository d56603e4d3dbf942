"""Clipping by the norm of all gradients, over whole gradients and over shards: proven where it is
right, caught where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.test_data_parallel import sharded
from frontends.torch.parallelism.test_tensor_parallel import TOKENS, Llama, trained
from frontends.torch.proving import proven
from support.by_day import some_by_day
from torch import nn

from pitcheck.frontends.torch.program import Part, Program, Rank, Spec
from pitcheck.torch import check

Change = Callable[[nn.Module], None]


def training(model: nn.Module, scale: float, *changes: Change) -> Program:
    """AdamW after ``changes`` to the gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    inner = trained(model, scale)

    def step(batch):
        loss = inner(batch)
        for change in changes:
            change(model)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Program(model, step, optimizer)


def clipped(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def clipped_at_once(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)


def summed(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


def clipped_by_the_shards_of_a_rank(model: nn.Module) -> None:
    norm = nn.utils.get_total_norm([parameter.grad.to_local() for parameter in model.parameters()])
    nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)


def clipped_by_the_matrices_alone(model: nn.Module) -> None:
    norm = nn.utils.get_total_norm(
        [parameter.grad for parameter in model.parameters() if parameter.ndim > 1]
    )
    nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)


def spec(parallel: Callable[[Rank], Program], mesh: Mapping[str, int], loss: Part) -> Spec:
    return Spec(lambda: training(Llama(), 1.0, clipped), parallel, mesh, TOKENS, {"loss": loss})


def replicated(*changes: Change) -> Spec:
    return spec(lambda rank: training(Llama(), 1.0, *changes), {"dp": 2}, Part(sum="dp"))


def fully_sharded(clip: Change, **mesh: int) -> Spec:
    return spec(lambda rank: training(*sharded(rank, ("dp",)), clip), mesh, Part(mean="dp"))


PROGRAMS: dict[str, Callable[[], Spec]] = {
    "data parallel": lambda: replicated(summed, clipped),
    "data parallel, all tensors at once": lambda: replicated(summed, clipped_at_once),
    "FSDP2": lambda: fully_sharded(clipped, dp=2),
    "FSDP2 and DTensor": lambda: fully_sharded(clipped, dp=2, tp=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(PROGRAMS, 3))
def test_clipping_is_proven(name: str) -> None:
    assert proven(PROGRAMS[name]()).outputs.total > 30


WRONG: dict[str, tuple[Callable[[], Spec], str, str, str]] = {
    "before the gradients are summed": (
        lambda: replicated(clipped, summed),
        "PIT104",
        "self.head(",
        "linalg_vector_norm",
    ),
    "by the shards of a rank": (
        lambda: fully_sharded(clipped_by_the_shards_of_a_rank, dp=2),
        "PIT113",
        "get_total_norm(",
        "the squares of one rank, not of all over dp",
    ),
    "by the matrices alone": (
        lambda: replicated(summed, clipped_by_the_matrices_alone),
        "PIT100",
        "get_total_norm(",
        "no known cause explains it",
    ),
    "by the shards of a rank, with tensor parallelism": (
        lambda: fully_sharded(clipped_by_the_shards_of_a_rank, dp=2, tp=2),
        "PIT104",
        "get_total_norm(",
        "a term of a sum over dp",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(WRONG, 4))
def test_wrong_clipping_is_caught_at_its_line(name: str) -> None:
    build, code, line, cause = WRONG[name]
    report = check(build())
    assert report.verdict == "mismatch"
    finding = report.findings[0]
    source, _, number = (finding.source or "").rpartition(":")
    assert finding.code == code and cause in (finding.cause or ""), finding
    assert line in Path(source).read_text().splitlines()[int(number) - 1], finding
