"""A gradient that a DTensor says to be partial is compared as the sum that it is."""

from __future__ import annotations

import pytest
from frontends.torch.proving import check_at_one_mesh, proven
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

from pitcheck.torch import Input, Program, Rank, Spec

ROWS, WIDTH = 4, 6


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)


def spec(local: bool = False) -> Spec:
    def program(model: nn.Module, sharded: bool) -> Program:
        def step(batch):
            model.zero_grad()
            x = batch["x"]
            if sharded:
                mesh = model.norm.weight.device_mesh
                x = DTensor.from_local(x, mesh, [Shard(1)])
            out = model.norm(x)
            out = out.to_local() if sharded else out
            (out * out * batch["x"]).sum().backward()
            if local and sharded:
                weight = model.norm.weight
                weight.grad = DTensor.from_local(weight.grad.to_local(), mesh, weight.placements)

        return Program(model, step)

    def parallel(rank: Rank) -> Program:
        model = Normed()
        mesh = init_device_mesh("cpu", (rank.mesh["tp"],), mesh_dim_names=("tp",))
        parallelize_module(model, mesh, {"norm": SequenceParallel()})
        return program(model, True)

    return Spec(
        lambda: program(Normed(), False),
        parallel,
        {"tp": 2},
        {"x": Input((2, ROWS, WIDTH), split={1: "tp"})},
    )


@pytest.mark.slow
def test_partial_gradients() -> None:
    report = proven(spec())
    assert any("the sum of all shares" in line for line in report.exceptions), report.exceptions


@pytest.mark.slow
def test_terms_that_are_said_to_be_whole() -> None:
    report = check_at_one_mesh(spec(local=True))
    assert (report.verdict, report.findings[0].code) == ("mismatch", "PIT104")
