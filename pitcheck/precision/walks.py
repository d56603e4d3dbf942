"""Ways between matched values, and the terms of which a value is the sum."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import inf

from pitcheck.precision.side import Side, is_addition, is_arranged, is_scaling, is_scattered


@dataclass
class Way:
    """The computation of ``target`` from matched values.

    ``inputs``: those values, with the fewest digits in which each is read. ``between``: the values
    that are computed and cast on the way.
    """

    target: int
    inputs: dict[int, float] = field(default_factory=dict)
    between: set[int] = field(default_factory=set)

    def values(self) -> list[int]:
        """Return all that is computed or cast on the way, the target first."""
        return [self.target, *sorted(self.between)]


def way_to(side: Side, target: int, stops: Collection[int]) -> Way:
    """Return the way to a computed value from those of ``stops`` that it is computed from."""
    way = Way(target)
    entered, seen = {target}, {target}
    waiting = [target]
    while waiting:
        for value in (
            value
            for node in side.writers(waiting.pop())
            for value in side.operands(node)
            if value not in seen
        ):
            seen.add(value)
            root = side.root(value)
            way.between.update(side.chain(value)[:-1])
            if root in stops and root != target:
                way.inputs[root] = min(way.inputs.get(root, inf), side.kept_bits(value))
            elif root not in entered and side.writers(root):
                entered.add(root)
                way.between.add(root)
                waiting.append(root)
    return way


@dataclass
class Sum:
    """The sum that a value is.

    ``parts``: the values that additions compute. ``terms``: what is added up. ``below``: part ->
    the values that it is added up from.
    """

    parts: list[int] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    below: dict[int, list[int]] = field(default_factory=dict)

    def under(self, part: int) -> set[int]:
        """Return all that is added up to a part, and the part."""
        found: set[int] = set()
        waiting = [part]
        while waiting:
            value = waiting.pop()
            if value not in found:
                found.add(value)
                waiting.extend(self.below.get(value, ()))
        return found


def sum_of(side: Side, target: int, stops: Callable[[int], bool]) -> Sum:
    """Return the sum that ``target`` is, whatever is cast, moved or scaled in it.

    It ends at values for which ``stops`` is true, and at values that are computed in other ways.
    """
    found = Sum()
    seen = {target}
    waiting = [target]
    while waiting:
        value = waiting.pop()
        writers = side.writers(value)
        if (value != target and stops(value)) or not writers:
            found.terms.append(value)
            continue
        if any(is_addition(node) or is_scattered(node) for node in writers):
            found.parts.append(value)
        for node in writers:
            if not (is_addition(node) or is_scaling(node) or is_arranged(node)):
                found.terms.append(value)
                continue
            roots = [side.root(operand) for operand in side.operands(node)]
            found.below.setdefault(value, []).extend(roots)
            waiting.extend(root for root in roots if root not in seen)
            seen.update(roots)
    return found
