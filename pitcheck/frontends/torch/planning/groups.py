"""The groups of collectives.

Every rank knows its own group; the plan names the groups of all ranks that run a collective
together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from msgspec.structs import replace

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.trace import Trace
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.fold import Instance
from pitcheck.plan.model import Group

Ranks = tuple[int, ...]
Key = tuple[str, tuple[str, ...], str]


def with_communicators(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces with names of groups only where some rank uses several of the same ranks.

    The first that it uses is "", the others "2", "3" and so on. Numbers are those of the first rank
    that uses the group. If every rank has only one group of certain ranks, they are one, whatever
    its name is.
    """
    met: dict[Ranks, dict[str, None]] = defaultdict(dict)
    several: set[Ranks] = set()
    for trace in traces:
        own: dict[Ranks, set[str]] = defaultdict(set)
        for event in trace.events:
            if event.group:
                met[event.group].setdefault(event.communicator)
                own[event.group].add(event.communicator)
        several.update(group for group, names in own.items() if len(names) > 1)
    names = {
        (group, name): f"{place + 1}" if place and group in several else ""
        for group, found in met.items()
        for place, name in enumerate(found)
    }
    return [_renamed(trace, names) for trace in traces]


def _renamed(trace: Trace, names: Mapping[tuple[Ranks, str], str]) -> Trace:
    events = tuple(
        replace(event, communicator=names[event.group, event.communicator])
        if event.group
        else event
        for event in trace.events
    )
    return replace(trace, events=events)


def check_members(traces: Iterable[Trace]) -> None:
    """Raise PlanError if a rank communicates over a group that it does not belong to.

    Its group would not be seen beside those of the others.
    """
    for trace in traces:
        for event in trace.events:
            if event.group and trace.rank not in event.group:
                at = f" at {event.source}" if event.source else ""
                others = list(event.group)
                raise PlanError(
                    f"rank {trace.rank} runs {event.operator}{at} over the group {others}, of "
                    f"which it is no member; run it over the rank's own"
                )


def with_all_groups(
    programs: Mapping[int, Sequence[Instance]], coordinates: Coordinates
) -> dict[int, list[Instance]]:
    """Return the programs, in which a collective names the groups of all ranks that run it.

    They are named as mesh axes if they are all the groups along these. Every rank is a member of
    its own group. If ranks disagree on who belongs together, the collective keeps on every rank the
    group of this rank.
    """
    together: dict[Key, set[Ranks]] = defaultdict(set)
    for sequence in programs.values():
        for instance in sequence:
            if instance.group is not None:
                together[_key(instance)].update(instance.group.ranks)
    named = {key: _group(groups, coordinates) for key, groups in together.items()}
    return {
        rank: [_grouped(instance, named) for instance in sequence]
        for rank, sequence in programs.items()
    }


def _key(instance: Instance) -> Key:
    # Barriers have no output that could tell them apart; the group's name is all there is.
    return instance.kind, instance.outputs, "" if instance.group is None else instance.group.name


def _grouped(instance: Instance, named: Mapping[Key, Group | None]) -> Instance:
    group = None if instance.group is None else named[_key(instance)]
    if group is None or instance.group is None:
        return instance
    return replace(instance, group=replace(group, name=instance.group.name))


def _group(groups: Iterable[Ranks], coordinates: Coordinates) -> Group | None:
    """Return all groups as one, without a name; None if a rank is in several."""
    ordered = tuple(sorted(groups))
    members = [rank for group in ordered for rank in group]
    if len(set(members)) != len(members):
        return None
    return next(
        (
            Group(axes=axes)
            for axes in _axes(coordinates)
            if set(ordered) <= set(coordinates.groups(Group(axes=axes)))
        ),
        Group(ranks=ordered),
    )


def axes_of_groups(
    members: Mapping[int, Ranks], coordinates: Coordinates
) -> tuple[str, ...] | None:
    """Return the axes along which each rank has exactly its given group; None without such."""
    wanted = {tuple(sorted(group)) for group in members.values()}
    return next(
        (
            axes
            for axes in _axes(coordinates)
            if wanted == {tuple(sorted(group)) for group in coordinates.groups(Group(axes=axes))}
            and all(rank in group for rank, group in members.items())
        ),
        None,
    )


def _axes(coordinates: Coordinates) -> Iterable[tuple[str, ...]]:
    names = [axis.name for axis in coordinates.mesh if axis.size > 1]
    return (axes for count in range(1, len(names) + 1) for axes in combinations(names, count))
