"""Every operator of torch.distributed: what a rank has of it afterwards, from what all ranks had
before.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from frontends.torch.replay import Replay
from torch import nn

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.program import Input, Program, Rank, Spec
from pitcheck.frontends.torch.recording.record import record

Tensor = torch.Tensor
MEMBERS = (1, 3)
"""A group of two of the four ranks, whose places are not their numbers."""


def all_gather(x: Tensor, group) -> Tensor:
    parts = [torch.empty_like(x) for _ in MEMBERS]
    dist.all_gather(parts, x, group=group)
    return torch.stack(parts)


def all_gather_stacked(x: Tensor, group) -> Tensor:
    out = torch.empty(2, *x.shape)
    dist.all_gather_into_tensor(out, x, group=group)
    return out


def reduce_scatter(x: Tensor, group) -> Tensor:
    out = torch.empty(2, 3)
    dist.reduce_scatter(out, list(x.chunk(2)), group=group)
    return out


def reduce_scatter_flat(x: Tensor, group) -> Tensor:
    out = torch.empty(6)
    dist.reduce_scatter_tensor(out, x.reshape(-1), op=dist.ReduceOp.AVG, group=group)
    return out


def premultiplied(x: Tensor, group) -> Tensor:
    """All that are reduced have their own factor."""
    whole, part = x * 1, torch.empty(2, 3)
    dist.all_reduce(whole, op=dist.ReduceOp.PREMUL_SUM(0.25), group=group)
    dist.reduce_scatter_tensor(part, x * 1, op=dist.ReduceOp.PREMUL_SUM(3.0), group=group)
    return torch.cat([whole, part])


def broadcast(x: Tensor, group) -> Tensor:
    x = x * 1
    dist.broadcast(x, src=3, group=group)
    return x


def reduce(x: Tensor, group) -> Tensor:
    x = x * 1
    dist.reduce(x, dst=3, group=group)
    return x if dist.get_rank() == 3 else torch.zeros(4, 3)


def scatter(x: Tensor, group) -> Tensor:
    out = torch.empty(2, 3)
    dist.scatter(out, list(x.chunk(2)) if dist.get_rank() == 3 else None, src=3, group=group)
    return out


def gather(x: Tensor, group) -> Tensor:
    parts = [torch.empty_like(x) for _ in MEMBERS] if dist.get_rank() == 1 else None
    dist.gather(x, parts, dst=1, group=group)
    return torch.stack(parts) if parts else torch.zeros(2, 4, 3)


def all_to_all(x: Tensor, group) -> Tensor:
    """The rank at place i sends row i+1 to the first, the others to the second."""
    place = dist.get_rank(group)
    sent = list(x.split([1 + place, 3 - place]))
    parts = [torch.empty(rows, 3) for rows in ([1, 2] if place == 0 else [3, 2])]
    dist.all_to_all(parts, sent, group=group)
    return torch.cat(parts)


def all_to_all_single(x: Tensor, group) -> Tensor:
    out = torch.empty(4, 3)
    dist.all_to_all_single(out, x, group=group)
    return out


def largest(x: Tensor, group) -> Tensor:
    x = x * 1
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
    return x


def product(x: Tensor, group) -> Tensor:
    return functional.all_reduce(x, "product", group) + 0


def functional_gather(x: Tensor, group) -> Tensor:
    return functional.all_gather_tensor(x, gather_dim=1, group=group) + 0


def functional_scatter(x: Tensor, group) -> Tensor:
    return functional.reduce_scatter_tensor(x, "avg", scatter_dim=0, group=group) + 0


def functional_exchange(x: Tensor, group) -> Tensor:
    place = dist.get_rank(group)
    return (
        functional.all_to_all_single(
            x, [1, 2] if place == 0 else [3, 2], [1 + place, 3 - place], group
        )
        + 0
    )


def functional_broadcast(x: Tensor, group) -> Tensor:
    return functional.broadcast(x, 1, group) + 0


def permuted(x: Tensor, group) -> Tensor:
    return functional.permute_tensor(x.reshape(-1), [1, 0], group).reshape(4, 3) + 0


def coalesced(x: Tensor, group) -> Tensor:
    parts = functional.all_reduce_coalesced([x, x * 2], "sum", group)
    return parts[0] + parts[1]


def all_reduces_at_once(x: Tensor, group) -> Tensor:
    parts = [x * 1, x * 2]
    with dist._coalescing_manager(group, async_ops=True) as waiting:
        for part in parts:
            dist.all_reduce(part, group=group)
    waiting.wait()
    return parts[0] + parts[1]


def at_once(communicate: Callable[..., object], rows: int) -> Callable[[Tensor, object], Tensor]:
    """Return a function that communicates a tensor and twice the tensor in one call."""

    def run(x: Tensor, group) -> Tensor:
        out = torch.empty(2, rows, 3)
        with dist._coalescing_manager(group):
            for part, scale in zip(out, (1, 2), strict=True):
                communicate(part, x * scale, group=group)
        return out[0] + out[1]

    run.__name__ = f"{communicate.__name__} at once"
    return run


def exchange(p: int, x: list[Tensor]) -> Tensor:
    return torch.cat([x[0][:1], x[1][:2]] if p == 0 else [x[0][1:], x[1][2:]])


ROWS: list[tuple[Callable[[Tensor, object], Tensor], Callable[[int, list[Tensor]], Tensor]]] = [
    (all_gather, lambda p, x: torch.stack(x)),
    (all_gather_stacked, lambda p, x: torch.stack(x)),
    (reduce_scatter, lambda p, x: (x[0] + x[1]).chunk(2)[p]),
    (reduce_scatter_flat, lambda p, x: ((x[0] + x[1]) / 2).flatten().chunk(2)[p]),
    (premultiplied, lambda p, x: torch.cat([(x[0] + x[1]) / 4, 3 * (x[0] + x[1]).chunk(2)[p]])),
    (broadcast, lambda p, x: x[1]),
    (reduce, lambda p, x: x[0] + x[1] if p == 1 else torch.zeros(4, 3)),
    (scatter, lambda p, x: x[1].chunk(2)[p]),
    (gather, lambda p, x: torch.stack(x) if p == 0 else torch.zeros(2, 4, 3)),
    (all_to_all, exchange),
    (all_to_all_single, lambda p, x: torch.cat([y.chunk(2)[p] for y in x])),
    (largest, lambda p, x: torch.maximum(*x)),
    (product, lambda p, x: x[0] * x[1]),
    (functional_gather, lambda p, x: torch.cat(x, 1)),
    (functional_scatter, lambda p, x: ((x[0] + x[1]) / 2).chunk(2)[p]),
    (functional_exchange, exchange),
    (functional_broadcast, lambda p, x: x[1]),
    (permuted, lambda p, x: x[1 - p]),
    (coalesced, lambda p, x: 3 * (x[0] + x[1])),
    (all_reduces_at_once, lambda p, x: 3 * (x[0] + x[1])),
    (at_once(dist.all_gather_into_tensor, 8), lambda p, x: 3 * torch.cat(x)),
    (at_once(dist.reduce_scatter_tensor, 2), lambda p, x: 3 * (x[0] + x[1]).chunk(2)[p]),
]


def spec_of(programs) -> Spec:
    def parallel(rank: Rank) -> Program:
        group = dist.new_group(list(MEMBERS))

        def step(batch):
            if rank.number not in MEMBERS:
                return None
            return {run.__name__: run(batch["x"], group) for run in programs}

        return Program(nn.Linear(1, 1), step)

    return Spec(
        lambda: Program(nn.Linear(1, 1), lambda batch: None),
        parallel,
        {"dp": 4},
        {"x": Input((16, 3), split={0: "dp"})},
    )


def test_every_collective() -> None:
    traces = record(spec_of([run for run, _ in ROWS]), "parallel", 2)
    whole = torch.arange(48.0, dtype=torch.float64).view(16, 3) ** 2 + 1
    found = Replay(traces, {"x": whole}).run()
    mine = [whole.chunk(4)[rank] for rank in MEMBERS]
    for run, wanted in ROWS:
        for place, rank in enumerate(MEMBERS):
            torch.testing.assert_close(
                found[rank]["output", run.__name__],
                wanted(place, mine).double(),
                msg=f"{run.__name__} of rank {rank}",
            )
    assert {event.group for trace in traces for event in trace.events if event.group} == {MEMBERS}
    assert not traces[0].events


def disagreed(x: Tensor, group) -> Tensor:
    return all_to_all_single(x, group) if dist.get_rank() == 1 else largest(x, group)


def test_ranks_that_disagree_do_not_communicate() -> None:
    with pytest.raises(AssertionError, match="all_to_all"):
        Replay(
            record(spec_of([disagreed]), "parallel", 2),
            {"x": torch.zeros(16, 3, dtype=torch.float64)},
        ).run()


def from_any(x: Tensor, group) -> Tensor:
    dist.recv(x, group=group)
    return x


def masked(x: Tensor, group) -> Tensor:
    dist.all_reduce(x, op=dist.ReduceOp.BOR, group=group)
    return x


@pytest.mark.parametrize(
    ("program", "message"), [(from_any, "a receive from any rank"), (masked, "a reduction of kind")]
)
def test_what_is_not_known(program, message) -> None:
    with pytest.raises(UnsupportedError, match=message):
        record(spec_of([program]), "parallel", 2)
