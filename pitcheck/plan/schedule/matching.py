"""Which send every receive meets, and who meets in every collective.

Point-to-point channels (source, destination, tag) are first in, first out: the k-th send meets the
k-th receive. In every group (a rank list) the k-th collective of each member meets the k-th of all
others (MPI 4.1, sections 3.5 and 6.14; NCCL has the same rule).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError
from pitcheck.ops.registry import communication_of
from pitcheck.ops.traits import Communication
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Group, Operator, Plan, Tensor
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.lifted import OnDemand, lifted_members, lifted_received
from pitcheck.plan.schedule.representatives import Representatives, representatives
from pitcheck.plan.schedule.run_order import MATCHING_ONLY, Ints, tensor_of


@dataclass
class Matching:
    """Who meets whom.

    ``received``: id of a receive -> int64 (ranks, microbatches, 3): position of the send in
    ``plan.operators``, source rank, source micro-batch; -1 where it does not run. ``members``: id
    of a collective -> None where at every coordinate all members run this operator at the same
    micro-batch, else int64 (ranks, microbatches, members, 3): the same three numbers of every
    member, in gathering order (-1: not there). ``few`` is what was matched, where representatives
    were, and of which ranks; else the whole of it is made only where it is asked for.
    """

    received: Mapping[str, Ints] = field(default_factory=dict)
    members: Mapping[str, Ints | None] = field(default_factory=dict)
    few: tuple[Matching, Representatives] | None = None


class Instances(NamedTuple):
    """Single events as columns of equal length."""

    rank: Ints
    microbatch: Ints
    event: Ints
    place: Ints


def match(plan: Plan) -> tuple[Matching | None, list[Violation]]:
    """Match all events of a plan. With a violation (PIT004, PIT005, PIT006; PIT001 for a plan that
    is malformed) there is no matching.
    """
    few = representatives(plan)
    try:
        if few is not None:
            # What is wrong names ranks: it is looked for again among all of them.
            matching = match_events(Events(few.plan))[0]
            if matching is not None:
                return lifted(plan, matching, few), []
        return match_events(Events(plan))
    except PlanError as error:
        return None, [Violation("PIT001", error.place, error.message)]


def lifted(plan: Plan, matching: Matching, few: Representatives) -> Matching:
    """The matching of a plan, from that of its representatives; its tables are made when they are
    asked for.
    """
    coordinates = Coordinates.of(plan)
    groups = {
        operator.id: (operator.group or Group(), kept.group or Group())
        for operator, kept in zip(plan.operators, few.plan.operators, strict=True)
    }

    def members_of(identity: str, table: Ints | None) -> Ints | None:
        return None if table is None else lifted_members(table, few, coordinates, *groups[identity])

    received = OnDemand(matching.received, lambda _, table: lifted_received(table, few))
    return Matching(received, OnDemand(matching.members, members_of), (matching, few))


def match_events(events: Events) -> tuple[Matching | None, list[Violation]]:
    """As :func:`match`. Raises PlanError for groups, tables and boxes that do not fit the mesh."""
    collectives, channels = _Collectives(events), _Channels(events)
    violations = collectives.run() + channels.run()
    return (None if violations else Matching(channels.received, collectives.members)), violations


def instances_of(events: Events, number: int, where: NDArray[np.bool_] | None = None) -> Instances:
    """All coordinates at which an event runs (and ``where``, over ranks, holds)."""
    places = events.places(number)
    if where is not None:
        places[~where] = -1
    rank, microbatch = np.nonzero(places >= 0)
    return Instances(
        rank, microbatch, np.full(len(rank), number, dtype=np.int64), places[rank, microbatch]
    )


def joined(parts: list[Instances]) -> Instances:
    """Concatenation."""
    empty = np.zeros(0, dtype=np.int64)
    return Instances(
        *(np.concatenate([part[i] for part in parts]) if parts else empty for i in range(4))
    )


def counted(*keys: Ints) -> Ints:
    """For rows sorted by ``keys``: how many equal rows stand before each."""
    if not len(keys[0]):
        return np.zeros(0, dtype=np.int64)
    starts = np.zeros(len(keys[0]), dtype=np.bool_)
    starts[0] = True
    for key in keys:
        starts[1:] |= key[1:] != key[:-1]
    first = np.flatnonzero(starts)
    counts: Ints = np.arange(len(starts)) - np.repeat(first, np.diff(np.append(first, len(starts))))
    return counts


class _Collectives:
    def __init__(self, events: Events) -> None:
        self.events = events
        self.plan = events.plan
        self.members: dict[str, Ints | None] = {}
        self.tensors = {tensor.name: tensor for tensor in self.plan.tensors}
        self.violations: list[Violation] = []

    def run(self) -> list[Violation]:
        numbers = [
            n
            for n, position in enumerate(self.events.positions)
            if self.plan.operators[position].group is not None
        ]
        for number in numbers:
            self.members[self._operator(number).id] = None
        self._check_membership(numbers)
        mixed = self._mixed()
        if mixed.any():
            self._enumerate([(n, mixed[self._number(n)] & (self._number(n) >= 0)) for n in numbers])
        return self.violations

    def _operator(self, number: int) -> Operator:
        return self.plan.operators[self.events.positions[number]]

    def _number(self, number: int) -> Ints:
        group = self._operator(number).group
        if group is None:
            raise PlanError("a collective without a group", self._place(number))
        return self.events.communicators(group, f"{self._place(number)}.group").number

    def _place(self, number: int) -> str:
        return f"operators[{self.events.positions[number]}]"

    def _check_membership(self, numbers: list[int]) -> None:
        checked: set[tuple[Any, int]] = set()
        for number in numbers:
            communicator = self._number(number)
            key = (
                self._operator(number).group,
                self.events.schedule.mask_number(self.events.positions[number]),
            )
            if key in checked:
                continue
            checked.add(key)
            outside = np.flatnonzero(self.events.runs(number).any(axis=1) & (communicator < 0))
            if len(outside):
                message = (
                    f"{self._operator(number).kind} runs on rank {outside[0]}, which is in "
                    f"none of its groups; add the rank to a group or narrow 'where'"
                )
                self._add("PIT004", number, message, outside, part="where")

    def _mixed(self) -> NDArray[np.bool_]:
        """Which communicators have members that run different sequences of events. Others agree by
        construction.
        """
        classes = self.events.classes
        return np.array(
            [len(set(classes[list(members)].tolist())) > 1 for members in self.events.members_of],
            dtype=np.bool_,
        )

    def _enumerate(self, chosen: list[tuple[int, NDArray[np.bool_]]]) -> None:
        chosen = [(number, where) for number, where in chosen if where.any()]
        rows = joined([instances_of(self.events, number, where) for number, where in chosen])
        if not len(rows.rank):
            return
        communicator = np.full(len(rows.rank), -1, dtype=np.int64)
        for number, _ in chosen:
            here = rows.event == number
            communicator[here] = self._number(number)[rows.rank[here]]
        order = np.lexsort((rows.place, rows.rank, communicator))
        rows = Instances(*(column[order] for column in rows))
        communicator = communicator[order]
        turn = counted(communicator, rows.rank)
        order = np.lexsort((turn, communicator))
        rows, communicator, turn = (
            Instances(*(column[order] for column in rows)),
            communicator[order],
            turn[order],
        )
        signature = self._signatures(rows)
        meeting = np.cumsum(counted(communicator, turn) == 0) - 1
        sizes = np.array([len(members) for members in self.events.members_of])[communicator]
        present = np.bincount(meeting)[meeting]
        first = np.flatnonzero(counted(meeting) == 0)
        differs = signature != signature[first][meeting]
        bad = np.unique(communicator[(present != sizes) | differs])
        for number in bad:
            here = communicator == number
            self._explain(
                int(number),
                Instances(*(column[here] for column in rows)),
                turn[here],
                signature[here],
            )
        if not len(bad):
            self._fill(rows, meeting)

    def _signatures(self, rows: Instances) -> Ints:
        """Equal numbers for events that may meet: same kind, shape, dtype, and attributes but for
        those of order alone, resolved at every coordinate.
        """
        known: dict[Any, int] = {}
        result = np.zeros(len(rows.rank), dtype=np.int64)
        for number in np.unique(rows.event):
            here = np.flatnonzero(rows.event == number)
            signatures = self._said(int(number), rows.rank[here], rows.microbatch[here])
            result[here] = [known.setdefault(signature, len(known)) for signature in signatures]
        return result

    def _said(self, number: int, ranks: Ints, microbatches: Ints) -> list[tuple[Any, ...]]:
        """The signature of one event at some coordinates."""
        operator, position = self._operator(number), self.events.positions[number]
        tensor = self._operand(operator)
        dimensions = len(tensor.shape) if tensor else 0
        columns: list[list[str]] = []
        for name in sorted({*operator.attributes.keys() - MATCHING_ONLY, "reduction"}):
            index, values = self.events.resolve(
                position, name, "sum" if name == "reduction" else None
            )
            said = [_plain(name, value, dimensions) for value in values]
            columns.append([f"{name}={said[at]}" for at in index[ranks, microbatches].tolist()])
        own = (operator.kind, tensor.shape if tensor else (), tensor.dtype if tensor else "")
        return [(*own, *column) for column in zip(*columns, strict=True)]

    def _operand(self, operator: Operator) -> Tensor | None:
        return self.tensors.get((tensor_of(operator.inputs[0]) or "") if operator.inputs else "")

    def _explain(self, communicator: int, rows: Instances, turn: Ints, signature: Ints) -> None:
        """The first meeting of a group that goes wrong, in words."""
        members = self.events.members_of[communicator]
        sequences = {
            rank: [
                (int(e), int(m), int(s)) for e, m, s in self._sequence(rows, turn, signature, rank)
            ]
            for rank in members
        }
        silent = [rank for rank in members if not sequences[rank]]
        if silent:
            number = int(rows.event[0])
            message = (
                f"rank {silent[0]} is in the group {list(members)} but runs no collective over "
                f"it, while {self._operator(number).kind} waits for it on rank "
                f"{int(rows.rank[0])}; let it run there or leave it out of the group"
            )
            self._add("PIT004", number, message, np.array(silent), part="group")
            return
        for k in range(max(map(len, sequences.values()))):
            now = {
                rank: sequences[rank][k] if k < len(sequences[rank]) else None for rank in members
            }
            usual = _most_frequent([event[:2] for event in now.values() if event is not None])
            ended = [rank for rank in members if now[rank] is None]
            odd = [rank for rank, event in now.items() if event is not None and event[:2] != usual]
            signatures = [event[2] for event in now.values() if event is not None]
            wrong = len(set(signatures)) > 1
            if (
                not ended
                and not wrong
                and not (odd and len({len(s) for s in sequences.values()}) > 1)
            ):
                continue
            # Of one record the members may differ, too, in an attribute that is a table.
            unlike = [
                rank
                for rank, event in now.items()
                if event is not None
                and event[2] != max(dict.fromkeys(signatures), key=signatures.count)
            ]
            self._add_meeting(members, k, usual, now, (odd or ended or unlike)[0])
            return

    def _add_meeting(
        self,
        members: tuple[int, ...],
        k: int,
        usual: tuple[int, int],
        now: dict[int, Any],
        odd: int,
    ) -> None:
        there = next(
            rank
            for rank, event in now.items()
            if event is not None and event[:2] == usual and rank != odd
        )
        expected = self._describe(*usual, there)
        event = now[odd]
        met = (
            f"runs {self._describe(event[0], event[1], odd)}"
            if event is not None
            else "has no further collective over this group"
        )
        message = (
            f"collective {k} over the group {list(members)}: rank {there} runs {expected}, "
            f"but rank {odd} {met}; all must run the same in one order"
        )
        self._add("PIT006", usual[0], message, np.array([there, odd]), microbatches=(usual[1],))

    def _sequence(self, rows: Instances, turn: Ints, signature: Ints, rank: int) -> NDArray[Any]:
        here = np.flatnonzero(rows.rank == rank)
        here = here[np.argsort(turn[here])]
        return np.stack([rows.event[here], rows.microbatch[here], signature[here]], axis=1)

    def _describe(self, number: int, microbatch: int, rank: int) -> str:
        operator, tensor = self._operator(number), self._operand(self._operator(number))
        said = [operator.kind]
        for name in (name for name in operator.attributes if name not in MATCHING_ONLY):
            index, values = self.events.resolve(self.events.positions[number], name)
            said.append(f"{name} {values[int(index[rank, microbatch])]}")
        of = f" of {tensor.dtype} {list(tensor.shape)}" if tensor else ""
        return f"{operator.id!r} ({', '.join(said)}{of}, micro-batch {microbatch})"

    def _fill(self, rows: Instances, meeting: Ints) -> None:
        """Write the members of all events whose members differ in operator or micro-batch."""
        first = np.flatnonzero(counted(meeting) == 0)
        regular_row = (rows.event == rows.event[first][meeting]) & (
            rows.microbatch == rows.microbatch[first][meeting]
        )
        irregular_meeting = np.bincount(meeting, weights=~regular_row) > 0
        positions = np.array(self.events.positions, dtype=np.int64)
        for number in np.unique(rows.event[irregular_meeting[meeting]]):
            self._fill_event(int(number), rows, meeting, positions)

    def _fill_event(self, number: int, rows: Instances, meeting: Ints, positions: Ints) -> None:
        group = self._operator(number).group
        if group is None:
            return
        communicators = self.events.communicators(group)
        ranks, microbatches = self.events.coordinates.ranks, self.events.schedule.microbatches
        table = np.full((ranks, microbatches, communicators.size, 3), -1, dtype=np.int64)
        table[..., 0] = positions[number]
        table[..., 1] = communicators.members[:, None, :]
        table[..., 2] = np.arange(microbatches)[None, :, None]
        table[
            ~(self.events.runs(number)[:, :, None] & (communicators.members >= 0)[:, None, :])
        ] = -1
        first = np.flatnonzero(counted(meeting) == 0)
        sizes = np.bincount(meeting)
        for row in np.flatnonzero(rows.event == number):
            start, size = first[meeting[row]], sizes[meeting[row]]
            met = slice(start, start + size)
            slots = communicators.slot[rows.rank[met]]
            target = table[rows.rank[row], rows.microbatch[row]]
            target[slots, 0], target[slots, 1], target[slots, 2] = (
                positions[rows.event[met]],
                rows.rank[met],
                rows.microbatch[met],
            )
        self.members[self._operator(number).id] = table

    def _add(
        self,
        code: str,
        number: int,
        message: str,
        ranks: Ints,
        *,
        part: str = "",
        microbatches: tuple[int, ...] = (),
    ) -> None:
        place = self._place(number) + (f".{part}" if part else "")
        few = tuple(int(rank) for rank in ranks[:8])
        self.violations.append(
            Violation(
                code,
                place,
                message,
                operator=self._operator(number).id,
                ranks=few,
                microbatches=microbatches,
            )
        )


def _plain(name: str, value: Any, dimensions: int) -> str:
    """An attribute's value as text; of an axis, counted from the front."""
    counted_back = name.endswith("axis") and isinstance(value, int) and -dimensions <= value < 0
    return repr(value + dimensions if counted_back else value)


def _most_frequent(values: list[tuple[int, int]]) -> tuple[int, int]:
    return max(dict.fromkeys(values), key=values.count)


class _Channels:
    """Sends and receives."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.plan = events.plan
        self.received: dict[str, Ints] = {}
        self.tensors = {tensor.name: tensor for tensor in self.plan.tensors}
        self.violations: list[Violation] = []
        self._tags: dict[str, int] = {}

    def run(self) -> list[Violation]:
        sends, send_keys = self._sorted(Communication.SEND)
        receives, receive_keys = self._sorted(Communication.RECEIVE)
        if len(self.violations):
            return self.violations
        if np.array_equal(send_keys, receive_keys):
            sender = receiver = np.arange(len(send_keys))
        else:
            sender, receiver = self._aligned(sends, send_keys, receives, receive_keys)
        self._check_pairs(sends, sender, receives, receiver)
        if not self.violations:
            self._fill(sends, sender, receives, receiver)
        return self.violations

    def _sorted(self, way: Communication) -> tuple[Instances, Ints]:
        """All sends or receives by channel and order, with the number of their channel."""
        numbers = [
            n
            for n, position in enumerate(self.events.positions)
            if communication_of(self.plan.operators[position].kind) is way
        ]
        parts, keys = [], []
        for number in numbers:
            part = instances_of(self.events, number)
            peers = self.events.peers(number)[part.rank, part.microbatch]
            wrong = (peers < 0) | (peers >= self.events.coordinates.ranks)
            if wrong.any():
                at = int(np.flatnonzero(wrong)[0])
                message = (
                    f"the peer of rank {part.rank[at]} is {peers[at]}, not one of the "
                    f"{self.events.coordinates.ranks} ranks of the mesh"
                )
                self._add(
                    number,
                    message,
                    (int(part.rank[at]),),
                    (int(part.microbatch[at]),),
                    ".attributes.peer",
                )
                continue
            index, tags = self.events.tags(number)
            tag = np.array(
                [self._tags.setdefault(repr(t), len(self._tags)) for t in tags], dtype=np.int64
            )[index[part.rank, part.microbatch]]
            source, destination = (
                (part.rank, peers) if way is Communication.SEND else (peers, part.rank)
            )
            parts.append(part)
            keys.append((source * self.events.coordinates.ranks + destination) * (1 << 20) + tag)
        rows = joined(parts)
        key = np.concatenate(keys) if keys else np.zeros(0, dtype=np.int64)
        order = np.lexsort((rows.place, key))
        return Instances(*(column[order] for column in rows)), key[order]

    def _aligned(
        self, sends: Instances, send_keys: Ints, receives: Instances, receive_keys: Ints
    ) -> tuple[Ints, Ints]:
        """Positions of the pairs that meet; what meets nothing becomes a violation."""
        channels = np.unique(np.concatenate([send_keys, receive_keys]))
        most = (
            max(int(counted(send_keys).max(initial=0)), int(counted(receive_keys).max(initial=0)))
            + 1
        )
        send_code = np.searchsorted(channels, send_keys) * most + counted(send_keys)
        receive_code = np.searchsorted(channels, receive_keys) * most + counted(receive_keys)
        _, sender, receiver = np.intersect1d(
            send_code, receive_code, assume_unique=True, return_indices=True
        )
        self._report_alone(
            sends,
            send_keys,
            ~np.isin(send_code, receive_code),
            missing="receive",
            preposition="to",
            others=receives,
        )
        self._report_alone(
            receives,
            receive_keys,
            ~np.isin(receive_code, send_code),
            missing="send",
            preposition="from",
            others=sends,
        )
        return sender, receiver

    def _report_alone(
        self,
        rows: Instances,
        keys: Ints,
        alone: NDArray[np.bool_],
        *,
        missing: str,
        preposition: str,
        others: Instances,
    ) -> None:
        for at in np.flatnonzero(alone)[:64]:
            source, destination = divmod(int(keys[at]) >> 20, self.events.coordinates.ranks)
            rank, peer = (source, destination) if preposition == "to" else (destination, source)
            elsewhere = np.flatnonzero(others.rank == peer)
            hint = (
                f"rank {peer} has no {missing} at all"
                if not len(elsewhere)
                else self._hint(others, elsewhere, missing)
            )
            operator = self.plan.operators[self.events.positions[int(rows.event[at])]]
            message = (
                f"{operator.id!r} on rank {rank} (micro-batch {rows.microbatch[at]}) goes "
                f"{preposition} rank {peer}, where no {missing} meets it; {hint}"
            )
            self._add(int(rows.event[at]), message, (rank, peer), (int(rows.microbatch[at]),))

    def _hint(self, others: Instances, elsewhere: Ints, missing: str) -> str:
        event = int(others.event[elsewhere[0]])
        rank, microbatch = int(others.rank[elsewhere[0]]), int(others.microbatch[elsewhere[0]])
        peer = int(self.events.peers(event)[rank, microbatch])
        name = self.plan.operators[self.events.positions[event]].id
        return (
            f"rank {rank} has {len(elsewhere)} {missing}s, the first of them {name!r} with "
            f"peer {peer}"
        )

    def _check_pairs(
        self, sends: Instances, sender: Ints, receives: Instances, receiver: Ints
    ) -> None:
        """Shape and dtype of what is sent must be those of what is received."""
        pairs = np.stack([sends.event[sender], receives.event[receiver]], axis=1)
        distinct, first = (
            np.unique(pairs, axis=0, return_index=True)
            if len(pairs)
            else (pairs, np.zeros(0, dtype=np.int64))
        )
        for (send, receive), at in zip(distinct.tolist(), first.tolist(), strict=True):
            given, taken = self._sent(send), self._received(receive)
            if (
                given is None
                or taken is None
                or (given.shape == taken.shape and given.dtype == taken.dtype)
            ):
                continue
            ranks = (int(sends.rank[sender[at]]), int(receives.rank[receiver[at]]))
            message = (
                f"rank {ranks[0]} sends {given.name!r}, {given.dtype} {list(given.shape)}, and "
                f"rank {ranks[1]} receives it as {taken.name!r}, "
                f"{taken.dtype} {list(taken.shape)}; both must be equal"
            )
            self._add(
                receive, message, ranks, (int(receives.microbatch[receiver[at]]),), ".outputs[0]"
            )

    def _sent(self, number: int) -> Tensor | None:
        operator = self.plan.operators[self.events.positions[number]]
        name = tensor_of(operator.inputs[0]) if len(operator.inputs) == 1 else None
        if name is None or operator.outputs:
            said = (
                f"{len(operator.inputs)} inputs (tensors or literals) and "
                f"{len(operator.outputs)} outputs"
            )
            self._add(
                number,
                f"a send has one tensor as its input and no output; {operator.id!r} has {said}",
                (),
                (),
                ".inputs",
            )
            return None
        return self.tensors.get(name)

    def _received(self, number: int) -> Tensor | None:
        operator = self.plan.operators[self.events.positions[number]]
        if len(operator.outputs) != 1 or operator.inputs:
            self._add(
                number,
                f"a receive has no input and one output; {operator.id!r} has "
                f"{len(operator.inputs)} and {len(operator.outputs)}",
                (),
                (),
            )
            return None
        return self.tensors.get(operator.outputs[0])

    def _fill(self, sends: Instances, sender: Ints, receives: Instances, receiver: Ints) -> None:
        positions = np.array(self.events.positions, dtype=np.int64)
        shape = (self.events.coordinates.ranks, self.events.schedule.microbatches, 3)
        met = np.full((len(receives.rank), 3), -1, dtype=np.int64)
        met[receiver] = np.stack(
            [positions[sends.event[sender]], sends.rank[sender], sends.microbatch[sender]], axis=1
        )
        for number, position in enumerate(self.events.positions):
            if communication_of(self.plan.operators[position].kind) is Communication.RECEIVE:
                table = np.full(shape, -1, dtype=np.int64)
                here = np.flatnonzero(receives.event == number)
                table[receives.rank[here], receives.microbatch[here]] = met[here]
                self.received[self.plan.operators[position].id] = table

    def _add(
        self,
        number: int,
        message: str,
        ranks: tuple[int, ...],
        microbatches: tuple[int, ...],
        part: str = "",
    ) -> None:
        position = self.events.positions[number]
        operator = self.plan.operators[position]
        self.violations.append(
            Violation(
                "PIT005",
                f"operators[{position}]{part}",
                message,
                operator=operator.id,
                ranks=ranks,
                microbatches=microbatches,
            )
        )
