"""Roots of collectives.

Only the root's operand of a broadcast or scatter is read. Only the root has the result of a reduce
or gather.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError
from pitcheck.ops.registry import declared
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Attribute, Group, Operator, Table, attribute_values

_MOST = 2**31
"""A number that no group has as many members as."""


def reads_at_root(operator: Operator) -> bool:
    """Return True for a collective that reads the operand of its root alone."""
    kind = declared(operator.kind)
    return kind is not None and kind.reads_root and operator.group is not None


def gives_at_root(operator: Operator) -> bool:
    """Return True for a collective whose result its root alone has."""
    kind = declared(operator.kind)
    return kind is not None and kind.gives_root and operator.group is not None


def has_root(operator: Operator) -> bool:
    """Return True for a collective with one member as its root."""
    return reads_at_root(operator) or gives_at_root(operator)


def places_in_group(coordinates: Coordinates, group: Group) -> NDArray[np.int64]:
    """Return the place of every rank in its list of a group, shape (ranks,).

    It is -1 for a rank that is in none.

    Raises:
        PlanError: as ``Coordinates.groups``.
    """
    places = np.full(coordinates.ranks, -1, dtype=np.int64)
    if not group.ranks:
        coordinates.group_sizes(group)
        return coordinates.row_major(
            tuple(axis.name for axis in coordinates.mesh if axis.name in group.axes)
        )[:, 0]
    for members in coordinates.groups(group):
        places[list(members)] = np.arange(len(members))
    return places


def root_places(root: Attribute) -> tuple[int, ...]:
    """Return the values of an attribute ``root``.

    Raises:
        PlanError: if one is not an integer, or no group has such a place.
    """
    values = attribute_values(root)
    odd = next(
        (value for value in values if isinstance(value, bool) or not isinstance(value, int)), None
    )
    if odd is not None or None in values:
        raise PlanError(
            f"root {odd!r} is no place in a group; it is an integer that counts from 0 in the "
            f"group's order",
            "attributes.root",
        )
    places = tuple(value for value in values if isinstance(value, int))
    if any(not 0 <= place < _MOST for place in places):
        raise PlanError(
            "the root is no place in a group; it counts from 0 in the group's order",
            "attributes.root",
        )
    return places


def at_root(coordinates: Coordinates, operator: Operator) -> NDArray[np.bool_]:
    """Return True for each coordinate whose rank is the root of its group.

    The shape is (ranks, microbatches).

    Raises:
        PlanError: if the group or the root does not fit the mesh.
    """
    root = operator.attributes.get("root")
    values = np.array(root_places(root), dtype=np.int64)
    index = (
        coordinates.table(root, "attributes.root")[0]
        if isinstance(root, Table)
        else np.zeros((1, 1), dtype=np.int64)
    )
    places = places_in_group(coordinates, operator.group or Group())
    return np.broadcast_to(
        values[index] == places[:, None], (coordinates.ranks, coordinates.microbatches)
    )
