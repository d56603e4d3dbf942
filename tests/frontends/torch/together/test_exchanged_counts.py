"""Experts on several ranks, which tell each other how many tokens they send, and for whom."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.regions import Exchange
from frontends.torch.parallelism.test_experts import (
    EXPERTS,
    OWN,
    RANKS,
    ROUTE,
    TOKENS,
    WIDTH,
    Batch,
    Experts,
    add_up,
    dense,
    in_place,
    training,
)
from frontends.torch.proving import check_at_one_mesh, proven

from pitcheck.torch import Input, Part, Program, Rank, Spec

Counts = Callable[[torch.Tensor], list[int]]
"""From the numbers of tokens for each rank to the numbers of tokens from each."""


def exchanged(sent: torch.Tensor) -> list[int]:
    received = torch.zeros_like(sent)
    dist.all_to_all_single(received, sent)
    return received.tolist()


def gathered(sent: torch.Tensor) -> list[int]:
    """Every rank sees all counts, and takes its column."""
    every = torch.zeros(RANKS * RANKS, dtype=sent.dtype)
    dist.all_gather_into_tensor(every, sent)
    return every.view(RANKS, RANKS)[:, dist.get_rank()].tolist()


def as_objects(sent: torch.Tensor) -> list[int]:
    every: list[list[int]] = [[]] * RANKS
    dist.all_gather_object(every, sent.tolist())
    return [counts[dist.get_rank()] for counts in every]


def not_transposed(sent: torch.Tensor) -> list[int]:
    every = torch.zeros(RANKS * RANKS, dtype=sent.dtype)
    dist.all_gather_into_tensor(every, sent)
    return every.view(RANKS, RANKS)[dist.get_rank()].tolist()


def in_reverse(sent: torch.Tensor) -> list[int]:
    return exchanged(sent)[::-1]


def of_the_first(counts: Counts) -> Counts:
    """The counts of the first call are kept for all others."""
    kept: list[list[int]] = []

    def once(sent: torch.Tensor) -> list[int]:
        if not kept:
            kept.append(counts(sent))
        return kept[0]

    return once


def by_counts(
    experts: range, counts: Counts, to: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[Experts, Batch], torch.Tensor]:
    """Tokens sorted by expert; ``to`` puts the names of experts in another order."""

    def forward(model: Experts, batch: Batch) -> torch.Tensor:
        route = batch["route"]
        order = route.argsort(stable=True)
        sent = torch.bincount(route, minlength=EXPERTS).view(RANKS, OWN).sum(1)
        received = counts(sent)
        got = Exchange.apply(batch["x"][order], sent.tolist(), received)
        names = torch.zeros(sum(received), dtype=route.dtype)
        dist.all_to_all_single(names, to(route[order]), received, sent.tolist())
        done = torch.zeros_like(got)
        for number in experts:
            chosen = (names == number).nonzero()[:, 0]
            done = done.index_put((chosen,), model.experts[str(number)](got[chosen]))
        back = Exchange.apply(done, received, sent.tolist())
        return in_place(back, order, model.weights(batch))

    return forward


def spec(
    counts: Counts,
    route: list[int] = ROUTE,
    to: Callable[[torch.Tensor], torch.Tensor] = lambda names: names,
) -> Spec:
    def parallel(rank: Rank) -> Program:
        experts = range(OWN * rank.number, OWN * (rank.number + 1))
        return training(Experts(experts), by_counts(experts, counts, to), add_up)

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
@pytest.mark.parametrize("counts", [exchanged, gathered, as_objects])
def test_counts_are_exchanged(counts: Counts) -> None:
    proven(spec(counts))


ONE_SIDED = [0, 1, 1, 2, 1, 2, 3, 0]
"""Rank 0 sends 3 tokens and 1, and rank 1 sends 2 and 2."""


@pytest.mark.slow
@pytest.mark.parametrize("counts", [not_transposed, in_reverse])
def test_counts_of_others(counts: Counts) -> None:
    """The parts that are sent do not have the sizes that are received."""
    report = check_at_one_mesh(spec(counts, ONE_SIDED))
    assert report.verdict == "invalid", report.findings
    assert report.findings[0].code in ("PIT005", "PIT006"), report.findings


@pytest.mark.slow
def test_names_of_other_tokens() -> None:
    """Sizes fit, and what is computed with which expert does not."""
    report = check_at_one_mesh(spec(exchanged, ONE_SIDED, to=lambda names: names[[1, 0, 2, 3]]))
    assert report.verdict == "mismatch", report.findings


@pytest.mark.slow
def test_counts_of_another_route() -> None:
    """The second of two layers uses the counts of the first, whose route is another."""
    proven(two_layers(exchanged))
    report = check_at_one_mesh(two_layers(of_the_first(exchanged)))
    assert report.verdict == "invalid", report.findings


def two_layers(counts: Counts) -> Spec:
    """Tokens go to the experts of one route, and then to those of another."""
    right = spec(counts, ONE_SIDED)

    def other(batch: Batch) -> Batch:
        return {**batch, "route": 3 - batch["route"]}

    def reference() -> Program:
        return training(
            Experts(range(EXPERTS)),
            lambda model, batch: dense(model, batch) + dense(model, other(batch)),
        )

    def parallel(rank: Rank) -> Program:
        experts = range(OWN * rank.number, OWN * (rank.number + 1))
        layer = by_counts(experts, counts, lambda names: names)
        return training(
            Experts(experts),
            lambda model, batch: layer(model, batch) + layer(model, other(batch)),
            add_up,
        )

    return Spec(reference, parallel, right.mesh, right.batch, right.outputs)
