"""The tensors of random numbers: inputs of both plans, which hold the same where codes are equal.

A random number is taken as free. What is proven for all numbers holds for those that the generator
gives, if each is one number in both programs. So:

- The reference is given an array of its random numbers. No two of its elements, and no elements of
  two arrays, are one expression: they would be free of each other.
- A partitioned program is given those of the reference whose codes are equal: a box of one of its
  arrays on each device, which may be another on another device. An array with others is refused: of
  them nothing is known.

Numbers that depend on random numbers alone may be computed from them by both plans, or be drawn in
their place (``late``), which leaves less to prove.

Where an array is filled up, each device holds the box as far as the reference's array goes, and
behind it numbers of which nothing is known. They may be numbers of the reference too (those of the
next row, as a generator counts), or the same number in two places. What is proven for any numbers
there holds all the same; a difference says nothing then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pitcheck.frontends.xla.lowering.arrays import Array, Span, dtype_of
from pitcheck.frontends.xla.lowering.building import DEVICE, Building, NotDrawnError, unsupported
from pitcheck.frontends.xla.lowering.random.codebook import Codebook, Ints
from pitcheck.frontends.xla.lowering.random.codes import MIXED
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Lineage, Shard, Table, Tensor
from pitcheck.plan.rules.lineage_rules import FREE

Box = tuple[tuple[int, int], ...]
"""The part of an array along each dimension: where it begins and ends."""


@dataclass(frozen=True)
class Draw:
    """An array of random numbers that the reference is given.

    Attributes:
        name: the tensor.
        element: the type of its elements.
        codes: the code of each element.
        span: the least integer, and one above the largest; None for other types.
        mixed: True if bits are mixed as a generator does it, so that elements are independent.
    """

    name: str
    element: ElementType
    codes: Ints
    span: Span | None
    mixed: bool


@dataclass(frozen=True)
class Place:
    """The part of an array of the reference that a device holds.

    ``behind``: the codes of the numbers behind it, which are taken for any numbers.
    """

    draw: Draw
    box: Box
    behind: Ints


class Draws:
    """The random numbers of the reference.

    Attributes:
        late: True if what depends on random numbers alone is one of them, too.
        all: the arrays that the reference is given.
    """

    def __init__(self, *, late: bool = False) -> None:
        self.late = late
        self.book = Codebook()
        self.all: list[Draw] = []
        self._codes: Ints = np.zeros(0, dtype=np.int64)
        self._draws: Ints = np.zeros(0, dtype=np.int64)
        self._places: Ints = np.zeros(0, dtype=np.int64)

    def tensor(self, b: Building, x: Array) -> str:
        """Return the input that holds an array of random numbers.

        Raises UnsupportedError if one of them stands twice in what the plan is given.
        """
        codes = _codes(b, self.book, x)
        if len(codes) != 1:
            raise unsupported(b, "random numbers of several devices without those of one")
        return self._drawn(b, x, codes[0]).name

    def _drawn(self, b: Building, x: Array, codes: Ints) -> Draw:
        for draw in self.all:
            if np.array_equal(draw.codes, codes):
                return draw
        flat = codes.reshape(-1)
        distinct = np.unique(flat)
        if len(distinct) < len(flat):
            raise unsupported(b, "an array of random numbers in which one stands twice")
        if self.has(distinct):
            raise unsupported(b, "an array of random numbers of which others hold a part")
        name = b.unused(f"{b.stem} (random)")
        mixed = x.codes is not None and x.codes.mixing >= MIXED
        draw = Draw(name, x.shape.element, codes, x.span, mixed)
        self._enter(draw, flat)
        shape, dtype = b.stated(x.shape), dtype_of(x.shape.element)
        b.tensors[name] = Tensor(name, shape, dtype, "input", bounds=x.span)
        return draw

    def _found(self, codes: Ints) -> Ints:
        """Return the entries with some codes, of which each stands once."""
        at = np.searchsorted(self._codes, codes)
        inside = np.minimum(at, max(len(self._codes) - 1, 0))
        return inside[self._codes[inside] == codes] if len(self._codes) else inside[:0]

    def _enter(self, draw: Draw, flat: Ints) -> None:
        codes = np.concatenate([self._codes, flat])
        order = np.argsort(codes, kind="stable")
        number = np.full(len(flat), len(self.all), dtype=np.int64)
        self._codes = codes[order]
        self._draws = np.concatenate([self._draws, number])[order]
        self._places = np.concatenate([self._places, np.arange(len(flat))])[order]
        self.all.append(draw)

    def place_of(self, codes: Ints) -> Place | None:
        """Return the part of an array of the reference that some codes are; None if there is none.

        Behind the end of that array codes may be any.
        """
        found = self._found(codes.reshape(-1)[:1])
        if not len(found):
            return None
        draw = self.all[int(self._draws[found[0]])]
        if draw.codes.ndim != codes.ndim:
            return None
        starts = np.unravel_index(int(self._places[found[0]]), draw.codes.shape)
        ends = [
            min(int(start) + size, whole)
            for start, size, whole in zip(starts, codes.shape, draw.codes.shape, strict=True)
        ]
        box = tuple((int(start), end) for start, end in zip(starts, ends, strict=True))
        theirs = draw.codes[tuple(slice(*part) for part in box)]
        inside = tuple(slice(0, end - start) for start, end in box)
        behind = np.ones(codes.shape, dtype=bool)
        behind[inside] = False
        if not np.array_equal(codes[inside], theirs):
            return None
        return Place(draw, box, codes[behind])

    def has(self, codes: Ints) -> bool:
        """Return True if the reference is given a random number that is one of some codes."""
        return len(self._found(np.unique(codes))) > 0


class PartitionedDraws:
    """The random numbers of a partitioned program: parts of those of the reference.

    Attributes:
        late: True if what depends on random numbers alone is one of them, too.
    """

    def __init__(self, reference: Draws) -> None:
        self.late = reference.late
        self._padding: Ints = np.zeros(0, dtype=np.int64)
        """The codes of padding, each of which the plan takes for a number like no other."""
        self._reference = reference
        self._names: dict[tuple[tuple[int, ...], bytes], str] = {}
        self._held: dict[str, list[Box]] = {}

    def tensor(self, b: Building, x: Array) -> str:
        """Return the tensor that holds on each device its part of the reference's random numbers.

        Raises NotDrawnError if the reference is not given some of them.
        """
        codes = _codes(b, self._reference.book, x)
        key = codes.shape, codes.tobytes()
        if key not in self._names:
            self._names[key] = self._placed(b, x, codes)
        return self._names[key]

    def _placed(self, b: Building, x: Array, codes: Ints) -> str:
        found = [self._reference.place_of(row) for row in codes]
        behind = _behind(x, found)
        places = [
            place or (behind and replace(behind, behind=row.reshape(-1)))
            for place, row in zip(found, codes, strict=True)
        ]
        missing = [device for device, place in enumerate(places) if place is None]
        if missing:
            raise NotDrawnError(
                f"{b.place}: the program before it was partitioned has no random numbers with the "
                f"key, the algorithm and the places of these"
                + (f" on device {missing[0]}" if len(codes) > 1 else "")
            )
        held = [place for place in places if place is not None] * (b.devices // len(codes))
        self._padding = np.concatenate([self._padding, *(place.behind for place in held)])
        for place in held:
            _check_padding(b, x, place)
            self._held.setdefault(place.draw.name, []).append(place.box)
        several = len({place.draw.name for place in held}) > 1
        return (_by_device if several else _input)(b, x, held)

    @property
    def loose(self) -> bool:
        """True if random numbers of the reference are taken for any numbers somewhere."""
        return self._reference.has(self._padding)

    @property
    def repeated(self) -> Ints:
        """The codes of padding that stand in several places, where they are any numbers each."""
        codes, counts = np.unique(self._padding, return_counts=True)
        return codes[counts > 1]

    def hold_rest(self, b: Building) -> None:
        """Give the plan all random numbers of which no device holds some part.

        The program does not need them, which is no fault.
        """
        for draw in self._reference.all:
            covered = np.zeros(draw.codes.shape, dtype=bool)
            for box in self._held.get(draw.name, ()):
                covered[tuple(slice(*part) for part in box)] = True
            if not bool(covered.all()):
                whole = ArrayShape(draw.element, draw.codes.shape)
                _hold(b, draw, whole, Lineage(draw.name))


def _codes(b: Building, book: Codebook, x: Array) -> Ints:
    """Return the codes of an array, shape (devices or 1, *sizes)."""
    if x.codes is None:
        raise unsupported(b, "random numbers that nothing tells")
    held = x.codes.held(book)
    if held.numbers is not None:
        raise unsupported(b, f"{x.shape} of known numbers that are so many")
    return np.ascontiguousarray(held.codes(book))


def _behind(x: Array, found: Sequence[Place | None]) -> Place | None:
    """Return the place behind the end of an array of which other devices hold all.

    None if they do not: a device may hold nothing of it only where it is filled up.
    """
    places = [place for place in found if place is not None]
    if not places or any(place.draw is not places[0].draw for place in places):
        return None
    draw = places[0].draw
    covered = np.zeros(draw.codes.shape, dtype=bool)
    for place in places:
        covered[tuple(slice(*part) for part in place.box)] = True
    cut = [d for d, whole in enumerate(draw.codes.shape) if x.sizes[d] < whole]
    if len(cut) != 1 or not bool(covered.all()):
        return None
    end = draw.codes.shape[cut[0]]
    box = tuple((end, end) if d == cut[0] else part for d, part in enumerate(places[0].box))
    return Place(draw, box, places[0].behind)


def _check_padding(b: Building, x: Array, place: Place) -> None:
    """Raise UnsupportedError if an integer behind the reference's array may be none of it."""
    filled = any(end - start < size for (start, end), size in zip(place.box, x.sizes, strict=True))
    span = place.draw.span
    if filled and span is not None and not x.within(*span):
        raise unsupported(b, "random integers of wider range where an array is filled up")


def _input(b: Building, x: Array, places: Sequence[Place]) -> str:
    """Return an input that holds on each device a part of one array of the reference."""
    draw = places[0].draw
    whole, shards = draw.codes.shape, []
    for dim, size in enumerate(x.sizes):
        intervals = tuple(_interval(place.box[dim], size) for place in places)
        if set(intervals) != {((0, whole[dim]),)}:
            shards.append(Shard(dim, intervals=Table((DEVICE,), intervals)))
    return _hold(b, draw, x.shape, Lineage(draw.name, tuple(shards)))


def _hold(b: Building, draw: Draw, shape: ArrayShape, lineage: Lineage) -> str:
    """Return an input that holds a part of an array of the reference."""
    name, sizes, dtype = b.unused(draw.name), b.stated(shape), dtype_of(shape.element)
    b.tensors[name] = Tensor(name, sizes, dtype, "input", lineage=lineage, bounds=draw.span)
    return name


def _interval(part: tuple[int, int], size: int) -> tuple[tuple[int, int], ...]:
    start, end = part
    missing = size - (end - start)
    held = ((start, end),) if start < end else ()
    return (*held, (FREE, missing)) if missing else held


def _by_device(b: Building, x: Array, places: Sequence[Place]) -> str:
    """Return a tensor that holds on each device a part of another array of the reference."""
    name = b.unused(b.stem)
    for draw in {place.draw.name: place.draw for place in places}.values():
        mine = [device for device, place in enumerate(places) if place.draw is draw]
        # A device that does not read it holds some part of it all the same.
        held = [place if place.draw is draw else places[mine[0]] for place in places]
        given = _input(b, x, held)
        where = ({DEVICE: tuple(mine)},)
        b.emit("identity", (given,), x.shape, where=where, into=name)
    return name
