"""Outcomes of tests for infinity and NaN, passed between ranks by collectives, and looked at."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from frontends.torch.parallelism.averaging import average, averaging
from frontends.torch.proving import check_at_one_mesh, proven
from frontends.torch.together.exchanging import Batch, Body, model, recorded, refused
from torch import nn

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.record import record
from pitcheck.torch import Input, Program, Spec

MAX, MIN, SUM, AVG = (getattr(dist.ReduceOp, name) for name in ("MAX", "MIN", "SUM", "AVG"))


def data() -> torch.Tensor:
    """Numbers that nobody has."""
    return torch.rand(3)


def equal(found: object, due: object) -> None:
    """Refuse the program of a rank that finds something else."""
    if found != due:
        raise ValueError(f"found {found} in place of {due}")


def found() -> torch.Tensor:
    """Return 1.0 if some number is not finite."""
    return torch.isfinite(data()).all().logical_not().float()


def every_reduction(_: int) -> None:
    for kind in (MAX, SUM, MIN, AVG):
        flag = found()
        dist.all_reduce(flag, kind)
        equal(flag.item(), 0.0)


def inverted(_: int) -> None:
    """All is well if it is on every rank."""
    fine = torch.isfinite(data()).all().byte()
    dist.all_reduce(fine, MIN)
    equal(fine.item(), 1)


def counted(_: int) -> None:
    count = torch.isfinite(data()).sum()
    dist.all_reduce(count)
    equal(count.item(), 6)


def of_all(_: int) -> None:
    flags = [torch.zeros(()) for _ in range(2)]
    dist.all_gather(flags, found())
    equal([flag.item() for flag in flags], [0.0, 0.0])
    equal(torch.stack(flags).any().item(), False)


def of_a_root(rank: int) -> None:
    flag = found() if rank == 1 else torch.empty(())
    dist.broadcast(flag, 1)
    equal(flag.item(), 0.0)


def to_a_root(rank: int) -> None:
    """Only the root looks at it."""
    flag = found()
    dist.reduce(flag, 0, MAX)
    flags = [torch.zeros(()) for _ in range(2)] if rank == 0 else None
    dist.gather(found(), flags)
    if flags is not None:
        equal(flag.item(), 0.0)
        equal([each.item() for each in flags], [0.0, 0.0])


def sent_on(rank: int) -> None:
    """An outcome passes a collective, is computed with, and is sent to another rank."""
    flag = found()
    dist.all_reduce(flag, MAX)
    flag = (flag + found()) * 2
    if rank == 0:
        dist.send(flag, 1)
    else:
        got = torch.ones(())
        dist.recv(got, 0)
        equal(got.item(), 0.0)


def twice(_: int) -> None:
    """Over the data-parallel group and then over the model-parallel one."""
    flag = found()
    dist.all_reduce(flag, MAX)
    dist.all_reduce(flag, MAX, group=dist.new_group([0, 1]))
    equal(flag.item(), 0.0)


def later(_: int) -> None:
    flag = found()
    work = dist.all_reduce(flag, MAX, async_op=True)
    work.wait()
    equal(flag.item(), 0.0)


def functional(_: int) -> None:
    equal(fc.all_reduce(found(), "max", dist.group.WORLD).item(), 0.0)


def beside_a_known_number(rank: int) -> None:
    """A rank that has nothing to test gives a known number."""
    flag = found() if rank == 0 else torch.zeros(())
    dist.all_reduce(flag, MAX)
    equal(flag.item(), 0.0)


def decided_by_a_known_number(rank: int) -> None:
    flag = found() if rank == 0 else torch.ones(())
    dist.all_reduce(flag, MAX)
    equal(flag.item(), 1.0)


def parts(_: int) -> None:
    flag = torch.zeros(1)
    dist.reduce_scatter_tensor(flag, torch.stack([found(), found()]))
    equal(flag.item(), 0.0)


def norms_of_norms(rank: int) -> None:
    """A norm is tested of which every rank has a part, then a number that a test has chosen."""
    norm = data().square().sum()
    dist.all_reduce(norm)
    norm = norm.sqrt()
    norm.masked_fill_(norm.isnan() | norm.isinf(), -1.0)
    bad = (~torch.isfinite(norm) | (norm < 0)).any()
    norm = torch.where(bad, torch.full_like(norm, math.inf), norm)
    equal(bool((~torch.isfinite(norm) | (norm < 0)).any()), False)


RIGHT = [
    every_reduction,
    inverted,
    counted,
    of_all,
    of_a_root,
    to_a_root,
    sent_on,
    twice,
    later,
    functional,
    beside_a_known_number,
    decided_by_a_known_number,
    parts,
    norms_of_norms,
]


@pytest.mark.parametrize("body", RIGHT)
def test_outcomes_pass(body: Body) -> None:
    traces = recorded(body)
    assert any("are finite" in line for trace in traces for line in trace.assumptions)


def test_lines_of_all_ranks_are_said() -> None:
    """A rank that looks at the outcome names the tests of the others, and no line of its own."""

    def body(rank: int) -> None:
        flag = torch.isnan(data()).any().byte() if rank else torch.zeros((), dtype=torch.uint8)
        dist.all_reduce(flag, MAX)
        if rank == 0:
            equal(flag.item(), 0)

    first, second = recorded(body)
    (said,) = (line for line in first.assumptions if "are finite" in line)
    tested = body.__code__.co_firstlineno + 1
    assert f"test_passed_outcomes.py:{tested} are finite" in said
    assert not second.assumptions


# --- what is no outcome


def greater(rank: int) -> torch.Tensor:
    return found() if rank == 0 else (data().sum() > 3).float()


def of_data(rank: int) -> torch.Tensor:
    return found() if rank == 0 else data().sum()


def with_data(rank: int) -> torch.Tensor:
    return found() * data().sum() if rank else found()


def of_infinity(rank: int) -> torch.Tensor:
    """The rank itself makes infinite what it tests."""
    made = data().masked_fill(data() > 0, math.inf) if rank else data()
    return torch.isinf(made).any().float()


def of_a_negative_number(_: int) -> torch.Tensor:
    return (data().sub(1).sum() < 0).float()


def of_a_filled_number(_: int) -> torch.Tensor:
    """A norm that another condition may have made negative."""
    norm = data().norm()
    return (norm.masked_fill(norm > 1, -1.0) < 0).float()


def of_a_chosen_number(_: int) -> torch.Tensor:
    norm = data().norm()
    return (torch.where(norm > 1, norm, -1.0) < 0).float()


def of_a_difference(_: int) -> torch.Tensor:
    return (data().norm().add(-1) < 0).float()


def of_a_cube(_: int) -> torch.Tensor:
    return (data().sum().pow(3) < 0).float()


def of_zero(_: int) -> torch.Tensor:
    return (data().norm() == 0).float()


def unwritten(rank: int) -> torch.Tensor:
    return found() if rank == 0 else torch.empty(())


@pytest.mark.parametrize(
    "flag",
    [
        greater,
        of_data,
        with_data,
        of_infinity,
        of_a_negative_number,
        of_a_filled_number,
        of_a_chosen_number,
        of_a_difference,
        of_a_cube,
        of_zero,
        unwritten,
    ],
)
def test_all_ranks_must_give_outcomes(flag: Callable[[int], torch.Tensor]) -> None:
    def body(rank: int) -> None:
        torch.manual_seed(0)
        given = flag(rank)
        dist.all_reduce(given, MAX)
        if given.item():
            raise ValueError

    assert "decides whether" in refused(UnsupportedError, "PIT200", body)


@pytest.mark.parametrize("passed_on", [False, True])
def test_infinity_of_another_rank_is_no_assumption(passed_on: bool) -> None:
    """Rank 0 tests what rank 1 has made infinite, directly or by way of a third meeting."""

    def body(rank: int) -> None:
        number = data()
        if rank == 1:
            number = number.masked_fill(number > 0, math.inf)
        dist.all_reduce(number)
        if passed_on:
            number = number * 2
            dist.broadcast(number, 1)
        if rank == 0:
            equal(torch.isinf(number).any().item(), False)

    assert "makes such numbers itself" in refused(UnsupportedError, "PIT200", body)


def test_infinity_of_another_rank_behind_its_outcome_is_no_assumption() -> None:
    def body(rank: int) -> None:
        number = data()
        if rank == 1:
            number = number.masked_fill(number > 0, math.inf)
        dist.all_reduce(number)
        flag = torch.isinf(number).any().float() if rank == 0 else torch.zeros(())
        dist.all_reduce(flag, MAX)
        equal(flag.item(), 0.0)

    assert "makes such numbers itself" in refused(UnsupportedError, "PIT200", body)


def test_infinity_that_is_tamed_is_assumed() -> None:
    """A softmax of hidden scores is finite, and a rank that has none may be a receiver."""

    def body(rank: int) -> None:
        number = data()
        if rank == 1:
            number = number.masked_fill(number > 0, -math.inf)
        dist.all_reduce(number, MAX)
        equal(torch.isnan(number.softmax(0)).any().item(), False)

    recorded(body)


def stale(passed: bool) -> Spec:
    """A step that decides by what its last call has found."""

    def program() -> Program:
        own = model()
        kept: list[torch.Tensor] = []

        def step(batch: Batch) -> torch.Tensor:
            if kept and kept[0].item():
                raise ValueError
            loss = own(batch["x"]).square().sum()
            loss.backward()
            flag = torch.isnan(own.weight.grad).any().float()
            if passed:
                dist.all_reduce(flag, MAX)
            kept[:] = [flag]
            return loss

        return Program(own, step)

    batch = {"x": Input((4, 4), split={0: "dp"})}
    return Spec(program, lambda _: program(), {"dp": 2}, batch)


@pytest.mark.parametrize("passed", [False, True])
def test_an_outcome_of_an_earlier_call_is_not_assumed(passed: bool) -> None:
    """A call may leave anything; nothing says that it is an outcome in every call."""
    with pytest.raises(UnsupportedError, match="decides whether"):
        record(stale(passed), "parallel", 2)


# --- whole checks


def left_out(net: nn.Sequential) -> None:
    """A step is left out if some rank has found something."""
    average(net)
    flag = torch.zeros(1)
    for parameter in net.parameters():
        flag += torch.isfinite(parameter.grad.amax()).logical_not()
    flag = flag.bool().byte()
    dist.all_reduce(flag, MAX)
    if flag.item():
        net.zero_grad()


def in_the_loss(net: nn.Sequential) -> None:
    """The outcome is added as a number."""
    average(net)
    flag = torch.isnan(net[0].weight.grad).any().float()
    dist.all_reduce(flag)
    net[0].bias.grad += flag.item()


def averaged_if_found(net: nn.Sequential) -> None:
    flag = torch.isnan(net[0].weight.grad).any().float()
    dist.all_reduce(flag, MAX)
    if flag.item():
        average(net)


def masked_the_other_way(net: nn.Sequential) -> None:
    flag = torch.isnan(net[0].weight.grad).any().float()
    dist.all_reduce(flag, MAX)
    average(net)
    for parameter in net.parameters():
        parameter.grad.masked_fill_(flag == 0, 0.0)


def finite_ones_in_the_loss(net: nn.Sequential) -> None:
    average(net)
    fine = torch.isfinite(net[0].weight.grad).all().float()
    dist.all_reduce(fine, MIN)
    net[0].bias.grad += fine.item()


@pytest.mark.slow
@pytest.mark.parametrize("sync", [left_out, in_the_loss])
def test_outcomes_change_nothing(sync: Callable[[nn.Sequential], None]) -> None:
    proven(averaging(sync))


@pytest.mark.slow
@pytest.mark.parametrize("sync", [averaged_if_found, masked_the_other_way, finite_ones_in_the_loss])
def test_the_ordinary_way_is_checked(sync: Callable[[nn.Sequential], None]) -> None:
    assert check_at_one_mesh(averaging(sync)).verdict == "mismatch"


def alone(net: nn.Sequential) -> None:
    """The test is not taken on every rank, and so is the collective."""
    average(net)
    if dist.get_rank() == 0:
        flag = torch.isnan(net[0].weight.grad).any().float()
        dist.all_reduce(flag, MAX)
        if flag.item():
            net.zero_grad()


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_missed() -> None:
    assert check_at_one_mesh(averaging(alone)).verdict == "invalid"


# --- choices that nobody looks at


def masked(condition: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[nn.Sequential], None]:
    """Return an average whose gradients are masked by what all ranks have found."""

    def sync(net: nn.Sequential) -> None:
        average(net)
        for parameter in net.parameters():
            flag = condition(parameter.grad).float()
            dist.all_reduce(flag, MAX)
            parameter.grad = torch.where(flag > 0, torch.zeros_like(parameter.grad), parameter.grad)

    return sync


@pytest.mark.slow
def test_a_masked_update_is_that_of_finite_numbers() -> None:
    report = proven(averaging(masked(lambda grad: torch.isnan(grad).any())))
    assert any("are finite" in line for line in report.assumptions)


@pytest.mark.slow
def test_a_mask_that_is_inverted_is_caught() -> None:
    spec = averaging(masked(lambda grad: torch.isfinite(grad).all()))
    assert check_at_one_mesh(spec).verdict == "mismatch"


def hidden(wrong: bool) -> Callable[[nn.Sequential], None]:
    """Return an average of gradients plus numbers of rows whose scores are all hidden."""

    def sync(net: nn.Sequential) -> None:
        average(net)
        for parameter in net.parameters():
            scores = torch.full_like(parameter.grad, -math.inf) * 1.0
            top = scores.amax()
            filled = torch.where(torch.isinf(top), torch.full_like(top, float(wrong)), top)
            parameter.grad += filled

    return sync


@pytest.mark.slow
@pytest.mark.nightly
def test_infinity_that_is_tamed_chooses_as_it_does() -> None:
    """A choice by a test of what comes from infinity is not taken for finite numbers."""
    assert check_at_one_mesh(averaging(hidden(True))).verdict != "equivalent"
