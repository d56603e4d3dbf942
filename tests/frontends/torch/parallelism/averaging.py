"""Data parallelism over two ranks, of which a test says how gradients are averaged."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Input, Options, Part, Program, Spec, check

Sync = Callable[[nn.Sequential], None]
BATCH = {"x": Input((8, 6), split={0: "dp"}), "y": Input((8, 5), split={0: "dp"})}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))


def average(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2


def averaging(sync: Sync, make: Callable[[], nn.Sequential] = network) -> Spec:
    """The pair in which every rank calls ``sync`` behind its backward pass, and the reference
    nothing.
    """

    def training(call: Sync) -> Program:
        model = make()

        def step(batch):
            loss = ((model(batch["x"]) - batch["y"]) ** 2).mean()
            loss.backward()
            call(model)
            return loss

        return Program(model, step)

    return Spec(
        lambda: training(lambda _: None),
        lambda _: training(sync),
        {"dp": 2},
        BATCH,
        {"loss": Part(mean="dp")},
    )


def recorded(sync: Sync, make: Callable[[], nn.Sequential] = network) -> None:
    """Record the ranks alone, which is enough where that is refused."""
    record(averaging(sync, make), "parallel", 2)


def verdict(sync: Sync, make: Callable[[], nn.Sequential] = network) -> tuple[str, str]:
    """The verdict, and the code of the first finding."""
    report = check(averaging(sync, make), Options(seed=1))
    return report.verdict, report.findings[0].code if report.findings else ""
