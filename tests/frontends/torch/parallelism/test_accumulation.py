"""Gradient accumulation where micro-batches and ranks have different numbers of tokens
that count.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, proven
from torch import nn

from pitcheck.torch import Input, Options, Part, Program, Rank, Spec, check

ROWS, LENGTH, WIDTH, CLASSES, MICRO = 8, 3, 4, 5, 2
Batch = dict[str, torch.Tensor]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 6), nn.GELU(), nn.Linear(6, CLASSES))


def losses(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the loss of every token that counts, and 0 for the others."""
    scores = model(batch["x"]).transpose(1, 2)
    return nn.functional.cross_entropy(scores, batch["labels"], reduction="none") * batch["mask"]


def reference() -> Program:
    model = network()

    def step(batch: Batch) -> torch.Tensor:
        model.zero_grad()
        loss = losses(model, batch).sum() / batch["mask"].sum()
        loss.backward()
        return loss

    return Program(model, step)


def of_whole_batch(part: Batch, tokens: torch.Tensor, model: nn.Module) -> torch.Tensor:
    return losses(model, part).sum() / tokens


def mean_of_means(part: Batch, _: torch.Tensor, model: nn.Module) -> torch.Tensor:
    return losses(model, part).sum() / part["mask"].sum() / (2 * MICRO)  # of its own tokens


def accumulating(
    loss_of: Callable[[Batch, torch.Tensor, nn.Module], torch.Tensor], everywhere: bool = True
) -> Callable[[Rank], Program]:
    """``everywhere``: the number of tokens is that of all ranks."""

    def parallel(_: Rank) -> Program:
        model = network()

        def step(batch: Batch) -> torch.Tensor:
            model.zero_grad()
            tokens = batch["mask"].sum()
            if everywhere:
                dist.all_reduce(tokens)
            parts = [
                dict(zip(batch, values, strict=True))
                for values in zip(*(batch[name].chunk(MICRO) for name in batch), strict=True)
            ]
            total = torch.zeros(())
            for part in parts:
                loss = loss_of(part, tokens, model)
                loss.backward()
                total += loss.detach()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            dist.all_reduce(total)
            return total

        return Program(model, step)

    return parallel


def spec(parallel: Callable[[Rank], Program]) -> Spec:
    split = {0: "dp"}
    batch = {
        "x": Input((ROWS, LENGTH, WIDTH), split=split),
        "labels": Input((ROWS, LENGTH), "int64", (0, CLASSES), split),
        "mask": Input((ROWS, LENGTH), "bool", split=split),
    }
    return Spec(reference, parallel, {"dp": 2}, batch)


def test_division_by_all_tokens() -> None:
    proven(spec(accumulating(of_whole_batch)))


@pytest.mark.slow
def test_mean_of_means() -> None:
    report = caught(spec(accumulating(mean_of_means)), "# of its own tokens", "PIT104")
    assert "is a term of a sum over dp and the 2 rounds of a loop" in report.findings[0].cause


def test_tokens_of_a_rank() -> None:
    caught(spec(accumulating(of_whole_batch, everywhere=False)), "/ tokens", "PIT104")


def collecting(ranks: int, way: str) -> Program:
    """Gradients are collected in buffers that stay, and summed over ranks after the last part.

    With "a shard", each rank has the sum of half the rows, and adds up what arrives of each part.
    """
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    weight = model.weight
    place = dist.get_rank() if ranks > 1 else 0
    rows = slice(place * WIDTH // ranks, (place + 1) * WIDTH // ranks)
    collected = torch.zeros_like(weight[rows] if "shard" in way else weight)

    def arrives(gradient: torch.Tensor) -> torch.Tensor:
        if ranks == 1 or "shard" not in way:
            return gradient
        part = torch.empty_like(collected)
        dist.reduce_scatter_tensor(part, gradient)
        return part

    def step(batch: Batch) -> torch.Tensor:
        collected.zero_()
        total = torch.zeros(())
        for number, x in enumerate(batch["x"].chunk(MICRO)):
            weight.grad = None
            loss = (x @ weight).square().mean() / MICRO
            loss.backward()
            total += loss.detach()
            if "scaled again" in way:
                collected.div_(ranks)  # what was there already, too
            late = "late" in way and number == MICRO - 1
            if late:
                dist.all_reduce(collected)
            scale = 1 if "scaled again" in way else ranks
            collected.add_(arrives(weight.grad / scale))
        if ranks > 1 and "shard" not in way and "late" not in way:
            dist.all_reduce(collected)
        if "shard" in way and ranks > 1:
            whole = torch.empty_like(weight)
            dist.all_gather_into_tensor(whole, collected)
            weight.grad = whole
        else:
            weight.grad = collected.clone()
        return total

    return Program(model, step)


@pytest.mark.parametrize(
    ("way", "verdict"),
    [
        ("whole", "equivalent"),
        ("a shard", "equivalent"),
        ("late: the last part is added after the sum", "mismatch"),
        ("a shard, scaled again", "mismatch"),
    ],
)
def test_gradients_that_are_collected(way: str, verdict: str) -> None:
    batch = {"x": Input((ROWS, WIDTH), split={0: "dp"})}
    outputs = {"loss": Part(mean="dp")}
    spec = Spec(
        lambda: collecting(1, "whole"), lambda _: collecting(2, way), {"dp": 2}, batch, outputs
    )
    assert check(spec, Options(seed=1, jobs=1, explain=False)).verdict == verdict
