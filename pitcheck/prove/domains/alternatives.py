"""Guards of the reference by which those of the parallel plan are discharged, in one draw.

What needs a guard of the parallel plan may lack a value in the reference wherever that guard fails.
So each of its elements must need, in the reference, an equal guard, or guards of which it is a
product, or a factor.

>>> given = {("div", 1900): np.array([0, 1]), ("div", 1700): np.array([1, 2])}
>>> found = Alternatives(given, lambda: Known(2147483647))
>>> found.lacking(("div", 1900), np.array([0, 1])).tolist(), found.by_chance
([], False)
>>> found.lacking(("div", 1900 * 1700), np.array([0, 1])).tolist(), found.by_chance
([0], True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, reduce

import numpy as np

from pitcheck.prove.domains.guard_factors import Class, Known, as_strong, discharging
from pitcheck.prove.domains.operands import Elements, residue


class Alternatives:
    """The guards of the reference, each with the compared elements that need it.

    ``by_chance`` is True once guards were looked at that may follow from others by chance.
    """

    def __init__(self, given: Mapping[Class, Elements], known: Callable[[], Known]) -> None:
        """Keep the guards in their order. ``known`` is called if equal ones do not suffice."""
        self.by_chance = False
        self._given = given
        self._ask = known

    def lacking(self, own: Class, need: Elements) -> Elements:
        """Return the elements, among those that need ``own``, that may lack it in the reference."""
        left = need
        for kind in as_strong(own[0]):
            if (kind, own[1]) in self._given:
                left = np.setdiff1d(left, self._given[kind, own[1]], assume_unique=True)
        for chosen in self._products(own, left):
            left = np.setdiff1d(left, reduce(np.intersect1d, chosen), assume_unique=True)
            if not left.size:
                break
        return left

    def _products(self, own: Class, left: Elements) -> Iterator[list[Elements]]:
        """Yield what needs each of some guards; where all of one set hold, ``own`` holds.

        What the elements of ``left`` do not need is of no use.
        """
        if not left.size:
            return
        self.by_chance = True
        near = sorted({n for element in left.tolist() for n in self._by_element.get(element, ())})
        guards = [(self._classes[n][0], residue(self._classes[n][1])) for n in near]
        for chosen in discharging((own[0], residue(own[1])), guards, self._known):
            yield [self._given[self._classes[near[place]]] for place in chosen]

    @cached_property
    def _known(self) -> Known:
        return self._ask()

    @cached_property
    def _classes(self) -> list[Class]:
        return list(self._given)

    @cached_property
    def _by_element(self) -> dict[int, list[int]]:
        """Return the numbers of the guards that an element needs, by element."""
        found: dict[int, list[int]] = {}
        for number, elements in enumerate(self._given.values()):
            for element in elements.tolist():
                found.setdefault(element, []).append(number)
        return found
