"""Programs with the ways of large frameworks.

These are gradients in one flat buffer, experts by counts, recomputation, schedules of pipelines,
batch statistics and masks.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from frontends.torch.checking import CLOSE, check
from frontends.torch.parallelism.regions import Exchange
from frontends.torch.parallelism.test_pipeline import Stages
from frontends.torch.programs.test_plain import BATCH, mlp, reference, squares
from frontends.torch.proving import check_at_one_mesh
from frontends.torch.replay import difference, truth
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils.checkpoint import checkpoint

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.program import Input, Program, Rank, Spec
from pitcheck.frontends.torch.recording.record import record
from pitcheck.frontends.torch.trace import Trace


def alone(program: Callable[[], Program]) -> Trace:
    """The trace of a program on one device, which computes what autograd computes."""
    spec = Spec(program, lambda rank: program(), {"dp": 1}, BATCH)
    true = truth(spec)
    trace = record(spec, "reference", 1)
    assert difference(trace, true.tensors, true.results) < CLOSE
    return trace[0]


def buffered(rank: Rank) -> Program:
    """Gradients are added to views of a flat buffer by hooks, and the buffer is reduced as a whole,
    as Megatron does.
    """
    model = mlp()
    parameters = list(model.parameters())
    flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
    begin = 0
    for parameter in parameters:
        parameter.main_grad = flat[begin : begin + parameter.numel()].view(parameter.shape)
        begin += parameter.numel()

        def add(parameter):
            parameter.main_grad.add_(parameter.grad)
            parameter.grad = None

        parameter.register_post_accumulate_grad_hook(add)
    inner = squares(model)

    def step(batch):
        flat.zero_()
        loss = inner(batch)
        dist.all_reduce(flat)
        return loss

    return Program(model, step)


def test_flat_buffer() -> None:
    traces = check(Spec(reference, buffered, {"dp": 2}, BATCH))
    assert [event.operator for event in traces[0].events if event.group] == ["all_reduce"]


class Experts(nn.Module):
    """Tokens go to the expert that is named in the batch."""

    def __init__(self, experts: range) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({str(number): nn.Linear(4, 4) for number in experts})


ROUTE = [0, 1, 1, 2, 3, 1, 0, 3]
ROUTED = {
    "x": Input((8, 4), split={0: "ep"}),
    "route": Input((8,), "int64", values=ROUTE, split={0: "ep"}),
}


def together() -> Program:
    model = Experts(range(4))

    def step(batch):
        out = torch.zeros(8, 4)
        for number, expert in model.experts.items():
            chosen = (batch["route"] == int(number)).nonzero()[:, 0]
            out = out.index_put((chosen,), expert(batch["x"][chosen]))
        loss = (out**2 * torch.arange(8.0)[:, None]).sum()
        loss.backward()
        return loss

    return Program(model, step)


def exchanged(rank: Rank) -> Program:
    mine = range(2 * rank.number, 2 * rank.number + 2)
    model = Experts(mine)
    routes = [ROUTE[:4], ROUTE[4:]]

    def step(batch):
        order = batch["route"].argsort(stable=True)
        counts = torch.bincount(batch["route"], minlength=4)
        sent = counts.view(2, 2).sum(1).tolist()
        received = [sum(expert in mine for expert in route) for route in routes]
        got = Exchange.apply(batch["x"][order], sent, received)
        names = torch.tensor(
            [expert for route in routes for expert in sorted(route) if expert in mine]
        )
        done = torch.zeros(len(names), 4)
        for number, expert in model.experts.items():
            chosen = (names == int(number)).nonzero()[:, 0]
            done = done.index_put((chosen,), expert(got[chosen]))
        back = Exchange.apply(done, received, sent)
        out = torch.zeros(4, 4).index_put((order,), back)
        loss = (out**2 * torch.arange(4.0 * rank.number, 4.0 * rank.number + 4)[:, None]).sum()
        loss.backward()
        return loss

    return Program(model, step)


def test_experts_by_counts() -> None:
    traces = check(Spec(together, exchanged, {"ep": 2}, ROUTED))
    sizes = [event.arguments[1:] for event in traces[0].events if event.operator == "all_to_all"]
    assert sizes == [((3, 1), (3, 2)), ((3, 2), (3, 1)), ((3, 1), (3, 2))]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation(reentrant: bool) -> None:
    def program() -> Program:
        model = mlp()

        def step(batch):
            x = nn.Parameter(batch["x"])
            loss = ((checkpoint(model, x, use_reentrant=reentrant) - batch["y"]) ** 2).sum()
            loss.backward()
            return loss

        return Program(model, step)

    assert sum(event.operator == "gelu.default" for event in alone(program).events) == 2


def scheduled() -> Spec:
    """Two stages and four micro-batches by PyTorch's own schedule."""
    batch = {"x": Input((4, 6)), "y": Input((4, 6))}

    def whole() -> Program:
        model = Stages(range(2))

        def step(batch):
            loss = ((model(batch["x"]) - batch["y"]) ** 2).sum()
            loss.backward()
            return loss

        return Program(model, step)

    def parallel(rank: Rank) -> Program:
        model = Stages(range(rank.number, rank.number + 1))
        meta = [
            torch.empty(1, 6),
            torch.empty(1, 6, requires_grad=True),
            torch.empty(1, 6, requires_grad=True),
        ]
        stage = PipelineStage(
            model,
            rank.number,
            2,
            torch.device("cpu"),
            input_args=meta[rank.number],
            output_args=meta[rank.number + 1],
        )
        schedule = Schedule1F1B(
            stage, 4, loss_fn=lambda out, target: ((out - target) ** 2).sum(), scale_grads=False
        )

        def step(batch):
            losses = []
            if rank.number == 0:
                schedule.step(batch["x"])
                return None
            schedule.step(target=batch["y"], losses=losses)
            return torch.stack(losses).sum()

        return Program(model, step)

    return Spec(whole, parallel, {"pp": 2}, batch)


def test_schedule_of_a_pipeline() -> None:
    traces = check(scheduled())
    assert [event.operator for event in traces[0].events if event.group].count("send") == 4


def test_batch_statistics_and_masks() -> None:
    def program() -> Program:
        model = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))

        def step(batch):
            x = batch["x"].masked_fill(torch.ones(4, 8).tril() == 0, 0.0)
            x[:, 1:3] *= 2
            loss = ((model(x) - batch["y"]) ** 2).sum()
            loss.backward()
            return loss

        return Program(model, step)

    alone(program)


def test_complex_rotation() -> None:
    """Rotary embedding by complex numbers; the trace has real ones."""

    def program() -> Program:
        model = nn.Linear(8, 8)
        angles = torch.outer(torch.arange(8.0), torch.tensor([0.5, 0.25, 0.125, 1.0]))
        turns = torch.polar(torch.ones_like(angles), angles)

        def step(batch):
            x = torch.view_as_complex(model(batch["x"]).reshape(4, 4, 2))
            turned = torch.view_as_real(
                (x * turns[2:6].view(4, 4)).transpose(0, 1).conj() * 2.0
            ).flatten(1)
            loss = (turned[:, 1:] ** 3).sum()
            loss.backward()
            return loss

        return Program(model, step)

    alone(program)


PLACES = [[3, 1, 0, 2], [0, 0, 3, 1], [1, 2, 3, 0], [2, 3, 1, 1]]


def gathered(dim: int, places: list[list[int]]) -> Program:
    """Rotary embedding at given positions."""
    model = nn.Linear(8, 8)
    angles = torch.outer(torch.arange(8.0), torch.tensor([0.5, 0.25, 0.125, 1.0]))
    turns = torch.polar(torch.ones_like(angles), angles)
    index = torch.tensor(places)

    def step(batch):
        x = torch.view_as_complex(model(batch["x"]).reshape(4, 4, 2))
        turned = torch.view_as_real(x * torch.gather(turns, dim, index)).flatten(1)
        loss = (turned**3).sum()
        loss.backward()
        return loss

    return Program(model, step)


@pytest.mark.parametrize("dim", [0, -1])
def test_complex_numbers_that_are_gathered(dim: int) -> None:
    """The places are those of both parts."""
    alone(lambda: gathered(dim, PLACES))


@pytest.mark.parametrize("dim", [0, -1])
def test_complex_numbers_that_are_gathered_elsewhere(dim: int) -> None:
    """One place of sixteen is another one."""
    elsewhere = [[3, 1, 0, 2], [0, 0, 3, 1], [1, 2, 3, 0], [2, 3, 1, 0]]
    for places, verdict in ((PLACES, "equivalent"), (elsewhere, "mismatch")):
        report = check_at_one_mesh(
            Spec(
                lambda: gathered(dim, PLACES),
                lambda _, places=places: gathered(dim, places),
                {"dp": 1},
                BATCH,
            )
        )
        assert report.verdict == verdict, report.findings


def test_complex_numbers_that_are_written_as_real_ones() -> None:
    """Both lie in the same memory: what is written as the one is read as the other, in
    part, too.
    """

    def program() -> Program:
        model = nn.Linear(8, 8)
        angles = torch.outer(torch.arange(4.0), torch.tensor([0.5, 0.25, 0.125, 1.0]))

        def step(batch):
            turns = torch.polar(torch.ones_like(angles), angles)
            torch.view_as_real(turns)[1:3] *= 2.0
            torch.view_as_real(turns)[0, :, 1] = torch.arange(4.0)
            x = torch.view_as_complex(model(batch["x"]).reshape(4, 4, 2))
            turned = torch.view_as_real(x * turns).flatten(1)
            loss = (turned**3).sum()
            loss.backward()
            return loss

        return Program(model, step)

    alone(program)


def test_complex_numbers_that_are_not_known() -> None:
    def program() -> Program:
        model = nn.Linear(8, 8)
        return Program(
            model,
            lambda batch: {
                "y": torch.view_as_real(
                    torch.view_as_complex(model(batch["x"]).reshape(4, 4, 2)).exp()
                )
            },
        )

    with pytest.raises(
        UnsupportedError,
        match=r"test_more_programs.py:\d+: exp.default of complex numbers is not known",
    ):
        record(Spec(program, lambda rank: program(), {"dp": 1}, BATCH), "reference", 1)
