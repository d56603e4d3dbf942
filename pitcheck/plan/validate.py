"""Validation: everything that is wrong with a plan before a single number is computed."""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.errors import PlanError
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.deadlock import find_deadlocks
from pitcheck.plan.events import Events
from pitcheck.plan.lineage_rules import LineageRules
from pitcheck.plan.matching import match_events
from pitcheck.plan.model import Plan
from pitcheck.plan.output_rules import check_outputs
from pitcheck.plan.programs import LocalOrders, LocalRules, check_programs
from pitcheck.plan.schedule import Schedule
from pitcheck.plan.shape_rules import ShapeRules, check_values
from pitcheck.plan.sizes import check_sizes, mesh_violations
from pitcheck.plan.ssa import SingleAssignment
from pitcheck.plan.storages import StorageRules
from pitcheck.plan.structure import check_structure
from pitcheck.plan.violations import Violation, capped


def validate(plan: Plan, reference: Plan | None = None, limit: int = 50) -> list[Violation]:
    """All violations of a plan, at most ``limit`` per code; PIT012 is a warning, as is PIT008 of a hint, every other one makes the plan invalid.

    ``reference`` is the reference plan where ``plan`` is a parallel one, None for a reference plan itself. Later rules are checked only where earlier
    ones hold on which they rest: the mesh, then boxes, tables and groups, then all others, then deadlock. Never raises.
    """
    broken = mesh_violations(plan)
    if broken:
        return capped(broken, limit)
    coordinates = Coordinates.of(plan)
    structure = [*check_sizes(plan), *check_structure(plan, coordinates)]
    if structure:
        return capped(structure, limit)
    try:
        return capped(_content(plan, reference, coordinates), limit)
    except PlanError as error:
        return [Violation("PIT001", error.place, error.message)]


def _content(plan: Plan, reference: Plan | None, coordinates: Coordinates) -> Iterator[Violation]:
    schedule = Schedule(plan)
    assignment = list(SingleAssignment(schedule).run())
    yield from assignment
    yield from check_values(schedule)
    yield from ShapeRules(schedule).run()
    yield from LineageRules(plan, coordinates, reference).run()
    yield from check_outputs(plan, reference)
    programs = list(check_programs(schedule))
    yield from programs
    if programs or any("is no tensor" in violation.message for violation in assignment):
        return
    rules, storages = LocalRules(schedule), StorageRules(schedule)
    for local in LocalOrders(schedule):
        yield from rules.check(local)
        yield from storages.check(local)
    events = Events(plan, schedule)
    matching, unmatched = match_events(events)
    yield from unmatched
    if matching is not None:
        yield from find_deadlocks(events, matching)
