"""The parts of parameters that a user states for patterns of names, those that shapes tell, and
outputs that are terms over several axes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.regions import FromRanks, ToRanks
from frontends.torch.parallelism.test_tensor_parallel import WIDTH, FeedForward
from frontends.torch.proving import check_at_one_mesh, proven
from torch import nn

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.names.stated_parts import StatedParts
from pitcheck.frontends.torch.program import Input, Part, Program, Rank, Spec, StatedPart
from pitcheck.torch import capture

HIDDEN = 16
Parts = Mapping[str, StatedPart]
BOTH: Parts = {"up.*": Part(split={0: "tp"}), "down.w*": Part(split={1: "tp"})}


def training(model: FeedForward, to: Any, back: Any) -> Program:
    def step(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        hidden = nn.functional.silu(model.up(to.apply(batch["x"])))
        out = back.apply(nn.functional.linear(hidden, model.down.weight)) + model.down.bias
        loss: torch.Tensor = (out**2).sum()
        loss.backward()
        return loss

    return Program(model, step)


class Same(torch.autograd.Function):
    """What a single device does in place of communication."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def spec(parts: Parts, mesh: Mapping[str, int], back: Any = FromRanks) -> Spec:
    def parallel(rank: Rank) -> Program:
        model = FeedForward()
        width = HIDDEN // 2
        model.up = nn.Linear(WIDTH, width)
        model.down.weight = nn.Parameter(torch.empty(WIDTH, width))
        program = training(model, ToRanks, back)
        return Program(program.model, program.step, parts=parts)

    return Spec(
        lambda: training(FeedForward(), Same, Same), parallel, mesh, {"x": Input((4, WIDTH))}
    )


def test_patterns_say_what_ranks_hold() -> None:
    report = proven(spec(BOTH, {"tp": 2}))
    assert not any("shape on each rank" in line for line in report.assumptions)


def test_a_shape_tells_the_part() -> None:
    """The report says that it was taken so."""
    report = proven(spec({}, {"tp": 2}))
    assert sum("over tp in equal stretches" in line for line in report.assumptions) == 2


@pytest.mark.parametrize("parts", [{}, BOTH], ids=["told by shapes", "stated"])
def test_parts_hide_no_missing_reduction(parts: Parts) -> None:
    report = check_at_one_mesh(spec(parts, {"tp": 2}, Same))
    assert report.verdict == "mismatch" and report.findings[0].code == "PIT104", report.findings


def test_parts_in_another_order_are_a_mismatch() -> None:
    """One matrix has its rows of the other rank."""
    swapped: Parts = {**BOTH, "down.w*": {1: [(8, 16)]}}
    report = check_at_one_mesh(spec(swapped, {"tp": 2}))
    assert report.verdict == "mismatch", report.findings


def test_a_shape_that_two_axes_fit_tells_nothing() -> None:
    with pytest.raises(UnsupportedError, match=r"does not tell the part; say it in Program.parts"):
        capture(spec({}, {"dp": 2, "tp": 2}))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({**BOTH, "up.w*": Part(split={0: "tp"})}, "two things about 'up.weight': as 'up.*' and"),
        ({**BOTH, "*.wieght": Part(split={0: "tp"})}, "pattern '*.wieght', which matches none of"),
        ({"up.*": Part(split={0: "ep"})}, "split over 'ep', which is no axis of the mesh (tp)"),
        ({"up.*": Part(split={1: "tp"})}, "Program.parts['up.*'] splits dimension 1 of 'up.bias'"),
        ({"up.*": Part(sum="tp")}, "Program.parts['up.*'] is a sum or a mean"),
        (
            {"up.*": Part(split={0: "tp"}), "down.*": Part(split={0: "tp"})},
            "holds a part of 'down.weight' of shape (16, 8), which is (8, 16) in the reference",
        ),
    ],
)
def test_parts_that_cannot_be(parts: Parts, message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        capture(spec(parts, {"tp": 2}))


def marked(dims: Mapping[str, int]) -> Spec:
    """The program as Megatron's layers say it: by attributes of parameters."""
    plain = spec({}, {"tp": 2})

    def parallel(rank: Rank) -> Program:
        program = plain.parallel(rank)
        for name, parameter in program.model.named_parameters():
            if name in dims:
                parameter.tensor_model_parallel = True
                parameter.partition_dim = dims[name]
        return program

    return replace(plain, parallel=parallel)


DIMS = {"up.weight": 0, "up.bias": 0, "down.weight": 1}


@pytest.fixture
def _groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron's groups, as of a mesh with one axis."""
    state = SimpleNamespace(get_tensor_model_parallel_group=lambda: dist.group.WORLD)
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)


@pytest.mark.usefixtures("_groups")
def test_attributes_say_what_ranks_hold() -> None:
    report = proven(marked(DIMS))
    assert not any("shape on each rank" in line for line in report.assumptions)


@pytest.mark.usefixtures("_groups")
@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"up.weight": 1}, "a part of 'up.weight' of shape (8, 16), which is (16, 8)"),
        ({"down.bias": 0}, "a part of 'down.bias' of shape (16,), which is (8,)"),
    ],
    ids=["another dimension", "a whole one"],
)
def test_attributes_that_the_shape_contradicts(dims: Mapping[str, int], message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        capture(marked({**DIMS, **dims}))


def test_several_axes_divide_in_their_order() -> None:
    parts = StatedParts(
        {"*": Part(split={0: ("dp", "tp")})}, {"dp": 2, "tp": 3}, {"dp": 1, "tp": 2}
    )
    found = parts.of("x", (4, 5))
    assert found is not None and (found.whole, found.box) == ((24, 5), (((20, 24),), ((0, 5),)))


def terms(loss: Part) -> Spec:
    """The mean over rows of sums over columns; ranks have some of both."""

    def program() -> Program:
        return Program({}, lambda batch: (batch["x"] ** 2).mean(0).sum())

    return Spec(
        program,
        lambda rank: program(),
        {"dp": 2, "cp": 3},
        {"x": Input((4, 6), split={0: "dp", 1: "cp"})},
        {"loss": loss},
    )


def test_an_output_is_a_sum_over_one_axis_and_a_mean_over_another() -> None:
    proven(terms(Part(sum="cp", mean="dp")))


@pytest.mark.parametrize(
    "loss", [Part(sum="dp", mean="cp"), Part(mean=("dp", "cp")), Part(sum=("dp", "cp"))], ids=str
)
def test_other_terms_are_a_mismatch(loss: Part) -> None:
    report = check_at_one_mesh(terms(loss))
    assert report.verdict == "mismatch", report.findings


def test_an_axis_has_one_meaning() -> None:
    with pytest.raises(PlanError, match=re.escape("names the axis 'dp' twice")):
        capture(terms(Part(sum="dp", mean="dp")))


class Stacked(torch.optim.Optimizer):
    """Momentum of matrices in one tensor, of which each of two ranks has a part, padded to two."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self) -> None:
        parameters = self.param_groups[0]["params"]
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        chunk = -(-len(parameters) // ranks)
        own = grads = torch.zeros(chunk * ranks, *parameters[0].shape)
        grads[: len(parameters)].copy_(torch.stack([parameter.grad for parameter in parameters]))
        if dist.is_initialized():
            own = torch.empty(chunk, *grads.shape[1:])
            dist.reduce_scatter_tensor(own, grads, op=dist.ReduceOp.AVG)
        state = self.state[parameters[0]]
        state.setdefault("momentum", torch.zeros_like(own)).mul_(0.9).add_(own)
        update = state["momentum"]
        if dist.is_initialized():
            update = torch.empty_like(grads)
            dist.all_gather_into_tensor(update, state["momentum"])
        for parameter, change in zip(parameters, update[: len(parameters)], strict=True):
            parameter.sub_(0.1 * change)


def stacked(first: int) -> Spec:
    """Momentum that is named in ``Program.parts``, as if rank 0 had the part ``first``."""
    count, chunk = 3, 2

    def program(parts: Mapping[str, StatedPart]) -> Program:
        model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(count)))
        optimizer = Stacked(model.parameters())

        def step(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
            loss = model(batch["x"]).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return Program(model, step, optimizer, parts=parts)

    def parallel(rank: Rank) -> Program:
        own = (rank.number + first) % 2
        return program({"momentum:*": {0: [(own * chunk, (own + 1) * chunk)]}})

    return Spec(
        lambda: program({}),
        parallel,
        {"dp": 2},
        {"x": Input((4, 4), split={0: "dp"})},
        {"loss": Part(mean="dp")},
    )


def test_optimizer_state_is_named_by_its_key() -> None:
    """Rank 1 has the last of three matrices, and one of padding beyond the end of the whole."""
    assert check_at_one_mesh(stacked(0)).verdict == "equivalent"
    assert check_at_one_mesh(stacked(1)).verdict == "mismatch"
