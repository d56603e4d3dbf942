"""Tensor parallelism: written by hand as Megatron does, by functional collectives, and by
DTensor.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from frontends.torch.checking import check
from frontends.torch.parallelism.regions import FromRanks, ToRanks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from pitcheck.frontends.torch.program import Input, Program, Rank, Spec

WIDTH, HIDDEN, VOCABULARY, LENGTH = 8, 16, 12, 6


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        return self.down(nn.functional.silu(self.up(x)))


def feed_forward() -> Program:
    model = FeedForward()

    def step(batch):
        loss = (model(batch["x"] * 2) ** 2).sum()
        loss.backward()
        return loss

    return Program(model, step)


class ParallelFeedForward(nn.Module):
    def __init__(self, members: int, functional_too: bool) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN // members)
        self.down = nn.Linear(HIDDEN // members, WIDTH)
        self.functional_too = functional_too

    def forward(self, x):
        hidden = nn.functional.linear(
            nn.functional.silu(self.up(ToRanks.apply(x))), self.down.weight
        )
        if self.functional_too:
            return functional.all_reduce(hidden, "sum", dist.group.WORLD) + self.down.bias
        return FromRanks.apply(hidden) + self.down.bias


def test_megatron_style() -> None:
    def parallel(rank: Rank) -> Program:
        model = ParallelFeedForward(2, False)

        def step(batch):
            x = nn.Parameter(batch["x"] * 2)
            loss = (model(x) ** 2).sum()
            loss.backward()
            return {"loss": loss, "x": x.grad}

        place = rank.coordinate["tp"] * HIDDEN // 2
        held = [(place, place + HIDDEN // 2)]
        return Program(
            model,
            step,
            parts={"up.weight": {0: held}, "up.bias": {0: held}, "down.weight": {1: held}},
        )

    def reference() -> Program:
        model = FeedForward()

        def step(batch):
            x = nn.Parameter(batch["x"] * 2)
            loss = (model(x) ** 2).sum()
            loss.backward()
            return {"loss": loss, "x": x.grad}

        return Program(model, step)

    traces = check(Spec(reference, parallel, {"tp": 2}, {"x": Input((4, WIDTH))}), outputs=True)
    assert [event.backward for event in traces[0].events if event.operator == "all_reduce"] == [
        False,
        True,
    ]
    assert next(result for result in traces[1].results if result.name == "down.weight").box == (
        ((0, 8),),
        ((8, 16),),
    )


def test_functional_in_forward() -> None:
    def parallel(rank: Rank) -> Program:
        model = ParallelFeedForward(2, True)

        def step(batch):
            with torch.no_grad():
                return {"out": model(batch["x"])}

        place = rank.coordinate["tp"] * HIDDEN // 2
        held = [(place, place + HIDDEN // 2)]
        return Program(
            model,
            step,
            parts={"up.weight": {0: held}, "up.bias": {0: held}, "down.weight": {1: held}},
        )

    def reference() -> Program:
        model = FeedForward()
        return Program(model, lambda batch: {"out": model(batch["x"])})

    check(Spec(reference, parallel, {"tp": 2}, {"x": Input((4, WIDTH))}), outputs=True)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, 2).transpose(1, 2)
            for layer in (self.wq, self.wk, self.wv)
        )
        q, k = rotated(q), rotated(k)
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


def rotated(x):
    angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float32), torch.tensor([0.5]))
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        [
            first * angles.cos() - second * angles.sin(),
            first * angles.sin() + second * angles.cos(),
        ],
        dim=-1,
    ).type_as(x)


class GatedFeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3, self.w2 = (
            nn.Linear(WIDTH, HIDDEN, bias=False),
            nn.Linear(WIDTH, HIDDEN, bias=False),
            nn.Linear(HIDDEN, WIDTH, bias=False),
        )

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.RMSNorm(WIDTH, eps=1e-5), Attention()
        self.norm, self.feed_forward = nn.RMSNorm(WIDTH, eps=1e-5), GatedFeedForward()

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.norm(x))


class Llama(nn.Module):
    def __init__(self, layers: int = 1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


TOKENS = {
    "tokens": Input((4, LENGTH), "int64", (0, VOCABULARY), split={0: "dp"}),
    "labels": Input((4, LENGTH), "int64", (0, VOCABULARY), split={0: "dp"}),
}


def trained(model: nn.Module, scale: float = 1.0):
    def step(batch):
        logits = model(batch["tokens"])
        loss = (
            nn.functional.cross_entropy(
                logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum"
            )
            * scale
        )
        loss.backward()
        return loss

    return step


def llama() -> Program:
    model = Llama()
    return Program(model, trained(model))


def split_layers(model: Llama, mesh, sequence: bool) -> None:
    parallelize_module(
        model,
        mesh,
        {
            "embedding": RowwiseParallel(
                input_layouts=Replicate(), output_layouts=Shard(1) if sequence else Replicate()
            ),
            **({"norm": SequenceParallel()} if sequence else {}),
            "head": ColwiseParallel(
                input_layouts=Shard(1) if sequence else Replicate(), output_layouts=Replicate()
            ),
        },
    )
    for layer in model.layers:
        inputs = {
            name: ColwiseParallel()
            for name in (
                "attention.wq",
                "attention.wk",
                "attention.wv",
                "feed_forward.w1",
                "feed_forward.w3",
            )
        }
        outputs = {
            name: RowwiseParallel(output_layouts=Shard(1) if sequence else Replicate())
            for name in ("attention.wo", "feed_forward.w2")
        }
        plan = {**inputs, **outputs}
        if sequence:
            for name in ("attention", "feed_forward"):
                plan[name] = PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
                )
            plan |= {"attention_norm": SequenceParallel(), "norm": SequenceParallel()}
        parallelize_module(layer, mesh, plan)


def tensor_parallel(sequence: bool) -> Spec:
    def parallel(rank: Rank) -> Program:
        model = Llama()
        split_layers(
            model, init_device_mesh("cpu", (rank.mesh["tp"],), mesh_dim_names=("tp",)), sequence
        )
        step = trained(model)

        def summed(batch):
            loss = step(batch)
            for parameter in model.parameters():
                if isinstance(parameter.grad, DTensor):
                    placements = [
                        Replicate() if not isinstance(place, Shard) else place
                        for place in parameter.grad.placements
                    ]
                    parameter.grad = parameter.grad.redistribute(placements=placements)
            return loss

        return Program(model, summed)

    return Spec(llama, parallel, {"dp": 1, "tp": 2}, TOKENS)


@pytest.mark.slow
@pytest.mark.nightly
def test_dtensor() -> None:
    check(tensor_parallel(False), outputs=True)


@pytest.mark.slow
def test_dtensor_with_sequence_parallelism() -> None:
    traces = check(tensor_parallel(True), outputs=True)
    operators = {event.operator for event in traces[0].events}
    assert {"all_gather", "reduce_scatter", "wait"} <= operators
    lines = [event.source for event in traces[0].events if event.backward]
    here = "tests/frontends/torch/parallelism/test_tensor_parallel.py:"
    assert sum(line.startswith(here) for line in lines) > 0.9 * len(lines)
