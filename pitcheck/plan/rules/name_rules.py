"""Rules on names, boxes, tables and groups, which must hold before masks can be computed at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.ops.registry import communication_of, divided_axis
from pitcheck.ops.traits import Communication
from pitcheck.plan.collective_roots import has_root, root_places
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import (
    MICROBATCH_AXIS,
    Attribute,
    Box,
    Group,
    Operator,
    Plan,
    Table,
    attribute_values,
)
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.run_order import is_event, where_key

_GROUPED = (Communication.COLLECTIVE, Communication.BARRIER)


def check_structure(plan: Plan, coordinates: Coordinates) -> Iterator[Violation]:
    """Yield PIT009 for duplicate names, PIT001 for boxes and tables, PIT004 for groups.

    Groups must fit the mesh.
    """
    yield from _check_names("tensors", "name", (tensor.name for tensor in plan.tensors))
    yield from _check_names("operators", "id", (operator.id for operator in plan.operators))
    yield from _Boxes(plan, coordinates).run()
    yield from _Groups(plan, coordinates).run()


def _check_names(what: str, field: str, names: Iterable[str]) -> Iterator[Violation]:
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        if first.setdefault(name, number) == number and name:
            continue
        place = f"{what}[{number}].{field}"
        if not name:
            yield Violation("PIT009", place, f"the {field} is empty; give it a unique one")
        else:
            yield Violation(
                "PIT009",
                place,
                f"{name!r} is also the {field} of {what}[{first[name]}]; give it another one",
            )


class _Boxes:
    def __init__(self, plan: Plan, coordinates: Coordinates) -> None:
        self.plan = plan
        self.coordinates = coordinates
        self._errors: dict[object, PlanError | None] = {}
        self._right: set[int] = set()
        """Boxes that fit, by the identity of the object, which the plan keeps."""

    def run(self) -> Iterator[Violation]:
        for number, operator in enumerate(self.plan.operators):
            yield from self._check_empty(operator.where, f"operators[{number}]", operator.id)
            if id(operator.where) not in self._right:
                yield from self._check_where(operator.where, f"operators[{number}]", operator.id)
            for name, value in operator.attributes.items() if operator.attributes else ():
                if name == "async" and is_event(operator):
                    yield from self._check_flag(
                        value, f"operators[{number}].attributes.async", operator.id
                    )
                if isinstance(value, Table):
                    yield from self._check_table(
                        value, f"operators[{number}].attributes.{name}", operator.id
                    )
        for number, program in enumerate(self.plan.programs):
            yield from self._check_where(program.where, f"programs[{number}]", "")
            for at, box in enumerate(program.where):
                if MICROBATCH_AXIS in box:
                    yield Violation(
                        "PIT009",
                        f"programs[{number}].where[{at}].mb",
                        "a program belongs to ranks; name micro-batches in its steps",
                    )

    def _check_flag(self, value: Attribute, place: str, operator: str) -> Iterator[Violation]:
        odd = next((each for each in attribute_values(value) if not isinstance(each, bool)), None)
        if odd is not None or value is None:
            yield Violation(
                "PIT001",
                place,
                f"attribute 'async' is true or false, not {odd!r}",
                operator=operator,
            )

    def _check_empty(
        self, where: tuple[Box, ...], place: str, operator: str
    ) -> Iterator[Violation]:
        for number, box in enumerate(where):
            axis = next((axis for axis, values in box.items() if not values), None)
            if axis is not None:
                message = (
                    f"the box names no value of {axis!r}, so that nothing runs there; name "
                    f"values, or leave out the axis for all of them"
                )
                yield Violation(
                    "PIT001", f"{place}.where[{number}].{axis}", message, operator=operator
                )

    def _check_where(
        self, where: tuple[Box, ...], place: str, operator: str
    ) -> Iterator[Violation]:
        if not where:
            return
        key = where_key(where)
        if key not in self._errors:
            self._errors[key] = None
            try:
                self.coordinates.mask_grid(where, "where")
            except PlanError as error:
                self._errors[key] = error
        found = self._errors[key]
        if found is None:
            self._right.add(id(where))
        else:
            yield Violation("PIT001", f"{place}.{found.place}", found.message, operator=operator)

    def _check_table(self, table: Table, place: str, operator: str) -> Iterator[Violation]:
        message = table_error(table, self.coordinates)
        if message:
            yield Violation("PIT001", place, message, operator=operator)


def table_error(table: Table, coordinates: Coordinates) -> str:
    """Return the fault of a table's axes or number of values, "" if there is none."""
    known = set(coordinates.sizes) | {MICROBATCH_AXIS}
    unknown = [axis for axis in table.over if axis not in known]
    if unknown:
        return (
            f"the table is over the unknown axis {unknown[0]!r}; the mesh has "
            f"{', '.join(coordinates.sizes)} and mb"
        )
    if len(set(table.over)) != len(table.over):
        return f"the table names an axis twice: {', '.join(table.over)}"
    expected = coordinates.count(table.over)
    if len(table.values) != expected:
        return (
            f"the table has {len(table.values)} values for {expected} positions over "
            f"{', '.join(table.over) or 'no axis'}"
        )
    return ""


class _Groups:
    def __init__(self, plan: Plan, coordinates: Coordinates) -> None:
        self.plan = plan
        self.coordinates = coordinates
        self.shapes = {tensor.name: tensor.shape for tensor in plan.tensors}
        self._known: dict[Group, list[int] | PlanError] = {}

    def run(self) -> Iterator[Violation]:
        for number, operator in enumerate(self.plan.operators):
            if operator.group is None:
                if communication_of(operator.kind) in _GROUPED:
                    place = f"operators[{number}]"
                    yield Violation(
                        "PIT004",
                        f"{place}.group",
                        f"{operator.kind} {operator.id!r} has no group; name the axes or ranks",
                        operator=operator.id,
                    )
                continue
            place = f"operators[{number}]"
            yield from self._check_alone(operator, place)
            sizes = self._sizes(operator.group)
            if isinstance(sizes, PlanError):
                yield Violation(
                    "PIT004", f"{place}.{sizes.place}", sizes.message, operator=operator.id
                )
                continue
            yield from self._check_collective(operator, place, sizes)

    def _sizes(self, group: Group) -> list[int] | PlanError:
        """Return the different sizes of a group's rank lists, ascending, or its fault."""
        if group not in self._known:
            try:
                if len(set(group.axes)) != len(group.axes):
                    raise PlanError(
                        f"the group names an axis twice: {', '.join(group.axes)}", "group.axes"
                    )
                if any(not members for members in group.ranks):
                    raise PlanError("a rank list of the group is empty", "group.ranks")
                self._known[group] = self.coordinates.group_sizes(group)
            except PlanError as error:
                self._known[group] = error
        return self._known[group]

    def _check_alone(self, operator: Operator, place: str) -> Iterator[Violation]:
        if communication_of(operator.kind) in (
            Communication.SEND,
            Communication.RECEIVE,
            Communication.WAIT,
        ):
            message = (
                f"{operator.kind} {operator.id!r} has a group, though no group meets in it; "
                f"leave it out ('tag' makes channels of their own)"
            )
            yield Violation("PIT004", f"{place}.group", message, operator=operator.id)

    def _check_collective(
        self, operator: Operator, place: str, sizes: list[int]
    ) -> Iterator[Violation]:
        expected = 0 if communication_of(operator.kind) is Communication.BARRIER else 1
        if communication_of(operator.kind) in _GROUPED and len(operator.inputs) != expected:
            message = f"{operator.kind} takes {expected or 'no'} input, not {len(operator.inputs)}"
            yield Violation("PIT004", f"{place}.inputs", message, operator=operator.id)
            return
        if communication_of(operator.kind) is Communication.BARRIER and operator.outputs:
            yield Violation(
                "PIT004",
                f"{place}.outputs",
                "a barrier has no output; it only keeps its members together",
                operator=operator.id,
            )
            return
        root = operator.attributes.get("root")
        if has_root(operator) and "root" in operator.attributes:
            try:
                root_places(root)
            except PlanError as error:
                yield Violation(
                    "PIT004", f"{place}.attributes.root", error.message, operator=operator.id
                )
                return
        for value in attribute_values(root):
            if isinstance(value, int) and not 0 <= value < sizes[0]:
                message = (
                    f"root {value} is no place in a group of {sizes[0]} members; it counts "
                    f"from 0 in the group's order"
                )
                yield Violation("PIT004", f"{place}.attributes.root", message, operator=operator.id)
                break
        yield from self._check_divisible(operator, place, sizes)

    def _check_divisible(
        self, operator: Operator, place: str, sizes: list[int]
    ) -> Iterator[Violation]:
        name = divided_axis(operator.kind)
        axis: Attribute = operator.attributes.get(name)
        tensor = operator.inputs[0] if operator.inputs else None
        shape = self.shapes.get(tensor, ()) if isinstance(tensor, str) else ()
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            return
        for size in sizes:
            if shape[axis] % size:
                message = (
                    f"{operator.kind} cuts dimension {axis} of {tensor!r}, of size "
                    f"{shape[axis]}, into {size} equal parts, which is not possible"
                )
                yield Violation(
                    "PIT004",
                    f"{place}.inputs[0]",
                    message,
                    operator=operator.id,
                    tensor=str(tensor),
                )


def first_coordinates(
    wrong: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the coordinates of the first few true elements of a mask.

    Returns:
        Ranks and micro-batches, for a mask of shape (ranks, microbatches).
    """
    ranks, microbatches = np.nonzero(wrong)
    return tuple(int(r) for r in dict.fromkeys(ranks[:64].tolist()))[:8], tuple(
        int(m) for m in dict.fromkeys(microbatches[:64].tolist())
    )[:8]
