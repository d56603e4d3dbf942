"""Stores that ranks share while they are recorded."""

from __future__ import annotations

import time

import pytest
import torch
import torch.distributed as dist
from frontends.torch.together.exchanging import Body, recorded, refused
from frontends.torch.together.test_known_values import equal
from torch.distributed import FileStore, HashStore, PrefixStore, TCPStore
from torch.distributed.distributed_c10d import _get_default_store

from pitcheck.errors import HangError
from pitcheck.frontends.torch.trace import Trace


def set_and_got(rank: int) -> None:
    store = TCPStore("localhost", 1234, 2, rank == 0)
    if rank == 0:
        store.set("a", "hello")
    equal(store.get("a"), b"hello")


def with_a_prefix(rank: int) -> None:
    store = PrefixStore("deep", PrefixStore("pre", FileStore("/nowhere/else", 2)))
    store.set(f"of {rank}", bytes([rank]))
    store.wait([f"of {1 - rank}"])
    equal(store.get(f"of {1 - rank}"), bytes([1 - rank]))


def of_the_default_group(rank: int) -> None:
    store = _get_default_store()
    store.set(f"of {rank}", "here")
    while not store.check([f"of {1 - rank}"]):
        time.sleep(0.001)


def counted(rank: int) -> None:
    """The last to come goes first: whoever that is, it is the same rank in every run."""
    store = FileStore("/counter", 2)
    equal(store.add("n", 1), 1 + rank)
    dist.barrier()
    equal(store.add("n", 0), 2)
    dist.barrier()
    store.delete_key("n")
    dist.barrier()


def compared(rank: int) -> None:
    store = FileStore("/compared", 2)
    equal(store.compare_set("leader", "", str(rank)), b"0")
    equal(store.compare_set("none", "other", "new"), b"other")
    equal(store.num_keys(), 1)


def several(rank: int) -> None:
    store = FileStore("/several", 2)
    store.multi_set([f"a{rank}", f"b{rank}"], ["1", "2"])
    equal(store.multi_get(["a0", "b1"]), [b"1", b"2"])
    store.append(f"a{rank}", "3")
    equal(store.get(f"a{rank}"), b"13")


def its_own(rank: int) -> None:
    store = HashStore()
    store.set("rank", str(rank))
    dist.barrier()
    equal(store.get("rank"), str(rank).encode())


def behind_a_barrier(rank: int) -> None:
    """What a rank sets before a barrier is there behind it, however long that takes."""
    store = _get_default_store()
    if rank == 0:
        time.sleep(0.2)
        store.set("late", "1")
    dist.barrier()
    equal(store.check(["late"]), True)


def behind_a_collective(rank: int) -> None:
    store = FileStore("/collective", 2)
    if rank == 0:
        store.set("k", "1")
    dist.all_reduce(torch.ones(1))
    equal(store.check(["k"]), True)


def while_a_receive_waits(rank: int) -> None:
    """A launched receive does not keep a rank from the store."""
    store = FileStore("/receive", 2)
    number = torch.zeros(1)
    if rank == 0:
        work = dist.irecv(number, 1)
        store.set("go", "1")
        work.wait()
    else:
        store.get("go")
        dist.send(number, 0)


@pytest.mark.parametrize(
    "body",
    [
        set_and_got,
        with_a_prefix,
        of_the_default_group,
        several,
        its_own,
        behind_a_barrier,
        behind_a_collective,
        while_a_receive_waits,
    ],
)
def test_stores_are_shared(body: Body) -> None:
    recorded(body)


@pytest.mark.parametrize("body", [counted, compared])
def test_ranks_come_in_the_order_of_their_numbers(body: Body) -> None:
    """The report says where a result depends on that."""

    def once(rank: int) -> None:
        body(rank)

    traces = recorded(lambda _: None, built=once)
    assert all(_said(trace) for trace in traces)


def _said(trace: Trace) -> list[str]:
    return [line for line in trace.assumptions if "in the order of their numbers to" in line]


def test_what_does_not_depend_on_the_order_is_not_mentioned() -> None:
    assert not any(_said(trace) for trace in recorded(set_and_got))


def never_set(_: int) -> None:
    _get_default_store().get("never")


def never_served(rank: int) -> None:
    TCPStore("localhost", 99, 2, is_master=False)
    equal(rank, rank)


def alone(rank: int) -> None:
    if rank == 0:
        HashStore().wait(["mine"])
    else:
        dist.all_gather_object([None, None], 1)


def asked_again(rank: int) -> None:
    if rank == 0:
        while not _get_default_store().check(["never"]):
            pass


def before_the_barrier(rank: int) -> None:
    """Each waits for what the other does next."""
    store = _get_default_store()
    if rank == 0:
        dist.barrier()
        store.set("k", "1")
    else:
        store.get("k")
        dist.barrier()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (never_set, "ranks 0..1 wait in get of '0//never' in a store at"),
        (never_served, "nobody sets 'the process that serves the store'"),
        (alone, "rank 1 waits in all_gather_object at"),
        (asked_again, "check of '0//never' in a store at"),
        (before_the_barrier, "rank 1 waits in get of '0//k' in a store at"),
    ],
)
def test_a_wait_for_ever(body: Body, said: str) -> None:
    message = refused(HangError, "PIT007", body)
    assert said in message
    assert "test_stores.py:" in message
