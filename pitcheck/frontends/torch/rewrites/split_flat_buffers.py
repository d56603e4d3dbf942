"""Flat buffers split into their pieces, which are communicated one by one.

Frameworks join tensors of any shapes to a buffer of one dimension, gather, scatter or reduce it,
and cut the result where they joined it: fully sharded parameters, buckets of gradients. These
collectives act on every piece by itself, so that the same is computed without the buffer, whose
dimension is no dimension of the model. A collective is split if all its members join pieces of the
same sizes. For any other use of a buffer its pieces are joined again.

A row may also be scattered in parts that end within a piece, as a distributed optimizer does it:
every piece is cut there, reduced, and kept by one member. Gathering such parts broadcasts the
pieces of each member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

from msgspec.structs import replace

from pitcheck.frontends.torch.rewrites.needed_events import needed_events
from pitcheck.frontends.torch.trace import Argument, Event, Ref, Trace, Value, operands

Key = tuple[tuple[int, ...], str, int]
"""A collective: the ranks and the name of its group, and the number of collectives before it."""
Layout = tuple[str, int, tuple[int, ...]]
"""The facts in which the members of a collective must agree: operator, rows, sizes of pieces."""
Members = tuple[Layout | None, ...]
"""The layouts of a collective's members; None for one without a buffer, () if all stay whole."""
PASSES = 3
"""The number of times that what is seen of a collective may change."""

VIEWS = ("view.default", "_unsafe_view.default")
"""The operators that return their operand in another shape."""
WHOLE = ("all_reduce", "broadcast")
"""The collectives whose result has the shape of the operand."""
SPLITTABLE = (*WHOLE, "all_gather", "reduce_scatter")
"""The collectives that act on every piece of a buffer by itself."""
EACH = frozenset(
    ["_to_copy.default", "clone.default", "mul.Tensor", "mul.Scalar", "div.Tensor", "div.Scalar"]
)
"""The operators on every element by itself, of one tensor and numbers."""


@dataclass(frozen=True)
class Flat:
    """A buffer of ``rows`` rows, each made of the pieces' rows one after the other.

    ``pieces`` are values of shape (rows, n) or (rows * n,), with n in ``sizes``. A buffer of one
    row stays one in any shape, because its elements are those of the pieces in their order.
    """

    rows: int
    pieces: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """Return the places in a row at which pieces begin and end."""
        return (0, *accumulate(self.sizes))

    def stays(self, shape: tuple[int, ...]) -> bool:
        """Return True if the buffer, in another shape, is still one of these rows."""
        elements = self.rows * sum(self.sizes)
        return self.rows == 1 or shape in (self.shape, (elements,), (1, elements))

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows and columns."""
        return self.rows, sum(self.sizes)


def without_flat_buffers(traces: Sequence[Trace]) -> list[Trace]:
    """Return the traces of all ranks, which compute the same without flat buffers.

    A rank does not know what the others join. Each pass takes what the last one has seen of them,
    until nothing new is seen; a collective that changes again and again is left whole.
    """
    seen: dict[Key, Members] = {}
    changes: Counter[Key] = Counter()
    while True:
        ranks = [_Rank(trace, seen) for trace in traces]
        changed = [rank.run() for rank in ranks]
        layouts = {rank.trace.rank: rank.layouts for rank in ranks}
        found: dict[Key, Members] = {
            key: tuple(layouts[member].get(key) if member in layouts else None for member in key[0])
            for key in {key for rank in ranks for key in rank.layouts}
        }
        differing = [key for key in {**seen, **found} if seen.get(key) != found.get(key, ())]
        if not any(_matters(seen.get(key), found.get(key, ())) for key in differing):
            return changed
        changes.update(differing)
        seen = {key: () if changes[key] > PASSES else members for key, members in found.items()}


def _matters(known: Members | None, found: Members) -> bool:
    """Return True if another pass may do something else with a collective.

    As long as nothing is known of the others, a rank takes them to be like itself.
    """
    return (known is None and len(set(found)) > 1) or known not in (None, (), found)


class _Rank:
    """The trace of one rank, rewritten event by event.

    ``seen`` has what is known of all members of collectives; a rank without an entry for one takes
    the others to be like itself.
    """

    def __init__(self, trace: Trace, seen: Mapping[Key, Members]) -> None:
        self.trace = trace
        self.layouts: dict[Key, Layout] = {}
        self._seen = seen
        self._dropped: dict[int, tuple[int, ...]] = {}
        """The pieces that are reduced beside a value, for other members; it waits for them, too."""
        self._values = list(trace.values)
        self._events: list[Event] = []
        self._flats: dict[int, Flat] = {}
        self._there: set[int] = {given.value for given in trace.given}
        self._shown: dict[int, int] = {}
        """The value that another one shows in another shape.

        A gathered matrix is not cut into the parts that came from each rank, but viewed as it is.
        """
        self._cutouts: set[int] = set()
        """The values that were cut out of buffers."""
        self._counts: Counter[tuple[tuple[int, ...], str]] = Counter()

    def run(self) -> Trace:
        """Return the trace without the buffers that nothing needs as a whole."""
        for event in self.trace.events:
            self._event(event)
        for result in self.trace.results:
            if self._events:
                self._need(result.value, self._events[-1])
        return replace(self.trace, values=tuple(self._values), events=tuple(self._needed()))

    def _event(self, event: Event) -> None:
        group = event.group, event.communicator
        key = (*group, self._counts[group])
        if event.group:
            self._counts[group] += event.operator not in ("send", "receive")
        first = event.arguments[0] if event.arguments else None
        flat = self._flats.get(first.value) if isinstance(first, Ref) else None
        if event.operator == "cat.default":
            self._join(event)
        if (
            flat is not None
            and isinstance(first, Ref)
            and self._follow(event, first.value, flat, key)
        ):
            return
        for value in operands(event.arguments):
            self._need(value, event)
        out = event.outputs[0] if event.outputs else None
        if (
            event.operator == "view.default"
            and isinstance(first, Ref)
            and first.value in self._cutouts
            and out is not None
        ):
            event = replace(
                event, arguments=(Ref(self._shown[first.value]), self._values[out].shape)
            )
        self._emit(event)

    def _emit(self, event: Event) -> None:
        self._events.append(event)
        if (
            event.operator == "view.default"
            and isinstance(event.arguments[0], Ref)
            and event.outputs[0] is not None
        ):
            self._shown[event.outputs[0]] = self._shown.get(
                event.arguments[0].value, event.arguments[0].value
            )
        self._there.update(event.tensors)

    # --- buffers

    def _join(self, event: Event) -> None:
        """Note a join of rows."""
        parts, dim = event.arguments
        (out,) = event.outputs
        if (
            out is None
            or not isinstance(parts, tuple)
            or len(parts) < 2
            or not isinstance(dim, int)
        ):
            return
        shape = self._values[out].shape
        values = [part.value for part in parts if isinstance(part, Ref)]
        if (
            len(values) == len(parts)
            and len(shape) in (1, 2)
            and dim % len(shape) == len(shape) - 1
        ):
            sizes = tuple(self._values[value].shape[-1] for value in values)
            # A join of several dtypes casts them, which does more than move elements.
            if all(sizes) and {self._values[value].dtype for value in values} == {
                self._values[out].dtype
            }:
                self._flats[out] = Flat(shape[0] if len(shape) == 2 else 1, tuple(values), sizes)

    def _follow(self, event: Event, value: int, flat: Flat, key: Key) -> bool:
        """Do to the pieces what an event does to a buffer. Return False if that is not known."""
        operator = event.operator
        if not event.outputs:
            return False
        if operator in VIEWS:
            return self._viewed(event, flat)
        if operator in SPLITTABLE:
            return self._communicated(event, value, flat, key)
        if operator == "wait" and value not in self._there:
            self._map(event, flat)
            for other in self._dropped.get(value, ()):
                self._one(event, other, self._values[other].shape, self._values[other])
            return True
        others = operands(event.arguments)[1:]
        if (
            operator in EACH
            and len(self._values[value].shape) == 1
            and not any(self._values[other].shape for other in others)
        ):
            for other in others:
                self._need(other, event)
            self._map(event, flat)
            return True
        cuts = self._cuts(event, self._values[value].shape, flat)
        return cuts is not None and self._cut(event, flat, cuts)

    def _viewed(self, event: Event, flat: Flat) -> bool:
        (out,) = event.outputs
        if out is None or not flat.stays(self._values[out].shape):
            return False
        self._flats[out] = flat
        return True

    def _map(self, event: Event, flat: Flat) -> None:
        """Run the same operator on every piece."""
        (out,) = event.outputs
        if out is not None:
            pieces = tuple(
                self._one(event, piece, self._values[piece].shape, self._values[out])
                for piece in flat.pieces
            )
            self._flats[out] = Flat(flat.rows, pieces, flat.sizes)

    def _one(self, event: Event, piece: int, shape: tuple[int, ...], like: Value) -> int:
        """Run an event on one piece; return its result, a value of ``shape``."""
        new = self._new(Value(shape, like.dtype))
        self._need(piece, event)
        self._emit(replace(event, arguments=(Ref(piece), *event.arguments[1:]), outputs=(new,)))
        return new

    def _communicated(self, event: Event, value: int, flat: Flat, key: Key) -> bool:
        """Communicate every piece by itself. Return False if the buffer must stay whole."""
        members = len(event.group)
        (out,) = event.outputs
        if out is None or len(self._values[value].shape) != 1:
            return False
        if event.operator == "reduce_scatter" and flat.rows == 1:
            return self._scattered(event, flat, key, out)
        rows = {"all_gather": 1, "reduce_scatter": members}.get(event.operator, flat.rows)
        if flat.rows != rows:
            return False
        layouts = self._layouts(event, flat, key)
        if len(set(layouts)) != 1:
            return event.operator == "all_gather" and self._gathered(event, flat, layouts, out)
        rows = {"all_gather": members, "reduce_scatter": 1}.get(event.operator, flat.rows)
        pieces = tuple(
            self._one(
                event,
                self._shaped(piece, (flat.rows * size,), event),
                (rows * size,),
                self._values[out],
            )
            for piece, size in zip(flat.pieces, flat.sizes, strict=True)
        )
        self._flats[out] = Flat(rows, pieces, flat.sizes)
        return True

    def _layouts(self, event: Event, flat: Flat, key: Key) -> Members:
        """Note what is communicated here; return that of all members, as far as it is known."""
        own = self.layouts[key] = event.operator, flat.rows, flat.sizes
        return self._seen.get(key, (own,))

    def _scattered(self, event: Event, flat: Flat, key: Key, out: int) -> bool:
        """Reduce every piece of a row over all members, and keep those of this rank's part.

        Return False if pieces differ, or if there are no equal parts: it is no collective.
        """
        part, rest = divmod(sum(flat.sizes), len(event.group))
        if rest:
            return False
        ends = [part * member for member in range(len(event.group) + 1)]
        flat = self._refined(flat, ends, event)
        if len(set(self._layouts(event, flat, key))) != 1:
            return False
        reduced = replace(event, operator="all_reduce")
        pieces = tuple(
            self._one(reduced, self._shaped(piece, (size,), event), (size,), self._values[out])
            for piece, size in zip(flat.pieces, flat.sizes, strict=True)
        )
        place = event.group.index(self.trace.rank)
        own = self._between(Flat(1, pieces, flat.sizes), *ends[place : place + 2])
        if own is None:
            return False
        self._flats[out] = own
        self._dropped[out] = tuple(piece for piece in pieces if piece not in own.pieces)
        return True

    def _gathered(self, event: Event, flat: Flat, layouts: Members, out: int) -> bool:
        """Broadcast the pieces of every member, which are not cut alike.

        Return False if members do not gather, or not equally many elements: it is no collective.
        """
        if {layout and (layout[0], sum(layout[2])) for layout in layouts} != {
            (event.operator, sum(flat.sizes))
        }:
            return False
        pieces: list[int] = []
        for root, layout in enumerate(layouts):
            sizes = layout[2] if layout else ()
            kinds = [Value((size,), self._values[out].dtype) for size in sizes]
            if event.group[root] == self.trace.rank:
                sent = [
                    self._shaped(piece, kind.shape, event)
                    for piece, kind in zip(flat.pieces, kinds, strict=True)
                ]
            else:
                sent = [self._nothing(kind, event) for kind in kinds]
            for piece, kind in zip(sent, kinds, strict=True):
                self._need(piece, event)
                new = self._new(kind)
                arguments = Ref(piece), root
                self._emit(
                    replace(event, operator="broadcast", arguments=arguments, outputs=(new,))
                )
                pieces.append(new)
        sizes = tuple(self._values[piece].shape[0] for piece in pieces)
        self._flats[out] = Flat(1, tuple(pieces), sizes)
        return True

    def _nothing(self, kind: Value, event: Event) -> int:
        """Return what a member that receives a broadcast gives to it."""
        filled = kind.shape, 0, kind.dtype, None, None, None
        return self._local(event, "full.default", filled, kind)

    def _refined(self, flat: Flat, ends: Sequence[int], event: Event) -> Flat:
        """Return a buffer of one row of which pieces end at ``ends``, too."""
        pieces, sizes = [], []
        for piece, (start, stop) in zip(flat.pieces, pairwise(flat.ends), strict=True):
            inner = sorted({end - start for end in ends if start < end < stop})
            row = self._shaped(piece, (stop - start,), event) if inner else piece
            for begin, end in pairwise([0, *inner, stop - start]):
                kind = Value((end - begin,), self._values[piece].dtype)
                cut = (Ref(row), 0, begin, end, 1)
                pieces.append(self._local(event, "slice.Tensor", cut, kind) if inner else piece)
                sizes.append(end - begin)
        return Flat(1, tuple(pieces), tuple(sizes))

    @staticmethod
    def _cuts(event: Event, shape: tuple[int, ...], flat: Flat) -> list[tuple[int, int]] | None:
        """Return begin and end in a row of all that an event cuts out; None for others."""
        arguments = event.arguments
        if event.operator == "split_with_sizes.default" and isinstance(arguments[1], tuple):
            ends = [0, *accumulate(size for size in arguments[1] if isinstance(size, int))]
            dim, cuts = arguments[2], list(pairwise(ends))
        elif event.operator == "split.Tensor" and isinstance(arguments[1], int):
            dim, step = arguments[2], arguments[1]
            length = shape[dim] if isinstance(dim, int) else 0
            cuts = [(start, min(start + step, length)) for start in range(0, length, step)]
        elif (
            event.operator == "slice.Tensor"
            and arguments[4] == 1
            and isinstance(arguments[1], int)
            and isinstance(arguments[2], int)
        ):
            dim = arguments[1]
            cuts = [
                slice(
                    arguments[2], arguments[3] if isinstance(arguments[3], int) else None
                ).indices(shape[dim])[:2]
            ]
        else:
            return None
        if not isinstance(dim, int) or dim % len(shape) != (flat.rows > 1):
            return None
        if flat.rows > 1 and shape != flat.shape:
            return None
        length = prod(shape[1:]) if flat.rows == 1 else 1
        return [(start * length, stop * length) for start, stop in cuts]

    def _cut(self, event: Event, flat: Flat, cuts: Sequence[tuple[int, int]]) -> bool:
        """Replace what an event cuts out by pieces.

        Return False if a cut goes through a piece of several rows.
        """
        if flat.rows == 1:
            flat = self._refined(flat, [place for cut in cuts for place in cut], event)
        chosen = [self._between(flat, *cut) for cut in cuts]
        if any(found is None for found in chosen) or len(chosen) != len(event.outputs):
            return False
        for out, found in zip(event.outputs, chosen, strict=True):
            if out is None or found is None:
                continue
            if len(found.pieces) > 1:
                self._flats[out] = found
            else:
                self._need(found.pieces[0], event)
                self._cutouts.add(out)
                self._emit(
                    replace(
                        event,
                        operator="view.default",
                        arguments=(Ref(found.pieces[0]), self._values[out].shape),
                        outputs=(out,),
                    )
                )
        return True

    @staticmethod
    def _between(flat: Flat, start: int, stop: int) -> Flat | None:
        ends = flat.ends
        if start not in ends or stop not in ends or start >= stop:
            return None
        first, last = ends.index(start), ends.index(stop)
        return Flat(flat.rows, flat.pieces[first:last], flat.sizes[first:last])

    # --- values

    def _new(self, value: Value) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _shaped(self, value: int, shape: tuple[int, ...], event: Event) -> int:
        """Return a piece in another shape."""
        if self._values[value].shape == shape:
            return value
        return self._local(
            event,
            "view.default",
            (Ref(self._shown.get(value, value)), shape),
            Value(shape, self._values[value].dtype),
        )

    def _local(
        self,
        event: Event,
        operator: str,
        arguments: tuple[Argument, ...],
        result: Value,
        out: int | None = None,
    ) -> int:
        """Add an operator of this rank at the place of an event; return its result."""
        for value in operands(arguments):
            self._need(value, event)
        number = self._new(result) if out is None else out
        self._emit(
            replace(event, operator=operator, arguments=arguments, outputs=(number,), group=())
        )
        return number

    def _need(self, value: int, event: Event) -> None:
        """Make a value available: a buffer that is needed as a whole is joined from its pieces."""
        if value in self._there or value not in self._flats:
            return
        flat, own = self._flats[value], self._values[value]
        shape = (flat.rows,) if flat.rows > 1 else ()
        parts = tuple(
            Ref(self._shaped(piece, (*shape, size), event))
            for piece, size in zip(flat.pieces, flat.sizes, strict=True)
        )
        row = (*shape, sum(flat.sizes))
        if row == own.shape:
            self._local(event, "cat.default", (parts, len(shape)), own, value)
        else:
            whole = self._local(event, "cat.default", (parts, len(shape)), Value(row, own.dtype))
            self._local(event, "view.default", (Ref(whole), own.shape), own, value)

    def _needed(self) -> list[Event]:
        """Return the events on which a result or communication depends."""
        wanted = [result.value for result in self.trace.results]
        events, _ = needed_events(self._events, wanted, lambda _, event: event.meets)
        return events
