"""Dropout: masks are the same where the generator's state, the operator and the shape are, and of
no other masks anything is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from frontends.torch.proving import caught, proven
from torch import nn
from torch.utils.checkpoint import checkpoint

from pitcheck.torch import Input, Part, Program, Rank, Spec, check

ROWS, WIDTH, SEED = 4, 4, 7
Batch = dict[str, torch.Tensor]
Drop = Callable[[torch.Tensor], torch.Tensor]


def dropped(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(x, 0.25)


class Network(nn.Module):
    def __init__(self, drop: Drop, again: bool | None = None) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop, self.again = drop, again

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(nn.functional.silu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``again``: computed again in the backward pass, with the same random numbers or with new
        ones.
        """
        hidden = (
            self.inner(x)
            if self.again is None
            else checkpoint(self.inner, x, use_reentrant=False, preserve_rng_state=self.again)
        )
        return self.down(self.drop(hidden))


def training(model: Network, seed: int | None = SEED, reduced: bool = False) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        if seed is not None:
            torch.manual_seed(seed)
        loss = (model(batch["x"]) - batch["y"]).square().sum()
        loss.backward()
        if reduced:
            for parameter in model.parameters():
                torch.distributed.all_reduce(parameter.grad)
        return loss

    return Program(model, step)


def spec(parallel: Callable[[Rank], Program], axis: str, drop: Drop = dropped) -> Spec:
    split = {0: "dp"} if axis == "dp" else {}
    batch = {name: Input((ROWS, WIDTH), split=split) for name in ("x", "y")}
    return Spec(
        lambda: training(Network(drop)),
        parallel,
        {axis: 2},
        batch,
        {"loss": Part(sum="dp")} if axis == "dp" else {},
    )


def of_all_rows(rank: int) -> Drop:
    """Every rank draws the mask of the whole batch, and takes that of its rows."""

    def drop(x: torch.Tensor) -> torch.Tensor:
        mask = torch.rand(ROWS, WIDTH) >= 0.25
        return x * mask[2 * rank : 2 * rank + x.shape[0]] / 0.75  # its rows

    return drop


def test_the_same_on_replicas() -> None:
    proven(spec(lambda _: training(Network(dropped)), "tp"))


@pytest.mark.slow
def test_the_same_when_computed_again() -> None:
    proven(spec(lambda _: training(Network(dropped, again=True)), "tp"))


@pytest.mark.slow
def test_rows_of_one_mask() -> None:
    proven(
        spec(
            lambda rank: training(Network(of_all_rows(rank.number)), reduced=True),
            "dp",
            of_all_rows(0),
        )
    )


@pytest.mark.slow
def test_rows_of_another_rank() -> None:
    wrong = spec(
        lambda rank: training(Network(of_all_rows(1 - rank.number)), reduced=True),
        "dp",
        of_all_rows(0),
    )
    caught(wrong, "# its rows", "PIT107", "PIT100")


@pytest.mark.slow
@pytest.mark.parametrize(
    "parallel",
    [
        lambda rank: training(Network(dropped), seed=SEED + rank.number),
        lambda _: training(Network(dropped), seed=None),
        lambda _: training(Network(dropped, again=False)),
        lambda _: training(Network(lambda x: dropped(dropped(x)))),
    ],
    ids=["another seed", "no seed", "new numbers when computed again", "drawn more often"],
)
def test_other_draws_are_never_the_same(parallel: Callable[[Rank], Program]) -> None:
    report = check(spec(parallel, "tp"))
    assert report.verdict in ("inconclusive", "mismatch")
    assert {finding.code for finding in report.findings} <= {"PIT206", "PIT109", "PIT103"}


def test_masks_of_other_shapes_are_others() -> None:
    """A rank draws for its rows alone, which is no part of the draw of one device for all rows."""
    report = check(spec(lambda _: training(Network(dropped), reduced=True), "dp"))
    assert report.verdict == "inconclusive"
    (finding,) = report.findings
    assert finding.code == "PIT206"
    shapes = r"a \((\d+), .*\) mask on each rank, the reference one of \((\d+), .*\): "
    said = re.search(
        rf"^dropout at {re.escape(finding.source or '')} draws {shapes}", finding.title
    )
    assert said is not None, finding.title
    assert int(said[2]) == 2 * int(said[1])
    assert "draw the whole mask" in (finding.repair or "")


@pytest.mark.slow
def test_another_probability() -> None:
    caught(
        spec(lambda _: training(Network(lambda x: nn.functional.dropout(x, 0.5))), "tp"),
        "dropout(x, 0.5)",
        "PIT102",
        "PIT100",
    )
