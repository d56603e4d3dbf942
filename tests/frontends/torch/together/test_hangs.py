"""Ranks that wait, while they are recorded, for what never comes."""

from __future__ import annotations

import os
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import check_at_one_mesh
from frontends.torch.together.exchanging import Body, averaging, recorded, refused

from pitcheck.errors import HangError, MeetingError, PlanError, UnsupportedError
from pitcheck.frontends.torch.recording.record import _answer
from pitcheck.frontends.torch.together.rank_processes import RankProcesses


def a_broadcast_that_one_never_enters(rank: int) -> None:
    group = dist.new_group([0, 1])
    if rank == 0:
        dist.broadcast_object_list([1], group=group)


def a_receive_without_a_send(rank: int) -> None:
    if rank == 1:
        dist.recv_object_list([None], src=0)


def a_known_tensor_that_nobody_sends(rank: int) -> None:
    number = torch.zeros(1)
    if rank == 1:
        dist.recv(number, 0)
        number.item()


def in_different_exchanges(rank: int) -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    dist.all_gather_object([None, None], rank, group=groups[rank])


def each_waits_for_the_other(rank: int) -> None:
    dist.recv_object_list([None], src=1 - rank)
    dist.send_object_list([1], dst=1 - rank)


def one_call_too_few(rank: int) -> None:
    group = dist.new_group([0, 1])
    for _ in range(2 + rank):
        dist.all_gather_object([None, None], 1, group=group)


def groups_by_other_counts(rank: int) -> None:
    """One rank makes a group more, so that the names of later ones differ."""
    if rank == 0:
        dist.new_group([0])
    group = dist.new_group([0, 1])
    dist.all_gather_object([None, None], 1, group=group)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            a_broadcast_that_one_never_enters,
            "for rank 1, which never comes there (rank 1 has ended)",
        ),
        (a_receive_without_a_send, "rank 1 waits in recv_object_list at"),
        (a_known_tensor_that_nobody_sends, "at whose result it looks at"),
        (in_different_exchanges, "rank 1 waits in all_gather_object at"),
        (each_waits_for_the_other, "rank 1 waits in recv_object_list at"),
        (one_call_too_few, "rank 1 waits in all_gather_object at"),
        (groups_by_other_counts, "rank 0 waits in all_gather_object at"),
    ],
)
def test_a_hang_is_found_at_once(body: Body, said: str) -> None:
    message = refused(HangError, "PIT007", body)
    assert said in message, message
    assert "test_hangs.py:" in message


def test_it_is_found_while_programs_are_built() -> None:
    with pytest.raises(HangError):
        recorded(lambda _: None, built=a_broadcast_that_one_never_enters)


def test_the_report_has_its_code() -> None:
    report = check_at_one_mesh(averaging(a_receive_without_a_send))
    assert (report.verdict, report.exit_code) == ("invalid", 2)
    assert report.findings[0].code == "PIT007"


def test_many_ranks_wait_in_few_words() -> None:
    """Eight ranks are alive at once, two of them running."""

    def body(rank: int) -> None:
        if rank != 5:
            dist.all_gather_object([None] * 8, rank, group=dist.new_group(list(range(8))))

    message = refused(HangError, "PIT007", body, ranks=8)
    assert "ranks 0..4, 6..7 wait in all_gather_object at" in message
    assert "for rank 5" in message


def test_a_failure_is_told_and_not_the_wait_for_it() -> None:
    def body(rank: int) -> None:
        if rank == 1:
            raise ValueError("the cause")
        dist.all_gather_object([None, None], rank)

    assert "rank 1 of the parallel program" in refused(PlanError, "PIT001", body)


def test_a_rank_that_is_killed_is_told() -> None:
    def body(rank: int) -> None:
        if rank == 1:
            os._exit(3)
        dist.all_gather_object([None, None], rank)

    assert "exit code 3" in refused(PlanError, "PIT001", body)


def test_the_first_of_several_failures_is_told() -> None:
    """Whoever fails first in time: rank 0 goes on once it has its answer, and then fails."""

    def body(rank: int) -> None:
        dist.all_gather_object([None, None], rank)
        if rank == 0:
            time.sleep(0.3)
        raise ValueError(f"rank {rank}")

    for _ in range(2):
        assert "ValueError: rank 0" in refused(PlanError, "PIT001", body)


def test_ranks_that_contradict_each_other_end_no_other_wait() -> None:
    """A contradiction is told in place of the wait of a third rank."""

    def body(rank: int) -> None:
        if rank == 0:
            dist.recv_object_list([None], src=1)
        elif rank == 1:
            dist.all_gather_object([None] * 2, 1, group=pair)
        else:
            dist.broadcast_object_list([1], src=2, group=pair)

    pair: dist.ProcessGroup | None = None

    def built(rank: int) -> None:
        nonlocal pair
        pair = dist.new_group([1, 2])
        body(rank)

    with pytest.raises(MeetingError) as caught:
        recorded(lambda _: None, built=built, ranks=3)
    assert "rank 1 of the parallel program" in str(caught.value)


def test_a_rank_that_spins() -> None:
    def body(rank: int) -> None:
        while rank == 1:
            time.sleep(0.01)
        dist.all_gather_object([None, None], rank)

    spec = averaging(body)
    answers = RankProcesses(partial(_answer, spec, "parallel", None), 2, patience=1.0).run(range(2))
    failure = answers[1]
    with pytest.raises(UnsupportedError, match="rank 1: it has run for 1 s"):
        raise failure.error("rank 1")  # type: ignore[union-attr]


@pytest.mark.slow
def test_more_ranks_than_turns() -> None:
    """A rank that waits gives its turn to one that has not begun."""

    def body(rank: int) -> None:
        for _ in range(3):
            found: list[int] = [0] * 6
            dist.all_gather_object(found, rank)
            if found != list(range(6)):
                raise ValueError(found)

    recorded(body, ranks=6)
