"""Numbers that are known, passed between ranks by collectives, and looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
from frontends.torch.proving import proven
from frontends.torch.together.exchanging import Body, averaging, recorded, refused

from pitcheck.errors import MeetingError, PlanError, UnsupportedError

MAX, MIN = dist.ReduceOp.MAX, dist.ReduceOp.MIN


def equal(found: object, due: object) -> None:
    """Refuse the program of a rank that finds something else."""
    if found != due:
        raise ValueError(f"found {found} in place of {due}")


def decide_by(number: torch.Tensor) -> None:
    """Look at a number, which decides something."""
    if number.item() > 2:
        number.add_(1)


def ranks_of_all(rank: int) -> None:
    found = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(found, torch.tensor([rank + 5]))
    equal([int(each) for each in found], [5, 6])


def every_reduction(rank: int) -> None:
    for kind, due in ((dist.ReduceOp.SUM, 9), (MAX, 5), (MIN, 4), (dist.ReduceOp.PRODUCT, 20)):
        number = torch.tensor(4 + rank)
        dist.all_reduce(number, kind)
        equal(number.item(), due)


def from_a_root(rank: int) -> None:
    number = torch.tensor([3, rank])
    dist.broadcast(number, 1)
    equal(number.tolist(), [3, 1])


def there_and_on(rank: int) -> None:
    """What is received, computed with and sent on is known at the end alone."""
    number = torch.tensor([rank])
    dist.all_reduce(number, MAX)
    number = number * 10 + 1
    if rank == 0:
        dist.send(number, 1)
    else:
        got = torch.zeros(1, dtype=torch.int64)
        dist.recv(got, 0)
        equal(got.tolist(), [11])


def parts_of_all(rank: int) -> None:
    """An all-to-all of unequal parts: the order is that of the group."""
    got = torch.zeros(2 if rank == 0 else 4, dtype=torch.int64)
    sizes = [1, 1] if rank == 0 else [2, 2]
    dist.all_to_all_single(got, torch.arange(3) + 10 * rank, sizes, [1, 2])
    equal(got.tolist(), [0, 10] if rank == 0 else [1, 2, 11, 12])


def lists(rank: int) -> None:
    got = [torch.zeros(2, dtype=torch.int64) for _ in range(2)]
    dist.all_to_all(got, [torch.tensor([rank, 0]), torch.tensor([rank, 1])])
    equal([each.tolist() for each in got], [[0, rank], [1, rank]])


def to_a_root(rank: int) -> None:
    got = [torch.zeros(1, dtype=torch.int64) for _ in range(2)] if rank == 1 else None
    dist.gather(torch.tensor([rank]), got, dst=1)
    if got is not None:
        equal([each.item() for each in got], [0, 1])
    part = torch.zeros(1, dtype=torch.int64)
    dist.scatter(part, [torch.tensor([7]), torch.tensor([8])] if rank == 0 else None)
    equal(part.item(), 7 + rank)


def reduced_parts(rank: int) -> None:
    got = torch.zeros(1, dtype=torch.int64)
    dist.reduce_scatter_tensor(got, torch.tensor([1, 2]) * (rank + 1))
    equal(got.item(), 3 * (rank + 1))


def later(rank: int) -> None:
    number = torch.tensor([rank + 1])
    work = dist.all_reduce(number, async_op=True)
    work.wait()
    equal(number.item(), 3)


def of_any_kind(rank: int) -> None:
    flag = torch.tensor([rank == 1])
    dist.all_reduce(flag, MAX)
    equal(flag.item(), True)
    small = torch.tensor([rank - 200], dtype=torch.int16)
    dist.all_reduce(small)
    equal(small.item(), -399)
    half = torch.tensor([0.5 + rank], dtype=torch.bfloat16)
    dist.all_reduce(half)
    equal(half.item(), 2.0)
    none = torch.zeros(0, dtype=torch.int64)
    dist.all_reduce(none)
    equal(none.tolist(), [])


def as_an_array(rank: int) -> None:
    number = torch.tensor([rank, 2])
    dist.all_reduce(number)
    equal(number.cpu().numpy().tolist(), [1, 4])


def shapes_of_others(rank: int) -> None:
    """A buffer is as large as another rank says."""
    size = torch.tensor([3 * rank])
    dist.broadcast(size, 1)
    equal(torch.empty(int(size)).shape, (3,))


def functional(rank: int) -> None:
    """Functional collectives, whose results are waited for by looking at them."""
    world, number = dist.group.WORLD, torch.tensor([rank])
    equal(int(fc.all_reduce(number + 1, "sum", world)), 3)
    equal(fc.broadcast(number, 1, world).tolist(), [1])
    sizes = [1, 1] if rank == 0 else [2, 2]
    parts = fc.all_to_all_single(torch.arange(3) + 10 * rank, sizes, [1, 2], world)
    equal(parts.tolist(), [0, 10] if rank == 0 else [1, 2, 11, 12])


def written_over(rank: int) -> None:
    """What is written after a collective is not what the collective gave."""
    numbers = torch.zeros(2, dtype=torch.int64)
    dist.all_gather_into_tensor(numbers, torch.tensor([rank + 1]))
    numbers[0] = 9
    equal(numbers.tolist(), [9, 2])


def by_tags(rank: int) -> None:
    numbers = [torch.tensor([tag * (1 - rank)]) for tag in (1, 2)]
    if rank == 0:
        for tag, number in enumerate(numbers):
            dist.isend(number, 1, tag=tag).wait()
    else:
        for tag in (1, 0):
            dist.recv(numbers[tag], 0, tag=tag)
        equal([number.item() for number in numbers], [1, 2])


def in_a_batch(rank: int) -> None:
    got = torch.zeros(1, dtype=torch.int64)
    send = dist.P2POp(dist.isend, torch.tensor([rank]), 1 - rank)
    for work in dist.batch_isend_irecv([send, dist.P2POp(dist.irecv, got, 1 - rank)]):
        work.wait()
    equal(got.item(), 1 - rank)


def in_a_backward_pass(rank: int) -> None:
    x = torch.ones(2, requires_grad=True)

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        every_reduction(rank)
        return gradient

    x.register_hook(hook)
    (x * 2).sum().backward()


def over_data(rank: int) -> None:
    """A root's known number takes the place of what others had."""
    torch.manual_seed(rank)
    number = torch.tensor([5.0]) if rank == 0 else torch.rand(1)
    dist.broadcast(number, 0)
    equal(number.item(), 5.0)


@pytest.mark.parametrize(
    "body",
    [
        functional,
        written_over,
        by_tags,
        in_a_batch,
        in_a_backward_pass,
        over_data,
        ranks_of_all,
        every_reduction,
        from_a_root,
        there_and_on,
        parts_of_all,
        lists,
        to_a_root,
        reduced_parts,
        later,
        of_any_kind,
        as_an_array,
        shapes_of_others,
    ],
)
def test_numbers_pass(body: Body) -> None:
    recorded(body)


def test_the_order_of_a_group_decides() -> None:
    """Members of a group are numbered in its order, whatever their ranks are."""

    def body(rank: int) -> None:
        groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        found = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
        dist.all_gather(found, torch.tensor([rank]), group=groups[rank % 2])
        equal([int(each) for each in found], [rank % 2, rank % 2 + 2])

    recorded(body, ranks=4)


@pytest.mark.slow
def test_known_numbers_leave_the_proof_as_it_is() -> None:
    proven(averaging(ranks_of_all))


def test_a_wait_reads_what_was_computed_meanwhile() -> None:
    """A collective whose result is not waited for may not be looked at."""

    def body(rank: int) -> None:
        number = torch.tensor([rank])
        dist.all_reduce(number, async_op=True)
        number.item()

    assert "still writing to" in refused(PlanError, "PIT001", body)


def test_what_no_rank_knows_is_not_known() -> None:
    """Data of one rank makes the result data, though the other knows its own part."""

    def built(kind: Callable[[torch.Tensor], torch.Tensor]) -> Body:
        def body(rank: int) -> None:
            torch.manual_seed(rank)
            number = torch.ones(1) if rank == 0 else kind(torch.rand(1))
            dist.all_reduce(number)
            decide_by(number)

        return body

    for kind in (lambda drawn: drawn, lambda drawn: drawn * 0, torch.round):
        assert "it is compared" in refused(UnsupportedError, "PIT200", built(kind))


def test_received_data_is_not_known() -> None:
    def body(rank: int) -> None:
        torch.manual_seed(0)
        number = torch.rand(1)
        if rank == 0:
            dist.send(number, 1)
        else:
            dist.recv(number, 0)
            decide_by(number)

    assert "rank 1" in refused(UnsupportedError, "PIT200", body)


def test_unwritten_memory_is_not_known() -> None:
    def body(rank: int) -> None:
        number = torch.tensor([1]) if rank == 0 else torch.empty(1, dtype=torch.int64)
        dist.all_reduce(number)
        decide_by(number)

    refused(UnsupportedError, "PIT200", body)


def test_what_only_the_root_has_is_unknown_elsewhere() -> None:
    def body(rank: int) -> None:
        number = torch.tensor([rank])
        dist.reduce(number, 0)
        equal(number.item(), 1)

    assert "rank 1" in refused(UnsupportedError, "PIT200", body)


@pytest.mark.parametrize(
    ("numbers", "kind"),
    [
        ([True, True], dist.ReduceOp.SUM),
        ([3, 4], dist.ReduceOp.AVG),
        ([1e30, 1.0, -1e30, 1.0], dist.ReduceOp.SUM),
    ],
    ids=["a sum of booleans", "a mean of integers", "a sum that rounds"],
)
def test_what_libraries_do_not_agree_on_is_unknown(numbers: list[float], kind: object) -> None:
    def body(rank: int) -> None:
        number = torch.tensor([numbers[rank]])
        dist.all_reduce(number, kind)
        decide_by(number)

    refused(UnsupportedError, "PIT200", body, ranks=len(numbers))


def other_dtypes(rank: int) -> None:
    number = torch.tensor([1], dtype=torch.int32 if rank == 0 else torch.int64)
    dist.all_reduce(number)
    number.item()


def other_shapes(rank: int) -> None:
    number = torch.ones(1 + rank)
    dist.all_reduce(number)
    number.tolist()


def other_kinds(rank: int) -> None:
    number = torch.ones(1)
    dist.all_reduce(number, MAX if rank == 0 else MIN)
    number.item()


def other_calls(rank: int) -> None:
    number = torch.ones(1)
    if rank == 0:
        dist.all_reduce(number)
        number.item()
    else:
        dist.broadcast(number, 0)


def other_roots(rank: int) -> None:
    number = torch.ones(1)
    dist.broadcast(number, rank)
    number.item()


def crossed(rank: int) -> None:
    """Each rank comes to the calls of the other in another order."""
    first, second = torch.ones(1), torch.ones(2)
    for number in (first, second) if rank == 0 else (second, first):
        dist.all_reduce(number)
    first.item()


def other_sizes(rank: int) -> None:
    got = torch.zeros(2, dtype=torch.int64)
    dist.all_to_all_single(got, torch.arange(3), [1, 1], [1, 2])
    got.tolist()


def other_messages(rank: int) -> None:
    if rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        got = torch.ones(1)
        dist.recv(got, 0)
        got.item()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (other_dtypes, "int32 [1]"),
        (other_shapes, "float32 [2]"),
        (other_kinds, "all_reduce (max)"),
        (other_calls, "broadcast (0)"),
        (other_roots, "broadcast (1)"),
        (crossed, "float32 [2]"),
        (other_sizes, "sends 2 rows to rank 1"),
        (other_messages, "for what rank 0 gives to send of float32 [2]"),
    ],
)
def test_ranks_that_contradict_each_other(body: Body, said: str) -> None:
    message = refused(MeetingError, "PIT006", body)
    assert said in message
    assert "test_known_values.py:" in message


def test_a_program_cannot_catch_it() -> None:
    def body(rank: int) -> None:
        try:
            other_kinds(rank)
        except MeetingError:
            return

    refused(MeetingError, "PIT006", body)
