"""Single-device modules, and collectives called by hand."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from frontends.torch.checking import CLOSE, check
from frontends.torch.replay import difference, truth
from torch import nn

from pitcheck.frontends.torch.program import Input, Program, Rank, Spec
from pitcheck.frontends.torch.recording.record import record


def squares(model: nn.Module, scale: float = 1.0):
    def step(batch):
        loss = ((model(batch["x"]) - batch["y"]) ** 2).sum() * scale
        loss.backward()
        return loss

    return step


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 12), nn.GELU(approximate="tanh"), nn.LayerNorm(12), nn.Linear(12, 4)
    )


BATCH = {"x": Input((4, 8), split={0: "dp"}), "y": Input((4, 4), split={0: "dp"})}


def reference() -> Program:
    model = mlp()
    return Program(model, squares(model))


def reduced(reduce) -> Spec:
    def parallel(rank: Rank) -> Program:
        model = mlp()
        inner = squares(model)

        def step(batch):
            loss = inner(batch)
            for parameter in model.parameters():
                reduce(parameter)
            return loss

        return Program(model, step)

    return Spec(reference, parallel, {"dp": 2}, BATCH)


def test_in_place_all_reduce() -> None:
    traces = check(reduced(lambda parameter: dist.all_reduce(parameter.grad)))
    assert [
        event.group for trace in traces for event in trace.events if event.operator == "all_reduce"
    ] == [(0, 1)] * 12
    assert {event.module for event in traces[0].events if event.operator == "addmm.default"} == {
        "0",
        "3",
    }


def test_asynchronous_all_reduce() -> None:
    check(reduced(lambda parameter: dist.all_reduce(parameter.grad, async_op=True).wait()))


def test_functional_all_reduce() -> None:
    def reduce(parameter):
        parameter.grad = functional.all_reduce(parameter.grad, "sum", dist.group.WORLD)

    check(reduced(reduce))


def test_scatter_and_gather() -> None:
    def reduce(parameter):
        flat = nn.functional.pad(parameter.grad.flatten(), (0, parameter.numel() % 2))
        part = torch.empty(flat.numel() // 2)
        dist.reduce_scatter_tensor(part, flat)
        dist.all_gather_into_tensor(flat, part)
        parameter.grad.copy_(flat[: parameter.numel()].view_as(parameter))

    check(reduced(reduce))


def test_the_same_for_any_number_of_processes() -> None:
    spec = reduced(lambda parameter: dist.all_reduce(parameter.grad))
    assert record(spec, "parallel", 1) == record(spec, "parallel", 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.norm = nn.RMSNorm(8, eps=1e-5)
        self.qkv = nn.Linear(8, 24, bias=False)
        self.out = nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 10, bias=False)
        self.register_buffer("mask", torch.full((6, 6), float("-inf")).triu(1), persistent=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = (
            part.view(2, 6, 2, 4).transpose(1, 2)
            for part in self.qkv(self.norm(x)).split(8, dim=-1)
        )
        scores = q @ k.transpose(-1, -2) / 2 + self.mask
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 6, 8)
        return self.head(x + self.out(mixed))


def attention() -> Program:
    model = Block()

    def step(batch):
        loss = nn.functional.cross_entropy(
            model(batch["tokens"]).flatten(0, 1), batch["labels"].flatten()
        )
        loss.backward()
        return loss

    return Program(model, step)


def test_attention() -> None:
    spec = Spec(
        attention,
        lambda rank: attention(),
        {"dp": 1},
        {"tokens": Input((2, 6), "int64", (0, 10)), "labels": Input((2, 6), "int64", (0, 10))},
    )
    true = truth(spec)
    trace = record(spec, "reference", 1)
    assert difference(trace, true.tensors, true.results) < CLOSE
    lines = {
        event.source
        for event in trace[0].events
        if event.backward and event.operator == "_softmax_backward_data.default"
    }
    assert len(lines) == 1 and next(iter(lines)).split(":")[0].endswith("test_plain.py")
