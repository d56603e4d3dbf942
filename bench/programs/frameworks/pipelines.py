"""Schedules of ``torch.distributed.pipelining``."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from frontends.torch.parallelism.test_schedules import Chunk, squares
from small import Batch, named
from torch.distributed import pipelining

from pitcheck.torch import Input, Program, Rank, Spec

WIDTH, MICRO = 4, 4
MISTAKES = ("gradients divided as of a mean", "a micro-batch left out")


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    schedule: str = "ScheduleGPipe",
    chunks: int = 1,
    rows: int = 8,
) -> Spec:
    """Return all stages on one device, and ``chunks`` of them on every rank."""
    named(MISTAKES, mistake)
    ranks = mesh["pp"]
    stages = ranks * chunks

    def reference() -> Program:
        model = Chunk(range(stages))

        def step(batch: Batch) -> torch.Tensor:
            loss = squares(model(batch["x"]), batch["y"])
            loss.backward()
            return loss

        return Program(model, step)

    def parallel(rank: Rank) -> Program:
        made, models = [], []
        for number in range(rank.number, stages, ranks):
            model = Chunk(range(number, number + 1))
            meta = torch.empty(rows // MICRO, WIDTH, requires_grad=number > 0)
            models.append(model)
            made.append(
                pipelining.PipelineStage(
                    model,
                    number,
                    stages,
                    torch.device("cpu"),
                    input_args=meta,
                    output_args=torch.empty(rows // MICRO, WIDTH, requires_grad=True),
                )
            )
        kind = getattr(pipelining, schedule)
        running = kind(
            made if chunks > 1 else made[0],
            MICRO,
            loss_fn=squares,
            scale_grads=mistake == "gradients divided as of a mean",
        )
        last = rank.number == (stages - 1) % ranks

        def step(batch: Batch) -> torch.Tensor | None:
            losses: list[torch.Tensor] = []
            x = (batch["x"],) if rank.number == 0 else ()
            if last:
                running.step(*x, target=batch["y"], losses=losses)
                kept = losses[1:] if mistake == "a micro-batch left out" else losses
                return torch.stack(kept).sum()
            running.step(*x)
            return None

        return Program(
            models if chunks > 1 else models[0],
            step,
            names=lambda name: name.partition(".")[2] if name[0].isdigit() else name,
        )

    return Spec(reference, parallel, mesh, {"x": Input((rows, WIDTH)), "y": Input((rows, WIDTH))})
