"""Broadcasts in PyTorch programs: what lies in the buffer of a rank that is not the root is no
state, and nobody reads it.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import verdict
from torch import nn

from pitcheck.torch import Input, Options, Program, Spec, check

WIDTH, ROOT = 3, 1


def spec(*, before: bool) -> Spec:
    """The sum of a gradient, brought from the root to all ranks in a buffer that every rank keeps;
    filled ``before`` it is sent, or too late.
    """

    def built(rank: int | None) -> Program:
        model = nn.Linear(WIDTH, WIDTH, bias=False)
        kept = torch.zeros(WIDTH, WIDTH)

        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            model.weight.grad = None
            (model(batch["x"]) ** 2).sum().backward()
            if rank is not None:
                term = model.weight.grad
                dist.reduce(term, ROOT)
                if before and rank == ROOT:
                    kept.copy_(term)
                dist.broadcast(kept, ROOT)
                if not before and rank == ROOT:
                    kept.copy_(term)
                model.weight.grad = kept.clone()
            return {}

        return Program(model, step)

    return Spec(
        lambda: built(None),
        lambda rank: built(rank.number),
        {"dp": 3},
        {"x": Input((6, WIDTH), split={0: "dp"})},
    )


@pytest.mark.parametrize("before", [True, False])
def test_a_kept_buffer_is_state_of_the_root_alone_and_only_where_it_is_read(before: bool) -> None:
    report = check(spec(before=before), Options(seed=1))
    assert report.verdict == ("equivalent" if before else "inconclusive"), report.findings
    assert before or report.findings[0].title.startswith(f"rank {ROOT} reads")


def of_bytes(source: int) -> Spec:
    """A gradient that is summed at the root, and sent to all as bytes from one rank."""

    def built(parallel: bool) -> Program:
        model = nn.Linear(WIDTH, WIDTH, bias=False)

        def step(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            model.weight.grad = None
            (model(batch["x"]) ** 2).sum().backward()
            if parallel:
                dist.reduce(model.weight.grad, ROOT)
                dist.broadcast(model.weight.grad.view(torch.uint8), source)
            return {}

        return Program(model, step)

    return Spec(
        lambda: built(False),
        lambda _: built(True),
        {"dp": 2},
        {"x": Input((6, WIDTH), split={0: "dp"})},
    )


@pytest.mark.parametrize("source", [ROOT, 0])
def test_bytes_of_numbers_are_the_numbers(source: int) -> None:
    assert verdict(of_bytes(source)) == ("equivalent" if source == ROOT else "mismatch")
