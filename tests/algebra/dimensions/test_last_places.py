"""The last places of segments, and the greater or lesser of two places.

The oracle are Python integers: a map of small places to full ones that keeps the first and last
place of each segment, and their order. What keeps an axis small must commute with every such map.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from pitcheck.algebra.dimensions.axes import AxisAlgebra
from pitcheck.algebra.dimensions.axis_classes import AxisSystem
from pitcheck.algebra.dimensions.axis_values import AxisValue, Size

SEGMENTS, FULL, SMALL = 4, 50, 5
ORDERS: dict[str, Callable[[int, int], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


class Integers:
    """The operations on places as those of Python integers, with segments of one size."""

    def __init__(self, unit: int) -> None:
        self.unit = unit

    def end(self, number: int) -> int:
        return number * self.unit

    def number(self, number: int) -> int:
        return number

    maximum = staticmethod(max)
    minimum = staticmethod(min)
    add = staticmethod(operator.add)
    subtract = staticmethod(operator.sub)

    def compare(self, name: str, a: int, b: int) -> bool:
        return ORDERS[name](a, b)

    def where(self, condition: bool, a: int, b: int) -> int:
        return a if condition else b


class Axes(AxisAlgebra):
    """The same operations on dimensions, of which ``whole`` has all segments."""

    def __init__(self) -> None:
        super().__init__(AxisSystem())
        self.whole = self.tensor((SEGMENTS * FULL,))
        node = self.system.places()
        first, second = (AxisValue("int", (), places=node) for _ in range(2))
        self.take(self.whole, 0, first)
        self.ids = first, second

    def end(self, number: int) -> AxisValue:
        return self.boundary(self.whole, 0, Size(number * FULL))

    def number(self, number: int) -> AxisValue:
        return self.constant(Fraction(number), "int")


def last(a: Any, number: int) -> Any:
    """Return the last place before the end of so many segments."""
    return a.subtract(a.end(number), a.number(1))


def inside(a: Any, x: Any) -> Any:
    """Return a place in the second segment, the first or last of it if ``x`` lies elsewhere."""
    moved = a.subtract(x, a.end(1))
    return a.minimum(a.maximum(moved, a.number(0)), last(a, 1))


Use = Callable[[Any, Any, Any], Any]
OF_PLACES: dict[str, Use] = {
    "clamped": lambda a, x, y: inside(a, x),
    "clamped, then compared": lambda a, x, y: a.compare("lt", inside(a, x), inside(a, y)),
    "clamped the other way round": lambda a, x, y: a.maximum(
        a.minimum(a.subtract(x, a.end(2)), last(a, 1)), a.number(0)
    ),
    "the greater of two": lambda a, x, y: a.maximum(x, y),
    "the lesser of two, moved": lambda a, x, y: a.subtract(a.minimum(x, y), a.end(3)),
    "not above the last": lambda a, x, y: a.compare("le", x, last(a, 3)),
    "equal to the last": lambda a, x, y: a.compare("eq", a.subtract(x, a.end(1)), last(a, 1)),
    "the last of another": lambda a, x, y: a.add(a.end(2), last(a, 1)),
    "the last of another before": lambda a, x, y: a.subtract(last(a, 3), a.end(1)),
    "a boundary that is the greater": lambda a, x, y: a.subtract(x, a.maximum(a.end(1), a.end(2))),
    "the last of a boundary that is the lesser": lambda a, x, y: a.maximum(
        x, a.subtract(a.minimum(a.end(1), a.end(2)), a.number(1))
    ),
    "before the first of all": lambda a, x, y: a.compare(
        "gt", a.subtract(x, a.end(1)), a.subtract(a.subtract(a.end(1), a.end(1)), a.number(1))
    ),
}
OF_NUMBERS: dict[str, Use] = {
    "the last but one": lambda a, x, y: a.subtract(last(a, 1), a.number(1)),
    "two before a boundary": lambda a, x, y: a.subtract(a.end(1), a.number(2)),
    "one behind a boundary": lambda a, x, y: a.add(a.end(1), a.number(1)),
    "one before a place": lambda a, x, y: a.subtract(x, a.number(1)),
    "one behind the last": lambda a, x, y: a.add(last(a, 2), a.number(1)),
    "moved by the last": lambda a, x, y: a.subtract(x, last(a, 2)),
    "a boundary from one": lambda a, x, y: a.subtract(a.number(1), a.end(1)),
    "a place from a boundary": lambda a, x, y: a.subtract(a.end(2), x),
    "at least one": lambda a, x, y: a.maximum(x, a.number(1)),
    "at most a number": lambda a, x, y: a.minimum(x, a.number(FULL - 1)),
    "two places added": lambda a, x, y: a.add(x, y),
    "the greater, and one": lambda a, x, y: a.add(a.maximum(x, y), a.number(1)),
    "moved by the greater of a boundary and a place": lambda a, x, y: a.subtract(
        x, a.maximum(a.end(1), y)
    ),
}


def kept(random: Random) -> Callable[[int], int]:
    """Return a map of small places to full ones that keeps order, and ends of segments."""
    between = sorted(random.sample(range(1, FULL - 1), SMALL - 2))
    places = [0, *between, FULL - 1]
    return lambda place: place // SMALL * FULL + places[place % SMALL]


def commutes(use: Use, turned: Callable[[int], int], x: int, y: int) -> bool:
    """Return True if a map of places takes what is made of small ones to what is of full ones."""
    small = use(Integers(SMALL), x, y)
    full = use(Integers(FULL), turned(x), turned(y))
    return bool((small if isinstance(small, bool) else turned(small)) == full)


def always_commutes(use: Use) -> bool:
    random = Random(7)
    return all(
        commutes(use, kept(random), *(random.randrange(SEGMENTS * SMALL) for _ in range(2)))
        for _ in range(500)
    )


def reduced(use: Use) -> int:
    """Return the size at which an axis is tried along which two integers are places."""
    axes = Axes()
    found = use(axes, *axes.ids)
    if found.kind == "int":
        axes.take(axes.whole, 0, found)
    return axes.system.solve().size(axes.whole.dims[0])


@pytest.mark.parametrize("name", OF_PLACES)
def test_what_is_made_of_places_alone_keeps_the_axis_small(name: str) -> None:
    assert always_commutes(OF_PLACES[name])
    assert reduced(OF_PLACES[name]) < SEGMENTS * FULL


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_what_is_another_place_at_another_size_keeps_it_whole(name: str) -> None:
    assert reduced(OF_NUMBERS[name]) == SEGMENTS * FULL
    if name != "one behind the last":
        assert not always_commutes(OF_NUMBERS[name])


def test_the_last_place_is_one_less_than_the_boundary_at_either_size() -> None:
    axes = Axes()
    end = axes.end(1)
    found = last(axes, 1)
    assert found.places is end.places
    assert end.boundary
    assert not found.boundary
