"""Groups and meshes that are made in the step, or of what ranks tell each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, proven
from frontends.torch.together.exchanging import Batch, model, reference
from torch.distributed.device_mesh import init_device_mesh

from pitcheck.torch import Input, Program, Rank, Spec

RANKS = 4
Groups = Callable[[int], Sequence[object]]


def averaging(groups: Groups) -> Spec:
    """Sum over groups, one after the other, that are made in each step."""

    def parallel(rank: Rank) -> Program:
        own = model()

        def step(batch: Batch) -> torch.Tensor:
            made = groups(rank.number)
            loss = own(batch["x"]).square().sum()
            loss.backward()
            for group in made:
                for parameter in own.parameters():
                    dist.all_reduce(parameter.grad, group=group)
                dist.all_reduce(loss, group=group)
            return loss

        return Program(own, step)

    return Spec(reference, parallel, {"dp": RANKS}, {"x": Input((8, 4), split={0: "dp"})})


def by_lists(rank: int) -> Sequence[object]:
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    return rows[rank // 2], columns[rank % 2]


def by_size(_: int) -> Sequence[object]:
    row, _ = dist.new_subgroups(2)
    column, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    return row, column


def by_mesh(_: int) -> Sequence[object]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    return mesh["a"].get_group(), mesh["b"].get_group()


def by_flattened_mesh(_: int) -> Sequence[object]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    return (mesh["a", "b"]._flatten("both").get_group(),)


def by_splits(_: int) -> Sequence[object]:
    row = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    column = dist.split_group(split_ranks=[[0, 2], [1, 3]])
    return row, column


def by_what_others_say(rank: int) -> Sequence[object]:
    """Each member makes its group alone, of those that say the same."""
    found: list[int] = [0] * RANKS
    dist.all_gather_object(found, rank % 2)
    mine = [other for other in range(RANKS) if found[other] == rank % 2]
    return (
        dist.new_group(mine, use_local_synchronization=True),
        dist.new_group(sorted([rank, rank ^ 1]), use_local_synchronization=True),
    )


def of_stale_words(rank: int) -> Sequence[object]:
    """The second group is that of the first question."""
    groups = by_what_others_say(rank)
    return groups[0], groups[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "groups", [by_lists, by_size, by_mesh, by_flattened_mesh, by_splits, by_what_others_say]
)
def test_late_groups(groups: Groups) -> None:
    proven(averaging(groups))


@pytest.mark.slow
def test_a_group_of_stale_words() -> None:
    caught(averaging(of_stale_words), "dist.all_reduce(", "PIT106", "PIT105", "PIT104")
