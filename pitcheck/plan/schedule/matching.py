"""The matching of all events of a plan: the meetings of sends, receives and collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pitcheck.errors import PlanError
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Group, Plan
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.channel_matching import ChannelMatching
from pitcheck.plan.schedule.collective_matching import CollectiveMatching
from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.lifted import OnDemand, lifted_members, lifted_received
from pitcheck.plan.schedule.representatives import Representatives, representatives
from pitcheck.plan.schedule.run_order import Ints


@dataclass
class Matching:
    """The meetings of a plan's events.

    ``received``: id of a receive -> int64 (ranks, microbatches, 3): position of the send in
    ``plan.operators``, source rank, source micro-batch; -1 at coordinates at which it does not run.
    ``members``: id of a collective -> None if at every coordinate all members run this operator at
    the same micro-batch, else int64 (ranks, microbatches, members, 3): the same three numbers of
    every member, in gathering order (-1: not there). ``few`` has the matching of representatives
    and their ranks, if there are any; the whole is then made on demand.
    """

    received: Mapping[str, Ints] = field(default_factory=dict)
    members: Mapping[str, Ints | None] = field(default_factory=dict)
    few: tuple[Matching, Representatives] | None = None


def match(plan: Plan) -> tuple[Matching | None, list[Violation]]:
    """Match all events of a plan.

    Returns:
        The matching, and the violations (PIT004, PIT005, PIT006; PIT001 for a malformed plan). With
            a violation there is no matching.
    """
    few = representatives(plan)
    try:
        if few is not None:
            # A finding names ranks, so the rules run again on all of them.
            matching = match_events(Events(few.plan))[0]
            if matching is not None:
                return lifted(plan, matching, few), []
        return match_events(Events(plan))
    except PlanError as error:
        return None, [Violation("PIT001", error.place, error.message)]


def lifted(plan: Plan, matching: Matching, few: Representatives) -> Matching:
    """Return the matching of a plan from that of its representatives.

    Its tables are made when they are asked for.
    """
    coordinates = Coordinates.of(plan)
    groups = {
        operator.id: (operator.group or Group(), kept.group or Group())
        for operator, kept in zip(plan.operators, few.plan.operators, strict=True)
    }

    def members_of(identity: str, table: Ints | None) -> Ints | None:
        return None if table is None else lifted_members(table, few, coordinates, *groups[identity])

    received = OnDemand(matching.received, lambda _, table: lifted_received(table, few))
    return Matching(received, OnDemand(matching.members, members_of), (matching, few))


def match_events(events: Events) -> tuple[Matching | None, list[Violation]]:
    """Match events as :func:`match` does.

    Raises:
        PlanError: if groups, tables or boxes do not fit the mesh.
    """
    collectives, channels = CollectiveMatching(events), ChannelMatching(events)
    violations = collectives.run() + channels.run()
    return (None if violations else Matching(channels.received, collectives.members)), violations
