"""Rules on buffers: no version is read after a later one was written, and nothing touches what an asynchronous operator still uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pitcheck.plan.model import Operator, Tensor, Use
from pitcheck.plan.programs import LocalOrder
from pitcheck.plan.schedule import Ints, Schedule, tensor_of
from pitcheck.plan.ssa import ACCUMULATE
from pitcheck.plan.violations import Violation


@dataclass(frozen=True)
class _Accesses:
    """Accesses to versions of storages, as columns: code of the operator, version, storage, number of the tensor."""

    code: Ints
    version: Ints
    storage: Ints
    tensor: Ints


@dataclass(frozen=True)
class _Launch:
    """An asynchronous operator at one micro-batch, its waits, the readers of its output, and the later writers of its input's storage."""

    code: int
    waits: Ints
    readers: Ints
    writers: Ints
    tensor: str


class StorageRules:
    """PIT010. A version is a tensor, per micro-batch where it is microbatched: every (tensor, micro-batch) of one storage shares one buffer of a rank."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plan = schedule.plan
        self.microbatches = schedule.microbatches
        self._number = {tensor.name: number for number, tensor in enumerate(self.plan.tensors)}
        names = {name: number for number, name in enumerate(sorted({t.storage for t in self.plan.tensors if t.storage is not None}))}
        self._storage = {t.name: names[t.storage] for t in self.plan.tensors if t.storage is not None}
        self._writes = self._accesses(writes=True)
        self._reads = self._accesses(writes=False)
        self._launches = list(self._find_launches())

    # --- versions

    def _accesses(self, writes: bool) -> _Accesses:
        rows: list[tuple[int, int, int, int]] = []
        if self._storage:
            for position, operator in enumerate(self.plan.operators):
                operands = [(name, None) for name in operator.outputs] if writes else list(self._operands(operator))
                for name, chosen in operands:
                    if name in self._storage:
                        rows.extend(self._rows(position, operator, name, chosen))
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return _Accesses(*(table[:, i] for i in range(4)))

    @staticmethod
    def _operands(operator: Operator) -> Iterator[tuple[str, int | None]]:
        for operand in operator.inputs:
            name = tensor_of(operand)
            if name:
                yield name, operand.microbatch if isinstance(operand, Use) else None

    def _rows(self, position: int, operator: Operator, name: str, chosen: int | None) -> Iterator[tuple[int, int, int, int]]:
        number = self._number[name]
        for microbatch in range(self.microbatches) if self.schedule.per_microbatch(position) else (0,):
            code = position * self.microbatches + microbatch
            for version in self._versions(operator, name, chosen, microbatch):
                yield code, number * self.microbatches + version, self._storage[name], number

    def _versions(self, operator: Operator, name: str, chosen: int | None, microbatch: int) -> list[int]:
        if not self.schedule.microbatched[name]:
            return [0]
        if chosen is not None:
            return [chosen]
        if operator.kind == ACCUMULATE and name not in operator.outputs:
            listed = operator.attributes.get("microbatches")
            return [m for m in listed if isinstance(m, int)] if isinstance(listed, tuple) else list(range(self.microbatches))
        return [microbatch]

    # --- asynchronous operators

    def _find_launches(self) -> Iterator[_Launch]:
        launched = [(position, operator) for position, operator in enumerate(self.plan.operators) if operator.attributes and operator.attributes.get("async")]
        results = {name for _, operator in launched for name in operator.outputs}
        readers: dict[str, list[int]] = {}
        writers: dict[str, list[int]] = {}
        for position, operator in enumerate(self.plan.operators) if results else ():
            for name, _ in self._operands(operator):
                if name in results:
                    readers.setdefault(name, []).append(position)
            for name in operator.outputs if self._storage else ():
                if name in self._storage:
                    writers.setdefault(self.plan.tensors[self._number[name]].storage or "", []).append(position)
        for position, operator in launched:
            sources = [self._tensor(name) for name, _ in self._operands(operator)]
            used = [w for tensor in sources if tensor and tensor.storage is not None for w in writers.get(tensor.storage, ()) if w != position]
            for name in operator.outputs:
                found = readers.get(name, [])
                waits = [r for r in found if self.plan.operators[r].kind == "wait"]
                others = [r for r in found if self.plan.operators[r].kind != "wait"]
                for microbatch in range(self.microbatches) if self.schedule.per_microbatch(position) else (0,):
                    own = self._codes(waits, microbatch), self._codes(others, microbatch)
                    yield _Launch(position * self.microbatches + microbatch, *own, self._all_codes(used), name)

    def _tensor(self, name: str) -> Tensor | None:
        number = self._number.get(name)
        return None if number is None else self.plan.tensors[number]

    def _codes(self, positions: list[int], microbatch: int) -> Ints:
        """Codes at one micro-batch; of operators that run once, their only one."""
        return np.array([p * self.microbatches + (microbatch if self.schedule.per_microbatch(p) else 0) for p in positions], dtype=np.int64)

    def _all_codes(self, positions: list[int]) -> Ints:
        codes = [p * self.microbatches + m for p in positions for m in (range(self.microbatches) if self.schedule.per_microbatch(p) else (0,))]
        return np.array(codes, dtype=np.int64)

    # --- rules

    def check(self, local: LocalOrder) -> Iterator[Violation]:
        """Findings for the ranks of one class."""
        if not self._storage and not self._launches:
            return
        place = np.full(len(self.plan.operators) * self.microbatches, -1, dtype=np.int64)
        place[local.codes] = np.arange(len(local.codes))
        yield from self._check_versions(local, place)
        for launch in self._launches:
            if place[launch.code] >= 0:
                yield from self._check_launch(local, place, launch)

    def _check_versions(self, local: LocalOrder, place: Ints) -> Iterator[Violation]:
        writes, reads = self._writes, self._reads
        span = len(local.codes) + 1
        written = np.flatnonzero(place[writes.code] >= 0)
        keys = writes.storage[written] * span + place[writes.code[written]]
        written, keys = written[np.argsort(keys, kind="stable")], np.sort(keys)
        read = np.flatnonzero(place[reads.code] >= 0)
        if not len(read) or not len(written):
            return
        # The last write to the storage before the read; an operator reads before it writes.
        last = np.searchsorted(keys, reads.storage[read] * span + place[reads.code[read]], side="left") - 1
        same = (last >= 0) & (keys[np.maximum(last, 0)] // span == reads.storage[read])
        current = np.where(same, writes.version[written[np.maximum(last, 0)]], -1)
        # Where nothing was written before, the version comes from outside, or it is a matter of order against data dependence, reported there.
        stale = same & (current != reads.version[read])
        for at in np.flatnonzero(stale)[:64].tolist():
            yield self._stale(local, int(reads.code[read[at]]), int(reads.tensor[read[at]]), int(writes.code[written[last[at]]]), int(current[at]))

    def _stale(self, local: LocalOrder, code: int, tensor: int, writer: int, version: int) -> Violation:
        name, storage = self.plan.tensors[tensor].name, self.plan.tensors[tensor].storage
        now = self.plan.tensors[version // self.microbatches].name
        by = self.plan.operators[writer // self.microbatches].id
        message = (
            f"reads {name!r} from storage {storage!r} on rank {local.ranks[0]}, but {by!r} has written {now!r} (micro-batch {version % self.microbatches}) "
            "there before; read earlier, or give the later version another storage"
        )
        return self._violation(local, code, message, name)

    def _check_launch(self, local: LocalOrder, place: Ints, launch: _Launch) -> Iterator[Violation]:
        start = place[launch.code]
        waits = place[launch.waits]
        done = int(waits[waits > start].min(initial=len(local.codes)))
        for reader in launch.readers.tolist():
            if start < place[reader] < done:
                when = "before its wait" if done < len(local.codes) else "and nothing waits for it"
                launched = self.plan.operators[launch.code // self.microbatches].id
                message = f"reads {launch.tensor!r}, which {launched!r} makes asynchronously, {when}; read the output of a 'wait' operator instead"
                yield self._violation(local, reader, message, launch.tensor)
        for writer in launch.writers.tolist():
            if start < place[writer] < done:
                launched = self.plan.operators[launch.code // self.microbatches].id
                message = f"overwrites the storage of the input of {launched!r}, which runs asynchronously, before its wait; move it after the wait"
                yield self._violation(local, writer, message, launch.tensor)

    def _violation(self, local: LocalOrder, code: int, message: str, tensor: str) -> Violation:
        position, microbatch = divmod(code, self.microbatches)
        identity = self.plan.operators[position].id
        ranks = tuple(int(rank) for rank in local.ranks[:8])
        return Violation(
            "PIT010", f"operators[{position}]", f"{identity!r} {message}", operator=identity, tensor=tensor, ranks=ranks, microbatches=(microbatch,)
        )
