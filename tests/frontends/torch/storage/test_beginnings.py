"""What construction leaves: copies that ranks draw for themselves, and state of optimizers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from pitcheck.report.report import Report
from pitcheck.torch import Input, Options, Part, Program, Spec, check

BATCH = {"x": Input((4, 4), split={0: "dp"}), "y": Input((4, 2), split={0: "dp"})}


def training(rank: int, ranks: int, way: str) -> Program:
    """Adam on a layer that is built, and whose optimizer is warmed up, in some way."""
    if way != "unseeded":
        torch.manual_seed(7 + (rank if "own seed" in way else 0))
    model = nn.Linear(4, 2, bias=False)
    if "broadcast" in way:
        dist.broadcast(model.weight.data, 0)
    decay = 0.1 if "decay" in way else 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=decay)
    if "warm" in way:
        model.weight.grad = torch.zeros_like(model.weight)
        optimizer.param_groups[0]["lr"] = 0.0
        for _ in range(2 if "warm twice" in way else 1):
            optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.1
        if "counted" not in way:
            optimizer.state[model.weight]["step"].zero_()

    return stepping(model, optimizer, ranks, 2 if "steps twice" in way else 1)


def stepping(
    model: nn.Linear, optimizer: torch.optim.Optimizer, ranks: int, steps: int = 1
) -> Program:
    """A step of data parallel training, in which the optimizer steps so often."""

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        optimizer.zero_grad()
        loss = ((model(batch["x"]) - batch["y"]) ** 2).mean()
        loss.backward()
        if ranks > 1:
            dist.all_reduce(model.weight.grad)
            model.weight.grad /= ranks
        for _ in range(steps):
            optimizer.step()
        return loss

    return Program(model, step, optimizer)


def report_of(way: str, reference: str) -> Report:
    spec = Spec(
        lambda: training(0, 1, reference),
        lambda rank: training(rank.number, 2, way),
        {"dp": 2},
        BATCH,
        {"loss": Part(mean="dp")},
    )
    return check(spec, Options(seed=1, jobs=1, explain=False))


@pytest.mark.parametrize(
    ("way", "reference", "verdict", "said"),
    [
        ("own seed", "", "invalid", "copies of the same elements"),
        ("warm decay", "decay", "inconclusive", "makes 'exp_avg:weight' of drawn numbers"),
        ("warm counted", "", "invalid", "leaves numbers in 'step:weight'"),
        ("warm twice counted", "warm counted", "invalid", "which are others in the reference"),
        ("", "warm counted", "mismatch", "'new:step:weight'"),
        ("steps twice", "", "mismatch", "'new:step:weight'"),
    ],
)
def test_another_beginning_than_the_reference_has(
    way: str, reference: str, verdict: str, said: str
) -> None:
    report = report_of(way, reference)
    assert report.verdict == verdict, report.findings
    assert said in report.findings[0].title


@pytest.mark.parametrize("way", ["own seed broadcast", "warm", "unseeded"])
def test_beginnings_that_are_equal_or_cannot_be_compared(way: str) -> None:
    report = report_of(way, "")
    assert report.verdict == "equivalent", report.findings


def resumed(folder: Path, ranks: int, number: int, left_out: str = "") -> Program:
    """Adam on a layer; both are as a checkpoint has them, but for what is left out."""
    model = nn.Linear(4, 2, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.load_state_dict(torch.load(folder / f"model{number}.pt"))
    if left_out != "optimizer":
        optimizer.load_state_dict(torch.load(folder / "optimizer.pt"))
    return stepping(model, optimizer, ranks)


@pytest.mark.parametrize(
    ("left_out", "verdict"), [("", "equivalent"), ("optimizer", "mismatch"), ("one", "invalid")]
)
def test_a_checkpoint(tmp_path: Path, left_out: str, verdict: str) -> None:
    """The count of steps is that of the file. Ranks may not load other files of one parameter."""
    for number in range(2):
        model = nn.Linear(4, 2, bias=False)
        torch.save(model.state_dict(), tmp_path / f"model{number}.pt")
    optimizer = torch.optim.Adam(model.parameters())
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    spec = Spec(
        lambda: resumed(tmp_path, 1, 0),
        lambda rank: resumed(tmp_path, 2, rank.number if left_out == "one" else 0, left_out),
        {"dp": 2},
        BATCH,
        {"loss": Part(mean="dp")},
    )
    report = check(spec, Options(seed=1, jobs=1, explain=False))
    assert report.verdict == verdict, report.findings
