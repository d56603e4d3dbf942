"""The matching of collectives.

In every group (a rank list) the k-th collective of each member meets the k-th of all others (MPI
4.1, section 6.14; NCCL has the same rule).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import PlanError
from pitcheck.plan.model import Operator, Tensor
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.instances import Instances, counted, instances_of, joined
from pitcheck.plan.schedule.run_order import MATCHING_ONLY, Ints, tensor_of


class CollectiveMatching:
    """The matching of all collectives of a plan."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.plan = events.plan
        self.members: dict[str, Ints | None] = {}
        self.tensors = {tensor.name: tensor for tensor in self.plan.tensors}
        self.violations: list[Violation] = []

    def run(self) -> list[Violation]:
        """Match all collectives; return the violations, which leave ``members`` incomplete."""
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
        """Return True for each communicator whose members run different sequences of events.

        The others agree by construction.
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
        """Return equal numbers for events that may meet.

        They have the same kind, shape, dtype and attributes at every coordinate, attributes of
        order alone left aside.
        """
        known: dict[Any, int] = {}
        result = np.zeros(len(rows.rank), dtype=np.int64)
        for number in np.unique(rows.event):
            here = np.flatnonzero(rows.event == number)
            signatures = self._said(int(number), rows.rank[here], rows.microbatch[here])
            result[here] = [known.setdefault(signature, len(known)) for signature in signatures]
        return result

    def _said(self, number: int, ranks: Ints, microbatches: Ints) -> list[tuple[Any, ...]]:
        """Return the signature of one event at some coordinates."""
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
        """Add a violation for the first meeting of a group that goes wrong."""
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
            # Members that run one record may still differ in an attribute that is a table.
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
    """Return an attribute's value as text; an axis is counted from the front."""
    counted_back = name.endswith("axis") and isinstance(value, int) and -dimensions <= value < 0
    return repr(value + dimensions if counted_back else value)


def _most_frequent(values: list[tuple[int, int]]) -> tuple[int, int]:
    return max(dict.fromkeys(values), key=values.count)
