"""Pipelines by sends and receives."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from frontends.torch.checking import check
from torch import nn

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.program import Input, Program, Rank, Spec
from pitcheck.frontends.torch.recording.record import record

BATCH = {"x": Input((4, 6))}


class Stages(nn.Module):
    def __init__(self, stages: range) -> None:
        super().__init__()
        self.stages = nn.ModuleDict(
            {str(stage): nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for stage in stages}
        )

    def forward(self, x):
        for stage in self.stages.values():
            x = stage(x)
        return x


def reference() -> Program:
    model = Stages(range(2))

    def step(batch):
        loss = (model(batch["x"]) ** 2).sum()
        loss.backward()
        return loss

    return Program(model, step)


def blocking(rank: Rank, micro: int = 2) -> Program:
    model = Stages(range(rank.number, rank.number + 1))

    def step(batch):
        losses = []
        for x in batch["x"].chunk(micro):
            if rank.number == 0:
                out = model(x)
                dist.send(out.detach(), 1)
                gradient = torch.empty_like(out)
                dist.recv(gradient, 1)
                out.backward(gradient)
            else:
                got = torch.empty(x.shape)
                dist.recv(got, 0)
                got.requires_grad_()
                loss = (model(got) ** 2).sum()
                loss.backward()
                dist.send(got.grad, 0)
                losses.append(loss.detach())
        return torch.stack(losses).sum() if losses else None

    return Program(model, step)


def batched(rank: Rank) -> Program:
    """Every rank sends and receives in one batch: the loss, and a part of it, go back and forth."""
    model = Stages(range(rank.number, rank.number + 1))
    other = 1 - rank.number

    def exchange(sent, received):
        operations = [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, received, other)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    def step(batch):
        x = batch["x"]
        first = torch.zeros(x.shape)
        out = model(x) if rank.number == 0 else torch.zeros(x.shape)
        exchange(out.detach(), first)
        gradient = torch.zeros(x.shape)
        loss = None
        if rank.number == 1:
            got = first.requires_grad_()
            loss = (model(got) ** 2).sum()
            loss.backward()
            exchange(got.grad, gradient)
        else:
            exchange(torch.zeros(x.shape), gradient)
            out.backward(gradient)
        return loss

    return Program(model, step)


def test_send_and_receive() -> None:
    traces = check(Spec(reference, blocking, {"pp": 2}, BATCH))
    assert [
        event.operator for event in traces[0].events if event.operator in ("send", "receive")
    ] == ["send", "receive"] * 2
    assert [result.name for result in traces[0].results if result.asked] == [
        "stages.0.0.weight",
        "stages.0.0.bias",
    ]


def test_batch() -> None:
    traces = check(Spec(reference, batched, {"pp": 2}, BATCH), idle=[((1, 0), 0), ((0, 1), 1)])
    assert all(
        [event.operator for event in trace.events if event.group] == ["send", "receive"] * 2
        for trace in traces
    )


def raising(rank: Rank) -> Program:
    model = Stages(range(1))

    def step(batch):
        if rank.number == 1:
            raise ValueError("no such thing")

    return Program(model, step)


def racing(rank: Rank) -> Program:
    model = Stages(range(1))

    def step(batch):
        x = batch["x"] * 1
        work = dist.all_reduce(x, async_op=True)
        y = x * 2
        work.wait()
        return {"y": y}

    return Program(model, step)


def overwriting(rank: Rank) -> Program:
    model = Stages(range(1))

    def step(batch):
        x, y = batch["x"] * 1, torch.empty(8, 6)
        work = dist.all_gather_into_tensor(y, x, async_op=True)
        x.zero_()
        work.wait()
        return {"y": y}

    return Program(model, step)


def dying(rank: Rank) -> Program:
    if rank.number:
        os._exit(3)
    return raising(rank)


def looking(rank: Rank) -> Program:
    model = Stages(range(1))
    return Program(model, lambda batch: {"y": batch["x"] * batch["x"].sum().item()})


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        (
            raising,
            PlanError,
            r"rank 1 of the parallel program: .*test_pipeline.py:\d+: ValueError: no such thing",
        ),
        (
            dying,
            PlanError,
            r"rank 1 of the parallel program: its process ended without an answer \(exit code 3\)",
        ),
        (
            racing,
            PlanError,
            r"rank 0 .* mul at .*test_pipeline.py:\d+ reads .* that the allreduce launched at .* "
            r"is still writing to",
        ),
        (
            overwriting,
            PlanError,
            r"rank 0 .* copy_ at .*test_pipeline.py:\d+ writes to .* that the allgather_base "
            r"launched at .* still reads",
        ),
        (
            looking,
            UnsupportedError,
            r"rank 0 .*test_pipeline.py:\d+: a number that is read from a tensor at "
            r".*test_pipeline.py:\d+ depends on .* and it flows back into a tensor",
        ),
    ],
)
def test_what_cannot_be_recorded(program, error, message) -> None:
    with pytest.raises(error, match=message):
        record(Spec(reference, program, {"pp": 2}, BATCH), "parallel", 2)
