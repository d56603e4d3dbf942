"""A walk through the order of one rank, from the beginning to the end of the step."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import chain, islice

from pitcheck.ops.registry import communication_of
from pitcheck.ops.traits import Communication
from pitcheck.plan.model import Operator, Tensor
from pitcheck.plan.rules.contents import Contents, Stretch
from pitcheck.plan.rules.storage_layout import StorageLayout, Version
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.launches import Launch
from pitcheck.plan.schedule.memory import Conflict, InFlight
from pitcheck.plan.schedule.run_order import EXTERNAL_ROLES, Ints

LASTING = frozenset({"parameter", "optimizer_state", "constant"})
"""The roles of tensors that the next step begins with."""

_MOST = 64
"""The most findings that are told for one class of ranks."""


class StorageWalk:
    """A walk through the order of one rank.

    It keeps the contents of buffers and the operations in flight.
    """

    def __init__(
        self, layout: StorageLayout, ranks: Ints, codes: Ints, launches: list[Launch]
    ) -> None:
        self.layout = layout
        self.plan = layout.plan
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
        """Yield all findings, in the order in which they happen."""
        for tensor in self.layout.beginning:
            place = self.layout.place((tensor.name, 0))
            self._contents(place.buffer).write(place.start, place.stop, (tensor.name, 0), -1)
        places = self.layout.relevant(self.codes).tolist()
        self._note_order(places)
        yield from self._two_new_values()
        found = (violation for place in places for violation in self._at(place))
        yield from islice(chain(found, self._end()), _MOST)

    def _contents(self, buffer: Hashable) -> Contents:
        return self.contents.setdefault(buffer, Contents())

    def _note_order(self, places: list[int]) -> None:
        for place in places:
            code = int(self.codes[place])
            self.written.update(dict.fromkeys(self.layout.writes(code), place))
            self.read.update(name for name, _ in self.layout.reads(code))

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
            (v for v in self.layout.reads(launch.code) if self.written.get(v, -1) >= launch.start),
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
        for conflict in self.flights.launch(launch.code, self.layout.accesses(launch.code), source):
            yield self._conflict(launch.code, conflict)
        yield from self._overlap(launch.code)
        self._store(launch.code)

    def _run(self, code: int) -> Iterator[Violation]:
        if (
            communication_of(self._operator(code).kind) is Communication.WAIT
            and not self._operator(code).outputs
        ):
            return
        for access in self.layout.accesses(code):
            for conflict in self.flights.touch(access):
                yield self._conflict(code, conflict)
        yield from self._stale(code)
        yield from self._overlap(code)
        self._store(code)

    def _operator(self, code: int) -> Operator:
        return self.plan.operators[code // self.layout.microbatches]

    def _store(self, code: int) -> None:
        view = self.layout.is_view(code)
        for version in self.layout.writes(code):
            place = self.layout.place(version)
            if view:
                self._contents(place.buffer).view(place.start, place.stop, version)
            elif place.shared:
                self._contents(place.buffer).write(place.start, place.stop, version, code)

    def _stale(self, code: int) -> Iterator[Violation]:
        for version in self.layout.reads(code):
            found = self._replaced(version, version)
            if found is not None:
                message = (
                    f"reads {version[0]!r} from storage {self.layout.place(version).buffer!r} on "
                    f"rank {self.ranks[0]}, but {self._now(found)} there before; "
                    "read earlier, or give the later version another storage"
                )
                yield self._violation(code, message, version[0])

    def _replaced(self, version: Version, *allowed: Version) -> Stretch | None:
        """Return the contents that have replaced a version.

        None if it is there or was not written.
        """
        place = self.layout.place(version)
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
            if self.layout.schedule.microbatched.get(name, False)
            else ""
        )
        if stretch.writer < 0:
            return f"{name!r}{at} has been"
        return f"{self._operator(stretch.writer).id!r} has written {name!r}{at}"

    def _overlap(self, code: int) -> Iterator[Violation]:
        """Yield a finding if an operator's result lies over its operand, but not in its place."""
        found = self.layout.over_itself(code)
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
        for tensor in self.layout.results:
            for version in self._present(tensor):
                found = self._replaced(version, version)
                if found is not None:
                    yield self._lost(tensor, version, found, "is read at the end of the step")
        for tensor in self.layout.beginning:
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
        """Return True if a new value lies in the places of an old one, or has separate places."""
        old = self.layout.place(version)
        new = [
            v
            for name in self.layout.new_values.get(version[0], ())
            for v in self._present(self.layout.tensors[name])
        ]
        for place, each in ((self.layout.place(each), each) for each in new):
            apart = place.buffer != old.buffer or place.stop <= old.start or old.stop <= place.start
            if apart or (place == old and self._replaced(each, each) is None):
                return True
        return False

    def _two_new_values(self) -> Iterator[Violation]:
        """Yield a finding for two new values of one tensor on a rank: which one lasts is open."""
        for owner, names in self.layout.new_values.items():
            here = [name for name in names if self._present(self.layout.tensors[name])]
            if len(here) > 1:
                message = (
                    f"{here[0]!r} and {here[1]!r} are both the new value of {owner!r} on "
                    f"rank {self.ranks[0]}; take 'updated' from all but the last"
                )
                number = list(self.layout.tensors).index(here[1])
                ranks = tuple(int(rank) for rank in self.ranks[:8])
                yield Violation(
                    "PIT011", f"tensors[{number}].updated", message, tensor=here[1], ranks=ranks
                )

    def _present(self, tensor: Tensor) -> list[Version]:
        """Return the versions of a tensor that exist on this rank when the step is over."""
        microbatches = range(self.layout.microbatches) if tensor.microbatched else (0,)
        versions = [(tensor.name, microbatch) for microbatch in microbatches]
        return (
            versions
            if tensor.role in EXTERNAL_ROLES
            else [version for version in versions if version in self.written]
        )

    def _lost(self, tensor: Tensor, version: Version, found: Stretch, what: str) -> Violation:
        storage = self.layout.place(version).buffer
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
        position, microbatch = divmod(code, self.layout.microbatches)
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
