"""DistributedDataParallel: what its C++ waits for, and buffers that it broadcasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, check_at_one_mesh, proven
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks
from torch.nn.parallel import DistributedDataParallel

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Input, Part, Program, Rank, Spec

Batch = dict[str, torch.Tensor]
Change = Callable[[DistributedDataParallel], None]
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]
BUCKET = 1e-6
"""A size of buckets, in MB, at which every parameter has its own."""


class Branches(nn.Module):
    """Two layers, of which a half of the rows goes through each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not dist.is_initialized():
            one, other = x.chunk(2)
            return torch.cat([self.first(one), self.second(other)])
        return (self.second if dist.get_rank() else self.first)(x)


class Waved(nn.Module):
    """A layer whose results are multiplied by a table that the program computes."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("waves", scale / torch.arange(1.0, 4.0), persistent=False)
        self.table = self.waves

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.waves


def training(model: nn.Module, **more: Any) -> Program:
    def step(batch: Batch) -> torch.Tensor:
        model.zero_grad()
        loss = (model(batch["x"]) - batch["y"]).square().mean()
        loss.backward()
        return loss

    return Program(model, step, **more)


def spec(
    make: Callable[[], nn.Module],
    change: Change = lambda _: None,
    parallel: Callable[[], nn.Module] | None = None,
    **options: Any,
) -> Spec:
    """The model on one device, and its replicas with some options of DistributedDataParallel."""

    def replicas(_: Rank) -> Program:
        model = DistributedDataParallel((parallel or make)(), **options)
        change(model)
        return training(model, names=lambda name: name.removeprefix("module."))

    split = {0: "dp"}
    batch = {"x": Input((8, 4), split=split), "y": Input((8, 3), split=split)}
    return Spec(lambda: training(make()), replicas, {"dp": 2}, batch, {"loss": Part(mean="dp")})


def reduces_nothing(model: DistributedDataParallel) -> None:
    model.register_comm_hook(None, debugging_hooks.noop_hook)


def sums(model: DistributedDataParallel) -> None:
    def hook(state, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3))


@pytest.mark.parametrize(
    "option", ["static_graph", pytest.param("find_unused_parameters", marks=NIGHTLY)]
)
def test_a_map_of_used_parameters_is_reduced(option: str) -> None:
    """The reducer alone waits for it, in C++."""
    proven(spec(layers, **{option: True}))


@pytest.mark.parametrize(
    "option", ["static_graph", pytest.param("find_unused_parameters", marks=NIGHTLY)]
)
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (reduces_nothing, "PIT104"),
        pytest.param(sums, "PIT101", marks=NIGHTLY),
    ],
)
def test_reductions_that_are_delayed_are_compared(option: str, change: Change, code: str) -> None:
    caught(spec(layers, change, **{option: True}), "", code)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_parameter_that_one_rank_does_not_use() -> None:
    """Its gradient is zero there; the map of used parameters decides so on all ranks."""
    proven(spec(Branches, find_unused_parameters=True))


@pytest.mark.slow
@pytest.mark.nightly
def test_branches_that_are_summed_are_caught() -> None:
    report = check_at_one_mesh(spec(Branches, sums, find_unused_parameters=True))
    assert report.verdict == "mismatch", report.findings


def looks(model: DistributedDataParallel) -> None:
    """The last gradient to come looks at the first one, which is being reduced."""

    def look(parameter: torch.Tensor) -> None:
        parameter.grad.add_(model.module[2].bias.grad.sum() * 0)

    model.module[0].weight.register_post_accumulate_grad_hook(look)


def test_a_gradient_is_not_read_while_it_is_reduced() -> None:
    """Its bucket is in flight until the backward pass has ended."""
    given = spec(
        layers,
        looks,
        bucket_cap_mb=BUCKET,
        gradient_as_bucket_view=True,
        find_unused_parameters=True,
    )
    with pytest.raises(PlanError, match=r"rank 0 .*that the callback given at .* is still"):
        record(given, "parallel", 2)


def promises(model: DistributedDataParallel) -> None:
    """The hook gives a future that does not wait for the reduction."""

    def hook(state, bucket):
        dist.all_reduce(bucket.buffer(), async_op=True)
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, hook)


def test_a_hook_whose_future_waits_for_nothing() -> None:
    with pytest.raises(PlanError, match=r"rank 0 .* that the allreduce launched at .* is still"):
        record(spec(layers, promises), "parallel", 2)


HOOKS = {
    "fp16": torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook,
    "bf16": torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook,
}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", HOOKS)
def test_hooks_that_compress(name: str) -> None:
    report = proven(spec(layers, lambda model: model.register_comm_hook(None, HOOKS[name])))
    assert "PIT301" in {finding.code for finding in report.findings}


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["ALLREDUCE", "FP16_COMPRESS"])
def test_hooks_of_cpp(kind: str) -> None:
    hook = getattr(dist.BuiltinCommHookType, kind)
    proven(spec(layers, lambda model: model._register_builtin_comm_hook(hook)))


def test_a_hook_is_checked_by_its_signature() -> None:
    def hook(state: Any, bucket: int) -> Any:
        raise NotImplementedError

    with pytest.raises(PlanError, match=r"bucket annotation should be dist\.GradBucket"):
        record(spec(layers, lambda model: model.register_comm_hook(None, hook)), "parallel", 2)


def test_a_computed_buffer_that_is_broadcast() -> None:
    """It is the same constant on all ranks, before every call."""
    proven(spec(Waved))


def other_on(rank: int) -> Callable[[], nn.Module]:
    return lambda: Waved(2.0 if dist.get_rank() == rank else 1.0)


def test_the_first_rank_has_another_buffer() -> None:
    """All ranks compute with it."""
    caught(spec(Waved, parallel=other_on(0)), "scale / torch.arange", "PIT101", "PIT102")


@pytest.mark.slow
@pytest.mark.nightly
def test_another_rank_has_another_buffer() -> None:
    """The broadcast mends it; without a broadcast nothing does."""
    proven(spec(Waved, parallel=other_on(1)))


class Cached(Waved):
    """A table that is copied in the first call, after its broadcast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "copy"):
            self.copy = self.waves.clone()
        return self.layer(x) * self.copy


@pytest.mark.slow
@pytest.mark.nightly
def test_a_copy_of_the_first_call() -> None:
    proven(spec(Cached))


class Counting(nn.Module):
    """A layer that counts its calls in a buffer."""

    def __init__(self, by: int = 1) -> None:
        super().__init__()
        self.layer, self.by = nn.Linear(4, 3), by
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.by
        return self.layer(x) / (1 + self.calls)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_counter_that_is_broadcast() -> None:
    """Its numbers are known in every call, on ranks that only receive them as well."""
    proven(spec(Counting))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("rank", [0, 1])
def test_a_counter_that_one_rank_counts_otherwise(rank: int) -> None:
    report = check_at_one_mesh(
        spec(Counting, parallel=lambda: Counting(2 if dist.get_rank() == rank else 1))
    )
    assert report.verdict == "inconclusive"
    assert "'calls' is int64" in report.findings[0].title


@pytest.mark.slow
@pytest.mark.nightly
def test_another_rank_keeps_another_buffer() -> None:
    given = spec(Waved, parallel=other_on(1), broadcast_buffers=False, init_sync=False)
    report = check_at_one_mesh(given)
    assert report.verdict == "mismatch", report.findings


def read_before(model: nn.Module, program: Program) -> Program:
    """Read the table before the forward pass broadcasts it."""
    inner = program.step

    def step(batch: Batch) -> torch.Tensor:
        factor = model.table.sum()
        return inner(batch) * factor

    return replace(program, step=step)


def test_a_buffer_that_is_read_before_its_broadcast_is_not_proven() -> None:
    def parallel(_: Rank) -> Program:
        model = Waved()
        return read_before(model, training(DistributedDataParallel(model)))

    given = replace(spec(Waved), parallel=parallel)
    with pytest.raises(UnsupportedError, match=r"'waves'.* before another rank broadcasts it anew"):
        record(given, "parallel", 2)
