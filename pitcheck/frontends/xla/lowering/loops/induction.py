"""Loops proven by induction on one iteration.

Instead of following a loop iteration by iteration, both plans are given the state that it is in as
inputs, each array with the sharding that the text before the partitioner states. They have as
outputs the state with which the loop begins, and the state after one iteration. If each of these
outputs agrees for all states, the state agrees before each iteration and behind the last one, by
induction on the number of iterations. So what the program makes of it may take it as given, too.

- The counter is an input that lies between its first value and the limit. Behind the loop it is the
  limit.
- What no iteration changes is no input: it is what the loop begins with.
- The induction may fail although the loops agree, if it needs a relation that is not among these.
  So a pair of plans made this way decides nothing unless it is proven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Span, Tuple, Value
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.inputs import given
from pitcheck.frontends.xla.lowering.loops.common import Key, Loop
from pitcheck.frontends.xla.text.shapes import ArrayShape
from pitcheck.frontends.xla.text.sharding import Sharding


@dataclass(frozen=True)
class Claim:
    """An array that must agree for an induction to hold.

    Attributes:
        name: the array, in words.
        array: the array of this program.
        shape: its whole shape.
        sharding: how it is distributed.
    """

    name: str
    array: Array
    shape: ArrayShape
    sharding: Sharding


class Induction:
    """The loops of a program that are not followed, and what must be shown of them.

    Attributes:
        claims: the arrays that must agree, in the order in which loops end.
        met: the loops that were met, with the first value of the counter and the names of all
            arrays of the state that the plan is given.
    """

    def __init__(self, b: Building, loops: Mapping[Key, Loop]) -> None:
        self._b = b
        self._loops = loops
        self.claims: list[Claim] = []
        self.met: list[tuple[Loop, int, tuple[str, ...]]] = []

    def loop_at(self, key: Key) -> Loop | None:
        """Return the loop at an instruction; None if it is followed."""
        return self._loops.get(key)

    def state(self, loop: Loop, initial: Value) -> Tuple:
        """Return the state of a loop in any iteration, of which it begins with ``initial``.

        Raises UnsupportedError if the loop does not count from a number that is known.
        """
        elements = self._elements(initial)
        counter = elements[loop.counter]
        first = counter.uniform
        if not isinstance(first, int) or isinstance(first, bool) or first >= loop.limit:
            raise unsupported(self._b, "a loop that does not count up from a known number")
        state = {loop.counter: self._given(loop, loop.counter, (first, loop.limit))}
        state |= {place: self._given(loop, place) for place in loop.changed}
        self.met.append((loop, first, tuple(array.name for array in state.values())))
        return Tuple(tuple(state.get(place, array) for place, array in enumerate(elements)))

    def _given(self, loop: Loop, place: int, bounds: Span | None = None) -> Array:
        name, where = f"{loop.name}[{place}]", self._b.place
        return given(self._b, name, loop.shapes[place], loop.shardings[place], where, bounds)

    def left(self, loop: Loop, initial: Value, state: Tuple, following: Value) -> Value:
        """Return the state behind a loop, and keep what must be shown of it.

        Raises PlanError if an iteration gives arrays of other shapes.
        """
        first, behind = self._elements(initial), list(self._elements(state))
        after = self._elements(following)
        for place in loop.changed:
            if not first[place].shape == behind[place].shape == after[place].shape:
                raise PlanError(
                    f"array {place} of the loop's state is {behind[place].shape} by its sharding; "
                    f"the loop begins with {first[place].shape} and gives {after[place].shape}",
                    self._b.place,
                )
            name = f"{loop.name}[{place}]"
            self._claim(loop, place, f"{name} at first", first[place])
            self._claim(loop, place, f"{name} after an iteration", after[place])
        counter = behind[loop.counter]
        behind[loop.counter] = self._b.constant(counter.shape, [loop.limit])
        return Tuple(tuple(behind))

    def _claim(self, loop: Loop, place: int, name: str, array: Array) -> None:
        self.claims.append(Claim(name, array, loop.shapes[place], loop.shardings[place]))

    def _elements(self, state: Value) -> list[Array]:
        """Return the arrays of a state. Raises UnsupportedError if it has others."""
        elements = state.elements if isinstance(state, Tuple) else ()
        arrays = [each for each in elements if isinstance(each, Array)]
        if not arrays or len(arrays) < len(elements):
            raise unsupported(self._b, "a loop within a manual region")
        return arrays
