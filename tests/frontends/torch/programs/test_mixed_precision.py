"""PyTorch programs in mixed precision: products in bfloat16, all else in float32. What is as wide
as in the reference breaks no precision rule.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from pitcheck.base.options import Options
from pitcheck.report.report import Finding
from pitcheck.torch import Input, Part, Program, Spec, check

ROWS, WIDTH = 8, 6
WIDE, NARROW = torch.float32, torch.bfloat16
BATCH = {"x": Input((ROWS, WIDTH), split={0: "dp"}), "y": Input((ROWS, WIDTH), split={0: "dp"})}


class Block(nn.Module):
    """Parameters are float32. ``cast``: whether the block casts them itself; ``activation``: the
    dtype of what is between the products.
    """

    def __init__(self, cast: bool = True, activation: torch.dtype = WIDE) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.cast, self.activation = cast, activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up, down = (
            layer.weight.to(NARROW) if self.cast else layer.weight for layer in (self.up, self.down)
        )
        hidden = nn.functional.linear(x.to(NARROW), up).to(self.activation)
        return nn.functional.linear(nn.functional.silu(hidden).to(NARROW), down).float()


def training(model: nn.Module, after: Callable[[], None] = lambda: None) -> Program:
    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = (model(batch["x"]) - batch["y"]).square().sum()
        loss.backward()
        after()
        return loss

    return Program(model, step)


def accumulating(
    model: nn.Module, buffer: torch.dtype, after: Callable[[], None] = lambda: None
) -> Program:
    """Two micro-batches, whose gradients are added up in a buffer of a dtype."""

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        sums = [torch.zeros_like(parameter, dtype=buffer) for parameter in model.parameters()]
        losses = []
        for x, y in zip(batch["x"].chunk(2), batch["y"].chunk(2), strict=True):
            losses.append((model(x) - y).square().sum())
            losses[-1].backward()
            for parameter, total in zip(model.parameters(), sums, strict=True):
                total.add_(parameter.grad.to(buffer))
                parameter.grad = None
        for parameter, total in zip(model.parameters(), sums, strict=True):
            parameter.grad = total.float()
        after()
        return losses[0] + losses[1]

    return Program(model, step)


def reduced(model: nn.Module, dtype: torch.dtype) -> Callable[[], None]:
    """Gradients summed over all ranks in a dtype."""

    def reduce() -> None:
        for parameter in model.parameters():
            gradient = parameter.grad.to(dtype)
            dist.all_reduce(gradient)
            parameter.grad = gradient.float()

    return reduce


def by_hand(dtype: torch.dtype) -> Program:
    model = Block()
    return training(model, reduced(model, dtype))


def activated(dtype: torch.dtype) -> Program:
    model = Block(activation=dtype)
    return training(model, reduced(model, WIDE))


def accumulated(dtype: torch.dtype) -> Program:
    model = Block()
    return accumulating(model, dtype, reduced(model, WIDE))


def sharded(dtype: torch.dtype) -> Program:
    model = Block(cast=False)
    fully_shard(
        model,
        mesh=init_device_mesh("cpu", (2,)),
        mp_policy=MixedPrecisionPolicy(param_dtype=NARROW, reduce_dtype=dtype),
    )
    model.set_gradient_divide_factor(1.0)
    return training(model)


def rules(
    reference: Callable[[], Program], parallel: Callable[[torch.dtype], Program], dtype: torch.dtype
) -> list[Finding]:
    spec = Spec(
        reference,
        lambda rank: parallel(dtype),
        mesh={"dp": 2},
        batch=BATCH,
        outputs={"loss": Part(sum="dp")},
    )
    report = check(spec, Options(seed=1))
    assert report.verdict == "equivalent", report.findings
    return [finding for finding in report.findings if finding.code.startswith("PIT3")]


CASES = [
    (lambda: training(Block()), by_hand, "PIT301", "all_reduce", "dist.all_reduce(gradient)"),
    (lambda: training(Block()), sharded, "PIT301", "reduce_scatter", "loss.backward()"),
    (lambda: accumulating(Block(), WIDE), accumulated, "PIT301", "add", "total.add_("),
    (lambda: training(Block()), activated, "PIT302", "silu", "nn.functional.silu("),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "parallel", "code", "kind", "line"),
    CASES,
    ids=[case[1].__name__ for case in CASES],
)
def test_what_is_narrower_than_in_the_reference_is_named(
    reference: Callable[[], Program],
    parallel: Callable[[torch.dtype], Program],
    code: str,
    kind: str,
    line: str,
) -> None:
    assert rules(reference, parallel, WIDE) == []
    first = rules(reference, parallel, NARROW)[0]
    assert first.code == code, first
    assert f"({kind}" in (first.operator or ""), first
    file, _, number = (first.source or "").rpartition(":")
    assert line in Path(file).read_text(encoding="utf-8").splitlines()[int(number) - 1]
