"""Rules on buffers: nothing is read that another version has replaced, nothing touches what is in
flight, and what the step leaves is there at its end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from copy import copy
from functools import cached_property
from itertools import chain, islice
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.ops.registry import communication_of, writes_in_place
from pitcheck.ops.traits import Communication
from pitcheck.plan.model import Number, Operator, Tensor, Use
from pitcheck.plan.rules.contents import Contents, Stretch
from pitcheck.plan.rules.program_rules import LocalOrder
from pitcheck.plan.rules.ssa import ACCUMULATE
from pitcheck.plan.rules.views import displacement
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.launches import Launch, Launches
from pitcheck.plan.schedule.memory import Access, Conflict, InFlight
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
"""Bytes of an element, where they are more than one."""

LASTING = frozenset({"parameter", "optimizer_state", "constant"})
"""Roles of what the next step begins with."""

_MOST = 64
"""How many findings of one class of ranks are told."""

Version = tuple[str, int]
"""(tensor, micro-batch), 0 for a tensor that exists once."""


class _Place(NamedTuple):
    """Where a version lies: bytes ``start`` to ``stop`` of a buffer, shared if it is a storage that
    the plan names.
    """

    buffer: Hashable
    start: int
    stop: int
    shared: bool


class StorageRules:
    """PIT010. A version is a tensor, per micro-batch if it is microbatched: every (tensor,
    micro-batch) of one storage lies in one buffer of a rank.
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

    def of_rank(self, rank: int) -> StorageRules:
        """Return the rules as they are on a rank, which may be the root of a collective or not."""
        rules = copy(self)
        rules._not_read = frozenset(self.schedule.not_read(rank))
        return rules

    # --- where things lie

    @cached_property
    def _lying(self) -> dict[str, Tensor]:
        """The tensor that says where another lies: of the output of a wait, what was waited for,
        unless it says so itself.
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
        """What is waited for, by the output of the waits."""
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

    def _place(self, name: str, microbatch: int) -> _Place:
        tensor = self._lying.get(name) or self.tensors[name]
        width = WIDTHS.get(tensor.dtype, 1)
        size = prod(tensor.shape) * width
        if tensor.storage is None:
            return _Place((name, microbatch), 0, size, False)
        return _Place(tensor.storage, tensor.offset * width, tensor.offset * width + size, True)

    def _access(self, version: Version, writes: bool) -> Access:
        place = self._place(*version)
        return Access(place.buffer, place.start, place.stop, writes, version[0])

    # --- what reads and writes what

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
        """The outputs of an operator at a micro-batch, with the name "" for those that are not
        wanted.
        """
        position, microbatch = divmod(code, self.microbatches)
        return [
            (name, microbatch if self.schedule.microbatched.get(name, False) else 0)
            for name in self.plan.operators[position].outputs
        ]

    @cached_property
    def _touching(self) -> dict[str, list[int]]:
        """The positions of the operators that read or write every tensor that some rule
        is about.
        """
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
        """Positions of the operators that some rule is about, as a mask."""
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

    # --- rules on the plan as a whole

    def check_plan(self) -> Iterator[Violation]:
        """Findings that do not depend on the order: what says where it lies, and what lies there at
        the beginning.
        """
        first: dict[str, list[Tensor]] = {}
        for tensor in self.plan.tensors:
            yield from self._check_offset(tensor)
            if tensor.storage is not None and tensor.role in EXTERNAL_ROLES:
                yield from self._check_beginning(tensor, first.setdefault(tensor.storage, []))
                first[tensor.storage].append(tensor)
        for position, operator in enumerate(self.plan.operators):
            if communication_of(operator.kind) is Communication.WAIT:
                yield from self._check_wait(position, operator)
            elif communication_of(
                operator.kind
            ) is Communication.BARRIER and operator.attributes.get("async"):
                yield self._of_plan(
                    position,
                    "is a barrier that is asynchronous: nothing could wait for it; leave out "
                    "'async'",
                )

    def _check_offset(self, tensor: Tensor) -> Iterator[Violation]:
        if tensor.offset and (tensor.storage is None or tensor.offset < 0):
            what = (
                "but names no storage"
                if tensor.storage is None
                else "which is no place in a storage"
            )
            yield Violation(
                "PIT010",
                f"tensors[{self._number[tensor.name]}].offset",
                f"{tensor.name!r} has offset {tensor.offset}, {what}",
                tensor=tensor.name,
            )

    def _check_beginning(self, tensor: Tensor, others: list[Tensor]) -> Iterator[Violation]:
        place = f"tensors[{self._number[tensor.name]}].storage"
        if tensor.microbatched and self.microbatches > 1:
            message = (
                f"{tensor.name!r} comes from outside for {self.microbatches} micro-batches, and "
                f"storage {tensor.storage!r} holds one of them; "
                "leave out the storage"
            )
            yield Violation("PIT010", place, message, tensor=tensor.name)
        mine = self._access((tensor.name, 0), True)
        other = next((o for o in others if mine.conflicts(self._access((o.name, 0), True))), None)
        if other is not None:
            message = (
                f"{tensor.name!r} and {other.name!r} both come from outside in the same places of "
                f"storage {tensor.storage!r}, which hold one of "
                "them; use one tensor for both, or give them places of their own ('offset')"
            )
            yield Violation("PIT010", place, message, tensor=tensor.name)

    def _check_wait(self, position: int, operator: Operator) -> Iterator[Violation]:
        if len(operator.inputs) != 1 or len(operator.outputs) > 1:
            yield self._of_plan(
                position,
                f"has {len(operator.inputs)} inputs and {len(operator.outputs)} outputs; a wait "
                f"has one input and at most one output",
            )
            return
        name = tensor_of(operator.inputs[0]) or ""
        named = operator.attributes.get("of")
        found = {self.plan.operators[n].id for n, _ in self.launches.awaited(position, 0)}
        asked = (
            {named} if isinstance(named, str) else set(named) if isinstance(named, tuple) else set()
        )
        if named is not None and (operator.outputs or not asked or not asked <= found):
            yield self._of_plan(
                position,
                f"waits for {named!r}, which is no asynchronous send of {name!r}; name the ids of "
                f"such sends in 'of'",
            )
        elif not operator.outputs and not found:
            yield self._of_plan(
                position, f"waits for a send of {name!r}, but no asynchronous operator sends it"
            )
        elif operator.outputs and operator.outputs[0] in self.tensors and name in self.tensors:
            yield from self._check_waited(
                position, self.tensors[name], self.tensors[operator.outputs[0]]
            )

    def _check_waited(self, position: int, given: Tensor, waited: Tensor) -> Iterator[Violation]:
        if (waited.dtype, waited.shape) != (given.dtype, given.shape):
            said = (
                f"{waited.name!r} is {waited.dtype} {list(waited.shape)}, and {given.name!r} "
                f"{given.dtype} {list(given.shape)}; both are the same memory"
            )
            yield self._of_plan(position, f"changes nothing: {said}")
        elif self._lies_elsewhere(waited, given):
            there = (
                f"{waited.name!r} lies where {given.name!r} lies; leave out its storage, or "
                f"let each wait have a tensor of its own"
            )
            yield self._of_plan(position, f"moves nothing: {there}")

    def _lies_elsewhere(self, waited: Tensor, given: Tensor) -> bool:
        """Whether the output of a wait has another place in a storage than what was waited for."""
        mine, theirs = self._place(waited.name, 0), self._place(given.name, 0)
        return (mine.shared or theirs.shared) and mine != theirs

    def _of_plan(self, position: int, message: str) -> Violation:
        identity = self.plan.operators[position].id
        return Violation(
            "PIT010", f"operators[{position}]", f"{identity!r} {message}", operator=identity
        )

    # --- rules on the order of a rank

    def check(self, local: LocalOrder) -> Iterator[Violation]:
        """Findings for the ranks of one class."""
        if not self._relevant.any() and all(len(names) < 2 for names in self.new_values.values()):
            return
        rules = self.of_rank(int(local.ranks[0])) if self.schedule.root_reads else self
        for ranks, launches in self.launches.of(local):
            yield from _Walk(rules, ranks, local.codes, launches).run()

    def relevant(self, codes: Ints) -> Ints:
        """Return the places of an order at which an operator stands that some rule is about."""
        return np.flatnonzero(self._relevant[codes // self.microbatches])

    def reads(self, code: int) -> list[Version]:
        """Return the versions that an operator reads at a micro-batch; those of unknown tensors are
        left out.
        """
        return [version for version in self._reads(code) if version[0] in self.tensors]

    def writes(self, code: int) -> list[Version]:
        """Return the versions that an operator writes at a micro-batch; those of unknown tensors
        are left out.
        """
        return [version for version in self._outputs(code) if version[0] in self.tensors]

    def accesses(self, code: int) -> list[Access]:
        """Return all accesses of an operator at a micro-batch, reads before writes. A view neither
        reads nor writes.
        """
        if self.is_view(code):
            return []
        return [
            *(self._access(v, False) for v in self.reads(code)),
            *(self._access(v, True) for v in self.writes(code)),
        ]

    def is_view(self, code: int) -> bool:
        """Return True if all that an operator writes lies in its places of a storage already."""
        reads, outputs = self.reads(code), self._outputs(code)
        pairs = [
            (source, result)
            for source in range(len(reads))
            for result, (name, _) in enumerate(outputs)
            if name in self.tensors
        ]
        return bool(pairs) and all(self._lies_there(code, *pair) for pair in pairs)

    def _lies_there(self, code: int, source: int, result: int) -> bool:
        """Whether the elements that an output has of an input, or an input gives to it, are in the
        same places.
        """
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
        """Return two operands or results of an operator that overlap, if the second does not just
        take the place of the first.
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
        """Whether a result may take the place of an operand, and does."""
        given, taken = self.tensors[read[0]], self.tensors[made[0]]
        return (
            self.place(read) == self.place(made)
            and given.shape == taken.shape
            and writes_in_place(operator.kind)
        )

    def place(self, version: Version) -> _Place:
        """Return where a version lies."""
        return self._place(*version)

    @cached_property
    def beginning(self) -> list[Tensor]:
        """Tensors that come from outside and lie in a storage."""
        return [
            tensor
            for tensor in self.plan.tensors
            if tensor.storage is not None and tensor.role in EXTERNAL_ROLES
        ]

    @cached_property
    def results(self) -> list[Tensor]:
        """Tensors that are read when the step is over: outputs, and new values of parameters and
        state.
        """
        names = {output.tensor for output in self.plan.outputs}
        return [
            tensor
            for tensor in self.plan.tensors
            if tensor.name in names or tensor.updated is not None
        ]

    @cached_property
    def new_values(self) -> dict[str, list[str]]:
        """The tensors that are new values, by what they are new values of."""
        found: dict[str, list[str]] = {}
        for tensor in self.plan.tensors:
            if tensor.updated is not None:
                found.setdefault(tensor.updated, []).append(tensor.name)
        return found


class _Walk:
    """One rank's order, gone through from the beginning to the end."""

    def __init__(
        self, rules: StorageRules, ranks: Ints, codes: Ints, launches: list[Launch]
    ) -> None:
        self.rules = rules
        self.plan = rules.plan
        self.ranks = ranks
        self.codes = codes
        self.flights = InFlight()
        self.contents: dict[Hashable, Contents] = {}
        self.launches = {launch.place: launch for launch in launches}
        self.begin: dict[int, list[Launch]] = {}
        self.before: dict[int, list[int]] = {}
        self.after: dict[int, list[int]] = {}
        for launch in launches:
            self.begin.setdefault(launch.start, []).append(launch)
            if launch.wait is not None:
                self.before.setdefault(launch.wait, []).append(launch.code)
            elif launch.last is not None:
                self.after.setdefault(launch.last, []).append(launch.code)
        self.written: dict[Version, int] = {}
        self.read: set[str] = set()

    def run(self) -> Iterator[Violation]:
        """All findings, in the order in which they happen."""
        for tensor in self.rules.beginning:
            place = self.rules.place((tensor.name, 0))
            self._contents(place.buffer).write(place.start, place.stop, (tensor.name, 0), -1)
        places = self.rules.relevant(self.codes).tolist()
        self._note_order(places)
        yield from self._two_new_values()
        found = (violation for place in places for violation in self._at(place))
        yield from islice(chain(found, self._end()), _MOST)

    def _contents(self, buffer: Hashable) -> Contents:
        return self.contents.setdefault(buffer, Contents())

    def _note_order(self, places: list[int]) -> None:
        for place in places:
            code = int(self.codes[place])
            self.written.update(dict.fromkeys(self.rules.writes(code), place))
            self.read.update(name for name, _ in self.rules.reads(code))

    def _at(self, place: int) -> Iterator[Violation]:
        for code in self.before.get(place, ()):
            self.flights.finish(code)
        for launch in self.begin.get(place, ()):
            yield from self._launch(launch)
        if place not in self.launches:
            yield from self._run(int(self.codes[place]))
        for code in self.after.get(place, ()):
            self.flights.finish(code)

    # --- one operator

    def _launch(self, launch: Launch) -> Iterator[Violation]:
        late = next(
            (v for v in self.rules.reads(launch.code) if self.written.get(v, -1) >= launch.start),
            None,
        )
        if late is not None:
            writer = self._operator(int(self.codes[self.written[late]])).id
            message = (
                f"begins with the first of its batch, before {writer!r} has written "
                f"{late[0]!r}, which it reads; put it into a later batch"
            )
            yield self._violation(launch.code, message, late[0])
        yield from self._stale(launch.code)
        source = repr(self._operator(launch.code).id)
        for conflict in self.flights.launch(launch.code, self.rules.accesses(launch.code), source):
            yield self._conflict(launch.code, conflict)
        yield from self._overlap(launch.code)
        self._store(launch.code)

    def _run(self, code: int) -> Iterator[Violation]:
        if (
            communication_of(self._operator(code).kind) is Communication.WAIT
            and not self._operator(code).outputs
        ):
            return
        for access in self.rules.accesses(code):
            for conflict in self.flights.touch(access):
                yield self._conflict(code, conflict)
        yield from self._stale(code)
        yield from self._overlap(code)
        self._store(code)

    def _operator(self, code: int) -> Operator:
        return self.plan.operators[code // self.rules.microbatches]

    def _store(self, code: int) -> None:
        view = self.rules.is_view(code)
        for version in self.rules.writes(code):
            place = self.rules.place(version)
            if view:
                self._contents(place.buffer).view(place.start, place.stop, version)
            elif place.shared:
                self._contents(place.buffer).write(place.start, place.stop, version, code)

    def _stale(self, code: int) -> Iterator[Violation]:
        for version in self.rules.reads(code):
            found = self._replaced(version, version)
            if found is not None:
                message = (
                    f"reads {version[0]!r} from storage {self.rules.place(version).buffer!r} on "
                    f"rank {self.ranks[0]}, but {self._now(found)} there before; "
                    "read earlier, or give the later version another storage"
                )
                yield self._violation(code, message, version[0])

    def _replaced(self, version: Version, *allowed: Version) -> Stretch | None:
        """Return what lies in the place of a version instead of it, None if nothing does or it was
        not written yet.
        """
        place = self.rules.place(version)
        return (
            self._contents(place.buffer).others(place.start, place.stop, *allowed)
            if place.shared
            else None
        )

    def _now(self, stretch: Stretch) -> str:
        name, microbatch = next(
            iter(sorted(version for version in stretch.versions if isinstance(version, tuple)))
        )
        at = (
            f" (micro-batch {microbatch})"
            if self.rules.schedule.microbatched.get(name, False)
            else ""
        )
        if stretch.writer < 0:
            return f"{name!r}{at} has been"
        return f"{self._operator(stretch.writer).id!r} has written {name!r}{at}"

    def _overlap(self, code: int) -> Iterator[Violation]:
        """An operator whose result lies over its operand, but not in its place."""
        found = self.rules.over_itself(code)
        if found is not None:
            (read, _), (written, _) = found
            message = (
                f"writes {written!r} over {read!r}, which it still uses; give the result of "
                f"{self._operator(code).kind} places of its own"
            )
            yield self._violation(code, message, written)

    def _conflict(self, code: int, conflict: Conflict) -> Violation:
        flight = next(
            launch for launch in self.launches.values() if launch.code == conflict.flight.handle
        )
        if flight.last is not None:
            advice = (
                "operators of one batch run at the same time: put one of them into a later "
                "batch, or give them different buffers"
            )
        elif flight.wait is None:
            advice = "nothing waits for that; add a 'wait' operator before this one"
        else:
            advice = "move this behind its 'wait'" + (
                "; read the output of the 'wait'" if conflict.held.writes else ""
            )
        return self._violation(code, f"{conflict.message}; {advice}", conflict.access.name)

    # --- the end of the step

    def _end(self) -> Iterator[Violation]:
        for flight in self.flights:
            code = flight.handle if isinstance(flight.handle, int) else -1
            yield self._violation(
                code,
                "is asynchronous, and nothing waits for it before the end of the step; add a "
                "'wait' operator",
                "",
            )
        for tensor in self.rules.results:
            for version in self._present(tensor):
                found = self._replaced(version, version)
                if found is not None:
                    yield self._lost(tensor, version, found, "is read at the end of the step")
        for tensor in self.rules.beginning:
            if tensor.role in LASTING and tensor.name in self.read:
                version = (tensor.name, 0)
                found = self._replaced(version, version)
                if found is not None and not self._succeeded(version):
                    yield self._lost(
                        tensor,
                        version,
                        found,
                        "lasts into the next step, and has no new value in all of its places",
                    )

    def _succeeded(self, version: Version) -> bool:
        """Whether a new value is there in the places of an old one, or has places of its own."""
        old = self.rules.place(version)
        new = [
            v
            for name in self.rules.new_values.get(version[0], ())
            for v in self._present(self.rules.tensors[name])
        ]
        for place, each in ((self.rules.place(each), each) for each in new):
            apart = place.buffer != old.buffer or place.stop <= old.start or old.stop <= place.start
            if apart or (place == old and self._replaced(each, each) is None):
                return True
        return False

    def _two_new_values(self) -> Iterator[Violation]:
        """One tensor is named as the new value of a parameter or state on a rank: of two, which
        lasts is open.
        """
        for owner, names in self.rules.new_values.items():
            here = [name for name in names if self._present(self.rules.tensors[name])]
            if len(here) > 1:
                message = (
                    f"{here[0]!r} and {here[1]!r} are both the new value of {owner!r} on "
                    f"rank {self.ranks[0]}; take 'updated' from all but the last"
                )
                number = list(self.rules.tensors).index(here[1])
                ranks = tuple(int(rank) for rank in self.ranks[:8])
                yield Violation(
                    "PIT011", f"tensors[{number}].updated", message, tensor=here[1], ranks=ranks
                )

    def _present(self, tensor: Tensor) -> list[Version]:
        """Versions of a tensor that exist on this rank when the step is over."""
        microbatches = range(self.rules.microbatches) if tensor.microbatched else (0,)
        versions = [(tensor.name, microbatch) for microbatch in microbatches]
        return (
            versions
            if tensor.role in EXTERNAL_ROLES
            else [version for version in versions if version in self.written]
        )

    def _lost(self, tensor: Tensor, version: Version, found: Stretch, what: str) -> Violation:
        storage = self.rules.place(version).buffer
        at = f" (micro-batch {version[1]})" if tensor.microbatched else ""
        message = (
            f"{tensor.name!r}{at} {what}, but {self._now(found)} in its storage {storage!r} "
            f"on rank {self.ranks[0]}; give one of them another storage"
        )
        number = next(n for n, other in enumerate(self.plan.tensors) if other.name == tensor.name)
        ranks = tuple(int(rank) for rank in self.ranks[:8])
        return Violation(
            "PIT010",
            f"tensors[{number}].storage",
            message,
            tensor=tensor.name,
            ranks=ranks,
            microbatches=(version[1],),
        )

    def _violation(self, code: int, message: str, tensor: str) -> Violation:
        position, microbatch = divmod(code, self.rules.microbatches)
        identity = self.plan.operators[position].id
        ranks = tuple(int(rank) for rank in self.ranks[:8])
        return Violation(
            "PIT010",
            f"operators[{position}]",
            f"{identity!r} {message}",
            operator=identity,
            tensor=tensor,
            ranks=ranks,
            microbatches=(microbatch,),
        )
