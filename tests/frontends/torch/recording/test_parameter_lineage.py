"""Places of the parts of parameters, gradients and outputs, as frameworks say them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from frontends.torch.checking import check
from frontends.torch.programs.test_plain import BATCH, reference
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.program import Input, Program, Rank, Spec
from pitcheck.frontends.torch.recording import parameter_lineage as lineage
from pitcheck.frontends.torch.recording.record import record


@given(st.integers(0, 20), st.integers(1, 5), st.integers(1, 4))
def test_chunks_are_those_of_torch(size: int, chunks: int, times: int) -> None:
    """Cut once, and each part again, as two axes of a mesh do."""
    row = torch.arange(size)
    parts = list(row.chunk(chunks)) + [row[:0]] * chunks
    for first, part in zip(lineage.chunked(((0, size),), chunks), parts, strict=False):
        again = list(part.chunk(times)) + [row[:0]] * times
        for second, piece in zip(lineage.chunked(first, times), again, strict=False):
            assert [
                number for start, stop in second for number in range(start, stop)
            ] == piece.tolist()


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(5, 6))


def product() -> Program:
    model = Product()

    def step(batch):
        out = batch["x"] @ model.weight.T
        (out**2).sum().backward()
        return {"out": out}

    return Program(model, step)


@pytest.mark.parametrize(
    ("placement", "partial"), [(Shard(0), False), (Shard(1), True), (Replicate(), False)]
)
def test_placements_of_outputs(placement, partial: bool) -> None:
    """Outputs in shards, uneven ones too, whole, or as terms of a sum."""

    def parallel(rank: Rank) -> Program:
        mesh = init_device_mesh("cpu", (2,))
        model = Product()
        model.weight = nn.Parameter(distribute_tensor(model.weight.detach(), mesh, [placement]))

        def step(batch):
            out = DTensor.from_local(batch["x"], mesh, [Replicate()]) @ model.weight.T
            whole = out.redistribute(placements=[Replicate()]) if partial else out
            (whole**2).sum().backward()
            return {"out": out}

        return Program(model, step)

    traces = check(Spec(product, parallel, {"tp": 2}, {"x": Input((3, 6))}), outputs=True)
    out = next(result for result in traces[1].results if result.name == "out")
    assert out.partial == ((0, 1) if partial else ())
    assert out.box == (((0, 3),), ((3, 5),) if placement == Shard(0) else ((0, 5),))


def test_an_output_that_is_an_average_is_refused() -> None:
    def parallel(rank: Rank) -> Program:
        mesh = init_device_mesh("cpu", (2,))
        return Program(
            Product(), lambda batch: {"out": DTensor.from_local(batch["x"], mesh, [Partial("avg")])}
        )

    with pytest.raises(UnsupportedError, match="partial with 'avg'"):
        record(Spec(product, parallel, {"tp": 2}, {"x": Input((3, 6))}), "parallel", 2)


@pytest.mark.parametrize(("stride", "box"), [(1, ((4, 8),)), (2, ((2, 4), (6, 8)))])
def test_attributes_of_megatron(monkeypatch, stride: int, box: tuple) -> None:
    state = SimpleNamespace(get_tensor_model_parallel_group=lambda: "group")
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    monkeypatch.setattr(lineage.dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(lineage.dist, "get_rank", lambda group: 1)
    tensor = torch.zeros(4, 3)
    tensor.tensor_model_parallel, tensor.partition_dim, tensor.partition_stride = True, 0, stride
    assert lineage.part_of(tensor) == lineage.Part((8, 3), (box, ((0, 3),)))


def test_parts_that_do_not_fit() -> None:
    def parallel(rank: Rank) -> Program:
        program = reference()
        return Program(program.model, program.step, parts={"0.weight": {0: [(0, 5)]}})

    with pytest.raises(
        PlanError,
        match=r"rank 0 .*parts\['0.weight'\] gives dimension 0 the intervals \(\(0, 5\),\), but "
        r"the tensor here has shape \(12, 8\)",
    ):
        record(Spec(reference, parallel, {"dp": 2}, BATCH), "parallel", 2)


def test_parts_of_what_is_not_there() -> None:
    def parallel(rank: Rank) -> Program:
        program = reference()
        return Program(program.model, program.step, parts={"0.wieght": {0: [(0, 12)]}})

    with pytest.raises(
        PlanError,
        match=r"rank 0 .*Program.parts names '0.wieght', which is not there; the known names are "
        r"0.bias, 0.weight, 2.bias",
    ):
        record(Spec(reference, parallel, {"dp": 2}, BATCH), "parallel", 2)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"x": Input((4, 8), split={0: "cp"})}, "split over 'cp', which is no axis of the mesh"),
        ({"x": Input((3, 8), split={0: "dp"})}, "dimension 0 of size 3 is split into 2 parts"),
        ({"x": Input((4, 8), split={2: "dp"})}, "split in dimension 2, but its shape is"),
        (
            {"x": Input((4, 8), "int64", values=[1, 2])},
            r"has values of shape \(2,\); give them in its shape \(4, 8\)",
        ),
        ({"x": Input((2,), "int64", values=[1.5, 2])}, "has values that are no int64"),
        ({"x": Input((2,), values=[1.5, 2])}, "no whole numbers that float32 holds"),
        ({"x": Input((4, 8), "int7")}, "has dtype 'int7'"),
    ],
)
def test_batches_that_do_not_fit(batch, message) -> None:
    with pytest.raises(PlanError, match=message):
        record(Spec(reference, lambda rank: reference(), {"dp": 2}, batch), "parallel", 2)


def test_freed_memory_holds_nothing() -> None:
    """Memory that was given back and taken again has no defined value, whatever lay there."""

    def program(freed: bool) -> Program:
        model = Product()

        def step(batch):
            x = batch["x"] * 2
            size = x.untyped_storage().nbytes()
            if freed:
                x.untyped_storage().resize_(0)
                x.untyped_storage().resize_(size)
            return {"y": x + 1}

        return Program(model, step)

    for freed in (False, True):
        (trace,) = record(
            Spec(lambda freed=freed: program(freed), product, {}, {"x": Input((3, 6))}),
            "reference",
            1,
        )
        assert any(event.operator == "empty.memory_format" for event in trace.events) == freed
