"""Validation: all faults of a plan before a single number is computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitcheck.errors import PlanError
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Plan
from pitcheck.plan.rules.lineage_rules import LineageRules
from pitcheck.plan.rules.name_rules import check_structure
from pitcheck.plan.rules.output_rules import check_outputs
from pitcheck.plan.rules.program_rules import LocalOrders, LocalRules, check_programs
from pitcheck.plan.rules.shape_rules import ShapeRules, check_values
from pitcheck.plan.rules.size_rules import check_sizes, mesh_violations
from pitcheck.plan.rules.ssa import SingleAssignment
from pitcheck.plan.rules.storage_rules import StorageRules
from pitcheck.plan.rules.violations import Violation, capped
from pitcheck.plan.schedule.deadlock import find_deadlocks
from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.matching import Matching, lifted, match, match_events
from pitcheck.plan.schedule.representatives import representatives
from pitcheck.plan.schedule.run_order import Schedule


def validate(plan: Plan, reference: Plan | None = None, limit: int = 50) -> list[Violation]:
    """Return all violations of a plan, at most ``limit`` per code.

    PIT008 of a hint is a warning; every other one makes the plan invalid. ``reference`` is the
    reference plan if ``plan`` is a parallel one, None for a reference plan itself. Later rules are
    checked only if the rules they rest on hold: the mesh, then boxes, tables and groups, then all
    others, then deadlock. It never raises.
    """
    return _validated(plan, reference, limit)[0]


def examine(
    plan: Plan, reference: Plan | None = None, limit: int = 50
) -> tuple[list[Violation], Matching | None]:
    """Return the findings of ``validate`` and ``match``, with the events matched once.

    Returns:
        The violations, and the matching that ``match`` gives.
    """
    violations, matching = _validated(plan, reference, limit)
    if matching is not None:
        return violations, matching
    matching, more = match(plan)
    seen = {(v.code, v.place, v.message) for v in violations}
    return [*violations, *(v for v in more if (v.code, v.place, v.message) not in seen)], matching


def _validated(
    plan: Plan, reference: Plan | None, limit: int
) -> tuple[list[Violation], Matching | None]:
    """Return the violations, and the matching if events came to be matched."""
    broken = mesh_violations(plan)
    if broken:
        return capped(broken, limit), None
    coordinates = Coordinates.of(plan)
    structure = [*check_sizes(plan), *check_structure(plan, coordinates)]
    if structure:
        return capped(structure, limit), None
    try:
        ranks = _of_ranks(plan)
        return capped(_content(plan, reference, coordinates, ranks), limit), ranks.matching
    except PlanError as error:
        return [Violation("PIT001", error.place, error.message)], None


@dataclass
class _OfRanks:
    """The findings of rules that look at single ranks, and the matching.

    They are on writes and reads, and on the order in which ranks run and meet.
    """

    assignment: list[Violation]
    order: list[Violation]
    matching: Matching | None


def _content(
    plan: Plan, reference: Plan | None, coordinates: Coordinates, ranks: _OfRanks
) -> Iterator[Violation]:
    yield from ranks.assignment
    yield from check_values(plan)
    yield from ShapeRules(plan, coordinates).run()
    yield from LineageRules(plan, coordinates, reference).run()
    yield from check_outputs(plan, reference)
    yield from ranks.order


def _of_ranks(plan: Plan) -> _OfRanks:
    few = representatives(plan)
    found = _of_these(plan if few is None else few.plan)
    if few is None:
        return found
    if found.assignment or found.order:
        # A finding names ranks, so the rules run again on all of them.
        return _of_these(plan)
    return replace(
        found, matching=None if found.matching is None else lifted(plan, found.matching, few)
    )


def _of_these(plan: Plan) -> _OfRanks:
    schedule = Schedule(plan)
    assignments = SingleAssignment(schedule)
    assignment = list(assignments.run())
    order = list(check_programs(schedule))
    if order or (assignment and assignments.names_unknown_tensors()):
        return _OfRanks(assignment, order, None)
    rules, storages = LocalRules(schedule), StorageRules(schedule)
    order += storages.check_plan()
    for local in LocalOrders(schedule):
        order += [*rules.check(local), *storages.check(local)]
    events = Events(plan, schedule)
    matching, unmatched = match_events(events)
    deadlocks = find_deadlocks(events, matching) if matching is not None else []
    return _OfRanks(assignment, [*order, *unmatched, *deadlocks], matching)
