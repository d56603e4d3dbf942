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
from pitcheck.plan.representatives import representatives
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
    few = representatives(plan)
    assignment, order = _of_ranks(plan if few is None else few.plan)
    if few is not None and (assignment or order):
        # What is wrong names ranks: it is looked for again among all of them.
        assignment, order = _of_ranks(plan)
    yield from assignment
    yield from check_values(plan)
    yield from ShapeRules(plan, coordinates).run()
    yield from LineageRules(plan, coordinates, reference).run()
    yield from check_outputs(plan, reference)
    yield from order


def _of_ranks(plan: Plan) -> tuple[list[Violation], list[Violation]]:
    """The findings of rules that look at single ranks: on what they write and read, and on the order in which they run and meet."""
    schedule = Schedule(plan)
    assignment = list(SingleAssignment(schedule).run())
    return assignment, list(_order(schedule, any("is no tensor" in violation.message for violation in assignment)))


def _order(schedule: Schedule, incomplete: bool) -> Iterator[Violation]:
    programs = list(check_programs(schedule))
    yield from programs
    if programs or incomplete:
        return
    rules, storages = LocalRules(schedule), StorageRules(schedule)
    for local in LocalOrders(schedule):
        yield from rules.check(local)
        yield from storages.check(local)
    events = Events(schedule.plan, schedule)
    matching, unmatched = match_events(events)
    yield from unmatched
    if matching is not None:
        yield from find_deadlocks(events, matching)
