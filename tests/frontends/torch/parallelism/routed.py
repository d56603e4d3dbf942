"""Experts whose tokens a router chooses: on one device, and spread over ranks by counts, without a
token dropped. Every function is a step of the program that a mistake can replace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from frontends.torch.parallelism.regions import Exchange
from torch import nn

from pitcheck.torch import Input, Part, Program, Routing, Spec

WIDTH, EXPERTS, CHOICES, TOKENS, RANKS = 4, 4, 2, 8, 2
"""Tokens of the whole batch; choices of a token."""
Batch = dict[str, torch.Tensor]


class Experts(nn.Module):
    """The experts that a rank has, in ``experts`` by their numbers, and what every rank has."""

    def __init__(self, experts: Sequence[int], shared: bool = False) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleDict({str(e): nn.Linear(WIDTH, WIDTH, bias=False) for e in experts})
        self.shared = nn.Linear(WIDTH, WIDTH, bias=False) if shared else None


@dataclass(frozen=True)
class Chosen:
    """The choices of a rank's tokens: all scores, the experts, and the weights."""

    scores: torch.Tensor
    experts: torch.Tensor
    weights: torch.Tensor


def choose(model: Experts, x: torch.Tensor) -> Chosen:
    scores = model.router(x).softmax(-1)
    weights, experts = scores.topk(CHOICES, -1)
    return Chosen(scores, experts, weights / weights.sum(-1, keepdim=True))


def dense(model: Experts, x: torch.Tensor, chosen: Chosen) -> torch.Tensor:
    """All experts on one device, one after the other."""
    out = torch.zeros_like(x)
    for number, expert in model.experts.items():
        token, place = torch.where(chosen.experts == int(number))
        out = out.index_add(0, token, expert(x[token]) * chosen.weights[token, place][:, None])
    return out


def exchanged_counts(counts: torch.Tensor) -> torch.Tensor:
    """How many tokens every rank sends to each expert here, rank by rank."""
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    return theirs


def in_order(chosen: Chosen, order: torch.Tensor) -> torch.Tensor:
    return chosen.weights.view(-1)[order]


def names_of(theirs: torch.Tensor, own: int) -> torch.Tensor:
    """The expert here of every token that has come."""
    return torch.arange(own).repeat(RANKS).repeat_interleave(theirs)


def sent_tokens(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    return x[order // CHOICES]


@dataclass(frozen=True)
class Spread:
    """The steps of experts spread over ranks."""

    counts: Callable[[torch.Tensor], torch.Tensor] = exchanged_counts
    weigh: Callable[[Chosen, torch.Tensor], torch.Tensor] = in_order
    names: Callable[[torch.Tensor, int], torch.Tensor] = names_of
    tokens: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = sent_tokens

    def __call__(self, model: Experts, x: torch.Tensor, chosen: Chosen) -> torch.Tensor:
        own = len(model.experts)
        flat = chosen.experts.view(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=EXPERTS)
        theirs = self.counts(counts)
        sent, received = (part.view(-1, own).sum(1).tolist() for part in (counts, theirs))
        got = Exchange.apply(self.tokens(x, order), sent, received)
        names = self.names(theirs, own)
        done = torch.zeros_like(got)
        for place, expert in enumerate(model.experts.values()):
            here = (names == place).nonzero()[:, 0]
            done = done.index_add(0, here, expert(got[here]))
        back = Exchange.apply(done, received, sent)
        weighed = back * self.weigh(chosen, order)[:, None]
        return torch.zeros_like(x).index_add(0, order // CHOICES, weighed)


spread = Spread()
Forward = Callable[[Experts, torch.Tensor, Chosen], torch.Tensor]
Choose = Callable[[Experts, torch.Tensor], Chosen]
Extra = Callable[[Chosen], Any]
Finish = Callable[[Experts], None]


def nothing(_: Chosen) -> float:
    return 0.0


def fill(model: Experts) -> None:
    """An expert without tokens has a gradient of zeros, as an optimizer that needs one makes it."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def add_up(model: Experts) -> None:
    dist.all_reduce(model.router.weight.grad)
    if model.shared is not None:
        dist.all_reduce(model.shared.weight.grad)
    fill(model)


def training(
    model: Experts,
    forward: Forward,
    finish: Finish,
    chosen: Choose = choose,
    extra: Extra = nothing,
) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        x = batch["x"]
        choice = chosen(model, x)
        out = forward(model, x, choice)
        if model.shared is not None:
            out = out + model.shared(x)
        loss = (out - batch["y"]).square().sum() + extra(choice)
        loss.backward()
        finish(model)
        return loss

    return Program(model, step)


def own(rank: int, ranks: int = RANKS) -> range:
    return range(EXPERTS // ranks * rank, EXPERTS // ranks * (rank + 1))


def spec(
    *routings: Routing,
    forward: Forward = spread,
    finish: Finish = add_up,
    chosen: Choose = choose,
    extra: Extra = nothing,
    true_extra: Extra = nothing,
    shared: bool = False,
) -> Spec:
    return Spec(
        lambda: training(Experts(range(EXPERTS), shared), dense, fill, extra=true_extra),
        lambda rank: training(Experts(own(rank.number), shared), forward, finish, chosen, extra),
        {"ep": RANKS},
        {name: Input((TOKENS, WIDTH), split={0: "ep"}) for name in ("x", "y")},
        {"loss": Part(sum="ep")},
        routings=routings,
    )
