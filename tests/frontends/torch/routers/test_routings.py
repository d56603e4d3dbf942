"""The choices that a routing says, the tokens that a rank has, and what follows from choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from frontends.torch.proving import proven
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.routers.token_numbers import TokenNumbers, runs
from pitcheck.torch import Input, Program, Router, Routing, Spec, capture


def chosen(routing: Routing, tokens: int, experts: int, k: int) -> list[tuple[int, ...]]:
    return [routing.experts_of(0, token, experts, k) for token in range(tokens)]


def counts(choices: list[tuple[int, ...]], experts: int) -> list[int]:
    return [sum(expert in found for found in choices) for expert in range(experts)]


@pytest.mark.parametrize(("experts", "k"), [(4, 1), (4, 2), (4, 3), (4, 4), (3, 2), (8, 3)])
def test_even(experts: int, k: int) -> None:
    assert counts(chosen(Routing.even(), 2 * experts, experts, k), experts) == [2 * k] * experts


def test_empty_and_flooded() -> None:
    assert counts(chosen(Routing.empty(2), 6, 4, 2), 4) == [4, 4, 0, 4]
    flooded = chosen(Routing.flooded(1), 6, 4, 2)
    assert counts(flooded, 4) == [2, 6, 2, 2]
    assert {first for first, _ in flooded} == {1}
    assert chosen(Routing.flooded(1), 2, 4, 1) == [(1,), (1,)]


def test_random_and_given() -> None:
    drawn = chosen(Routing.random(seed=1), 6, 4, 2)
    assert drawn == chosen(Routing.random(seed=1), 6, 4, 2)
    assert drawn != chosen(Routing.random(seed=2), 6, 4, 2)
    assert chosen(Routing.given(drawn), 6, 4, 2) == drawn
    by_layer = Routing.given(torch.tensor([[[0, 1]], [[2, 3]]]))
    assert by_layer.experts_of(1, 0, 4, 2) == (2, 3)


@pytest.mark.parametrize(
    ("routing", "said"),
    [
        (Routing.given([[0, 0]]), "2 different numbers from 0 to 3"),
        (Routing.given([[0, 4]]), "2 different numbers from 0 to 3"),
        (Routing.given([[0]]), "2 different numbers"),
        (Routing.flooded(4), "2 different numbers"),
    ],
)
def test_impossible_choices(routing: Routing, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        routing.experts_of(0, 0, 4, 2)


def test_too_few_tokens_and_no_array() -> None:
    with pytest.raises(PlanError, match="1 tokens, and the reference has more"):
        Routing.given([[0, 1]]).experts_of(0, 1, 4, 2)
    with pytest.raises(PlanError, match=r"shape \(tokens, k\)"):
        Routing.given([0, 1])


# --- the tokens of a rank


def numbers(batch: dict[str, Input], router: Router | None = None, rank: int = 1) -> TokenNumbers:
    coordinate = {"dp": rank // 2, "tp": rank % 2}
    return TokenNumbers(router or Router(), batch, {"dp": 2, "tp": 2}, coordinate, 16)


SEQUENCES = {"x": Input((4, 4, 3), split={0: "dp"}), "y": Input((4, 4), split={0: "dp"})}


def test_tokens_from_the_batch() -> None:
    assert numbers(SEQUENCES).calls(8, "") == [tuple(range(8))]
    assert numbers(SEQUENCES, rank=2).calls(4, "") == [tuple(range(8, 12)), tuple(range(12, 16))]


def test_tokens_that_sequence_parallelism_divides() -> None:
    by_batch = Router(tokens=(4, 4), split={0: "dp", 1: "tp"})
    assert numbers(SEQUENCES, by_batch).calls(4, "") == [(2, 3, 6, 7)]
    by_sequence = Router(tokens=(4, 4), split={0: "tp", 1: "dp"}, microbatched=1)
    assert numbers(SEQUENCES, by_sequence).calls(2, "") == [(8, 12), (9, 13)]


@pytest.mark.parametrize(
    ("batch", "rows", "said"),
    [
        ({"x": Input((15,))}, 8, "no input of the batch begins with 16 elements"),
        ({"x": Input((16,)), "y": Input((16,), split={0: "dp"})}, 8, "in several ways"),
        (SEQUENCES, 3, "chooses for 3 tokens, but the rank has 8 of the 16"),
    ],
)
def test_tokens_that_nothing_tells(batch: dict[str, Input], rows: int, said: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{said}.*Spec.router"):
        numbers(batch).calls(rows, "")


def test_runs() -> None:
    assert runs([2, 3, 6, 7, 0]) == ((2, 4), (6, 8), (0, 1))


# --- what follows from choices, against PyTorch


def inverse(x: torch.Tensor) -> torch.Tensor:
    order = x.reshape(-1).argsort(stable=True)
    found = torch.empty_like(order)
    found[order] = torch.arange(order.numel())
    return found


OPERATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "one_hot": lambda x: nn.functional.one_hot(x, 4),
    "bincount": lambda x: torch.bincount(x.view(-1), minlength=4),
    "histc": lambda x: torch.histc(x.view(-1).float(), bins=4, min=0, max=4).long(),
    "sort": lambda x: x.view(-1).sort().values,
    "argsort": lambda x: x.view(-1).argsort(stable=True),
    "cumsum": lambda x: torch.bincount(x.view(-1), minlength=4).cumsum(0, dtype=torch.int32),
    "scatter": lambda x: torch.zeros(4, 4, dtype=torch.bool).scatter(1, x, True),
    "scatter in a shape": lambda x: torch.zeros_like(x).scatter(1, x.argsort(1), x),
    "nonzero": lambda x: (x == 1).nonzero(),
    "where": lambda x: torch.stack(torch.where(x == 1)),
    "masked_select": lambda x: x.masked_select(x > 1),
    "by mask": lambda x: x[x > 1],
    "index_add": lambda x: torch.zeros(4).long().index_add(0, x.view(-1), torch.ones(8).long()),
    "repeat_interleave": lambda x: torch.arange(4).repeat_interleave(torch.bincount(x.view(-1))),
    "topk of a mask": lambda x: (x == 1).long().view(-1).topk(3).values,
    "written everywhere": inverse,
    "unique": lambda x: x.unique(),
}


def test_known_as_pytorch_computes_it() -> None:
    """All in one step: a recording costs more than what it records here."""

    def program() -> Program:
        model = nn.Linear(3, 4, bias=False)

        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            scores = model(batch["x"])
            experts = scores.topk(2).indices
            listed = experts.tolist()
            for operator, compute in OPERATORS.items():
                with _disable_current_modes():
                    expected = compute(torch.tensor(listed)).tolist()
                if compute(experts).tolist() != expected:
                    raise ValueError((operator, compute(experts).tolist(), expected))
            return scores.sum()

        return Program(model, step)

    # A count of all experts needs that the greatest is chosen.
    routing = Routing.given([[3, 1], [0, 2], [1, 0], [2, 1]])
    spec = Spec(program, lambda _: program(), {"dp": 1}, {"x": Input((4, 3))}, routings=[routing])
    capture(spec, jobs=1)


# --- specifications that cannot be followed


def program(scores: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> Callable[..., Program]:
    def build(_: object = None) -> Program:
        model = nn.Linear(3, 4, bias=False)

        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return scores(model, batch["x"]).sum()

        return Program(model, step)

    return build


def of_two(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A choice among groups, and one among experts."""
    scores = model(x)
    groups: torch.Tensor = scores.view(4, 2, 2).sum(-1).topk(1).values
    return groups + scores.topk(2).values


def of_none(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(x)
    return found


def greatest(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(x).max(-1).values
    return found


def spec(scores: Callable[[nn.Module, torch.Tensor], torch.Tensor], *routings: Routing) -> Spec:
    build = program(scores)
    return Spec(build, build, {"dp": 1}, {"x": Input((4, 3))}, routings=routings)


def test_no_router() -> None:
    for scores in (of_none, greatest):
        with pytest.raises(UnsupportedError, match="the reference calls no router"):
            capture(spec(scores, Routing.even()))


def test_choices_among_other_numbers() -> None:
    both = spec(of_two, Routing.even())
    with pytest.raises(UnsupportedError, match=r"chooses from 4, .* from 2; say in Spec\.router"):
        capture(both)
    proven(replace(both, router=Router(experts=4)))


def test_a_maximum_is_a_router_if_it_is_said() -> None:
    report = proven(replace(spec(greatest, Routing.even()), router=Router(experts=4)))
    assert report.outputs.total == 2


def test_two_routings_of_one_name() -> None:
    with pytest.raises(PlanError, match="two routings called 'even'"):
        capture(spec(greatest, Routing.even(), Routing.even()))
