"""Fully sharded data parallelism, alone and with tensor parallelism; DistributedDataParallel;
optimizers and clipping.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from frontends.torch.checking import check
from frontends.torch.parallelism.test_tensor_parallel import (
    TOKENS,
    Llama,
    llama,
    split_layers,
    trained,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from pitcheck.frontends.torch.program import Program, Rank, Spec


def sharded(rank: Rank, axes: tuple[str, ...], reshard: bool = True) -> tuple[Llama, float]:
    """The model of a rank; FSDP averages gradients of data parallel ranks, so that the loss is
    scaled by their number.
    """
    mesh = init_device_mesh("cpu", tuple(rank.mesh.values()), mesh_dim_names=tuple(rank.mesh))
    model = Llama()
    if "tp" in rank.mesh:
        split_layers(model, mesh["tp"], True)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh[axes], reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh[axes], reshard_after_forward=reshard)
    return model, float(torch.Size([rank.mesh[axis] for axis in axes]).numel())


def fsdp(rank: Rank) -> Program:
    model, scale = sharded(rank, ("dp",))
    return Program(model, trained(model, scale))


@pytest.mark.slow
def test_fully_sharded() -> None:
    traces = check(Spec(llama, fsdp, {"dp": 2}, TOKENS))
    box = next(given.box for given in traces[1].given if given.name == "head.weight")
    assert box == (((6, 12),), ((0, 8),))
    # What a framework does has the line that called for it, or none, rather than one of those that
    # started the recording.
    files = {event.source.rpartition(":")[0] for trace in traces for event in trace.events}
    assert {Path(file).name for file in files} - {""} == {"test_tensor_parallel.py"}


@pytest.mark.slow
def test_mixed_precision() -> None:
    """Narrow numbers are recorded as casts; on float64 they change nothing."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)

    def parallel(rank: Rank) -> Program:
        model = Llama()
        mesh = init_device_mesh("cpu", (2,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        return Program(model, trained(model, 2.0))

    traces = check(Spec(llama, parallel, {"dp": 2}, TOKENS))
    casts = {
        event.arguments[1] for event in traces[0].events if event.operator == "_to_copy.default"
    }
    assert {"bfloat16", "float32"} <= casts


@pytest.mark.slow
def test_fully_sharded_with_tensor_parallelism() -> None:
    traces = check(Spec(llama, fsdp, {"dp": 2, "tp": 2}, TOKENS))
    box = next(
        given.box for given in traces[1].given if given.name == "layers.0.attention.wq.weight"
    )
    assert box == (((4, 6),), ((0, 8),))


@pytest.mark.slow
def test_hybrid() -> None:
    def parallel(rank: Rank) -> Program:
        model, scale = sharded(rank, ("rep", "dp"), reshard=False)
        return Program(model, trained(model, scale))

    batch = {
        name: type(given)(given.shape, given.dtype, given.bounds, {0: ("rep", "dp")})
        for name, given in TOKENS.items()
    }
    check(Spec(llama, parallel, {"rep": 2, "dp": 2}, batch))


def optimized(make, clip: float | None = None):
    def build(model: nn.Module, scale: float = 1.0) -> Program:
        optimizer = make(model.parameters())
        inner = trained(model, scale)

        def step(batch):
            loss = inner(batch)
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return Program(model, step, optimizer)

    return build


@pytest.mark.slow
@pytest.mark.parametrize("foreach", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_adamw(foreach: bool) -> None:
    build = optimized(lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=foreach))
    spec = Spec(
        lambda: build(Llama()), lambda rank: build(*sharded(rank, ("dp",))), {"dp": 2}, TOKENS
    )
    traces = check(spec, gradients=False)
    assert {
        given.name.split(":")[0] for given in traces[0].given if given.role == "optimizer_state"
    } == {"exp_avg", "exp_avg_sq"}


@pytest.mark.slow
@pytest.mark.nightly
def test_clipping() -> None:
    build = optimized(
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9), clip=1.0
    )
    check(
        Spec(
            lambda: build(Llama()),
            lambda rank: build(*sharded(rank, ("dp",))),
            {"dp": 2, "tp": 2},
            TOKENS,
        ),
        gradients=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_distributed_data_parallel(own: bool) -> None:
    """With a hook of the user's, that sums, and without, which averages."""

    def hook(state, bucket):
        return (
            dist.all_reduce(bucket.buffer(), async_op=True)
            .get_future()
            .then(lambda future: future.value()[0])
        )

    def parallel(rank: Rank) -> Program:
        model = nn.parallel.DistributedDataParallel(Llama())
        if own:
            model.register_comm_hook(None, hook)
        return Program(model, trained(model, 1.0 if own else 2.0))

    traces = check(Spec(llama, parallel, {"dp": 2}, TOKENS))
    assert any(event.operator == "all_reduce" and event.backward for event in traces[0].events)


@pytest.mark.slow
def test_sharded_optimizer() -> None:
    """Each rank steps its share of the parameters and broadcasts them; state is on that
    rank alone.
    """

    def parallel(rank: Rank) -> Program:
        model = Llama()
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.01
        )
        inner = trained(model)

        def step(batch):
            loss = inner(batch)
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return Program(model, step, optimizer)

    build = optimized(lambda parameters: torch.optim.AdamW(parameters, lr=0.01))
    traces = check(Spec(lambda: build(Llama()), parallel, {"dp": 2}, TOKENS), gradients=False)
    states = [{result.name for result in trace.results if ":" in result.name} for trace in traces]
    assert states[0] and states[1] and not states[0] & states[1]
