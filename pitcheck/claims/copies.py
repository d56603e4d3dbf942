"""The choice between equal reference values: a cut is at that from which its readers are computed.

A program that computes its activations again for the backward pass holds them twice, and numbers do
not say which of both a parallel value corresponds to. A stage is small only if it begins at the one
that is read at its end: the operators of the other one do not lie between, and the way back leads
on to the inputs of the plan.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from pitcheck.claims.real_numbers import agree
from pitcheck.claims.reference_index import MOST_OWNERS, Index, beginning_like
from pitcheck.claims.shard_places import Places
from pitcheck.graph.cuts import Cut
from pitcheck.stage.batch import Batch
from pitcheck.stage.stage import Stage

Operands = Mapping[int, Sequence[int]]
"""The values from which each computed value is computed at once."""
FARTHER = 8
"""The values looked at in the reference for each one between the cuts in the parallel plan."""
MOST_BETWEEN = 500
"""The values between cuts that are looked at. A stage of more is not made small by a choice."""


class Copies:
    """The reference values that are equal to one and computed by the same operator."""

    def __init__(self, index: Index, places: Places) -> None:
        self._index = index
        self._places = places
        self._known: dict[int, Sequence[int]] = {}

    def __call__(self, value: int) -> Sequence[int]:
        """Return the copies of a value, itself among them, ascending."""
        if value not in self._known:
            self._known[value] = self._copies(value)
        return self._known[value]

    def _copies(self, value: int) -> Sequence[int]:
        index, whole = self._index, self._index.arrays[value]
        likely = self._places.computed_like(value, beginning_like(whole[:, None], index))[
            :MOST_OWNERS
        ]
        return [
            other
            for other in likely.tolist()
            if index.arrays[other].shape == whole.shape and agree(index.arrays[other], whole)
        ]


def at_nearest_copies(stage: Stage, cuts: Mapping[int, Cut], copies: Copies) -> dict[int, Cut]:
    """Return cuts, each at that copy of its reference value from which its readers are computed.

    ``cuts``: those of computed values, by value. The readers of a value are the cuts and targets
    whose way back meets it first. Each votes for the copy that is nearest on its own way back
    through the reference. Readers choose before what they read, so that one choice carries others.
    """
    parallel, reference = operands_of(stage.parallel), operands_of(stage.reference)
    ends = {target.cut.value: target.cut for target in stage.targets}
    given, chosen = {**stage.cuts, **cuts}, dict(cuts)
    votes: dict[int, Counter[int]] = {}
    for value in reversed(parallel):
        if value in votes:
            chosen[value] = _elected(chosen[value], votes[value])
        cut = chosen.get(value) or ends.get(value)
        if cut is None:
            continue
        between, first = _way_back(value, parallel, given)
        several = {
            v: found for v in first if v in cuts and len(found := copies(given[v].reference)) > 1
        }
        if several:
            stops = {given[v].reference for v in first}.union(*several.values())
            distances = _distances(cut.reference, reference, stops, FARTHER * between)
            for v, found in several.items():
                met = [(distances[copy], copy) for copy in found if copy in distances]
                if met:
                    votes.setdefault(v, Counter())[min(met)[1]] += 1
    return chosen


def operands_of(batch: Batch) -> dict[int, list[int]]:
    """Return what each computed value is computed from, in the order of the steps."""
    found: dict[int, dict[int, None]] = {}
    for step in batch.steps:
        read = dict.fromkeys(argument.value for argument in step.looked_into)
        for output in step.outputs:
            if output is not None:
                found.setdefault(output, {}).update(read)
    return {value: list(read) for value, read in found.items()}


def _elected(cut: Cut, votes: Counter[int]) -> Cut:
    """Return a cut at the copy with most votes; at its own if that has as many."""
    copy, most = max(votes.items(), key=lambda vote: (vote[1], -vote[0]))
    return cut if votes[cut.reference] == most else replace(cut, reference=copy)


def _way_back(value: int, operands: Operands, given: Mapping[int, Cut]) -> tuple[int, list[int]]:
    """Return (the number of values on the way back, the given values that are met first).

    Only the first ``MOST_BETWEEN`` are looked at.
    """
    seen, waiting, between = {value}, [value], 0
    first: list[int] = []
    while waiting and between < MOST_BETWEEN:
        between += 1
        for read in operands.get(waiting.pop(), ()):
            if read not in seen:
                seen.add(read)
                (first if read in given else waiting).append(read)
    return between, first


def _distances(
    value: int, operands: Operands, stops: AbstractSet[int], limit: int
) -> dict[int, int]:
    """Return how many operators away those of some values lie that are met first on the way back.

    At most ``limit`` values are looked at, the nearest ones.
    """
    distance, queue, found = {value: 0}, deque([value]), {}
    while queue and len(distance) <= limit:
        at = queue.popleft()
        for read in operands.get(at, ()):
            if read not in distance:
                distance[read] = distance[at] + 1
                if read in stops:
                    found[read] = distance[read]
                else:
                    queue.append(read)
    return found
