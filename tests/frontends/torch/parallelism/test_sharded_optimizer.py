"""Optimizer state that is divided over data parallel ranks (ZeRO, first stage): by hand, and by
PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, proven
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from pitcheck.torch import Input, Part, Program, Rank, Spec, check

ROWS, FEATURES, CLASSES = 8, 6, 4
Batch = dict[str, torch.Tensor]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.GELU(), nn.Linear(4, CLASSES, bias=False))


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(batch["x"]), batch["labels"])
    loss.backward()
    return loss


def reference(clipped: bool = False) -> Program:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(batch: Batch) -> torch.Tensor:
        loss = loss_of(model, batch)
        if clipped:
            total = sum(parameter.grad.square().sum() for parameter in model.parameters())
            for parameter in model.parameters():
                parameter.grad *= (1 / total.sqrt()).clamp(max=1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Program(model, step, optimizer)


class Sharded:
    """Every rank steps some rows of each parameter, and has the state of these alone."""

    def __init__(self, model: nn.Module, rank: int, ranks: int) -> None:
        self.ranks, self.parameters = ranks, list(model.parameters())
        self.shards = [
            nn.Parameter(parameter.data.chunk(ranks)[rank]) for parameter in self.parameters
        ]
        self.sizes = [shard.numel() for shard in self.shards]
        self.optimizer = torch.optim.AdamW(self.shards, lr=0.01)

    def flat(self) -> torch.Tensor:
        """All gradients, those of one rank's rows after those of another's."""
        return torch.cat(
            [
                parameter.grad.chunk(self.ranks)[rank].reshape(-1)
                for rank in range(self.ranks)
                for parameter in self.parameters
            ]
        )

    def scatter(self) -> None:
        flat = self.flat()
        own = flat.new_empty(flat.numel() // self.ranks)
        dist.reduce_scatter_tensor(own, flat)
        for shard, gradient in zip(self.shards, (own / self.ranks).split(self.sizes), strict=True):
            shard.grad = gradient.view_as(shard)

    def gather(self) -> None:
        own = torch.cat([shard.detach().reshape(-1) for shard in self.shards])
        everything = own.new_empty(own.numel() * self.ranks)
        dist.all_gather_into_tensor(everything, own)
        for rank, theirs in enumerate(everything.chunk(self.ranks)):
            for parameter, rows in zip(self.parameters, theirs.split(self.sizes), strict=True):
                target = parameter.data.chunk(self.ranks)[rank]
                target.copy_(rows.view_as(target))

    def step(self) -> None:
        self.scatter()
        self.optimizer.step()
        self.gather()


def by_hand(kind: type[Sharded]) -> Callable[[Rank], Program]:
    def parallel(rank: Rank) -> Program:
        model = network()
        sharded = kind(model, rank.number, rank.mesh["dp"])

        def step(batch: Batch) -> torch.Tensor:
            loss = loss_of(model, batch)
            sharded.step()
            model.zero_grad()
            return loss

        return Program(model, step, sharded.optimizer)

    return parallel


def by_owner(rank: Rank) -> Program:
    model = network()
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.01
    )

    def step(batch: Batch) -> torch.Tensor:
        loss = loss_of(model, batch)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Program(model, step, optimizer)


def spec(parallel: Callable[[Rank], Program], clipped: bool = False) -> Spec:
    split = {0: "dp"}
    batch = {
        "x": Input((ROWS, FEATURES), split=split),
        "labels": Input((ROWS,), "int64", (0, CLASSES), split),
    }
    given = partial(reference, clipped)
    return Spec(given, parallel, {"dp": 2}, batch, {"loss": Part(mean="dp")})


class Stretches(Sharded):
    """Parameters lie one after the other, and every rank steps a stretch that ends within one."""

    def __init__(self, model: nn.Module, rank: int, ranks: int) -> None:
        self.ranks, self.parameters = ranks, list(model.parameters())
        sizes = [parameter.numel() for parameter in self.parameters]
        self.part, offset = sum(sizes) // ranks, 0
        self.start = rank * self.part
        self.buffer = torch.cat([parameter.data.reshape(-1) for parameter in self.parameters])
        self.shards, self.ends = [], []
        for parameter, size in zip(self.parameters, sizes, strict=True):
            parameter.data = self.buffer[offset : offset + size].view_as(parameter)
            first, last = max(self.start, offset), min(self.start + self.part, offset + size)
            if first < last:
                self.shards.append(nn.Parameter(self.buffer[first:last]))
                self.ends.append((first - self.start, last - self.start))
            offset += size
        self.optimizer = torch.optim.AdamW(self.shards, lr=0.01)

    def scatter(self) -> None:
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in self.parameters])
        own = flat.new_empty(self.part)
        dist.reduce_scatter_tensor(own, flat / self.ranks, async_op=True).wait()
        total = own.square().sum()
        dist.all_reduce(total)
        own *= (1 / total.sqrt()).clamp(max=1.0)
        for shard, (first, last) in zip(self.shards, self.ends, strict=True):
            shard.grad = own[first:last]

    def gather(self) -> None:
        own = self.buffer[self.start : self.start + self.part].clone()
        dist.all_gather_into_tensor(self.buffer, own)


class Turned(Stretches):
    """A stretch takes the gradients of the places beside its own."""

    def scatter(self) -> None:
        super().scatter()
        self.shards[-1].grad = self.shards[-1].grad.roll(1)


class Before(Stretches):
    """The stretches are gathered before they are stepped."""

    def step(self) -> None:
        self.scatter()
        self.gather()
        self.optimizer.step()


class Stale(Sharded):
    """The other ranks' rows are forgotten."""

    def gather(self) -> None:
        pass


class Misplaced(Sharded):
    """Gradients lie parameter by parameter, not rank by rank."""

    def flat(self) -> torch.Tensor:
        return torch.cat([parameter.grad.reshape(-1) for parameter in self.parameters])


class Summed(Sharded):
    """An optimizer that sums over ranks and forgets to divide for the mean."""

    def scatter(self) -> None:
        super().scatter()
        for shard in self.shards:
            shard.grad *= self.ranks  # as often as there are ranks


@pytest.mark.slow
def test_by_hand() -> None:
    proven(spec(by_hand(Sharded)))


@pytest.mark.slow
def test_stretches_of_one_buffer() -> None:
    proven(spec(by_hand(Stretches), clipped=True))


@pytest.mark.slow
def test_stretches_with_the_gradients_of_others() -> None:
    report = check(spec(by_hand(Turned), clipped=True))
    assert report.verdict == "mismatch", report.findings
    assert (report.findings[0].output or "").startswith("new:")


@pytest.mark.slow
def test_stretches_gathered_too_early() -> None:
    report = check(spec(by_hand(Before), clipped=True))
    assert report.verdict == "mismatch", report.findings
    assert (report.findings[0].output or "").startswith("new:0")


@pytest.mark.slow
def test_by_owner() -> None:
    proven(spec(by_owner))


@pytest.mark.slow
def test_parameters_not_gathered() -> None:
    report = caught(spec(by_hand(Stale)), "self.optimizer.step()", "PIT100", "PIT109")
    assert (report.findings[0].output or "").startswith("new:")


@pytest.mark.slow
def test_gradients_in_another_order() -> None:
    report = check(spec(by_hand(Misplaced)))
    assert report.verdict == "mismatch", report.findings
    assert (report.findings[0].output or "").startswith("new:exp_avg_sq:")


def test_gradients_not_divided() -> None:
    caught(spec(by_hand(Summed)), "shard.grad *= self.ranks", "PIT101")
