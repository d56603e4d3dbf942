"""Experts spread over four ranks, and over two whose experts two others share; and experts that
take so many tokens and drop the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.regions import Exchange
from frontends.torch.parallelism.routed import (
    CHOICES,
    EXPERTS,
    TOKENS,
    WIDTH,
    Batch,
    Chosen,
    Experts,
    choose,
    dense,
    fill,
)
from frontends.torch.parallelism.test_routed_experts import RANDOM, refuted
from frontends.torch.proving import proven
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from pitcheck.torch import Input, Part, Program, Rank, Routing, Spec

HIDDEN = 4


class Pair(nn.Module):
    """An expert of two layers, of whose hidden rows a rank has some."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, hidden, bias=False)
        self.down = nn.Linear(hidden, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(self.up(x))
        return out


class Shared(torch.autograd.Function):
    """The same for all ranks of a group; their gradients are added up."""

    @staticmethod
    def forward(context: object, x: torch.Tensor, group: object) -> torch.Tensor:
        context.group = group  # type: ignore[attr-defined]
        return x

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)  # type: ignore[attr-defined]
        return gradient, None


class Added(torch.autograd.Function):
    """The sum over the ranks of a group."""

    @staticmethod
    def forward(context: object, x: torch.Tensor, group: object) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)  # type: ignore[arg-type]
        return x

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def model(experts: range, hidden: int) -> Experts:
    built = Experts([])
    built.before = nn.Linear(WIDTH, WIDTH, bias=False)
    built.experts = nn.ModuleDict({str(expert): Pair(hidden) for expert in experts})
    return built


Apply = Callable[[nn.Module, torch.Tensor, DeviceMesh], torch.Tensor]


def in_parts(expert: nn.Module, x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    group = mesh["tp"].get_group()
    out: torch.Tensor = Added.apply(expert(Shared.apply(x, group)), group)
    return out


def not_added(expert: nn.Module, x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """The terms of some hidden rows."""
    out: torch.Tensor = expert(Shared.apply(x, mesh["tp"].get_group()))
    return out


def gradient_not_added(expert: nn.Module, x: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    out: torch.Tensor = Added.apply(expert(x), mesh["tp"].get_group())
    return out


class Grid:
    """Tokens to the ranks of their experts; these are as many as ``experts`` divides."""

    def __init__(self, apply: Apply) -> None:
        self.apply = apply

    def __call__(
        self, built: Experts, x: torch.Tensor, chosen: Chosen, mesh: DeviceMesh
    ) -> torch.Tensor:
        own, group = len(built.experts), mesh["ep"].get_group()
        ranks = EXPERTS // own
        flat = chosen.experts.view(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=EXPERTS)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=group)
        sent, received = (part.view(-1, own).sum(1).tolist() for part in (counts, theirs))
        got = Exchanged.apply(x[order // CHOICES], sent, received, group)
        names = torch.arange(own).repeat(ranks).repeat_interleave(theirs)
        done = torch.zeros_like(got)
        for place, expert in enumerate(built.experts.values()):
            here = (names == place).nonzero()[:, 0]
            done = done.index_add(0, here, self.apply(expert, got[here], mesh))
        back = Exchanged.apply(done, received, sent, group)
        weighed = back * chosen.weights.view(-1)[order][:, None]
        return torch.zeros_like(x).index_add(0, order // CHOICES, weighed)


class Exchanged(Exchange):
    """Rows to the other ranks of a group, and gradients back."""

    @staticmethod
    def forward(  # type: ignore[override]
        context: object, x: torch.Tensor, sent: list[int], received: list[int], group: object
    ) -> torch.Tensor:
        context.said = sent, received, group  # type: ignore[attr-defined]
        out = x.new_empty(sum(received), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), received, sent, group=group)  # type: ignore[arg-type]
        return out

    @staticmethod
    def backward(  # type: ignore[override]
        context: object, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        sent, received, group = context.said  # type: ignore[attr-defined]
        return Exchanged.apply(gradient, received, sent, group), None, None, None


def training(built: Experts, forward: Callable[..., torch.Tensor], *further: object) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        x = built.before(batch["x"])
        loss = (forward(built, x, choose(built, x), *further) - batch["y"]).square().sum()
        loss.backward()
        fill(built)
        if further:
            group = further[0]["ep"].get_group()  # type: ignore[index]
            for shared in (built.router, built.before):
                dist.all_reduce(shared.weight.grad, group=group)
        return loss

    return Program(built, step)


def grid(ep: int, tp: int, apply: Apply = in_parts, routing: Routing = RANDOM) -> Spec:
    def parallel(rank: Rank) -> Program:
        mesh = init_device_mesh("cpu", (ep, tp), mesh_dim_names=("ep", "tp"))
        size, place = EXPERTS // ep, rank.coordinate["ep"]
        experts, part = range(size * place, size * (place + 1)), HIDDEN // tp
        program = training(model(experts, part), Grid(apply), mesh)
        rows = [(part * rank.coordinate["tp"], part * (rank.coordinate["tp"] + 1))]
        parts = {
            f"experts.{expert}.{name}.weight": {dim: rows}
            for expert in experts
            for name, dim in (("up", 0), ("down", 1))
        }
        return replace(program, parts=parts)

    return Spec(
        lambda: training(model(range(EXPERTS), HIDDEN), dense),
        parallel,
        {"ep": ep, "tp": tp},
        {name: Input((TOKENS, WIDTH), split={0: "ep"}) for name in ("x", "y")},
        {"loss": Part(sum="ep")},
        routings=[routing],
    )


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("ep", "tp"), [(4, 1), (2, 2)])
def test_experts_on_four_ranks(ep: int, tp: int) -> None:
    proven(grid(ep, tp))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("wrong", [not_added, gradient_not_added])
def test_parts_of_experts_that_nobody_adds_up(wrong: Apply) -> None:
    refuted(
        grid(2, 2, wrong),
        "loss",
        *(f"grad:experts.{expert}.{name}.weight" for expert in range(4) for name in ("up", "down")),
        "grad:before.weight",
    )


# --- experts that take so many tokens


def within(capacity: int, built: Experts, x: torch.Tensor) -> Chosen:
    """The choices of the whole batch, of which each expert serves the first."""
    chosen = choose(built, x)
    flat = chosen.experts.view(-1)
    place = nn.functional.one_hot(flat, EXPERTS).cumsum(0).gather(1, flat[:, None])[:, 0]
    kept = (place <= capacity).view_as(chosen.experts)
    return Chosen(chosen.scores, chosen.experts, chosen.weights * kept)


def slots(built: Experts, x: torch.Tensor, chosen: Chosen, capacity: int) -> torch.Tensor:
    """A fixed number of slots for each expert; those that stay free are zeros."""
    flat = chosen.experts.view(-1)
    place = nn.functional.one_hot(flat, EXPERTS).cumsum(0).gather(1, flat[:, None])[:, 0] - 1
    (kept,) = torch.where(place < capacity)
    slot = flat[kept] * capacity + place[kept]
    held = x.new_zeros(EXPERTS * capacity, WIDTH).index_add(0, slot, x[kept // CHOICES])
    pairs = zip(built.experts.values(), held.chunk(EXPERTS), strict=True)
    done = torch.cat([expert(rows) for expert, rows in pairs])
    weighed = done[slot] * chosen.weights.view(-1)[kept][:, None]
    return torch.zeros_like(x).index_add(0, kept // CHOICES, weighed)


def with_capacity(capacity: int, dropped: int, routing: Routing) -> Spec:
    def program(forward: Callable[[Experts, torch.Tensor], torch.Tensor]) -> Program:
        built = Experts(range(EXPERTS))

        def step(batch: Batch) -> torch.Tensor:
            loss = (forward(built, batch["x"]) - batch["y"]).square().sum()
            loss.backward()
            fill(built)
            return loss

        return Program(built, step)

    return Spec(
        lambda: program(lambda built, x: dense(built, x, within(capacity, built, x))),
        lambda _: program(lambda built, x: slots(built, x, choose(built, x), dropped)),
        {"dp": 1},
        {name: Input((TOKENS, WIDTH)) for name in ("x", "y")},
        routings=[routing],
    )


@pytest.mark.slow
@pytest.mark.parametrize("routing", [RANDOM, Routing.flooded(1)], ids=lambda routing: routing.name)
def test_tokens_beyond_the_capacity_are_dropped(routing: Routing) -> None:
    proven(with_capacity(3, 3, routing))


@pytest.mark.slow
def test_tokens_that_should_have_been_dropped() -> None:
    refuted(with_capacity(3, 4, Routing.flooded(1)), "loss")


@pytest.mark.slow
def test_a_capacity_that_no_token_exceeds() -> None:
    """Whether a capacity counts depends on the routing: of sixteen choices each expert has four."""
    proven(with_capacity(5, 4, Routing.even()))
