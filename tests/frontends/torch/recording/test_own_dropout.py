"""``Spec.dropout``: every rank draws the masks of the elements that it holds, and the reference's
masks are these, put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, check_at_one_mesh, proven, verdict
from torch import nn
from torch.utils.checkpoint import checkpoint

from pitcheck.torch import Dropout, Input, Part, Program, Rank, Spec

ROWS, WIDTH, HIDDEN, SEED, P = 4, 6, 8, 7, 0.25
Batch = dict[str, torch.Tensor]
Drop = Callable[[torch.Tensor], torch.Tensor]


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def dropped(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(x, P)


class Tracker:
    """A state of the generator beside that of the program, which goes on from fork to fork."""

    def __init__(self, seed: int) -> None:
        self.seed, self.state = seed, torch.empty(0)

    def begin(self) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.state = torch.get_rng_state()

    @contextmanager
    def fork(self) -> Iterator[None]:
        before = torch.get_rng_state()
        torch.set_rng_state(self.state)
        yield
        self.state = torch.get_rng_state()
        torch.set_rng_state(before)


class Block(nn.Module):
    """Dropout within a region that ranks may divide, and on what they hold as a whole."""

    def __init__(
        self, ranks: int = 1, tracker: Tracker | None = None, drop: Drop = dropped
    ) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN // ranks, bias=False)
        self.down = nn.Linear(HIDDEN // ranks, WIDTH, bias=False)
        self.divided, self.tracker, self.drop = ranks > 1, tracker, drop

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        with nullcontext() if self.tracker is None else self.tracker.fork():
            return self.drop(nn.functional.silu(self.up(x)))  # within

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.divided:
            y = Summed.apply(self.down(self.inside(Copied.apply(x, None))), None)
        else:
            y = self.down(self.inside(x))
        return self.drop(y)  # on the whole


class Again(Block):
    """Computed again in the backward pass, which restores both states."""

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        tracker = self.tracker
        begun = None if tracker is None else tracker.state

        def run(x: torch.Tensor) -> torch.Tensor:
            if tracker is not None and begun is not None:
                tracker.state = begun
            return Block.inside(self, x)

        return checkpoint(run, x, use_reentrant=False)


class AgainAnew(Block):
    """Computed again, with the state of the program restored and not the one beside it."""

    def inside(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().inside, x, use_reentrant=False)


def training(
    model: nn.Module,
    seed: int = SEED,
    *,
    axis: str = "",
    data: Any = None,
    batches: int = 1,
    reseeded: bool = False,
) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        torch.manual_seed(seed)
        tracker = getattr(model, "tracker", None)
        if tracker is not None:
            tracker.begin()
        losses = []
        for x, y in zip(batch["x"].chunk(batches), batch["y"].chunk(batches), strict=True):
            if reseeded:
                torch.manual_seed(seed)  # for each micro-batch
            losses.append((model(x) - y).square().sum())
            losses[-1].backward()
        for parameter in model.parameters() if axis == "dp" or data is not None else ():
            dist.all_reduce(parameter.grad, group=data)
        return torch.stack(losses).sum().detach()

    return Program(model, step)


def spec(axis: str, parallel: Callable[[Rank], Program], alike: str | tuple[str, ...] = ()) -> Spec:
    split = {0: "dp"} if axis == "dp" else {}
    return Spec(
        lambda: training(Block()),
        parallel,
        {axis: 2},
        {name: Input((ROWS, WIDTH), split=split) for name in ("x", "y")},
        {"loss": Part(sum="dp")} if axis == "dp" else {},
        dropout=Dropout(alike),
    )


def of_rows(rank: Rank, **choices: Any) -> Program:
    """A data-parallel rank, seeded by its number."""
    return training(Block(), SEED + rank.number, axis="dp", **choices)


def of_heads(
    rank: Rank, inside: int | None = None, whole: int = SEED, kind: type[Block] = Block
) -> Program:
    """A tensor-parallel rank, with a state for what it holds a part of, and one for the rest."""
    seed = 100 + (rank.number if inside is None else inside)
    return training(kind(2, Tracker(seed)), whole)


def test_rows_of_data_parallel_ranks() -> None:
    report = proven(spec("dp", of_rows))
    said = [line for line in report.assumptions if "dropout" in line]
    assert len(said) == 1
    assert ", and 1 more, consists of those that ranks draw for their elements" in said[0]


@pytest.mark.parametrize("kind", [Block, pytest.param(Again, marks=pytest.mark.slow)])
def test_tensor_parallel_ranks_with_two_states(kind: type[Block]) -> None:
    proven(spec("tp", lambda rank: of_heads(rank, kind=kind)))


@pytest.mark.slow
def test_microbatches() -> None:
    proven(spec("dp", lambda rank: of_rows(rank, batches=2)))


def test_one_seed_for_all_rows() -> None:
    """All ranks draw the same numbers: right only where that is stated."""
    one = lambda _: training(Block(), axis="dp")  # noqa: E731
    report = caught(spec("dp", one), "dropout(x, P)", "PIT114")
    assert "the same numbers for different elements" in report.findings[0].title
    proven(spec("dp", one, alike="dp"))


def test_heads_with_the_same_numbers() -> None:
    wrong = spec("tp", lambda rank: of_heads(rank, inside=0))
    report = caught(wrong, "dropout(x, P)", "PIT114")
    assert "the same numbers for different elements" in report.findings[0].title


@pytest.mark.slow
def test_replicas_with_other_numbers() -> None:
    wrong = spec("tp", lambda rank: of_heads(rank, whole=SEED + rank.number))
    report = caught(wrong, "dropout(x, P)", "PIT114")
    assert "other numbers on ranks that hold the same elements" in report.findings[0].title
    assert check_at_one_mesh(replace(wrong, dropout=Dropout("tp"))).verdict == "mismatch"


def test_drawn_anew_when_computed_again() -> None:
    wrong = spec("tp", lambda rank: of_heads(rank, kind=AgainAnew))
    report = caught(wrong, "dropout(x, P)", "PIT114")
    assert "another mask for the same elements" in report.findings[0].title


@pytest.mark.slow
def test_microbatches_with_the_same_numbers() -> None:
    """Ranks may draw alike, micro-batches of one rank may not."""
    wrong = spec("dp", lambda rank: of_rows(rank, batches=2, reseeded=True), alike="dp")
    caught(wrong, "dropout(x, P)", "PIT114")


class Attention(nn.Module):
    """Dropout of the weights of attention, of shape (rows, heads, tokens, tokens)."""

    def __init__(self, tracker: Tracker, heads: int = 2, group: Any = None) -> None:
        super().__init__()
        self.tracker, self.heads, self.group = tracker, heads, group
        self.q, self.k, self.v = (nn.Linear(WIDTH, 2 * heads, bias=False) for _ in range(3))
        self.out = nn.Linear(2 * heads, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.group is not None:
            x = Copied.apply(x, self.group)
        q, k, v = (
            part(x).unflatten(-1, (self.heads, 2)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        with self.tracker.fork():
            weights = nn.functional.dropout(weights, P)  # of weights
        y = self.out((weights @ v).transpose(1, 2).flatten(2))
        return y if self.group is None else Summed.apply(y, self.group)


def attending(rank: Rank, inside: int) -> Program:
    """A rank of a mesh of data and tensor parallelism, with one head."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = Attention(Tracker(inside), 1, mesh.get_group("tp"))
    parts = {f"{name}.weight": Part(split={0: "tp"}) for name in "qkv"}
    program = training(model, data=mesh.get_group("dp"))
    return replace(program, parts={**parts, "out.weight": Part(split={1: "tp"})})


@pytest.mark.parametrize(
    ("inside", "right"),
    [
        (lambda rank: rank.coordinate["tp"], True),
        (lambda rank: rank.coordinate["dp"], False),
    ],
    ids=["of each head", "of all heads"],
)
@pytest.mark.slow
def test_weights_of_attention(inside: Callable[[Rank], int], right: bool) -> None:
    """Data-parallel ranks may draw alike here, heads may not."""
    both = Spec(
        lambda: training(Attention(Tracker(100))),
        lambda rank: attending(rank, 100 + inside(rank)),
        {"dp": 2, "tp": 2},
        {name: Input((ROWS, 3, WIDTH), split={0: "dp"}) for name in ("x", "y")},
        {"loss": Part(sum="dp")},
        dropout=Dropout("dp"),
    )
    if right:
        proven(both)
    else:
        caught(both, "# of weights", "PIT114")


# --- what else may be wrong


class Swapped(torch.autograd.Function):
    """Dropout whose backward pass takes the mask of the other micro-batch, if it is wrong."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mask: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(later)
        return x * mask / (1 - P)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return gradient * mask / (1 - P), None, None


def two_microbatches(rank: Rank, wrong: bool) -> Program:
    model = nn.Linear(WIDTH, WIDTH, bias=False)

    def step(batch: Batch) -> torch.Tensor:
        torch.manual_seed(SEED + rank.number)
        masks = [torch.empty(1, WIDTH).bernoulli_(1 - P) for _ in range(2)]
        losses = []
        for number, (x, y) in enumerate(zip(batch["x"].split(1), batch["y"].split(1), strict=True)):
            later = masks[1 - number if wrong else number]
            losses.append((Swapped.apply(model(x), masks[number], later) - y).square().sum())
            losses[-1].backward()
        dist.all_reduce(model.weight.grad)
        return torch.stack(losses).sum().detach()

    return Program(model, step)


def whole_batch() -> Program:
    model = nn.Linear(WIDTH, WIDTH, bias=False)

    def step(batch: Batch) -> torch.Tensor:
        loss = (nn.functional.dropout(model(batch["x"]), P) - batch["y"]).square().sum()
        loss.backward()
        return loss.detach()

    def seeded(batch: Batch) -> torch.Tensor:
        torch.manual_seed(SEED)
        return step(batch)

    return Program(model, seeded)


@pytest.mark.parametrize("wrong", [False, True])
def test_mask_of_another_microbatch_on_the_way_back(wrong: bool) -> None:
    pair = replace(spec("dp", lambda rank: two_microbatches(rank, wrong)), reference=whole_batch)
    assert verdict(pair) == ("mismatch" if wrong else "equivalent")


@pytest.mark.slow
@pytest.mark.parametrize(
    "drop",
    [
        lambda x: nn.functional.dropout(x, 2 * P),
        lambda x: nn.functional.dropout(x, P) * (1 - P),
    ],
    ids=["another probability", "not scaled"],
)
def test_dropped_otherwise(drop: Callable[[torch.Tensor], torch.Tensor]) -> None:
    pair = spec("dp", lambda rank: training(Block(drop=drop), SEED + rank.number, axis="dp"))
    assert verdict(pair) == "mismatch"


class Adapters(nn.Module):
    """Two adapters, each of which drops elements of one tensor, in some order."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.a, self.b = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = {name: getattr(self, name)(dropped(x)) for name in self.order}
        return made["a"].sin() + made["b"]


def test_one_tensor_dropped_twice() -> None:
    """In which order is a convention, and another one no mistake that is known."""

    def pair(order: str) -> Spec:
        parallel = spec("dp", lambda rank: training(Adapters(order), SEED + rank.number, axis="dp"))
        return replace(parallel, reference=lambda: training(Adapters("ab")))

    proven(pair("ab"))
    assert verdict(pair("ba")) == "inconclusive"
