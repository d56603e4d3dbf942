"""Pipelines by torch.distributed.pipelining, which runs micro-batches in an order of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frontends.torch.proving import caught, proven
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from pitcheck.torch import Input, Program, Rank, Spec

WIDTH, ROWS, MICRO, RANKS = 4, 8, 4, 2
Batch = dict[str, torch.Tensor]


class Chunk(nn.Module):
    def __init__(self, stages: range) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(
            {str(stage): nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for stage in stages}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages.values():
            x = stage(x)
        return x


def squares(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (out - target).square().sum()


def reference() -> Program:
    model = Chunk(range(RANKS))

    def step(batch: Batch) -> torch.Tensor:
        loss = squares(model(batch["x"]), batch["y"])
        loss.backward()
        return loss

    return Program(model, step)


def spec(kind: Any, **options: Any) -> Spec:
    def parallel(rank: Rank) -> Program:
        model = Chunk(range(rank.number, rank.number + 1))
        meta = [
            torch.empty(ROWS // MICRO, WIDTH, requires_grad=stage > 0) for stage in range(RANKS + 1)
        ]
        stage = PipelineStage(
            model,
            rank.number,
            RANKS,
            torch.device("cpu"),
            input_args=meta[rank.number],
            output_args=meta[rank.number + 1],
        )
        schedule = kind(stage, MICRO, loss_fn=squares, **options)

        def step(batch: Batch) -> torch.Tensor | None:
            if rank.number == 0:
                schedule.step(batch["x"])
                return None
            losses: list[torch.Tensor] = []
            schedule.step(target=batch["y"], losses=losses)
            return torch.stack(losses).sum()

        return Program(model, step)

    return Spec(
        reference, parallel, {"pp": RANKS}, {"x": Input((ROWS, WIDTH)), "y": Input((ROWS, WIDTH))}
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ScheduleGPipe, Schedule1F1B])
def test_schedules_are_proven(kind: Any) -> None:
    proven(spec(kind, scale_grads=False))


def test_gradients_of_a_sum_divided_as_of_a_mean() -> None:
    """Schedules divide so by default."""
    report = caught(spec(ScheduleGPipe), "schedule.step(", "PIT101")
    assert "every element is 1/4 times what it should be" in (report.findings[0].cause or "")
