"""Arrays over coordinates without extent along axes that do not matter, against dictionaries of all
coordinates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.graph.grids import Lattice, along, either, far, focus, near
from pitcheck.graph.reads import (
    FromCodes,
    FromPlaces,
    OfMicrobatch,
    Once,
    OverGroup,
    OverMicrobatches,
    Read,
    Through,
)

Place = tuple[int, ...]
Dense = dict[Place, Any]

SHAPES = st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple)
"""Sizes of one to three mesh axes, and the number of micro-batches."""


def places(shape: Place) -> list[Place]:
    """All coordinates, in the order of their codes."""
    return list(itertools.product(*map(range, shape)))


def dense(grid: np.ndarray[Any, Any], shape: Place) -> Dense:
    """Return the entry of a grid at every coordinate, as a tuple for a stack."""
    found = {}
    for place in places(shape):
        entry = grid[
            tuple(i if size > 1 else 0 for i, size in zip(place, grid.shape, strict=False))
        ]
        found[place] = tuple(entry.tolist()) if entry.ndim else entry.item()
    return found


def is_grid(array: np.ndarray[Any, Any], shape: Place, members: int = 0) -> bool:
    """Return True if every dimension has the size of its axis, or 1."""
    own = array.shape[: len(shape)]
    return array.shape[len(shape) :] == ((members,) if members else ()) and all(
        n in (1, size) for n, size in zip(own, shape, strict=True)
    )


@st.composite
def grids(draw: st.DrawFn, shape: Place, *, numbers: bool = True) -> np.ndarray[Any, Any]:
    """An array with some dimensions of size 1: distinct numbers, or a mask."""
    own = tuple(size if draw(st.booleans()) else 1 for size in shape)
    if numbers:
        return np.arange(prod(own)).reshape(own) * 7 + 3
    return np.array(draw(st.lists(st.booleans(), min_size=prod(own), max_size=prod(own)))).reshape(
        own
    )


@dataclass
class Model:
    """A read, and for every coordinate the coordinates that it reads (None: nothing is
    read there).
    """

    read: Read
    of: Callable[[Place], list[Place | None]]


def _moved(place: Place, axis: int, to: int) -> Place:
    return tuple(to if d == axis else i for d, i in enumerate(place))


def _group(place: Place, over: Place, shape: Place) -> list[Place | None]:
    found: list[Place | None] = []
    for member in itertools.product(*(range(shape[axis]) for axis in over)):
        here = place
        for axis, i in zip(over, member, strict=True):
            here = _moved(here, axis, i)
        found.append(here)
    return found


@st.composite
def single_reads(draw: st.DrawFn, shape: Place) -> Model:
    """Reads of one tensor."""
    last = len(shape) - 1
    kind = draw(st.sampled_from(["once", "microbatch", "places", "codes"]))
    if kind == "once":
        return Model(Once(shape), lambda place: [_moved(place, last, 0)])
    if kind == "microbatch":
        number = draw(st.integers(0, shape[-1] - 1))
        return Model(OfMicrobatch(shape, number), lambda place: [_moved(place, last, number)])
    if kind == "places":
        axis = draw(st.integers(0, last))
        to = tuple(
            draw(
                st.lists(
                    st.integers(-1, shape[axis] - 1), min_size=shape[axis], max_size=shape[axis]
                )
            )
        )
        return Model(
            FromPlaces(shape, axis, to),
            lambda place: [None if to[place[axis]] < 0 else _moved(place, axis, to[place[axis]])],
        )
    everything = places(shape)
    codes = draw(
        st.lists(
            st.integers(-1, len(everything) - 1), min_size=len(everything), max_size=len(everything)
        )
    )
    table = dict(zip(everything, codes, strict=True))
    return Model(
        FromCodes(shape, np.array(codes)),
        lambda place: [None if table[place] < 0 else everything[table[place]]],
    )


@st.composite
def stacked_reads(draw: st.DrawFn, shape: Place) -> Model:
    """Reads of several tensors."""
    last = len(shape) - 1
    kind = draw(st.sampled_from(["microbatches", "group", "codes"]))
    if kind == "microbatches":
        chosen = tuple(draw(st.lists(st.integers(0, shape[-1] - 1), min_size=1, max_size=3)))
        return Model(
            OverMicrobatches(shape, chosen),
            lambda place: [_moved(place, last, number) for number in chosen],
        )
    if kind == "group":
        over = tuple(draw(st.permutations(range(last))))[: draw(st.integers(1, last))]
        return Model(OverGroup(shape, over), lambda place: _group(place, over, shape))
    everything = places(shape)
    members = draw(st.integers(1, 3))
    size = len(everything) * members
    rows = np.array(
        draw(st.lists(st.integers(-1, len(everything) - 1), min_size=size, max_size=size))
    ).reshape(-1, members)
    table = dict(zip(everything, rows.tolist(), strict=True))
    return Model(
        FromCodes(shape, rows),
        lambda place: [None if code < 0 else everything[code] for code in table[place]],
    )


@st.composite
def reads(draw: st.DrawFn) -> Model:
    """Any read; one read seen through another."""
    shape = draw(SHAPES)
    outer = draw(st.one_of(single_reads(shape), stacked_reads(shape)))
    # A tensor that exists once is never read through another read: that one is of a collective.
    if isinstance(outer.read, Once) or draw(st.booleans()):
        return outer
    inner = draw(single_reads(shape))

    def of(place: Place) -> list[Place | None]:
        return [None if found is None else inner.of(found)[0] for found in outer.of(place)]

    return Model(Through(shape, outer.read, inner.read), of)


@given(reads(), st.data())
def test_a_read_gathers_what_stands_at_the_coordinates_it_reads(
    model: Model, data: st.DataObject
) -> None:
    shape = model.read.shape
    grid = data.draw(grids(shape))
    said = dense(grid, shape)
    gathered = model.read.gather(grid)
    assert is_grid(gathered, shape, model.read.members)
    for place, found in dense(gathered, shape).items():
        for entry, source in zip(
            found if model.read.members else (found,), model.of(place), strict=True
        ):
            assert source is None or entry == said[source]


@given(reads())
def test_a_table_says_the_codes_that_are_read(model: Model) -> None:
    shape = model.read.shape
    everything = places(shape)
    table = model.read.table
    assert table.shape == (
        (len(everything), model.read.members) if model.read.members else (len(everything),)
    )
    for place, row in zip(everything, table.tolist(), strict=True):
        for code, source in zip(row if model.read.members else [row], model.of(place), strict=True):
            assert source is None or everything[code] == source


@given(reads(), st.data())
def test_some_codes_are_read_as_all_of_them_are(model: Model, data: st.DataObject) -> None:
    table = model.read.table
    codes = np.array(
        data.draw(st.lists(st.integers(0, len(table) - 1), max_size=4)), dtype=np.int64
    )
    assert np.array_equal(np.maximum(model.read.at(codes), 0), np.maximum(table[codes], 0))


@given(reads(), st.data())
def test_a_read_reaches_what_the_coordinates_of_a_mask_read(
    model: Model, data: st.DataObject
) -> None:
    shape = model.read.shape
    mask = data.draw(grids(shape, numbers=False))
    wanted = {
        source
        for place, holds in dense(mask, shape).items()
        if holds
        for source in model.of(place)
        if source is not None
    }
    reached = model.read.reach(mask)
    assert is_grid(reached, shape)
    once = isinstance(model.read, Once) or (
        isinstance(model.read, Through) and isinstance(model.read.inner, Once)
    )
    # What exists once is kept without extent along micro-batches, and counts as micro-batch 0.
    codes = Lattice(shape, not once).codes(reached)
    assert {places(shape)[code] for code in codes} == wanted


@given(reads(), reads())
def test_reads_of_one_key_read_the_same(a: Model, b: Model) -> None:
    assert (
        a.read.shape != b.read.shape
        or a.read.key != b.read.key
        or np.array_equal(a.read.table, b.read.table)
    )


@given(reads(), st.data())
def test_a_read_leaves_the_own_coordinate_along_its_axes_only(
    model: Model, data: st.DataObject
) -> None:
    place = data.draw(st.sampled_from(places(model.read.shape)))
    for source in model.of(place):
        assert source is None or all(
            source[d] == place[d] for d in range(len(place)) if d not in model.read.axes
        )


# --- arrays by coordinate code


@given(SHAPES, st.booleans(), st.data())
def test_a_grid_by_code(shape: Place, microbatched: bool, data: st.DataObject) -> None:
    lattice = Lattice(shape, microbatched)
    grid = data.draw(grids(shape if microbatched else (*shape[:-1], 1)))
    flat = lattice.flat(grid, -1)
    said = dense(grid, shape)
    there = [said[place] if microbatched or place[-1] == 0 else -1 for place in places(shape)]
    assert flat.tolist() == there
    assert lattice.flat(lattice.grid(flat), -1).tolist() == there


@given(SHAPES, st.booleans(), st.data())
def test_codes_of_a_mask(shape: Place, microbatched: bool, data: st.DataObject) -> None:
    lattice = Lattice(shape, microbatched)
    existing = [code for code, place in enumerate(places(shape)) if microbatched or place[-1] == 0]
    codes = sorted(data.draw(st.sets(st.sampled_from(existing))))
    mask = lattice.mask(np.array(codes, dtype=np.int64))
    assert is_grid(mask, shape)
    assert lattice.codes(mask).tolist() == codes
    if codes:
        assert lattice.first(mask) == codes[0]


# --- homes


@given(SHAPES, st.data())
def test_focus_names_the_axes_along_which_a_mask_holds_at_one_coordinate(
    shape: Place, data: st.DataObject
) -> None:
    mask = data.draw(grids(shape, numbers=False))
    held = [place for place, holds in dense(mask, shape).items() if holds]
    wanted = tuple(
        (d, held[0][d])
        for d in range(len(shape))
        if mask.shape[d] > 1 and len({place[d] for place in held}) == 1
    )
    assert focus(mask) == wanted


@given(SHAPES, st.data())
def test_a_mask_is_what_it_is_near_its_focus(shape: Place, data: st.DataObject) -> None:
    mask = data.draw(grids(shape, numbers=False))
    home = focus(mask)
    close = near(mask, home)
    assert all(close.shape[axis] == 1 for axis, _ in home)
    assert dense(far(close, home, shape, False), shape) == dense(mask, shape)


@given(SHAPES, st.data())
def test_what_is_near_a_home_lies_nowhere_else(shape: Place, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.sampled_from(range(len(shape)))))
    home = tuple(
        (axis, data.draw(st.integers(0, shape[axis] - 1)))
        for axis in sorted(chosen)
        if shape[axis] > 1
    )
    grid = data.draw(grids(shape))
    result = far(near(grid, home), home, shape, -1)
    assert is_grid(result, shape)
    said = dense(grid, shape)
    assert dense(result, shape) == {
        place: said[place] if all(place[axis] == at for axis, at in home) else -1
        for place in places(shape)
    }


@given(SHAPES, st.data())
def test_masks_are_united_and_projected(shape: Place, data: st.DataObject) -> None:
    a, b = (data.draw(grids(shape, numbers=False)) for _ in range(2))
    union = either(a, b)
    assert dense(union, shape) == {
        place: x or dense(b, shape)[place] for place, x in dense(a, shape).items()
    }
    assert either(None, b) is b
    axis = data.draw(st.sampled_from(range(len(shape))))
    if a.shape[axis] > 1:
        assert along(a, axis).tolist() == sorted(
            {place[axis] for place, holds in dense(a, shape).items() if holds}
        )


# --- by hand


@pytest.fixture
def shape() -> Place:
    """Two pipeline stages, two tensor-parallel ranks, two micro-batches."""
    return (2, 2, 2)


def test_a_stack_over_two_axes_is_row_major(shape: Place) -> None:
    table = OverGroup(shape, (0, 1)).table
    assert table[0].tolist() == [0, 2, 4, 6]
    assert table[7].tolist() == [1, 3, 5, 7]
    assert OverGroup(shape, (1, 0)).table[0].tolist() == [0, 4, 2, 6]


def test_what_does_not_depend_on_an_axis_stays_without_it(shape: Place) -> None:
    nowhere = np.zeros((1, 1, 1), dtype=np.int64)
    for read in (Once(shape), OfMicrobatch(shape, 1), FromPlaces(shape, 0, (1, 0))):
        assert read.gather(nowhere).shape == (1, 1, 1)
    assert OverGroup(shape, (1,)).gather(nowhere).shape == (1, 1, 1, 2)
    assert OverGroup(shape, (1,)).reach(np.ones((2, 2, 1), dtype=np.bool_)).shape == (2, 1, 1)


def test_a_send_from_stage_to_stage_reaches_the_stage_before(shape: Place) -> None:
    before = FromPlaces(shape, 0, (-1, 0))
    at_last = Lattice(shape, True).mask(np.array([4, 6]))
    assert Lattice(shape, True).codes(before.reach(at_last)).tolist() == [0, 2]
    assert not before.reach(Lattice(shape, True).mask(np.array([1, 3]))).any()
