"""Normal numbers and permutations that a step draws: the same where the generator's state, the
operator and the shape are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from frontends.torch.proving import proven, verdict
from torch import nn

from pitcheck.base.options import Options
from pitcheck.torch import Input, Part, Program, Spec, check

ROWS, WIDTH, SEED = 4, 4, 7
Batch = dict[str, torch.Tensor]
Draw = Callable[[Batch], tuple[torch.Tensor, torch.Tensor]]
"""A function from a batch to the model's input and the target of its output."""


def training(draw: Draw, seed: int = SEED, reduced: bool = False) -> Program:
    model = nn.Linear(WIDTH, WIDTH)

    def step(batch: Batch) -> torch.Tensor:
        torch.manual_seed(seed)
        x, y = draw(batch)
        loss = (model(x) - y).square().sum()
        loss.backward()
        if reduced:
            for parameter in model.parameters():
                torch.distributed.all_reduce(parameter.grad)
        return loss

    return Program(model, step)


def replicated(draw: Draw, other: Draw | None = None, seed: int = SEED) -> Spec:
    batch = {name: Input((ROWS, WIDTH)) for name in ("x", "y")}
    return Spec(lambda: training(draw), lambda _: training(other or draw, seed), {"tp": 2}, batch)


def divided(draw: Draw, parallel: Callable[[int], Draw]) -> Spec:
    batch = {name: Input((ROWS, WIDTH), split={0: "dp"}) for name in ("x", "y")}
    return Spec(
        lambda: training(draw),
        lambda rank: training(parallel(rank.number), reduced=True),
        {"dp": 2},
        batch,
        {"loss": Part(sum="dp")},
    )


def noisy(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """As diffusion has it: the noise is to be predicted."""
    noise = torch.randn_like(batch["y"])
    return batch["x"] + 0.5 * noise, noise


def in_place(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["x"] + torch.empty(ROWS, WIDTH).normal_(0.0, 0.5), batch["y"]


def wider(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["x"] + torch.empty(ROWS, WIDTH).normal_(0.0, 0.25), batch["y"]


def positive(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Right where no number is negative."""
    return batch["x"] + torch.empty(ROWS, WIDTH).normal_(0.0, 0.5).relu(), batch["y"]


def shuffled(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.randperm(ROWS)
    return batch["x"][order], batch["y"][order]


def half_shuffled(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["x"][torch.randperm(ROWS)], batch["y"]


@pytest.mark.parametrize("draw", [noisy, in_place, shuffled, half_shuffled])
def test_the_same_on_replicas(draw: Draw) -> None:
    proven(replicated(draw))


@pytest.mark.parametrize("draw", [noisy, half_shuffled])
def test_other_draws_are_never_the_same(draw: Draw) -> None:
    report = check(replicated(draw, seed=SEED + 1))
    assert report.verdict == "inconclusive"
    assert {finding.code for finding in report.findings} == {"PIT206"}


def test_other_draws_that_are_the_same_by_chance() -> None:
    """In both real draws of this seed the two permutations are the same."""
    report = check(replicated(half_shuffled, seed=SEED + 1), Options(seed=938))
    assert {finding.code for finding in report.findings} == {"PIT206"}


@pytest.mark.parametrize(
    ("right", "wrong"), [(in_place, wider), (in_place, positive), (shuffled, half_shuffled)]
)
def test_something_else_is_done_with_them(right: Draw, wrong: Draw) -> None:
    assert verdict(replicated(right, wrong)) == "mismatch"


def rows(first: int) -> Draw:
    """Those of the whole batch's noise from one on."""

    def draw(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return batch["x"] + torch.randn(ROWS, WIDTH)[first : first + len(batch["x"])], batch["y"]

    return draw


def test_rows_of_the_noise_of_all() -> None:
    proven(divided(rows(0), lambda rank: rows(2 * rank)))


def test_rows_of_another_rank() -> None:
    assert verdict(divided(rows(0), lambda rank: rows(2 - 2 * rank))) == "mismatch"


def dropped(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return nn.functional.dropout(batch["x"]), batch["y"]


def dropped_as_it_lies(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The same elements in memory, column by column: PyTorch draws masks in that order."""
    return nn.functional.dropout(batch["x"].t().contiguous().t()), batch["y"]


def dropped_in_order(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return nn.functional.dropout(batch["x"].t().contiguous().t().contiguous()), batch["y"]


def drawn(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["x"] * torch.rand(ROWS, WIDTH), batch["y"]


def drawn_in_float64(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["x"] * torch.rand(ROWS, WIDTH, dtype=torch.float64).float(), batch["y"]


@pytest.mark.parametrize(
    ("draw", "other", "expected"),
    [
        (dropped, dropped_in_order, "equivalent"),
        (dropped, dropped_as_it_lies, "inconclusive"),
        (drawn, drawn_in_float64, "inconclusive"),
    ],
)
def test_draws_depend_on_memory_and_dtype(draw: Draw, other: Draw, expected: str) -> None:
    report = check(replicated(draw, other), Options(seed=1, jobs=1, explain=False))
    assert report.verdict == expected, report.findings
