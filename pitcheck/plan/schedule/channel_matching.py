"""The matching of sends and receives.

Point-to-point channels (source, destination, tag) are first in, first out: the k-th send meets the
k-th receive (MPI 4.1, section 3.5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pitcheck.ops.registry import communication_of
from pitcheck.ops.traits import Communication
from pitcheck.plan.model import Tensor
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.events import Events
from pitcheck.plan.schedule.instances import Instances, counted, instances_of, joined
from pitcheck.plan.schedule.run_order import Ints, tensor_of


class ChannelMatching:
    """The matching of all sends and receives of a plan."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.plan = events.plan
        self.received: dict[str, Ints] = {}
        self.tensors = {tensor.name: tensor for tensor in self.plan.tensors}
        self.violations: list[Violation] = []
        self._tags: dict[str, int] = {}

    def run(self) -> list[Violation]:
        """Match all sends and receives.

        Return the violations, which leave ``received`` incomplete.
        """
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
        """Return all sends or receives by channel and order.

        Returns:
            The events, and the number of each event's channel.
        """
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
        """Return the positions of the pairs that meet.

        An event that meets none becomes a violation.
        """
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
        """Add a violation for each pair whose shapes or dtypes differ."""
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
