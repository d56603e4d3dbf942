"""Traces that are rewritten before they become plans: they compute what they did, and what was
wrong is still caught.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.checking import CLOSE
from frontends.torch.frameworks.test_torch_frameworks import PROGRAMS
from frontends.torch.parallelism.regions import FromRanks
from frontends.torch.proving import verdict
from frontends.torch.replay import difference, truth
from torch import nn

from pitcheck.frontends.torch.recording.record import record
from pitcheck.frontends.torch.rewrites.index_bounds import BOUNDARY, never_ignored, with_boundaries
from pitcheck.frontends.torch.rewrites.mean_gradients import SPREAD_MEAN, with_means
from pitcheck.frontends.torch.rewrites.split_flat_buffers import without_flat_buffers
from pitcheck.frontends.torch.trace import Trace
from pitcheck.torch import Input, Part, Program, Rank, Spec, assert_equivalent

WIDTH, VOCABULARY, ROWS = 12, 1000, 8


def rewritten(spec: Spec) -> list[Trace]:
    """The traces of the ranks, as plans are made of them."""
    bounds = {name: given.bounds for name, given in spec.batch.items() if given.bounds is not None}
    traces = without_flat_buffers(record(spec, "parallel", 2))
    return [with_means(never_ignored(with_boundaries(trace), bounds)) for trace in traces]


def same(spec: Spec) -> list[Trace]:
    """The rewritten traces, which have the gradients of the single-device program."""
    true, traces = truth(spec), rewritten(spec)
    assert (
        difference(
            traces,
            true.tensors,
            {key: value for key, value in true.results.items() if key[0] == "gradient"},
        )
        < CLOSE
    )
    return traces


def communicated(trace: Trace) -> list[tuple[str, int]]:
    """The collectives, with the number of elements that each is given."""
    return [
        (event.operator, torch.Size(trace.values[event.arguments[0].value].shape).numel())
        for event in trace.events
        if event.group
    ]


def test_fully_sharded_parameters_are_gathered_and_reduced_one_by_one() -> None:
    trace = same(PROGRAMS["FSDP2"]())[0]
    sizes = [size for operator, size in communicated(trace) if operator == "reduce_scatter"]
    assert len(sizes) == len([result for result in trace.results if result.kind == "gradient"])
    assert sorted(sizes) == sorted(
        2 * torch.Size(trace.values[result.value].shape).numel()
        for result in trace.results
        if result.kind == "gradient"
    )


# --- buckets of gradients


class Pair(nn.Module):
    """Two matrices of one size, and a bias of another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def stepped(model: nn.Module, finish: Callable[[], None] = lambda: None) -> Program:
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = (model(batch["x"]) ** 2).sum()
        loss.backward()
        finish()
        return loss

    return Program(model, step)


Order = Callable[[Rank, list[Any]], list[Any]]


def as_it_is(rank: Rank, parameters: list[Any]) -> list[Any]:
    return parameters


def bucketed(joined: Order = as_it_is, cut: Order = as_it_is) -> Spec:
    """Gradients are added up in one bucket, in which a rank joins and cuts them in an order."""

    def parallel(rank: Rank) -> Program:
        model = Pair()

        def finish() -> None:
            parameters = list(model.parameters())
            flat = torch.cat([parameter.grad.flatten() for parameter in joined(rank, parameters)])
            dist.all_reduce(flat)
            flat /= 1.0
            for parameter, part in zip(
                cut(rank, parameters),
                flat.split([p.numel() for p in cut(rank, parameters)]),
                strict=True,
            ):
                parameter.grad = part.view_as(parameter)

        return stepped(model, finish)

    return Spec(
        lambda: stepped(Pair()),
        parallel,
        {"dp": 2},
        {"x": Input((4, 6), split={0: "dp"})},
        {"loss": Part(sum="dp")},
    )


def turned_on_one(rank: Rank, parameters: list[Any]) -> list[Any]:
    """Pieces of other sizes in the same places."""
    return [*parameters[rank.number :], *parameters[: rank.number]]


def exchanged(rank: Rank, parameters: list[Any]) -> list[Any]:
    """The two matrices in each other's place, which have one size."""
    return [parameters[2], parameters[1], parameters[0]]


def exchanged_on_one(rank: Rank, parameters: list[Any]) -> list[Any]:
    return exchanged(rank, parameters) if rank.number else parameters


def test_a_bucket_is_reduced_piece_by_piece() -> None:
    spec = bucketed()
    assert communicated(same(spec)[0]) == [
        ("all_reduce", 36),
        ("all_reduce", 6),
        ("all_reduce", 36),
    ]
    assert assert_equivalent(spec).outputs.proven == 4


def test_a_bucket_that_one_rank_joins_otherwise_stays_whole() -> None:
    spec = bucketed(turned_on_one, turned_on_one)
    before, after = record(spec, "parallel", 2), rewritten(spec)
    assert (
        [communicated(trace) for trace in after]
        == [communicated(trace) for trace in before]
        == [[("all_reduce", 78)]] * 2
    )
    true = truth(spec)
    gradients = {key: value for key, value in true.results.items() if key[0] == "gradient"}
    assert (
        difference(after, true.tensors, gradients)
        == difference(before, true.tensors, gradients)
        > CLOSE
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("joined", "cut"),
    [
        (turned_on_one, as_it_is),
        (turned_on_one, turned_on_one),
        (exchanged, as_it_is),
        (exchanged_on_one, exchanged_on_one),
    ],
)
def test_buckets_in_another_order_are_caught(joined: Order, cut: Order) -> None:
    assert verdict(bucketed(joined, cut)) == "mismatch"


# --- a vocabulary of which every rank has a part


class Rows(nn.Module):
    """An embedding of which a rank has the rows from ``first`` on. ``moved``, ``wide``:
    mistakes.
    """

    def __init__(self, rows: int, first: int | None = None, moved: int = 0, wide: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, WIDTH))
        self.first, self.moved, self.wide = first, moved, wide

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if self.first is None:
            return nn.functional.embedding(ids, self.weight)
        outside = (ids < self.first) | (ids >= self.first + len(self.weight) + self.wide)
        own = ids.clone() - (self.first + self.moved)
        own[outside] = 0
        return FromRanks.apply(
            nn.functional.embedding(own, self.weight).masked_fill(outside[..., None], 0.0)
        )


def divided(**mistake: int) -> Spec:
    def program(model: Rows, **more: Any) -> Program:
        head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        both = nn.Sequential(model, head)

        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss = nn.functional.cross_entropy(both(batch["ids"]), batch["labels"])
            loss.backward()
            return loss

        return Program(both, step, **more)

    def parallel(rank: Rank) -> Program:
        rows = VOCABULARY // 2
        first = rank.number * rows
        return program(
            Rows(rows, first, **(mistake if first else {})),
            parts={"0.weight": {0: [(first, first + rows)]}},
        )

    ids = Input((ROWS,), "int64", bounds=(0, VOCABULARY))
    return Spec(lambda: program(Rows(VOCABULARY)), parallel, {"tp": 2}, {"ids": ids, "labels": ids})


def test_a_vocabulary_shrinks() -> None:
    spec = divided()
    assert BOUNDARY in {event.operator for event in same(spec)[1].events}
    report = assert_equivalent(spec)
    assert not [line for line in report.reductions if line.startswith(f"{VOCABULARY} whole")]


@pytest.mark.parametrize("mistake", [{"moved": 1}, {"moved": -1}, {"wide": -1}])
def test_a_part_of_a_vocabulary_that_is_off_by_one_is_caught(mistake: dict[str, int]) -> None:
    assert verdict(divided(**mistake)) in ("mismatch", "invalid")


# --- means


def normalized(divisor: float | None) -> Spec:
    """The mean of squares, whose derivative a rank takes by hand with a divisor of its own."""

    class Mean(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            context.shape = x.shape
            return x.mean(-1, keepdim=True)

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient.expand(context.shape) / (divisor or context.shape[-1])

    def program(mean: Callable[[torch.Tensor], torch.Tensor]) -> Program:
        model = nn.Linear(64, 1000)

        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            loss = (mean(model(batch["x"]) ** 2) ** 2).sum()
            loss.backward()
            return loss

        return Program(model, step)

    def reference() -> Program:
        return program(lambda x: x.mean(-1, keepdim=True))

    return Spec(
        reference,
        lambda rank: program(Mean.apply),
        {"dp": 2},
        {"x": Input((4, 64), split={0: "dp"})},
        SUMS,
    )


SUMS = {name: Part(sum="dp") for name in ("loss", "grad:weight", "grad:bias")}


def test_what_a_mean_is_taken_of_shrinks() -> None:
    spec = normalized(None)
    assert SPREAD_MEAN in {event.operator for event in rewritten(spec)[0].events}
    assert not [
        line for line in assert_equivalent(spec).reductions if line.startswith("1000 whole")
    ]


@pytest.mark.parametrize("divisor", [999.0, 1001.0, 500.0, 64.0])
def test_another_divisor_is_caught(divisor: float) -> None:
    assert verdict(normalized(divisor)) == "mismatch"


# --- indices that are counted as floating-point numbers


def counted(shift: int) -> Spec:
    """Rows of a table at places that are counted up as floats; ``shift``: of a rank's places."""

    def training(ranks: int, more: int) -> Program:
        model = nn.Embedding(6, 2)

        def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
            places = (torch.ones(len(batch["x"]), 3).cumsum(1) - 1).long() + 2
            loss = (model(places + more) * batch["x"]).sum()
            loss.backward()
            if ranks > 1:
                dist.all_reduce(model.weight.grad)
            return loss

        return Program(model, step)

    return Spec(
        lambda: training(1, 0),
        lambda rank: training(2, shift * rank.number),
        {"dp": 2},
        {"x": Input((4, 3, 2), split={0: "dp"})},
        {"loss": Part(sum="dp")},
    )


def test_places_that_are_counted_as_floats() -> None:
    assert_equivalent(counted(0))


@pytest.mark.slow
@pytest.mark.nightly
def test_places_of_another_row_are_caught() -> None:
    assert verdict(counted(1)) == "mismatch"
