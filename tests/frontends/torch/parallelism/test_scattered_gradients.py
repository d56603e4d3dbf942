"""Gradients and parameters in flat buffers, of which every rank has a stretch that begins in the
middle of a row: as Megatron's distributed optimizer has them, by hand.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, check_at_one_mesh, proven
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, FEATURES, CLASSES, GAP = 4, 3, 5, 1
Batch = dict[str, torch.Tensor]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 3), nn.Tanh(), nn.Linear(3, CLASSES, bias=False))


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = (model(batch["x"]) - batch["y"]).square().mean()
    return loss


def reference() -> Program:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def step(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    return Program(model, step, optimizer)


class Flat:
    """Parameters lie in a buffer, each followed by a gap; a rank steps its half of the buffer."""

    def __init__(self, model: nn.Module, rank: int, ranks: int) -> None:
        self.parameters = dict(model.named_parameters())
        size = sum(one.numel() + GAP for one in self.parameters.values())
        size += -size % ranks
        self.data, self.gradients = torch.zeros(size), torch.zeros(size)
        self.half = size // ranks
        self.first, self.ranks = rank * self.half, ranks
        self.whole: dict[str, torch.Tensor] = {}
        self.scattered: dict[str, tuple[int, int]] = {}
        self.shards: list[torch.Tensor] = []
        self.parts: list[tuple[torch.Tensor, int, int]] = []
        begin = 0
        for name, one in self.parameters.items():
            end = begin + one.numel()
            self.data[begin:end].copy_(one.detach().reshape(-1))
            one.data = self.data[begin:end].view_as(one)
            self.whole[name] = self.gradients[begin:end].view_as(one)
            one.main_grad = self.whole[name]  # type: ignore[attr-defined]
            first, stop = (
                min(max(place - begin, 0), one.numel())
                for place in (self.first, self.first + self.half)
            )
            self.scattered[name] = first, stop
            if first < stop:
                self.shards.append(one.data.view(-1)[first:stop])
                self.parts.append((self.whole[name], first, stop))
            begin = end + GAP
        self.optimizer = torch.optim.SGD(self.shards, lr=0.1, momentum=0.5)

    def own(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer[self.first : self.first + self.half]

    def scatter(self) -> None:
        for name, one in self.parameters.items():
            if one.grad is not None:
                self.whole[name].copy_(one.grad)
                one.grad = None
        self.gradients /= self.ranks
        dist.reduce_scatter_tensor(self.own(self.gradients), self.gradients)

    def gather(self) -> None:
        dist.all_gather_into_tensor(self.data, self.own(self.data))

    def step(self) -> None:
        self.scatter()
        for shard, (gradient, first, stop) in zip(self.shards, self.parts, strict=True):
            shard.grad = gradient.view(-1)[first:stop]
        self.optimizer.step()
        self.gather()


class NotGathered(Flat):
    """Ranks keep the old parameters of the others."""

    def gather(self) -> None:
        pass


class NotDivided(Flat):
    """Gradients are summed."""

    def scatter(self) -> None:
        self.ranks = 1
        super().scatter()


class Neighbours(Flat):
    """Each shard is stepped by the gradient one element further."""

    def step(self) -> None:
        own = self.parts
        self.parts = [
            (gradient, first - (first > 0), stop - (first > 0)) for gradient, first, stop in own
        ]
        super().step()
        self.parts = own


class GapRead(Flat):
    """Memory behind the last parameter changes the step."""

    def gather(self) -> None:
        super().gather()
        one = self.parameters["2.weight"]
        with torch.no_grad():
            one.add_(self.data[-1])


def spec(
    kind: type[Flat], stated: Callable[[Flat], dict[str, tuple[int, int]]] | None = None
) -> Spec:
    def parallel(rank: Rank) -> Program:
        model = network()
        flat = kind(model, rank.number, rank.mesh["dp"])

        def step(batch: Batch) -> torch.Tensor:
            flat.gradients.zero_()
            loss = loss_of(model, batch)
            loss.backward()
            flat.step()
            return loss

        said = flat.scattered if stated is None else stated(flat)
        return Program(model, step, flat.optimizer, scattered=said)

    split = {0: "dp"}
    batch = {"x": Input((ROWS, FEATURES), split=split), "y": Input((ROWS, CLASSES), split=split)}
    return Spec(reference, parallel, {"dp": 2}, batch, {"loss": Part(mean="dp")})


def test_a_step_of_stretches_is_proven() -> None:
    report = proven(spec(Flat))
    assert report.outputs.total > 6


@pytest.mark.slow
def test_a_sum_for_a_mean_is_caught_at_its_line() -> None:
    caught(spec(NotDivided), "dist.reduce_scatter_tensor", "PIT101")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [NotGathered, Neighbours])
def test_a_mistake_is_a_mismatch(kind: type[Flat]) -> None:
    report = check_at_one_mesh(spec(kind))
    assert report.verdict == "mismatch", report.findings


@pytest.mark.slow
def test_what_lies_between_parameters_has_no_counterpart_if_it_is_read() -> None:
    report = check_at_one_mesh(spec(GapRead))
    assert report.verdict == "inconclusive", report.findings
    assert "the reference has no such state" in report.findings[0].title


def test_elements_that_no_rank_has_are_refused() -> None:
    def short(flat: Flat) -> dict[str, tuple[int, int]]:
        return {
            name: (first, max(first, stop - 1)) for name, (first, stop) in flat.scattered.items()
        }

    report = check_at_one_mesh(spec(Flat, short))
    assert report.verdict == "inconclusive", report.findings
    assert "no rank has element" in str(report.findings[0].title)


@pytest.mark.slow
def test_a_gradient_that_no_rank_has_is_never_proven() -> None:
    report = check_at_one_mesh(spec(Flat, lambda flat: dict.fromkeys(flat.scattered, (0, 0))))
    assert report.verdict != "equivalent", report.findings


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"0.weight": (4, 99)}, "the elements 4 to 99 of the gradient of '0.weight', which has 9"),
        ({"0.wait": (0, 4)}, "Program.scattered names '0.wait'"),
    ],
)
def test_what_cannot_be_is_an_error(said: dict[str, tuple[int, int]], message: str) -> None:
    report = check_at_one_mesh(spec(Flat, lambda _: said))
    assert report.verdict == "invalid"
    assert message in str(report.findings[0]), report.findings
