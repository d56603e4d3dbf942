"""Time in recorded programs: memory while communication is in flight, barriers, and several groups
of the same ranks.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.averaging import average, averaging, network, recorded, verdict
from frontends.torch.proving import proven
from torch import nn
from torch.distributed import P2POp, ReduceOp, batch_isend_irecv, irecv, isend

from pitcheck.errors import PlanError, UnsupportedError

FUNCTIONAL = torch.ops._c10d_functional


def peer() -> int:
    return 1 - dist.get_rank()


def exchanged(
    model: nn.Module,
    separate: bool = True,
    overwrite: bool = False,
    waits: bool = True,
    clone: bool = False,
) -> None:
    """Gradients exchanged by sends and receives that do not block."""
    for parameter in model.parameters():
        sent = parameter.grad.clone() if clone else parameter.grad
        received = torch.empty_like(sent) if separate else sent
        works = [isend(sent, peer()), irecv(received, peer())]
        if overwrite:
            works[1].wait()
            parameter.grad.add_(received).div_(2)
        for work in works if waits else works[1:]:
            work.wait()
        if not overwrite:
            parameter.grad.add_(received).div_(2)


def late_but_right(model: nn.Sequential) -> None:
    """Every gradient in another way: as a view, as a row of a buffer whose other rows are written
    meanwhile, by sends, and in a batch.
    """
    dist.barrier()
    first, second, third, fourth = model.parameters()
    work = dist.all_reduce(first.grad, async_op=True)
    seen = first.grad.view(-1)
    rows = torch.zeros(4, 8)
    rows[1] = second.grad
    row = dist.all_reduce(rows[1], async_op=True)
    rows[::2] = 1.0
    received = [torch.empty_like(fourth.grad) for _ in range(2)]
    send, receive = isend(fourth.grad, peer()), irecv(received[0], peer())
    batch = batch_isend_irecv(
        [P2POp(isend, fourth.grad, peer()), P2POp(irecv, received[1], peer())]
    )
    work.get_future().wait()
    torch.futures.wait_all([row.get_future().then(lambda future: future.value())])
    for waited in (*batch, receive, send):
        waited.wait()
    seen /= 2
    second.grad.copy_(rows[1] / 2)
    whole = torch.zeros(2, *third.grad.shape)
    whole[dist.get_rank()] = third.grad
    dist.all_gather_into_tensor(whole, whole[dist.get_rank()])
    third.grad.copy_(whole.mean(0))
    fourth.grad.add_((received[0] + received[1]) / 2).div_(2)
    dist.barrier()


def test_late_waits_are_right() -> None:
    proven(averaging(late_but_right))


def row_crossed(model: nn.Sequential) -> None:
    """A column of a buffer is written while one of its rows is in flight."""
    average(model)
    rows = torch.zeros(4, 8)
    work = dist.all_reduce(rows[1], async_op=True)
    rows[:, 3] = 1.0
    work.wait()


def never_waited(model: nn.Sequential) -> None:
    average(model)
    dist.all_reduce(torch.ones(3), async_op=True)


def used_twice(model: nn.Sequential) -> None:
    average(model)
    kept = torch.ones(3)
    works = [dist.all_reduce(kept, async_op=True), dist.all_reduce(kept, async_op=True)]
    for work in works:
        work.wait()


def operand_of_functional(model: nn.Sequential) -> None:
    """A gathered tensor is written to before it has been gathered."""
    average(model)
    gradient = model[2].bias.grad
    gathered = FUNCTIONAL.all_gather_into_tensor(gradient, 2, dist.group.WORLD.group_name)
    gradient.mul_(2)
    FUNCTIONAL.wait_tensor(gathered)


def functional_result(model: nn.Sequential) -> None:
    """A gradient that nobody has waited for when the step ends."""
    average(model)
    model[2].bias.grad = FUNCTIONAL.all_reduce(
        model[2].bias.grad, "sum", dist.group.WORLD.group_name
    )


def gaps(model: nn.Sequential) -> None:
    wide = torch.zeros(5, 2)
    wide[:, 0].copy_(model[2].bias.grad)
    dist.all_reduce(wide[:, 0])


def future_not_waited(model: nn.Sequential) -> None:
    average(model)
    dist.all_reduce(model[2].bias.grad, async_op=True).get_future()
    model[2].bias.grad.div_(2)


def callback_not_waited(model: nn.Sequential) -> None:
    """Whoever gives a callback goes on at once."""
    average(model)
    dist.all_reduce(model[2].bias.grad, async_op=True).get_future().then(lambda future: future)
    model[2].bias.grad.div_(2)


def beside_a_callback(model: nn.Sequential) -> None:
    """A gradient is read that a callback divides at some time."""
    average(model)
    gradient = model[2].bias.grad
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    future = future.then(lambda _: gradient.mul_(1))
    model[0].bias.grad.add_(gradient.sum() * 0)
    future.wait()


def one_of_several(model: nn.Sequential) -> None:
    """Two are in flight, and the program waits for one."""
    average(model)
    kept = [torch.ones(3), torch.ones(3)]
    futures = [dist.all_reduce(each, async_op=True).get_future() for each in kept]
    torch.futures.collect_all(futures[:1]).wait()
    kept[1].mul_(2)


def asked_future(model: nn.Sequential) -> None:
    average(model)
    dist.all_reduce(torch.ones(3), async_op=True).get_future().done()


def exchanged_in_place(model: nn.Sequential) -> None:
    average(model)
    rows = torch.ones(4)
    dist.all_to_all_single(rows, rows)


@pytest.mark.parametrize(
    ("sync", "message"),
    [
        (
            future_not_waited,
            r"div_ at .* reads .* that the allreduce launched at .* is still writing to",
        ),
        (
            callback_not_waited,
            r"div_ at .* reads .* that the callback given at .* is still writing to",
        ),
        (
            beside_a_callback,
            r"sum at .* reads .* that the callback given at .* is still writing to",
        ),
        (
            one_of_several,
            r"mul_ at .* reads .* that the allreduce launched at .* is still writing to",
        ),
        (exchanged_in_place, r"alltoall_base writes to .* in the memory of another of its tensors"),
        (
            lambda model: exchanged(model, overwrite=True),
            r"add_ at .* writes to .* that the send launched at .* still reads",
        ),
        (
            lambda model: exchanged(model, waits=False, clone=True),
            r"the send launched at .* is in flight at the end of the step",
        ),
        (
            lambda model: exchanged(model, separate=False),
            r"the recv launched at .* writes to .* that the send launched at .* still reads",
        ),
        (
            row_crossed,
            r"copy_ at .* writes to .* that the allreduce launched at .* is still writing to",
        ),
        (never_waited, r"the allreduce launched at .* is in flight at the end of the step"),
        (
            used_twice,
            r"the allreduce launched at .* writes to .* that the allreduce launched at .* is "
            r"still writing to",
        ),
        (
            operand_of_functional,
            r"mul_ at .* writes to .* that the all_gather_into_tensor launched at .* still reads",
        ),
        (
            functional_result,
            r"the result '2.bias' after the step reads .* that the all_reduce launched at .* is "
            r"still writing to",
        ),
        (gaps, r"allreduce is given .* strides \(2,\), and NCCL refuses one"),
    ],
)
def test_memory_in_flight(sync, message) -> None:
    with pytest.raises(PlanError, match=rf"rank 0 .*{message}"):
        recorded(sync)


def test_time_is_not_asked() -> None:
    with pytest.raises(UnsupportedError, match=r"Future\.done\(\) depends on time; call wait"):
        recorded(asked_future)


def on_one_rank(model: nn.Sequential) -> None:
    average(model)
    if dist.get_rank() == 0:
        dist.barrier()


def in_another_order(model: nn.Sequential) -> None:
    steps = [lambda: average(model), dist.barrier]
    for step in steps if dist.get_rank() else reversed(steps):
        step()


def blocking(model: nn.Sequential) -> None:
    """Both send first."""
    for parameter in model.parameters():
        received = torch.empty_like(parameter.grad)
        dist.send(parameter.grad, peer())
        dist.recv(received, peer())
        parameter.grad.add_(received).div_(2)


TURNED = {
    "allreduce": dist.all_reduce,
    "broadcast": lambda x: dist.broadcast(x, 0),
    "reduce": lambda x: dist.reduce(x, 0),
    "allgather_base": lambda x: dist.all_gather_into_tensor(x.new_empty(4, 3), x),
    "reduce_scatter_base": lambda x: dist.reduce_scatter_tensor(x, x.new_ones(4, 3)),
    "alltoall_base": lambda x: dist.all_to_all_single(x.new_empty(2, 3), x),
}
"""Collectives of tensors of shape (2, 3)."""


@pytest.mark.parametrize("name", TURNED)
def test_a_collective_needs_a_contiguous_tensor(name: str) -> None:
    """A transposed gradient, for example, is refused by NCCL; so is it by gloo's all-to-all."""

    def turned(model: nn.Sequential) -> None:
        average(model)
        TURNED[name](torch.ones(3, 2).t())

    with pytest.raises(PlanError, match=rf"py:\d+: {name} is given .*call \.contiguous\(\)"):
        recorded(turned)


def laid_well(model: nn.Sequential) -> None:
    """Rows of a buffer, a transposed copy, channels in the last place, messages in any order."""
    for collective in TURNED.values():
        collective(torch.ones(6, 3)[2:4])
        collective(torch.ones(3, 2).t().contiguous())
    dist.all_reduce(torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))
    sent, received = torch.ones(3, 2).t(), torch.empty(3, 2).t()
    for work in batch_isend_irecv([P2POp(isend, sent, peer()), P2POp(irecv, received, peer())]):
        work.wait()
    average(model)


def test_what_is_contiguous_is_communicated() -> None:
    proven(averaging(laid_well))


@pytest.mark.parametrize(
    ("sync", "expected"),
    [
        (on_one_rank, ("invalid", "PIT006")),
        (in_another_order, ("invalid", "PIT006")),
        (blocking, ("invalid", "PIT012")),
    ],
)
def test_who_waits_for_whom(sync, expected) -> None:
    assert verdict(sync) == expected


def counted_by_truths(model: nn.Sequential) -> None:
    """Scale a gradient by truths that ranks have reduced: any rank is the first, all are."""
    average(model)
    first = torch.tensor([dist.get_rank() == 0, True])
    both = first.clone()
    dist.all_reduce(first, op=ReduceOp.MAX)
    dist.all_reduce(both, op=ReduceOp.MIN)
    model[2].bias.grad.mul_(first[0].float()).mul_(both[1].float()).add_(both[0].float())


def test_truths() -> None:
    proven(averaging(counted_by_truths))


def grouped() -> nn.Sequential:
    model = network()
    if dist.is_initialized():
        model.own = SimpleNamespace(groups=[dist.new_group([0, 1]) for _ in range(2)])
    return model


def crossed(model: nn.Sequential, asynchronous: bool) -> None:
    """Two groups of the same ranks, used in another order on each."""
    parameters = list(model.parameters())
    parts = list(zip(model.own.groups, (parameters[:2], parameters[2:]), strict=True))
    works = [
        dist.all_reduce(parameter.grad, group=group, async_op=asynchronous)
        for group, part in (parts if dist.get_rank() else reversed(parts))
        for parameter in part
    ]
    for work in works:
        if work is not None:
            work.wait()
    for parameter in parameters:
        parameter.grad /= 2


def test_groups_of_the_same_ranks_are_two() -> None:
    assert verdict(lambda model: crossed(model, True), grouped) == ("equivalent", "")
    assert verdict(lambda model: crossed(model, False), grouped) == ("invalid", "PIT007")
