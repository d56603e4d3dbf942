"""Replica groups and pairs of devices, in each notation that XLA prints.

``{{0,1},{2,3}}`` lists the groups. ``[4,2]<=[4,2]T(1,0)`` cuts a transposed count into 4 groups of
2. ``mesh['a'=2,'b'=4] {'b'}`` makes a group of the devices that differ in axis b alone; several
axes are run through in the order in which they stand. The order inside a group is that of the
results of all-gather, all-to-all and reduce-scatter.
"""

from __future__ import annotations

from enum import Enum
from math import prod
from typing import TypeAlias

from pitcheck.errors import BudgetError, PlanError
from pitcheck.frontends.xla.text.lexer import Lexer
from pitcheck.frontends.xla.text.limits import MOST_DEVICES
from pitcheck.frontends.xla.text.mesh import (
    DeviceLists,
    arranged,
    counted,
    read_axes,
    read_count,
    read_mesh,
    split_axes,
)

Groups: TypeAlias = tuple[tuple[int, ...], ...]
"""Groups of ids, explicitly. No group at all stands for one of all ids."""


class Ids(Enum):
    """The meaning of the ids in replica groups.

    A device runs one partition of one replica.
    """

    REPLICAS = "replicas; each partition meets by itself"
    PARTITIONS = "partitions; each replica meets by itself"
    REPLICAS_OF_ALL_PARTITIONS = "replicas; all partitions meet"
    DEVICES = "devices, numbered replica by replica"


def meaning_of_ids(has_channel: bool, uses_global_ids: bool | None) -> Ids:
    """Return what the ids of a collective mean.

    Args:
        has_channel: True if it has a ``channel_id``.
        uses_global_ids: ``use_global_device_ids``, which is False if it is left out; None for an
            operator that has no such attribute, such as all-to-all and collective-permute.

    Raises PlanError for global ids without a channel.
    """
    if not has_channel:
        if uses_global_ids:
            raise PlanError("use_global_device_ids=true needs a channel_id")
        return Ids.REPLICAS
    if uses_global_ids is None:
        return Ids.PARTITIONS
    return Ids.DEVICES if uses_global_ids else Ids.REPLICAS_OF_ALL_PARTITIONS


def device_groups(groups: Groups, ids: Ids, replicas: int, partitions: int) -> Groups:
    """Return groups of devices, each numbered ``replica * partitions + partition``.

    Raises:
        PlanError: unless the groups have each id exactly once.
        BudgetError: for too many devices.
    """
    if replicas * partitions > MOST_DEVICES:
        raise BudgetError(f"{replicas * partitions} devices; {MOST_DEVICES} are read")
    count = {Ids.PARTITIONS: partitions, Ids.DEVICES: replicas * partitions}.get(ids, replicas)
    if not groups and ids is Ids.DEVICES:
        raise PlanError("use_global_device_ids=true needs replica groups")
    stated = groups or (tuple(range(count)),)
    named = sorted(number for group in stated for number in group)
    if named != list(range(count)):
        raise PlanError(f"replica groups do not name each id from 0 to {count - 1} once")
    if ids is Ids.DEVICES:
        return stated
    if ids is Ids.PARTITIONS:
        starts = range(0, replicas * partitions, partitions)
        return tuple(tuple(s + number for number in group) for s in starts for group in stated)
    if ids is Ids.REPLICAS:
        return tuple(
            tuple(number * partitions + partition for number in group)
            for group in stated
            for partition in range(partitions)
        )
    return tuple(
        tuple(
            number * partitions + partition for number in group for partition in range(partitions)
        )
        for group in stated
    )


def read_groups(lexer: Lexer, lists: DeviceLists) -> Groups:
    """Return the replica groups that are next."""
    if lexer.at("["):
        return _of_count(lexer, lists)
    if lexer.at("mesh"):
        return _of_mesh(lexer, lists)
    groups = read_lists(lexer, "replica groups")
    ids = [number for group in groups for number in group]
    if not all(groups):
        raise lexer.damaged("a replica group is empty")
    if len(set(ids)) < len(ids):
        raise lexer.damaged("an id stands twice in replica groups")
    return groups


def read_lists(lexer: Lexer, meaning: str) -> Groups:
    """Return lists of ids within braces."""
    lexer.expect("{", f"before {meaning}")
    lists: list[tuple[int, ...]] = []
    while not lexer.take("}"):
        if lists:
            lexer.expect(",", f"between {meaning}")
        lists.append(lexer.integers("{", "}", meaning))
    return tuple(lists)


def read_pairs(lexer: Lexer) -> tuple[tuple[int, int], ...]:
    """Return pairs of a source and a target. Raises PlanError if one sends or receives twice."""
    pairs: list[tuple[int, int]] = []
    for pair in read_lists(lexer, "pairs of a source and a target"):
        if len(pair) != 2:
            raise lexer.damaged(f"a pair of a source and a target has {len(pair)} ids")
        pairs.append((pair[0], pair[1]))
    for side, meaning in enumerate(("source", "target")):
        if len({pair[side] for pair in pairs}) < len(pairs):
            raise lexer.damaged(f"an id is the {meaning} of two pairs")
    return tuple(pairs)


def _of_count(lexer: Lexer, lists: DeviceLists) -> Groups:
    """Return the groups that a count is cut into."""
    cut = lexer.integers("[", "]", "the number and size of replica groups", 1)
    if len(cut) != 2:
        raise lexer.damaged(
            f"replica groups are cut into {len(cut)} sizes; a number of groups and their size "
            "are expected"
        )
    lexer.expect("<=", "behind the number and size of replica groups")
    count = read_count(lexer)
    if cut[0] * cut[1] != count.size:
        raise lexer.damaged(f"{cut[0]} groups of {cut[1]} are cut from {count.size} devices")
    return lists.once(lexer, (cut, count), count.size, lambda: _cut(counted(count), cut[1]))


def _of_mesh(lexer: Lexer, lists: DeviceLists) -> Groups:
    """Return the groups along some axes of a mesh."""
    mesh = read_mesh(lexer)
    axes = read_axes(lexer, mesh)
    if not mesh.names:
        raise lexer.damaged("replica groups are of a mesh without axes")
    sizes, numbers = split_axes(lexer, mesh, axes)
    others = tuple(number for number in range(len(sizes)) if number not in numbers)
    return lists.once(
        lexer,
        (mesh, axes),
        mesh.size,
        lambda: _cut(arranged(mesh, sizes, (*others, *numbers)), prod(axis.size for axis in axes)),
    )


def _cut(devices: tuple[int, ...], size: int) -> Groups:
    return tuple(devices[start : start + size] for start in range(0, len(devices), size))
