"""Normalisation over a batch: its formulas against PyTorch, and programs that are proven with the
statistics of all ranks, and caught with those of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, check_at_one_mesh, proven
from support.by_day import some_by_day
from torch import nn

from pitcheck.frontends.torch.formulas import batch_norms
from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Input, Part, Program, Rank, Spec

SHAPES = ((6, 3), (4, 3, 5), (2, 3, 2, 4))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def given(shape: tuple[int, ...], affine: bool, running: bool) -> list[torch.Tensor | None]:
    """Input, weight, bias and running statistics."""
    pair = [drawn(3, seed=1), drawn(3, seed=2)] if affine else [None, None]
    return [drawn(*shape), *pair, *([drawn(3, seed=3), drawn(3, seed=4).abs() + 1] * running)] + [
        None
    ] * (2 * (not running))


CASES = [
    (shape, affine, running, training)
    for shape in SHAPES
    for affine in (False, True)
    for running, training in ((False, True), (True, True), (True, False))
]


@pytest.mark.parametrize(("shape", "affine", "running", "training"), CASES)
def test_a_batch_norm_is_that_of_pytorch(
    shape: tuple[int, ...], affine: bool, running: bool, training: bool
) -> None:
    ours, theirs = given(shape, affine, running), given(shape, affine, running)
    results = batch_norms.batch_norm(*ours, training, 0.3, 1e-3)  # type: ignore[arg-type]
    expected = torch.ops.aten.native_batch_norm(*theirs, training, 0.3, 1e-3)
    for own, other in zip((*results, *ours), (*expected, *theirs), strict=True):
        assert (own is None and other is None) or torch.allclose(own, other)
    gradient, mask = drawn(*shape, seed=5), [True, affine, affine]
    more = (*ours[3:], *results[1:], training, 1e-3, mask)
    back = batch_norms.batch_norm_backward(gradient, *ours[:2], *more)  # type: ignore[arg-type]
    true = torch.ops.aten.native_batch_norm_backward(gradient, *theirs[:2], *more)
    for own, other in zip(back, true, strict=True):
        assert (own is None and not affine) or torch.allclose(own, other)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (2, 1, 1)])
@pytest.mark.parametrize("exchanged", ["statistics", "variances"])
def test_the_statistics_of_all_ranks_are_those_of_the_batch(
    shape: tuple[int, ...], sizes: tuple[int, ...], exchanged: str
) -> None:
    """Parts of several sizes, each on a rank, with what the operators say of each."""
    whole = drawn(sum(sizes) * shape[0], *shape[1:])
    parts = whole.split([size * shape[0] for size in sizes])
    weight, bias, gradient = drawn(3, seed=1), drawn(3, seed=2), drawn(*whole.shape, seed=3)
    running, plain = ([torch.zeros(3).double(), torch.ones(3).double()] for _ in range(2))
    counts = torch.tensor([part.numel() // 3 for part in parts]).double()
    local = [getattr(batch_norms, exchanged)(part, 1e-3) for part in parts]
    stacked = [torch.stack(each) for each in zip(*local, strict=True)]
    of_all = (
        batch_norms.gathered_statistics if exchanged == "statistics" else batch_norms.of_all_ranks
    )
    mean, reciprocal = of_all(parts[0], *stacked, *running, 0.3, 1e-3, counts)
    leaves = [each.clone().requires_grad_() for each in (whole, weight, bias)]
    expected = nn.functional.batch_norm(leaves[0], *plain, *leaves[1:], True, 0.3, 1e-3)
    true = torch.autograd.grad(expected, leaves, gradient)
    found = [batch_norms.elementwise(x, weight, bias, mean, reciprocal, 1e-3) for x in parts]
    assert torch.allclose(torch.cat(found), expected)
    assert all(map(torch.allclose, running, plain))
    slopes = gradient.split([len(part) for part in parts])
    sums = [
        batch_norms.reduced_gradients(dy, x, mean, reciprocal, weight, True, True, True)
        for dy, x in zip(slopes, parts, strict=True)
    ]
    total, along, to_weight, to_bias = (sum(each) for each in zip(*sums, strict=True))
    through = [
        batch_norms.to_inputs(
            dy, x, mean, reciprocal, weight, total, along, counts.int().view(-1, 1)
        )
        for dy, x in zip(slopes, parts, strict=True)
    ]
    assert torch.allclose(torch.cat(through), true[0])
    assert torch.allclose(to_weight, true[1]) and torch.allclose(to_bias, true[2])


# --- programs

Convert = Callable[[nn.Module, Rank], nn.Module]


def synchronised(model: nn.Module, _: Rank) -> nn.Module:
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def of_each_rank(model: nn.Module, _: Rank) -> nn.Module:
    return model


def over_another_group(model: nn.Module, rank: Rank) -> nn.Module:
    """Every rank by itself, though it is called synchronised."""
    groups = [dist.new_group([number]) for number in range(2)]
    return nn.SyncBatchNorm.convert_sync_batchnorm(model, groups[rank.number])


def by_pairs(model: nn.Module, rank: Rank) -> nn.Module:
    """Two ranks of four have the statistics of both."""
    groups = [dist.new_group([number, number + 1]) for number in (0, 2)]
    return nn.SyncBatchNorm.convert_sync_batchnorm(model, groups[rank.number // 2])


def evaluated(model: nn.Module, rank: Rank) -> nn.Module:
    """Running statistics normalise."""
    return synchronised(model, rank).eval()


def network(**options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(4, **options), nn.Linear(4, 3))


def images(**options: Any) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(3, **options), nn.Flatten(), nn.Linear(12, 2))


def spec(
    convert: Convert,
    shape: tuple[int, ...] = (8, 4),
    make: Callable[[], nn.Sequential] = network,
    ranks: int = 2,
    evaluate: bool = False,
) -> Spec:
    """The mean of squares, of which every rank has its rows."""

    def training(model: nn.Module, sync: Callable[[nn.Module], None]) -> Program:
        def step(batch):
            loss = model(batch["x"]).square().mean()
            loss.backward()
            sync(model)
            return loss

        return Program(model, step)

    def averaged(model: nn.Module) -> None:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks

    def reference() -> Program:
        return training(make().eval() if evaluate else make(), lambda _: None)

    return Spec(
        reference,
        lambda rank: training(convert(make(), rank), averaged),
        {"dp": ranks},
        {"x": Input(shape, split={0: "dp"})},
        {"loss": Part(mean="dp")},
    )


RIGHT: dict[str, Callable[[], Spec]] = {
    "with running statistics": lambda: spec(synchronised),
    "with a mean of all batches": lambda: spec(synchronised, make=lambda: network(momentum=None)),
    "without running statistics": lambda: spec(
        synchronised, make=lambda: network(track_running_stats=False)
    ),
    "without weights": lambda: spec(synchronised, make=lambda: network(affine=False)),
    "of images": lambda: spec(synchronised, (4, 3, 2, 2), images),
    "in evaluation": lambda: spec(evaluated, evaluate=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(RIGHT, 2))
def test_a_synchronised_batch_norm_is_proven(name: str) -> None:
    proven(RIGHT[name]())


WRONG: dict[str, Callable[[], Spec]] = {
    "of each rank": lambda: spec(of_each_rank),
    "over a group of one": lambda: spec(over_another_group),
    "over pairs of four ranks": lambda: spec(by_pairs, ranks=4),
    "another momentum": lambda: spec(lambda _, rank: synchronised(network(momentum=0.2), rank)),
    "another epsilon": lambda: spec(lambda _, rank: synchronised(network(eps=0.01), rank)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(WRONG, 2))
def test_another_batch_norm_is_caught(name: str) -> None:
    report = check_at_one_mesh(WRONG[name]())
    assert report.verdict == "mismatch", report.findings


@pytest.mark.slow
def test_statistics_of_each_rank_are_caught_at_their_line() -> None:
    caught(spec(of_each_rank), "model(batch", "PIT104")


def test_a_rank_without_elements_is_refused() -> None:
    def program(_: Rank | None = None) -> Program:
        model = nn.SyncBatchNorm(4)
        return Program(model, lambda batch: model(batch["x"][:0]).sum())

    pair = Spec(program, program, {"dp": 2}, {"x": Input((4, 4))})
    with pytest.raises(Exception, match="tensor without elements"):
        record(pair, "parallel", 2)
