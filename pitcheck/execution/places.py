"""Coordinates, groups, tables and literals, read off a plan by plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pitcheck.plan.model import Group, Operator, Plan, Table, Use
from pitcheck.plan.model import Number as Literal

Coordinate = dict[str, int]


class ExecutionError(Exception):
    """The plan cannot run: wrong shapes, an unwritten tensor, members that disagree."""


class DeadlockError(ExecutionError):
    """No rank can go on."""


def rank_coordinates(plan: Plan) -> list[Coordinate]:
    """Return the coordinate of every rank, the last mesh axis running fastest."""
    names = [axis.name for axis in plan.mesh]
    return [
        dict(zip(names, place, strict=True))
        for place in itertools.product(*(range(axis.size) for axis in plan.mesh))
    ]


def runs_at(operator: Operator, coordinate: Coordinate, microbatch: int) -> bool:
    """Return True if one of the record's boxes holds the coordinate.

    Raises ExecutionError for an unknown axis.
    """
    place = {**coordinate, "mb": microbatch}
    for box in operator.where:
        for axis in box:
            if axis not in place:
                raise ExecutionError(f"{operator.id}: unknown axis {axis}")
    return not operator.where or any(
        all(place[axis] in values for axis, values in box.items()) for box in operator.where
    )


def at_table(plan: Plan, table: Table, coordinate: Coordinate, microbatch: int) -> Any:
    """Return the entry of a table at one coordinate.

    Raises ExecutionError for a table of the wrong length.
    """
    sizes = {axis.name: axis.size for axis in plan.mesh} | {"mb": plan.microbatches}
    place = {**coordinate, "mb": microbatch}
    number = 0
    for axis in table.over:
        number = number * sizes[axis] + place[axis]
    if len(table.values) != math.prod(sizes[axis] for axis in table.over):
        raise ExecutionError("a table has another number of entries than places")
    return table.values[number]


def attributes_at(
    plan: Plan, operator: Operator, coordinate: Coordinate, microbatch: int
) -> dict[str, Any]:
    """Return the attributes at one coordinate, every table resolved."""
    return {
        name: at_table(plan, value, coordinate, microbatch) if isinstance(value, Table) else value
        for name, value in operator.attributes.items()
    }


def group_of(plan: Plan, group: Group, rank: int) -> tuple[int, ...]:
    """Return the ranks that meet ``rank``, in gathering order.

    Raises ExecutionError for a rank outside of all groups, and for an unknown axis.
    """
    coordinates = rank_coordinates(plan)
    if group.ranks:
        for ranks in group.ranks:
            if rank in ranks:
                return ranks
        raise ExecutionError(f"rank {rank} stands in no group")
    known = {axis.name for axis in plan.mesh}
    if not set(group.axes) <= known:
        raise ExecutionError(f"unknown axis in group {group.axes}")
    mine = {axis: value for axis, value in coordinates[rank].items() if axis not in group.axes}
    return tuple(
        r
        for r, place in enumerate(coordinates)
        if all(place[axis] == value for axis, value in mine.items())
    )


def number(value: int | float | str) -> float:
    """Return a literal as a float."""
    if not isinstance(value, str):
        return float(value)
    if value in ("inf", "-inf", "nan"):
        return float(value)
    sign = -1.0 if value.startswith("-sqrt") else 1.0
    text = value.removeprefix("-") if sign < 0 else value
    if text.startswith("sqrt("):
        square, over_pi, _ = text[5:-1].partition("/pi")
        return sign * math.sqrt(Fraction(square) / Fraction(math.pi if over_pi else 1))
    return float(Fraction(value))


def tensor_name(operand: str | Use | Literal) -> str | None:
    """Return the tensor that an operand names, None for a literal."""
    if isinstance(operand, Literal):
        return None
    return operand.tensor if isinstance(operand, Use) else operand


def repeated(plan: Plan) -> frozenset[str]:
    """Return the ids of the records that run once per micro-batch."""
    microbatched = {tensor.name for tensor in plan.tensors if tensor.microbatched}
    return frozenset(
        operator.id
        for operator in plan.operators
        if any(
            name in microbatched
            for name in [name for name in operator.outputs if name]
            or map(tensor_name, operator.inputs)
        )
    )


def program_of(plan: Plan, rank: int) -> Iterator[tuple[Operator, int]]:
    """Yield the (operator, micro-batch) instances of one rank, in its order."""
    coordinate = rank_coordinates(plan)[rank]
    per_microbatch = repeated(plan)
    for operator, microbatch in _listed(plan, coordinate, per_microbatch):
        if operator.id in per_microbatch:
            if runs_at(operator, coordinate, microbatch):
                yield operator, microbatch
        elif any(runs_at(operator, coordinate, m) for m in range(plan.microbatches)):
            yield operator, 0


def _listed(
    plan: Plan, coordinate: Coordinate, per_microbatch: frozenset[str]
) -> Iterator[tuple[Operator, int]]:
    if not plan.programs:
        for operator in plan.operators:
            for microbatch in range(plan.microbatches if operator.id in per_microbatch else 1):
                yield operator, microbatch
        return
    by_id = {operator.id: operator for operator in plan.operators}
    for program in plan.programs:
        if not program.where or any(
            all(coordinate[axis] in values for axis, values in box.items()) for box in program.where
        ):
            for step in program.steps:
                for name in plan.blocks[step.block]:
                    yield by_id[name], step.microbatch or 0
            return
