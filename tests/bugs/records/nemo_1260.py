"""Every rank has some of the experts, and computes them on the tokens of all ranks, which are
gathered; the gradient of a token is a sum over experts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from bugs.parallel import gathered, scattered
from bugs.record import Bug, Recorded
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec

TOKENS, WIDTH, EXPERTS = 4, 3, 2
Batch = dict[str, torch.Tensor]


class Gather(torch.autograd.Function):
    """The tokens of all ranks; their gradients are summed over the ranks and scattered."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return gathered(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return scattered(gradient)


class GatherSliced(Gather):
    """The same, where a rank takes the gradient that it has of its own tokens."""

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


class Scatter(torch.autograd.Function):
    """The sums of all ranks' terms, scattered; their gradients are gathered."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return scattered(x)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gathered(gradient)


class Mixture(nn.Module):
    """Every token through all experts, weighted by a softmax."""

    def __init__(self, own: range, gather: Any = None) -> None:
        super().__init__()
        self.own, self.gather = own, gather
        self.before, self.gate = (
            nn.Linear(WIDTH, WIDTH, bias=False),
            nn.Linear(WIDTH, EXPERTS, bias=False),
        )
        self.experts = nn.Parameter(torch.empty(len(own), WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        tokens = self.gather(x) if self.gather is not None else x
        weights = self.gate(tokens).softmax(-1)
        terms = [
            nn.functional.silu(tokens @ self.experts[place]) * weights[:, e : e + 1]
            for place, e in enumerate(self.own)
        ]
        total = torch.stack(terms).sum(0)
        return Scatter.apply(total) if self.gather is not None else total


def training(model: Mixture, **more: Any) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        loss = (model(batch["x"]) - batch["y"]).square().sum()
        loss.backward()
        if model.gather is not None:
            for parameter in (model.before.weight, model.gate.weight):
                dist.all_reduce(parameter.grad)
        return loss

    return Program(model, step, **more)


def program(ranks: int, wrong: bool) -> Spec:
    def parallel(rank: Rank) -> Program:
        count = EXPERTS // ranks
        first = rank.coordinate["ep"] * count
        model = Mixture(range(first, first + count), (GatherSliced if wrong else Gather).apply)
        return training(model, parts={"experts": {0: [(first, first + count)]}})

    batch = {name: Input((TOKENS, WIDTH), split={0: "ep"}) for name in ("x", "y")}
    return Spec(
        lambda: training(Mixture(range(EXPERTS))),
        parallel,
        {"ep": ranks},
        batch,
        {"loss": Part(sum="ep")},
    )


BUG = Bug(
    where="NeMo Automodel PR 1260",
    should="the derivative of the all-gather of tokens over ep is a reduce-scatter",
    was="a slice of the rank's own gradient: what other ranks' experts add is lost",
    codes=("PIT104",),
    says=("before.weight", "ep"),
    shows={"two ranks": Recorded(partial(program, 2))},
    silent={"one rank": Recorded(partial(program, 1))},
)
