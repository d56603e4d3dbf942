"""DistributedDataParallel as a user writes it: no hook, gradients averaged by bucket, accumulation
under no_sync.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from frontends.torch.proving import caught, proven
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, FEATURES, CLASSES, MICRO = 8, 6, 5, 2
Batch = dict[str, torch.Tensor]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.up(x)))


def training(model: nn.Module, silent: Callable[[int], Any] | None = None) -> Program:
    """The gradients of the mean loss; ``silent``: what is around each micro-batch, where the batch
    is divided into such.
    """
    micro = 1 if silent is None else MICRO

    def step(batch: Batch) -> torch.Tensor:
        model.zero_grad()
        total = torch.zeros(())
        for number, (x, labels) in enumerate(
            zip(batch["x"].chunk(micro), batch["labels"].chunk(micro), strict=True)
        ):
            with silent(number) if silent is not None else nullcontext():
                loss = nn.functional.cross_entropy(model(x), labels) / micro
                loss.backward()
            total += loss.detach()
        return total

    return Program(model, step, names=lambda name: name.removeprefix("module."))


def replicated(
    silent: Callable[[DistributedDataParallel, int], Any],
    bucket: float = 25,
    ignored: tuple[str, ...] = (),
) -> Callable[[Rank], Program]:
    def parallel(_: Rank) -> Program:
        network = Network()
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(network, ignored)
        model = DistributedDataParallel(network, bucket_cap_mb=bucket)
        return training(model, lambda number: silent(model, number))

    return parallel


def spec(parallel: Callable[[Rank], Program]) -> Spec:
    return split_over(parallel, "dp", {"dp": 2})


def split_over(
    parallel: Callable[[Rank], Program], axes: str | tuple[str, ...], mesh: dict[str, int]
) -> Spec:
    split = {0: axes}
    batch = {
        "x": Input((ROWS, FEATURES), split=split),
        "labels": Input((ROWS,), "int64", (0, CLASSES), split),
    }
    return Spec(lambda: training(Network()), parallel, mesh, batch, {"loss": Part(mean=axes)})


def until_the_last(model: DistributedDataParallel, number: int) -> Any:
    return nullcontext() if number == MICRO - 1 else model.no_sync()


def never(model: DistributedDataParallel, _: int) -> Any:
    return model.no_sync()


def on_the_last(model: DistributedDataParallel, number: int) -> Any:
    return model.no_sync() if number == MICRO - 1 else nullcontext()


@pytest.mark.parametrize("bucket", [25, 1e-5])
def test_synchronised_once(bucket: float) -> None:
    """All gradients in one bucket, and one bucket for each."""
    proven(spec(replicated(until_the_last, bucket)))


@pytest.mark.slow
def test_synchronised_every_time() -> None:
    """Averages are averaged again together with new gradients, which changes nothing."""
    proven(spec(replicated(lambda *_: nullcontext())))


def test_never_synchronised() -> None:
    report = caught(spec(replicated(never)), "loss.backward()", "PIT104")
    assert "is a term of a mean over dp, and" in (report.findings[0].cause or "")


@pytest.mark.slow
def test_the_last_micro_batch_not_synchronised() -> None:
    report = caught(spec(replicated(on_the_last)), "loss.backward()", "PIT104")
    assert "is a term of a mean over dp" in (report.findings[0].cause or "")


def test_a_parameter_left_out() -> None:
    report = caught(
        spec(replicated(until_the_last, ignored=("up.bias",))), "loss.backward()", "PIT104"
    )
    assert report.findings[0].output == "grad:up.bias"


@pytest.mark.slow
def test_a_group_of_some_of_the_replicas() -> None:
    """The reducer averages over the group that it was given, not over all ranks."""

    def parallel(_: Rank) -> Program:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        return training(DistributedDataParallel(Network(), process_group=mesh.get_group("inner")))

    report = caught(
        split_over(parallel, ("outer", "inner"), {"outer": 2, "inner": 2}),
        "loss.backward()",
        "PIT104",
    )
    assert "is a term of a mean over outer," in (report.findings[0].cause or "")
