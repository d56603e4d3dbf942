"""Changes of a plan, and the values and operands that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.value import Value
from pitcheck.base.numbers import Literal
from pitcheck.claims.real_numbers import Floats
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Node, Operand, Source, Stacked
from pitcheck.graph.grids import Codes

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Read:
    """An operand: a value at coordinates.

    ``codes`` has shape (n,), or (n, members) if the values of a group are stacked.
    """

    value: int
    codes: Codes


Given = Read | tuple[Read, ...] | Literal
"""An operand at the coordinates of an operator; a tuple is a stack of different values."""


@dataclass
class Held:
    """The numbers of a value by coordinate.

    ``rows``: the row of ``value`` that every coordinate has, shape (codes,); -1: none. ``count``:
        the
    number of rows; a constant stores only one.
    """

    value: Value
    rows: Codes
    count: int


def held_at(data: Value, codes: Codes, count: int) -> Held:
    """Return a value that is there at some coordinates, one row each.

    Args:
        data: the numbers, with one row for each of ``codes``.
        codes: the coordinates, shape (n,).
        count: the number of all coordinates.
    """
    rows = np.full(count, -1, dtype=np.int64)
    rows[codes] = np.arange(len(codes))
    return Held(data, rows, len(codes))


@dataclass(frozen=True)
class Override:
    """The numbers that a value gets at coordinates, one row each, in place of the computed ones."""

    value: int
    codes: Codes
    data: Value


Draft = tuple[str, Mapping[str, Any], Sequence[Given]]
"""An operator that runs in place of a node: its kind, attributes and operands."""


@dataclass(frozen=True)
class Redo:
    """An operator that runs in place of a node, on what its operands are by then.

    ``draft`` takes the node and its coordinates. ``known``: values that this node alone sees
    changed.
    """

    node: int
    draft: Callable[[Node, Codes], Draft | None]
    known: Mapping[int, Held] = field(default_factory=dict)


Change = Override | Redo


@dataclass(frozen=True)
class Due:
    """The numbers that a value should hold at coordinates, shape (trials, codes, *shape).

    ``cut``: the parts of a reference value that they are. ``sums``: by coordinate the number of the
    sum that it holds an addend of; None if it holds none.
    """

    codes: Codes
    data: Floats
    sums: Codes | None
    cut: Cut


def given_at(operand: Operand, codes: Codes) -> Given:
    """Return an operand of a node at coordinates."""
    if isinstance(operand, Source):
        return Read(operand.value, operand.at(codes))
    if isinstance(operand, Stacked):
        return tuple(Read(source.value, source.at(codes)) for source in operand.members)
    return operand
