"""Experts whose tokens a router chooses, as a specification says: proven under every routing, and
mistakes caught that only some routings show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.routed import (
    CHOICES,
    EXPERTS,
    RANKS,
    TOKENS,
    Chosen,
    Experts,
    Spread,
    choose,
    fill,
    own,
    spec,
)
from frontends.torch.proving import check_at_one_mesh, proven

from pitcheck.torch import Routing, Spec

RANDOM = Routing.random(seed=1)
ROUTINGS = (Routing.even(), Routing.empty(2), Routing.flooded(0), RANDOM)


def refuted(wrong: Spec, *outputs: str) -> None:
    """A mismatch whose first finding is at one of the outputs."""
    report = check_at_one_mesh(wrong)
    assert report.verdict == "mismatch", (report.verdict, report.findings)
    assert report.findings[0].output in outputs, report.findings


def test_without_a_token_dropped() -> None:
    report = proven(spec(RANDOM))
    assert any("routing 'random, seed 1'" in line for line in report.assumptions)


@pytest.mark.slow
@pytest.mark.parametrize("routing", ROUTINGS, ids=lambda routing: routing.name)
def test_every_routing(routing: Routing) -> None:
    proven(spec(routing))


@pytest.mark.slow
def test_several_routings_in_one_report() -> None:
    report = proven(spec(*ROUTINGS))
    assert report.outputs.total == 7 * len(ROUTINGS)


# --- mistakes on the way of tokens


def weights_unsorted(chosen: Chosen, _: torch.Tensor) -> torch.Tensor:
    return chosen.weights.view(-1)


def next_tokens(x: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    return x[(order // CHOICES + 1) % len(x)]


def names_of_neighbours(theirs: torch.Tensor, own: int) -> torch.Tensor:
    return (torch.arange(own).repeat(RANKS).repeat_interleave(theirs) + 1) % own


def names_not_transposed(theirs: torch.Tensor, own: int) -> torch.Tensor:
    """As if experts came first, then ranks."""
    counts = theirs.view(RANKS, own).t().reshape(-1)
    return torch.arange(own).repeat_interleave(RANKS).repeat_interleave(counts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(Spread(weigh=weights_unsorted), id="weights in another order"),
        pytest.param(Spread(tokens=next_tokens), id="the tokens beside"),
        pytest.param(Spread(names=names_of_neighbours), id="the expert beside"),
        pytest.param(Spread(names=names_not_transposed), id="counts not transposed"),
    ],
)
def test_tokens_on_a_wrong_way(wrong: Spread) -> None:
    refuted(spec(RANDOM, forward=wrong), "loss")


def test_counts_that_are_not_exchanged() -> None:
    """Ranks expect as many tokens as they send: right if routing is even, else they disagree."""
    to_the_second = Routing.given([[2, 3]] * TOKENS)
    report = check_at_one_mesh(spec(to_the_second, forward=Spread(counts=lambda counts: counts)))
    assert report.verdict == "invalid", report.findings
    assert "receive" in report.findings[0].title, report.findings


# --- mistakes in the scores: the choice is a stated assumption, and what it is made of is compared


def noisy(model: Experts, x: torch.Tensor) -> Chosen:
    """Other scores than the reference's, of which a choice says nothing."""
    scores = model.router(x).softmax(-1)
    experts = (scores + x[:, :EXPERTS]).topk(CHOICES, -1).indices
    weights = scores.gather(-1, experts)
    return Chosen(scores, experts, weights / weights.sum(-1, keepdim=True))


def of_the_token_before(model: Experts, x: torch.Tensor) -> Chosen:
    """The choices of other tokens, with the right weights."""
    scores = model.router(x).softmax(-1)
    experts = scores.roll(1, 0).topk(CHOICES, -1).indices
    weights = scores.gather(-1, experts)
    return Chosen(scores, experts, weights / weights.sum(-1, keepdim=True))


@pytest.mark.parametrize("wrong", [noisy, of_the_token_before])
def test_other_scores(wrong: object) -> None:
    refuted(spec(RANDOM, chosen=wrong), "scores:router")  # type: ignore[arg-type]


def twice_shifted(model: Experts, x: torch.Tensor) -> Chosen:
    """Choices that were exchanged after they were made: the scores are right."""
    chosen = choose(model, x)
    experts = chosen.experts.roll(1, 0)
    return Chosen(chosen.scores, experts, chosen.weights)


@pytest.mark.slow
def test_choices_exchanged_afterwards() -> None:
    refuted(spec(RANDOM, chosen=twice_shifted), "loss")


# --- losses of routers, and what all ranks have


def balance(chosen: Chosen, counts: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    """The share of tokens times the mean score, expert by expert, and the squared score sums."""
    shares = counts / (TOKENS * CHOICES)
    means = chosen.scores.sum(0) / TOKENS
    return EXPERTS * (shares * means).sum() * factor + chosen.scores.logsumexp(-1).square().sum()


def own_counts(chosen: Chosen) -> torch.Tensor:
    return torch.bincount(chosen.experts.view(-1), minlength=EXPERTS).float()


def all_counts(chosen: Chosen) -> torch.Tensor:
    counts = own_counts(chosen)
    dist.all_reduce(counts)
    return counts


def true_balance(chosen: Chosen) -> torch.Tensor:
    return balance(chosen, own_counts(chosen))


def spread_balance(chosen: Chosen) -> torch.Tensor:
    return balance(chosen, all_counts(chosen))


def twice_averaged(chosen: Chosen) -> torch.Tensor:
    return balance(chosen, all_counts(chosen), 1 / RANKS)


def of_own_tokens(chosen: Chosen) -> torch.Tensor:
    return balance(chosen, own_counts(chosen))


@pytest.mark.slow
def test_losses_and_a_shared_expert() -> None:
    proven(spec(RANDOM, extra=spread_balance, true_extra=true_balance, shared=True))


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [twice_averaged, of_own_tokens])
def test_wrong_losses(wrong: object) -> None:
    refuted(
        spec(RANDOM, extra=wrong, true_extra=true_balance),  # type: ignore[arg-type]
        "loss",
        "grad:router.weight",
    )


def router_alone(model: Experts) -> None:
    """The shared expert's gradient is that of the rank's own tokens."""
    dist.all_reduce(model.router.weight.grad)
    fill(model)


def not_the_router(model: Experts) -> None:
    if model.shared is not None:
        dist.all_reduce(model.shared.weight.grad)
    fill(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "output"),
    [(router_alone, "grad:shared.weight"), (not_the_router, "grad:router.weight")],
)
def test_gradients_not_added_up(wrong: object, output: str) -> None:
    refuted(spec(RANDOM, finish=wrong, shared=True), output)  # type: ignore[arg-type]


# --- what is left of an earlier call, computed again, or called more than once


def of_the_first_call() -> Callable[[Experts, torch.Tensor], Chosen]:
    """The choices of the first call of the step, with the scores of this one."""
    kept: dict[str, torch.Tensor] = {}

    def chosen(model: Experts, x: torch.Tensor) -> Chosen:
        now = choose(model, x)
        experts = kept.setdefault("experts", now.experts)
        weights = now.scores.gather(-1, experts)
        return Chosen(now.scores, experts, weights / weights.sum(-1, keepdim=True))

    return chosen


@pytest.mark.slow
def test_choices_of_the_first_call() -> None:
    refuted(spec(RANDOM, chosen=of_the_first_call()), "loss")


def recomputed(model: Experts, x: torch.Tensor, _: Chosen) -> torch.Tensor:
    out: torch.Tensor = checkpoint(
        lambda rows: Spread()(model, rows, choose(model, rows)), x, use_reentrant=False
    )
    return out


@pytest.mark.slow
def test_activation_checkpointing() -> None:
    report = proven(spec(RANDOM, forward=recomputed))
    assert report.outputs.total > 7


def in_micro_batches(rank: Rank, rows: Callable[[int], slice]) -> Program:
    model = Experts(own(rank.number))

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        total = torch.zeros(())
        for number in range(2):
            x, y = batch["x"][rows(number)], batch["y"][2 * number : 2 * number + 2]
            loss = (Spread()(model, x, choose(model, x)) - y).square().sum()
            loss.backward()
            total = total + loss.detach()
        add_up(model)
        return total

    return Program(model, step)


def test_a_router_that_is_called_for_every_micro_batch() -> None:
    right = replace(
        spec(RANDOM),
        parallel=lambda rank: in_micro_batches(rank, lambda n: slice(2 * n, 2 * n + 2)),
    )
    proven(right)


def test_a_router_that_sees_some_rows_twice() -> None:
    wrong = replace(
        spec(RANDOM), parallel=lambda rank: in_micro_batches(rank, lambda _: slice(0, 2))
    )
    report = check_at_one_mesh(wrong)
    assert report.verdict == "inconclusive"
    assert "has chosen for 2 tokens of 4 that the rank has" in report.findings[0].title


def test_tokens_declared_otherwise_than_they_are() -> None:
    """No place is believed: the scores of the tokens that are said to be there differ."""
    refuted(replace(spec(RANDOM), router=Router(tokens=(2, 4), split={1: "ep"})), "scores:router")


def least(model: Experts, x: torch.Tensor) -> Chosen:
    scores = model.router(x).softmax(-1)
    weights, experts = scores.topk(CHOICES, -1, largest=False)
    return Chosen(scores, experts, weights / weights.sum(-1, keepdim=True))


def three(model: Experts, x: torch.Tensor) -> Chosen:
    scores = model.router(x).softmax(-1)
    weights, experts = (part[:, :CHOICES] for part in scores.topk(CHOICES + 1, -1))
    return Chosen(scores, experts.contiguous(), weights / weights.sum(-1, keepdim=True))


@pytest.mark.parametrize("other", [least, three])
def test_choices_of_which_a_routing_says_nothing(other: object) -> None:
    report = check_at_one_mesh(spec(RANDOM, chosen=other))  # type: ignore[arg-type]
    assert report.verdict == "inconclusive"
    assert "a routing says no more than these" in report.findings[0].title
