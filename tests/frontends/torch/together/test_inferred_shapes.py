"""Pipelines whose stages are not told any shapes: they tell each other, as objects."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frontends.torch.proving import caught, proven
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Input, Program, Rank, Spec

WIDTHS, ROWS, MICRO = (4, 6, 5, 3, 7), 8, 4
Batch = dict[str, torch.Tensor]


class Chunk(nn.Module):
    """Stages of different widths, so that each must be told what comes."""

    def __init__(self, stages: range) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(
            {
                str(stage): nn.Sequential(nn.Linear(WIDTHS[stage], WIDTHS[stage + 1]), nn.Tanh())
                for stage in stages
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages.values():
            x = stage(x)
        return x


def squares(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (out - target).square().sum()


def spec(
    kind: Any, ranks: int, chunks: int = 1, told: frozenset[int] = frozenset(), **options: Any
) -> Spec:
    """``chunks`` stages on each rank. The stages ``told`` know their shapes."""
    stages = ranks * chunks

    def reference() -> Program:
        model = Chunk(range(stages))

        def step(batch: Batch) -> torch.Tensor:
            loss = squares(model(batch["x"]), batch["y"])
            loss.backward()
            return loss

        return Program(model, step)

    def parallel(rank: Rank) -> Program:
        own = range(rank.number, stages, ranks)
        models = [Chunk(range(stage, stage + 1)) for stage in own]
        meta = [
            torch.empty(ROWS // MICRO, WIDTHS[stage], requires_grad=stage > 0)
            for stage in range(stages + 1)
        ]
        made = [
            PipelineStage(
                model,
                stage,
                stages,
                torch.device("cpu"),
                **(
                    {"input_args": meta[stage], "output_args": meta[stage + 1]}
                    if stage in told
                    else {}
                ),
            )
            for stage, model in zip(own, models, strict=True)
        ]
        schedule = kind(made if chunks > 1 else made[0], MICRO, loss_fn=squares, **options)

        def step(batch: Batch) -> torch.Tensor | None:
            given = (batch["x"],) if rank.number == 0 else ()
            if rank.number < ranks - 1:
                schedule.step(*given)
                return None
            losses: list[torch.Tensor] = []
            schedule.step(*given, target=batch["y"], losses=losses)
            return torch.stack(losses).sum()

        return Program(models if chunks > 1 else models[0], step)

    batch = {"x": Input((ROWS, WIDTHS[0])), "y": Input((ROWS, WIDTHS[stages]))}
    return Spec(reference, parallel, {"pp": ranks}, batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ranks", "chunks"),
    [
        (ScheduleGPipe, 2, 1),
        (Schedule1F1B, 2, 1),
        (Schedule1F1B, 4, 1),
        (ScheduleInterleaved1F1B, 2, 2),
    ],
)
def test_stages_tell_each_other(kind: Any, ranks: int, chunks: int) -> None:
    proven(spec(kind, ranks, chunks, scale_grads=False))


@pytest.mark.slow
def test_gradients_of_a_sum_divided_as_of_a_mean() -> None:
    report = caught(spec(ScheduleGPipe, 2), "schedule.step(", "PIT101")
    assert "every element is 1/4 times what it should be" in (report.findings[0].cause or "")


@pytest.mark.parametrize("told", [frozenset({0}), frozenset({1})])
def test_all_infer_if_one_has_to(told: frozenset[int]) -> None:
    """The stages vote: one that knows its shapes takes part, too."""
    traces = record(spec(ScheduleGPipe, 2, told=told, scale_grads=False), "parallel", 2)
    plain = record(spec(ScheduleGPipe, 2, told=frozenset({0, 1})), "parallel", 2)
    assert [_communication(trace) for trace in traces] == [_communication(each) for each in plain]


def _communication(trace: Any) -> list[str]:
    return [event.operator for event in trace.events if event.group]


def test_a_stage_that_is_on_no_rank() -> None:
    """Rank 1 runs the first stage, too, so that its shapes never come."""
    right = spec(ScheduleGPipe, 2)

    def parallel(rank: Rank) -> Program:
        return right.parallel(Rank(0, rank.mesh, rank.coordinate))

    with pytest.raises(PlanError):
        record(Spec(right.reference, parallel, right.mesh, right.batch), "parallel", 2)
