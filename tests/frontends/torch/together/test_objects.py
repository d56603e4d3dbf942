"""Python objects that pass between ranks while they are recorded."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import proven, refuted
from frontends.torch.together.exchanging import Body, averaging, recorded, refused
from frontends.torch.together.test_known_values import equal
from torch.distributed import all_gather_object, broadcast_object_list

from pitcheck.errors import MeetingError, PlanError, UnsupportedError
from pitcheck.torch import Spec


@dataclass
class Layout:
    """Something that only a pickle carries."""

    rank: int
    sizes: dict[str, tuple[int, ...]]


def gathered(rank: int) -> None:
    found: list[Layout | None] = [None, None]
    all_gather_object(found, Layout(rank, {"x": (rank, 2)}))
    equal([each and each.sizes["x"] for each in found], [(0, 2), (1, 2)])


def broadcast(rank: int) -> None:
    given = [Layout(9, {}), "text"] if rank == 1 else [None, None]
    broadcast_object_list(given, src=1)
    equal(given, [Layout(9, {}), "text"])


def to_a_root(rank: int) -> None:
    found = [None, None]
    dist.gather_object({"rank": rank}, found if rank == 1 else None, dst=1)
    equal(found, [{"rank": 0}, {"rank": 1}] if rank == 1 else [None, None])


def scattered(rank: int) -> None:
    got = [None]
    dist.scatter_object_list(got, ["a", "b"] if rank == 0 else None)
    equal(got, ["ab"[rank]])


def sent(rank: int) -> None:
    if rank == 0:
        dist.send_object_list(["one", 2], dst=1)
        dist.send_object_list(["next"], dst=1)
    else:
        got, after = [None, None], [None]
        equal(dist.recv_object_list(got, src=0), 0)
        dist.recv_object_list(after, src=0)
        equal([got, after], [["one", 2], ["next"]])


def known_tensors(rank: int) -> None:
    """Tensors with known numbers are constants on every rank."""
    found: list[torch.Tensor] = [torch.zeros(0)] * 2
    all_gather_object(found, torch.tensor([rank, 3]))
    equal([each.tolist() for each in found], [[0, 3], [1, 3]])
    equal(int(torch.stack(found).sum()), 7)


def over_a_group(rank: int) -> None:
    """A group's own numbers, and a rank that is no member."""
    group = dist.new_group([1])
    found = [None]
    dist.all_gather_object(found, rank, group=group)
    equal(found, [1] if rank == 1 else [None])


@pytest.mark.parametrize(
    "body", [gathered, broadcast, to_a_root, scattered, sent, known_tensors, over_a_group]
)
def test_objects_pass(body: Body) -> None:
    recorded(body)


def test_objects_pass_while_programs_are_built() -> None:
    recorded(lambda _: None, built=gathered)


def test_objects_leave_the_proof_as_it_is() -> None:
    proven(averaging(sent, built=gathered))


def told_its_part(shift: int) -> Spec:
    """Rank 0 tells everybody by which factor to scale, in an object."""

    def body(rank: int) -> None:
        given = [1.0 + shift] if rank == 0 else [None]
        broadcast_object_list(given)
        factor[0] = given[0]

    factor: list[float | None] = [None]
    spec = averaging(body)
    built = spec.parallel

    def parallel(rank: object) -> object:
        program = built(rank)  # type: ignore[arg-type]
        step = program.step
        return type(program)(program.model, lambda batch: step(batch) * factor[0])

    return Spec(spec.reference, parallel, spec.mesh, spec.batch)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_number_in_an_object_is_what_its_sender_says() -> None:
    proven(told_its_part(0))
    refuted(told_its_part(1), "loss")


def test_data_in_an_object() -> None:
    """The numbers of a parameter are data, whoever sends them."""

    def body(rank: int) -> None:
        torch.manual_seed(rank)
        found = [None, None]
        all_gather_object(found, {"deep": [torch.rand(2)]})

    message = refused(UnsupportedError, "PIT200", body)
    assert "whose numbers depend on data" in message
    assert "test_objects.py:" in message


def other_functions(rank: int) -> None:
    if rank == 0:
        broadcast_object_list([1])
    else:
        all_gather_object([None, None], 1)


def a_collective_between(rank: int) -> None:
    """The data of one rank would meet the objects of the other."""
    if rank == 0:
        dist.all_reduce(torch.ones(2))
        all_gather_object([None, None], 1)
    else:
        all_gather_object([None, None], 1)
        dist.all_reduce(torch.ones(2))


def other_lengths(rank: int) -> None:
    broadcast_object_list([1, 2][: rank + 1])


def other_roots(rank: int) -> None:
    broadcast_object_list([rank], src=rank)


def a_barrier_in_its_place(rank: int) -> None:
    if rank == 0:
        dist.barrier()
    else:
        all_gather_object([None, None], 1)


def a_tensor_for_an_object(rank: int) -> None:
    if rank == 0:
        dist.send(torch.zeros(1, dtype=torch.int64), 1)
    else:
        dist.recv_object_list([None], src=0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (other_functions, "all_gather_object"),
        (a_collective_between, "all_reduce (sum) of float32 [2]"),
        (other_lengths, "broadcast_object_list (0) of 2 objects"),
        (other_roots, "broadcast_object_list (1)"),
        (a_barrier_in_its_place, "barrier at"),
        (a_tensor_for_an_object, "gives to send of int64 [1]"),
    ],
)
def test_ranks_that_contradict_each_other(body: Body, said: str) -> None:
    assert said in refused(MeetingError, "PIT006", body)


def test_objects_in_another_order_than_data() -> None:
    """Neither waits while it is recorded, but both would for ever."""

    def body(rank: int) -> None:
        first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
        data = torch.ones(1)
        if rank == 0:
            dist.all_reduce(data, group=first)
            dist.barrier(second)
            all_gather_object([None, None], 1)
        else:
            dist.barrier(second)
            dist.all_reduce(data, group=first)
            all_gather_object([None, None], 1)

    from frontends.torch.proving import check_at_one_mesh  # noqa: PLC0415

    report = check_at_one_mesh(averaging(body))
    assert report.verdict == "invalid"
    assert report.findings[0].code == "PIT007", report.findings


def test_an_object_that_cannot_be_pickled() -> None:
    def body(_: int) -> None:
        all_gather_object([None, None], lambda: None)

    assert "pickle" in refused(PlanError, "PIT001", body)


def test_objects_from_anybody() -> None:
    def body(rank: int) -> None:
        if rank == 0:
            dist.send_object_list([1], dst=1)
        else:
            dist.recv_object_list([None])

    assert "depends on time" in refused(UnsupportedError, "PIT200", body)
