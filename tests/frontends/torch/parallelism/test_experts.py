"""Experts on several ranks: tokens go to them by all-to-all, in equal parts and by counts, and come
back weighted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.regions import Exchange
from frontends.torch.proving import proven, refuted
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec

WIDTH, EXPERTS, RANKS, TOKENS = 4, 4, 2, 4
"""Tokens of a rank."""
ROUTE = [0, 1, 1, 2, 3, 1, 0, 3]
"""The expert of every token."""
OWN = EXPERTS // RANKS
EVEN = [0, 1, 2, 3, 3, 2, 1, 0]
Batch = dict[str, torch.Tensor]
Weigh = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Experts(nn.Module):
    def __init__(self, experts: range) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleDict({str(number): nn.Linear(WIDTH, WIDTH) for number in experts})

    def weights(self, batch: Batch) -> torch.Tensor:
        """Return the router's weight for the expert of each token."""
        return self.router(batch["x"]).softmax(-1).gather(1, batch["route"][:, None])


def training(
    model: Experts,
    forward: Callable[[Experts, Batch], torch.Tensor],
    shared: Callable[[Experts], None] = lambda _: None,
) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        loss = (forward(model, batch) - batch["y"]).square().sum()
        loss.backward()
        shared(model)
        return loss

    return Program(model, step)


def dense(model: Experts, batch: Batch) -> torch.Tensor:
    """Every token by its own expert, in place."""
    out = torch.zeros_like(batch["x"])
    for number, expert in model.experts.items():
        chosen = batch["route"] == int(number)
        out[chosen] = expert(batch["x"][chosen])
    return out * model.weights(batch)


def by_counts(
    rank: int, weigh: Weigh, route: list[int]
) -> Callable[[Experts, Batch], torch.Tensor]:
    """Tokens sorted by expert; ``weigh``: (what came back, in that order; the order; the
    weights).
    """
    mine = range(OWN * rank, OWN * (rank + 1))
    routes = [route[TOKENS * other : TOKENS * (other + 1)] for other in range(RANKS)]

    def forward(model: Experts, batch: Batch) -> torch.Tensor:
        order = batch["route"].argsort(stable=True)
        sent = torch.bincount(batch["route"], minlength=EXPERTS).view(RANKS, OWN).sum(1).tolist()
        received = [sum(expert in mine for expert in other) for other in routes]
        got = Exchange.apply(batch["x"][order], sent, received)
        names = torch.tensor(
            [expert for other in routes for expert in sorted(other) if expert in mine]
        )
        done = torch.zeros_like(got)
        for number, expert in model.experts.items():
            chosen = (names == int(number)).nonzero()[:, 0]
            done = done.index_put((chosen,), expert(got[chosen]))
        return weigh(Exchange.apply(done, received, sent), order, model.weights(batch))

    return forward


def in_place(back: torch.Tensor, order: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(back).index_put((order,), back) * weights


def in_sorted_order(back: torch.Tensor, order: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return back * weights[order]  # as sorted


def weights_of_others(
    back: torch.Tensor, order: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    return torch.zeros_like(back).index_put((order,), back * weights)  # not sorted


def add_up(model: Experts) -> None:
    dist.all_reduce(model.router.weight.grad)


def spec(weigh: Weigh, route: list[int] = ROUTE) -> Spec:
    def parallel(rank: Rank) -> Program:
        return training(
            Experts(range(OWN * rank.number, OWN * (rank.number + 1))),
            by_counts(rank.number, weigh, route),
            add_up,
        )

    batch = {name: Input((RANKS * TOKENS, WIDTH), split={0: "ep"}) for name in ("x", "y")}
    batch["route"] = Input((RANKS * TOKENS,), "int64", values=route, split={0: "ep"})
    return Spec(
        lambda: training(Experts(range(EXPERTS)), dense),
        parallel,
        {"ep": RANKS},
        batch,
        {"loss": Part(sum="ep")},
    )


@pytest.mark.slow
@pytest.mark.parametrize("route", [ROUTE, EVEN], ids=["parts of different sizes", "equal parts"])
def test_there_and_back(route: list[int]) -> None:
    proven(spec(in_place, route))


@pytest.mark.slow
def test_combined_in_another_order() -> None:
    refuted(spec(in_sorted_order), "loss")


@pytest.mark.slow
def test_weights_of_other_experts() -> None:
    refuted(spec(weights_of_others), "loss")
