"""The layout of memory: places of versions, and the reads and writes of operators."""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.ops.registry import communication_of, writes_in_place
from pitcheck.ops.traits import Communication
from pitcheck.plan.model import Number, Operator, Tensor, Use
from pitcheck.plan.rules.ssa import ACCUMULATE
from pitcheck.plan.rules.views import displacement
from pitcheck.plan.schedule.launches import Launches
from pitcheck.plan.schedule.memory import Access
from pitcheck.plan.schedule.run_order import EXTERNAL_ROLES, Ints, Schedule, tensor_of

WIDTHS = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int16": 2,
}
"""The bytes of an element, for dtypes with more than one."""

Version = tuple[str, int]
"""A tensor and a micro-batch, 0 for a tensor that exists once."""


class Place(NamedTuple):
    """The place of a version: bytes ``start`` to ``stop`` of a buffer.

    ``shared`` says that the buffer is a storage that the plan names.
    """

    buffer: Hashable
    start: int
    stop: int
    shared: bool


class StorageLayout:
    """The place of every version, and the versions that an operator reads and writes.

    A version is a tensor, per micro-batch if it is microbatched. Every version of one storage lies
    in one buffer of a rank.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plan = schedule.plan
        self.microbatches = schedule.microbatches
        self.launches = Launches(schedule)
        self.tensors = {tensor.name: tensor for tensor in self.plan.tensors}
        self._number = {tensor.name: number for number, tensor in enumerate(self.plan.tensors)}
        self._not_read: frozenset[int] = frozenset()
        """Codes of collectives whose operand nobody reads on the rank that is looked at."""

    def of_rank(self, rank: int) -> StorageLayout:
        """Return the layout as it is on a rank, which may be the root of a collective or not."""
        layout = copy(self)
        layout._not_read = frozenset(self.schedule.not_read(rank))
        return layout

    # --- places

    @cached_property
    def _lying(self) -> dict[str, Tensor]:
        """Tensors that say where others lie, by name.

        The output of a wait lies with the tensor that was waited for, unless it names a storage
        itself.
        """
        found = {
            name: tensor for name, tensor in self.tensors.items() if tensor.storage is not None
        }
        # Waits may stand in any order in the list.
        changed = True
        while changed:
            changed = False
            for name, sources in self._waited.items():
                source = next((found[each] for each in sources if each in found), None)
                if name not in found and source is not None:
                    found[name] = source
                    changed = True
        return found

    @cached_property
    def _waited(self) -> dict[str, list[str]]:
        """The tensors that are waited for, by the output of the waits."""
        found: dict[str, list[str]] = {}
        for operator in self.plan.operators:
            if (
                communication_of(operator.kind) is Communication.WAIT
                and len(operator.inputs) == len(operator.outputs) == 1
            ):
                found.setdefault(operator.outputs[0], []).append(
                    tensor_of(operator.inputs[0]) or ""
                )
        return found

    def place(self, version: Version) -> Place:
        """Return the place of a version."""
        name, microbatch = version
        tensor = self._lying.get(name) or self.tensors[name]
        width = WIDTHS.get(tensor.dtype, 1)
        size = prod(tensor.shape) * width
        if tensor.storage is None:
            return Place((name, microbatch), 0, size, False)
        return Place(tensor.storage, tensor.offset * width, tensor.offset * width + size, True)

    def _access(self, version: Version, writes: bool) -> Access:
        place = self.place(version)
        return Access(place.buffer, place.start, place.stop, writes, version[0])

    # --- reads and writes

    def _reads(self, code: int) -> list[Version]:
        if code in self._not_read:
            return []
        position, microbatch = divmod(code, self.microbatches)
        operator = self.plan.operators[position]
        return [
            version
            for operand in operator.inputs
            if not isinstance(operand, Number)
            for version in self._versions(operator, operand, microbatch)
        ]

    def _versions(self, operator: Operator, operand: str | Use, microbatch: int) -> list[Version]:
        name = tensor_of(operand) or ""
        if not self.schedule.microbatched.get(name, False):
            return [(name, 0)]
        if isinstance(operand, Use):
            return [(name, operand.microbatch)]
        if operator.kind == ACCUMULATE:
            listed = operator.attributes.get("microbatches")
            return (
                [(name, m) for m in listed if isinstance(m, int)]
                if isinstance(listed, tuple)
                else [(name, m) for m in range(self.microbatches)]
            )
        return [(name, microbatch)]

    def _outputs(self, code: int) -> list[Version]:
        """Return the outputs of an operator at a micro-batch, "" for one that is not wanted."""
        position, microbatch = divmod(code, self.microbatches)
        return [
            (name, microbatch if self.schedule.microbatched.get(name, False) else 0)
            for name in self.plan.operators[position].outputs
        ]

    @cached_property
    def _touching(self) -> dict[str, list[int]]:
        """The positions of the operators that read or write each tensor that some rule is about."""
        several = {name for names in self.new_values.values() if len(names) > 1 for name in names}
        about = (
            several
            | set(self._lying)
            | {name for n in self.launches.timed for name in self._names(self.plan.operators[n])}
        )
        found: dict[str, list[int]] = {name: [] for name in about}
        for position, operator in enumerate(self.plan.operators) if about else ():
            for name in self._names(operator) & about:
                found[name].append(position)
        return found

    def _names(self, operator: Operator) -> set[str]:
        return {name for name in (*operator.outputs, *map(tensor_of, operator.inputs)) if name}

    @cached_property
    def _relevant(self) -> NDArray[np.bool_]:
        """A mask of the operators that some rule is about."""
        relevant = np.zeros(len(self.plan.operators), dtype=np.bool_)
        relevant[[position for positions in self._touching.values() for position in positions]] = (
            True
        )
        relevant[
            [
                n
                for n, operator in enumerate(self.plan.operators)
                if communication_of(operator.kind) is Communication.WAIT
            ]
        ] = True
        relevant[self.launches.timed] = True
        return relevant

    def relevant(self, codes: Ints) -> Ints:
        """Return the places of an order with an operator that some rule is about."""
        return np.flatnonzero(self._relevant[codes // self.microbatches])

    def reads(self, code: int) -> list[Version]:
        """Return the versions that an operator reads at a micro-batch, unknown tensors left out."""
        return [version for version in self._reads(code) if version[0] in self.tensors]

    def writes(self, code: int) -> list[Version]:
        """Return the versions that an operator writes at a micro-batch.

        Unknown tensors are left out.
        """
        return [version for version in self._outputs(code) if version[0] in self.tensors]

    def accesses(self, code: int) -> list[Access]:
        """Return all accesses of an operator at a micro-batch, reads before writes.

        A view neither reads nor writes.
        """
        if self.is_view(code):
            return []
        return [
            *(self._access(v, False) for v in self.reads(code)),
            *(self._access(v, True) for v in self.writes(code)),
        ]

    def is_view(self, code: int) -> bool:
        """Return True if every output of an operator already lies in its places of a storage."""
        reads, outputs = self.reads(code), self._outputs(code)
        pairs = [
            (source, result)
            for source in range(len(reads))
            for result, (name, _) in enumerate(outputs)
            if name in self.tensors
        ]
        return bool(pairs) and all(self._lies_there(code, *pair) for pair in pairs)

    def _lies_there(self, code: int, source: int, result: int) -> bool:
        """Return True if elements that an output shares with an input are in the same places."""
        reads, outputs = self.reads(code), self._outputs(code)
        given, taken = self.place(reads[source]), self.place(outputs[result])
        tensors = self.tensors[reads[source][0]], self.tensors[outputs[result][0]]
        if not given.shared or given.buffer != taken.buffer or tensors[0].dtype != tensors[1].dtype:
            return False
        shapes = [
            [self.tensors[name].shape if name in self.tensors else None for name, _ in versions]
            for versions in (reads, outputs)
        ]
        moved = displacement(
            self.plan.operators[code // self.microbatches], shapes[0], shapes[1], source, result
        )
        return moved is not None and taken.start - given.start == moved * WIDTHS.get(
            tensors[0].dtype, 1
        )

    def over_itself(self, code: int) -> tuple[Version, Version] | None:
        """Return two operands or results of an operator that overlap, None if there are none.

        A result that just takes the place of an operand is no overlap.
        """
        operator, reads, outputs = (
            self.plan.operators[code // self.microbatches],
            self.reads(code),
            self._outputs(code),
        )
        made = [
            (result, version)
            for result, version in enumerate(outputs)
            if version[0] in self.tensors
        ]
        for number, (result, version) in enumerate(made):
            taken = self._access(version, True)
            for source, read in enumerate(reads):
                if (
                    taken.conflicts(self._access(read, False))
                    and not self._in_place(operator, read, version)
                    and not self._lies_there(code, source, result)
                ):
                    return read, version
            other = next(
                (each for _, each in made[:number] if taken.conflicts(self._access(each, True))),
                None,
            )
            if other is not None:
                return other, version
        return None

    def _in_place(self, operator: Operator, read: Version, made: Version) -> bool:
        """Return True if a result may take the place of an operand, and does."""
        given, taken = self.tensors[read[0]], self.tensors[made[0]]
        return (
            self.place(read) == self.place(made)
            and given.shape == taken.shape
            and writes_in_place(operator.kind)
        )

    @cached_property
    def beginning(self) -> list[Tensor]:
        """The tensors that come from outside and lie in a storage."""
        return [
            tensor
            for tensor in self.plan.tensors
            if tensor.storage is not None and tensor.role in EXTERNAL_ROLES
        ]

    @cached_property
    def results(self) -> list[Tensor]:
        """The tensors that are read when the step is over.

        They are outputs, and new values of parameters and state.
        """
        names = {output.tensor for output in self.plan.outputs}
        return [
            tensor
            for tensor in self.plan.tensors
            if tensor.name in names or tensor.updated is not None
        ]

    @cached_property
    def new_values(self) -> dict[str, list[str]]:
        """The new values of each tensor, by its name."""
        found: dict[str, list[str]] = {}
        for tensor in self.plan.tensors:
            if tensor.updated is not None:
                found.setdefault(tensor.updated, []).append(tensor.name)
        return found
