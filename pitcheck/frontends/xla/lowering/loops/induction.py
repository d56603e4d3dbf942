"""Loops proven by induction on one iteration.

Instead of following a loop iteration by iteration, both plans are given the state that it is in as
inputs, each array with the sharding that the text before the partitioner states. They have as
outputs the state with which the loop begins, and the state after one iteration. If each of these
outputs agrees for all states, the state agrees before each iteration and behind the last one, by
induction on the number of iterations. So what the program makes of it may take it as given, too.

- The counter is an input that lies between its first value and the limit. Behind the loop it is the
  limit. Other integers to which each iteration adds a number are decided by it.
- What no iteration changes is no input: it is what the loop begins with.
- In a manual region each device has a state of its own. These are rows of one array.
- The induction may fail although the loops agree, if it needs a relation that is not among these.
  So a pair of plans made this way decides nothing unless it is proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pitcheck.errors import PitcheckError, PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.arrays import (
    Array,
    Copies,
    Tuple,
    Value,
    limits,
    shape_of,
    uniform_of,
)
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.inputs import given
from pitcheck.frontends.xla.lowering.loops.common import Key, Loop
from pitcheck.frontends.xla.lowering.loops.counted import counted, scalar_of, steps
from pitcheck.frontends.xla.lowering.structure import joined, reshaped, sliced
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.sharding import Form, Sharding


@dataclass(frozen=True)
class Claim:
    """An array that must agree for an induction to hold.

    Attributes:
        name: the array, in words.
        given: the input that stands for it in any iteration.
        array: the array of this program.
        shape: its whole shape.
        sharding: how it is distributed.
    """

    name: str
    given: str
    array: Array
    shape: ArrayShape
    sharding: Sharding


@dataclass(frozen=True)
class Entered:
    """A loop in any iteration.

    Attributes:
        loop: the loop.
        start: the first value of its counter.
        first: the state with which it begins.
        state: the state before an iteration.
        names: the input that stands for each array that the plan is given, by its place.
    """

    loop: Loop
    start: int
    first: Value
    state: Tuple
    names: Mapping[int, str]


class NotFoldedError(UnsupportedError):
    """A loop of which an iteration has no meaning unless its state is known.

    Attributes:
        loop: the loop.
    """

    def __init__(self, loop: Loop, cause: PitcheckError) -> None:
        super().__init__(str(cause))
        self.loop = loop


class Induction:
    """The loops of a program that are not followed, and what must be shown of them.

    Attributes:
        claims: the arrays that must agree, in the order in which loops end.
        met: the loops in the order in which they begin and end: where one begins, with the first
            value of the counter and the names of all arrays of the state that the plan is given,
            and where it ends, with the limit. Programs that agree in it claim the same of the same
            loops. A loop within another ends before that one, a loop behind it does not.
    """

    def __init__(self, b: Building, loops: Mapping[Key, Loop]) -> None:
        self._b = b
        self._loops = loops
        self.claims: list[Claim] = []
        self.met: list[tuple[Loop, int, tuple[str, ...]]] = []

    def loop_at(self, key: Key) -> Loop | None:
        """Return the loop at an instruction; None if it is followed."""
        return self._loops.get(key)

    def entered(self, loop: Loop, initial: Value) -> Entered:
        """Return a loop in any iteration, which begins with ``initial``.

        Raises UnsupportedError if the loop does not count from a number that is known.
        """
        elements = self._elements(loop, initial)
        first = uniform_of(elements[loop.counter])
        if not isinstance(first, int) or isinstance(first, bool) or first >= loop.limit:
            raise unsupported(self._b, "a loop that does not count up from a known number")
        names: dict[int, str] = {}
        state = list(elements)
        for place in (loop.counter, *loop.changed):
            bounds = (first, loop.limit) if place == loop.counter else None
            shape, sharding = self._stated(loop, place)
            name = f"{loop.name}[{place}]"
            array = given(self._b, name, shape, sharding, self._b.place, bounds)
            if place == loop.counter:
                array.counted = counted(array.name, first, loop.limit, shape)
                counter = array
            names[place] = array.name
            state[place] = self._of_devices(loop, place, array)
        for place, step in loop.further:
            array = self._counting(loop, place, step, elements[place], counter)
            state[place] = self._of_devices(loop, place, array)
        self.met.append((loop, first, tuple(names.values())))
        return Entered(loop, first, initial, Tuple(tuple(state)), names)

    def left(self, entered: Entered, following: Value) -> Value:
        """Return the state behind a loop, and keep what must be shown of it.

        Raises PlanError if an iteration gives arrays of other shapes.
        """
        loop = entered.loop
        self.met.append((loop, loop.limit, ()))
        first, behind = (self._elements(loop, each) for each in (entered.first, entered.state))
        after = self._elements(loop, following)
        for place in loop.changed:
            shapes = [shape_of(each[place]) for each in (first, behind, after)]
            if not shapes[0] == shapes[1] == shapes[2]:
                raise PlanError(
                    f"array {place} of the loop's state is {shapes[1]} by its sharding; the loop "
                    f"begins with {shapes[0]} and gives {shapes[2]}",
                    self._b.place,
                )
            for when, array in (("at first", first[place]), ("after an iteration", after[place])):
                self._claim(entered, place, when, array)
        iterations = loop.limit - entered.start
        for place, step in ((loop.counter, 1), *loop.further):
            start = uniform_of(first[place])
            if isinstance(start, int):
                behind[place] = self._known(loop, place, start + step * iterations, behind[place])
        return Tuple(tuple(behind))

    def _counting(
        self, loop: Loop, place: int, step: int, first: Array | Copies, counter: Array
    ) -> Array:
        """Return an integer to which each iteration adds a number, as the counter decides it.

        Raises UnsupportedError if it does not begin with a known number.
        """
        start, shape = uniform_of(first), loop.shapes[place]
        numbers = None
        if isinstance(start, int) and counter.counted is not None:
            numbers = steps(counter.counted, start, step, shape)
        found = None if numbers is None else scalar_of(self._b, shape, numbers, [counter])
        if found is None:
            raise unsupported(self._b, "a loop with an integer that counts from another number")
        return found

    def _known(self, loop: Loop, place: int, number: int, like: Array | Copies) -> Array | Copies:
        """Return an integer of the state behind a loop, which wraps as its type does."""
        shape = loop.shapes[place]
        low, high = limits(shape.element)
        known = self._b.constant(shape, [(number - low) % (high - low) + low])
        if isinstance(like, Copies):
            return Copies((known,) * len(like.groups), like.groups)
        return known

    def _claim(self, entered: Entered, place: int, when: str, value: Array | Copies) -> None:
        loop = entered.loop
        shape, sharding = self._stated(loop, place)
        if loop.is_manual:
            held = value.arrays if isinstance(value, Copies) else (value,)
            sizes = (1, *loop.shapes[place].dimensions)
            value = joined(self._b, [reshaped(self._b, each, sizes) for each in held], 0)
        if isinstance(value, Array):
            name = f"{loop.name}[{place}] {when}"
            self.claims.append(Claim(name, entered.names[place], value, shape, sharding))

    def _stated(self, loop: Loop, place: int) -> tuple[ArrayShape, Sharding]:
        """Return the whole shape of an array of the state, and how it is distributed.

        Those of a manual region are taken as one array, cut into what each device has.
        """
        shape, sharding = loop.shapes[place], loop.shardings[place]
        if not loop.is_manual:
            return shape, sharding
        if loop.counts(place):
            return shape, Sharding(Form.REPLICATED)
        devices = self._b.module.header.partitions
        whole = ArrayShape(shape.element, (devices, *shape.dimensions))
        cuts = (devices, *(1 for _ in shape.dimensions))
        return whole, Sharding(Form.TILED, cuts, devices=tuple(range(devices)))

    def _of_devices(self, loop: Loop, place: int, array: Array) -> Array | Copies:
        """Return an array that is given as the loop has it: in a manual region, on each device."""
        if not loop.is_manual:
            return array
        devices, sizes = self._b.module.header.partitions, loop.shapes[place].dimensions
        counts = loop.counts(place)
        if self._b.devices == devices:
            return array if counts else reshaped(self._b, array, sizes)
        rows = [array if counts else self._row(array, d, sizes) for d in range(devices)]
        return Copies(tuple(rows), tuple(range(devices)))

    def _row(self, array: Array, row: int, sizes: tuple[int, ...]) -> Array:
        return reshaped(self._b, sliced(self._b, array, 0, row, row + 1), sizes)

    def _elements(self, loop: Loop, state: Value) -> list[Array | Copies]:
        """Return the arrays of a state.

        Raises UnsupportedError for a state of others: in a program that is not partitioned, those
        of a manual region are copies.
        """
        copied = loop.is_manual and self._b.devices < self._b.module.header.partitions
        expected = Copies if copied else Array
        elements = state.elements if isinstance(state, Tuple) else ()
        arrays = [each for each in elements if isinstance(each, expected)]
        if len(arrays) < len(loop.shapes):
            raise unsupported(self._b, "a loop whose state is not what its sharding says")
        return list(arrays)
