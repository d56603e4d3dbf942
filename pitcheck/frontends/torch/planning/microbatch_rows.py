"""Micro-batches of the ranks that are not those of the reference.

Both programs may take their batch in pieces. If every rank cuts its own rows, the first piece of
one rank may belong to the first piece of the reference, and that of another rank to the second. Had
both one name, the value would be no tensor of the reference on all of its ranks, and nothing could
be compared until the end of the step. So what is made of rows of one piece is named after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from pitcheck.frontends.torch.trace import Argument, Event, Ref, Trace, operands

Rows = int
"""Rows of the whole batch as the bits of an integer."""
KEEPING = frozenset({"clone.default", "_to_copy.default", "detach.default", "alias.default"})
"""The operators whose results have the rows of their operand, each at its place."""


def microbatch_labels(reference: Trace, traces: Sequence[Trace]) -> dict[int, dict[int, str]]:
    """Return, by rank and value, the end of the names of what is made of one piece of the batch.

    It is empty if the reference takes the batch whole, and if all ranks take their rows in the
    order of its pieces. Names have no meaning, so that a wrong one costs time at most.
    """
    for dim in _split_dimensions(traces):
        pieces = _pieces(reference, dim)
        if len(pieces) > 1:
            found = {trace.rank: _by_piece(trace, dim, pieces) for trace in traces}
            if _differ(traces, found):
                return {
                    rank: {value: f"@microbatch={piece}" for value, piece in own.items()}
                    for rank, own in found.items()
                }
    return {}


def _split_dimensions(traces: Sequence[Trace]) -> list[int]:
    """Return the dimensions of the batch of which a rank has a part, in ascending order."""
    return sorted(
        {
            dim
            for trace in traces
            for given in trace.given
            if given.role == "input" and given.whole
            for dim, intervals in enumerate(given.box)
            if intervals != ((0, given.whole[dim]),)
        }
    )


def _pieces(reference: Trace, dim: int) -> list[Rows]:
    """Return the pieces in which the reference takes the batch; [] if pieces overlap."""
    cut = sorted(set(_Read(reference, dim).cut.values()), key=lambda rows: rows & -rows)
    whole = 0
    for rows in cut:
        if whole & rows:
            return []
        whole |= rows
    return cut


def _by_piece(trace: Trace, dim: int, pieces: Sequence[Rows]) -> dict[int, int]:
    """Return the number of the piece that has all rows of which a value is made, by value."""
    return {
        value: number
        for value, rows in _Read(trace, dim).made_of.items()
        if (number := next((n for n, piece in enumerate(pieces) if rows and not rows & ~piece), -1))
        >= 0
    }


def _differ(traces: Sequence[Trace], pieces: Mapping[int, Mapping[int, int]]) -> bool:
    """Return True if ranks make of different pieces what they compute at one place, equally often.

    Such values would have one name.
    """
    seen: defaultdict[tuple[str, str, str, int], set[tuple[int | None, ...]]] = defaultdict(set)
    for trace in traces:
        places: defaultdict[tuple[str, str, str, int], list[int | None]] = defaultdict(list)
        for event in trace.events:
            for value in event.tensors[:1]:
                place = event.operator, event.module, event.source, event.call
                places[place].append(pieces[trace.rank].get(value))
        for place, numbers in places.items():
            seen[place].add(tuple(numbers))
    return any(len(found) > 1 for found in seen.values())


class _Read:
    """The rows of the whole batch that the values of a trace are made of.

    ``made_of`` has them by value, ``cut`` those of the values that are cut out of inputs along the
    dimension.
    """

    def __init__(self, trace: Trace, dim: int) -> None:
        self.made_of: dict[int, Rows] = {}
        self.cut: dict[int, Rows] = {}
        self._dim = dim
        self._places: dict[int, list[int]] = {}
        """The row at each place along the dimension, of inputs and what is cut out of them."""
        for given in trace.given:
            if given.role == "input" and dim < len(given.box):
                places = [row for start, stop in given.box[dim] for row in range(start, stop)]
                if len(places) == trace.values[given.value].shape[dim]:
                    self._enter(given.value, places)
        for event in trace.events:
            self._event(event)

    def _enter(self, value: int, places: list[int]) -> None:
        self._places[value] = places
        self.made_of[value] = sum(1 << row for row in set(places))

    def _event(self, event: Event) -> None:
        first = event.arguments[0] if event.arguments else None
        places = self._places.get(first.value) if isinstance(first, Ref) else None
        if places is not None:
            parts = list(_parts(event, self._dim, len(places)))
            if event.operator in KEEPING or len(parts) == len(event.outputs):
                for value, (start, stop) in zip(
                    event.outputs, parts or [(0, len(places))], strict=True
                ):
                    if value is not None:
                        self._enter(value, places[start:stop])
                        if parts:
                            self.cut[value] = self.made_of[value]
                return
        rows = 0
        for operand in operands(event.arguments):
            rows |= self.made_of.get(operand, 0)
        for value in event.tensors:
            self.made_of[value] = rows


def _parts(event: Event, dim: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the places that an event cuts out along a dimension, each as (start, stop)."""
    arguments = event.arguments
    if event.operator == "slice.Tensor" and arguments[1] == dim and arguments[4] == 1:
        start, stop = arguments[2], arguments[3]
        if isinstance(start, int) and isinstance(stop, int):
            yield slice(start, stop).indices(size)[:2]
    elif event.operator == "split.Tensor" and arguments[2] == dim and isinstance(arguments[1], int):
        for start in range(0, size, arguments[1]):
            yield start, min(start + arguments[1], size)
    elif event.operator == "split_with_sizes.default" and arguments[2] == dim:
        ends = [0]
        for length in _integers(arguments[1]):
            ends.append(ends[-1] + length)
        yield from pairwise(ends)


def _integers(argument: Argument) -> list[int]:
    listed = argument if isinstance(argument, tuple) else ()
    return [item for item in listed if isinstance(item, int)]
