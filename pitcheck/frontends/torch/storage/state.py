"""The state of a program: memory that the recorded step reads and leaves changed for the next call.

When the step begins, everything in memory gets a twin: a value of its own that stands for what lies
there. A twin that the step uses, and whose memory it leaves as it was, is a constant of the
program: it is what it was computed as. Any other twin that the step uses is state, which is of any
value. State needs a name, by which it is the same in the other program; without one it is refused.
Memory on which no result depends is no state, however often it is written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, cast

import msgspec
import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.base.dtypes import DType
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.arguments import dtype_name
from pitcheck.frontends.torch.recording.parameter_lineage import local
from pitcheck.frontends.torch.recording.program_tensors import Held, Names
from pitcheck.frontends.torch.recording.recorder import PLAIN, Recorder
from pitcheck.frontends.torch.recording.tape import FEW, INTEGERS
from pitcheck.frontends.torch.rewrites.needed_events import needed_events
from pitcheck.frontends.torch.storage.aliases import Aliases, Places, Where, where_of
from pitcheck.frontends.torch.storage.storages import REAL, Mark, Root, Storage, view_of
from pitcheck.frontends.torch.trace import (
    LEFT,
    Event,
    Given,
    Number,
    Ref,
    Result,
    Role,
    Value,
    operands,
    with_operands,
)

Key = tuple[Role, str]


@dataclass(frozen=True)
class Named:
    """A tensor with a name when the step begins.

    ``origin`` is its value until then, ``twin`` the value that stands for it, and ``mark`` the
    content of its memory.
    """

    held: Held
    origin: int
    twin: int
    mark: Mark


class After(NamedTuple):
    """A tensor of the same name when the step has ended.

    ``changed`` says that something else lies in its memory.
    """

    held: Held
    value: int
    changed: bool


class Kept(NamedTuple):
    """The tensors that the step leaves beside its core results.

    Core results are outputs, gradients, parameters, saved buffers and optimizer state. ``begun``
    are given values that stay in the trace even if nothing uses them.
    """

    results: list[Result]
    numbers: list[Number]
    accumulated: list[str]
    begun: list[int]


@dataclass
class _Used:
    """The uses of state.

    ``needs`` maps the name of a tensor to the names of the state that its new value is made of.
    ``state`` are the names on which some result depends.
    """

    needs: dict[Key, set[Key]] = field(default_factory=dict)
    state: set[Key] = field(default_factory=set)


class Memory:
    """The memory of a program between two calls of its step.

    It is made when the first call has ended. :meth:`begin` is called when the given values have
    been written, and :meth:`end` after the second call.
    """

    def __init__(self, recorder: Recorder, names: Names) -> None:
        self._recorder = recorder
        self._storages = recorder.storages
        self._tape = recorder.tape
        self._names = names
        self._origins: dict[int, int] = {}
        self._held: dict[int, Storage] = {}
        self._roots: dict[int, Root] = {}
        self._sizes: dict[int, int] = {}
        self._first = len(self._tape.kinds)
        self._named: dict[Key, Named] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self._shared: dict[Key, list[Key]] = defaultdict(list)
        """Further names of the state of an optimizer, by its first name.

        An optimizer counts the steps of a flat parameter once for all parameters in it.
        """
        self._found = self._read_named()
        # From here on events read twins; some are made by writing other twins.
        self._start = len(self._tape.events)
        self._renew()

    # --- when the step begins

    def _read_named(self) -> dict[Key, tuple[Held, int]]:
        """Return all named tensors that have memory of their own, with their values.

        The order is that in which they are to be written: a part of another tensor comes after that
        one.
        """
        found: dict[Key, tuple[Held, int]] = {}
        seen: dict[Where, Key] = {}
        for key, held, tensor in self._all_named():
            if key in found or not self._has_place(tensor):
                continue
            self._tensors.setdefault(f"{key[0]}:{key[1]}", tensor)
            if (where := where_of(tensor)) in seen:
                if key[0] == "optimizer_state":
                    self._shared[seen[where]].append(key)
                continue
            seen[where] = key
            value = self._value(tensor)
            if value is not None:
                found[key] = held, value
        # The larger ones first: a part of another tensor is written after that one.
        return dict(sorted(found.items(), key=lambda item: -item[1][0].tensor.numel()))

    def _all_named(self) -> Iterator[tuple[Key, Held, torch.Tensor]]:
        """Yield all named tensors of this rank, with their roles and names."""
        names = self._names
        groups: list[tuple[Role, Sequence[Held]]] = [
            ("optimizer_state", list(names.states())),
            ("gradient", names.gradients()),
            ("buffer", names.passing_buffers()),
            ("kept", names.stated()),
            ("kept", names.kept()),
        ]
        # Most tensors are reached on several ways, and each operator takes its time.
        memories: dict[tuple[int, tuple[int, int] | None], torch.Tensor] = {}
        for role, helds in groups:
            for held in helds:
                # Looking at a tensor that is still communicated would wait for it.
                own = held.tensor._local_tensor if isinstance(held.tensor, DTensor) else held.tensor
                if not isinstance(own, AsyncCollectiveTensor) and not _is_gone(own):
                    place = id(local(own)), held.stretch
                    if place not in memories:
                        memories[place] = held.memory(self._recorder)
                    yield (role, held.name), held, memories[place]

    def _has_place(self, tensor: torch.Tensor) -> bool:
        if (
            type(tensor) in PLAIN
            and self._storages.has(tensor)
            and tensor.dtype not in REAL
            and not tensor.is_conj()
            and not tensor.is_neg()
        ):
            view = view_of(tensor)
            return view.elements > 0 and view.dense and not view.repeats
        return False

    def _value(self, tensor: torch.Tensor) -> int | None:
        try:
            return self._storages.read(tensor)
        except UnsupportedError:
            # It cannot be read, for it was written in another dtype, for instance.
            return None

    def _renew(self) -> None:
        """Give everything in memory a twin."""
        for storage in self._storages.all():
            new: dict[int, Root] = {}
            for piece in storage.pieces:
                old = piece.root
                if id(old) not in new:
                    new[id(old)] = Root(self._twin(old.value), old.view, old.dtype)
                    self._held[new[id(old)].value] = storage
                    self._roots[new[id(old)].value] = new[id(old)]
                piece.root = new[id(old)]
            storage.views.clear()

    def _twin(self, value: int) -> int:
        twin = self._tape.twin(value)
        self._origins[twin] = value
        return twin

    def begin(self, given: Sequence[torch.Tensor]) -> None:
        """Begin the step. ``given`` are tensors that have been given values of their own."""
        taken = Places([local(tensor).detach() for tensor in given])
        entered = {}
        for key, (held, value) in self._found.items():
            tensor = held.memory(self._recorder)
            if not taken.share(where_of(tensor)):
                entered[key] = held, value, self._twin(value)
                self._storages.write(tensor, entered[key][2])
        for key, (held, origin, twin) in entered.items():
            self._named[key] = Named(
                held, origin, twin, self._storages.mark(held.memory(self._recorder))
            )
        self._aliases = Aliases(self._tensors, taken, self._storages)
        self._sizes = {value: _size(storage, value) for value, storage in self._held.items()}
        self._between = {
            value
            for value, storage in self._held.items()
            if any(piece.root.value in self._tape.given for piece in storage.pieces)
        }

    # --- when it has ended

    def end(
        self,
        results: Sequence[Result],
        given: Sequence[torch.Tensor],
        *,
        updates: bool,
        everything: bool,
    ) -> tuple[list[Result], Kept]:
        """End the step; return its results, and what else it leaves.

        ``given`` is what :meth:`begin` was told, as it is now. ``updates`` says that the step
        changes parameters; if not, the gradients before it are taken to be zero. ``everything``
        asks also for results that are compared only if the other program asks for them.

        Returns:
            The results in terms of the values that remain, and the kept tensors.

        Raises UnsupportedError for state without a name, and for state that has no form here.
        """
        after, tensors = self._after()
        core = (
            [result.value for result in results]
            + self._communicated()
            + [value for value in self._tape.looked_at if value >= self._first]
        )
        used = self._used(core, after)
        live = {self._named[key].twin for key in used.state if updates or key[0] != "gradient"}
        self._aliases.check(tensors, Places([local(tensor).detach() for tensor in given]), live)
        same: dict[int, int] = {}
        accumulated = []
        if not updates:
            accumulated = [name for role, name in sorted(used.state) if role == "gradient"]
            self._clear(same)
            used.state -= {key for key in used.state if key[0] == "gradient"}
        kept = Kept([], [], accumulated, [])
        for key, named in self._named.items():
            if key[0] != "gradient" or updates:
                self._settle(key, named, after.get(key), used, same, kept, everything=everything)
        gaps = set() if everything else self._between
        self._check_unnamed([*core, *(result.value for result in kept.results)], same, gaps)
        return self._rewritten(results, kept, same)

    def _after(self) -> tuple[dict[Key, After], dict[str, torch.Tensor]]:
        """Return the named tensors as they are after the step.

        Returns:
            Those that had names before, and all tensors by role and name.
        """
        found: dict[Key, After] = {}
        tensors: dict[str, torch.Tensor] = {}
        for key, held, tensor in self._all_named():
            tensors.setdefault(f"{key[0]}:{key[1]}", tensor)
            if key in self._named and key not in found and self._storages.has(tensor):
                value = self._value(tensor)
                if value is not None:
                    found[key] = After(
                        held, value, self._storages.mark(tensor) != self._named[key].mark
                    )
        return found, tensors

    def _communicated(self) -> list[int]:
        return [
            number
            for event in self._tape.events[self._start :]
            if event.group
            for number in operands(event.arguments)
        ]

    def _used(self, core: Sequence[int], after: Mapping[Key, After]) -> _Used:
        """Return the state that results and communication depend on.

        ``core`` are the values of the core results. State on which only its next value depends,
        such as an average over steps, is a result, too.
        """
        bits = {named.twin: 1 << place for place, named in enumerate(self._named.values())}
        made_of = dict(bits)
        for event in self._tape.events[self._start :]:
            mask = 0
            for number in operands(event.arguments):
                mask |= made_of.get(number, 0)
            if mask:
                made_of.update((number, mask) for number in event.tensors)
        keys = list(self._named)

        def names(values: Sequence[int]) -> set[Key]:
            mask = 0
            for value in values:
                mask |= made_of.get(value, 0)
            return {key for place, key in enumerate(keys) if mask >> place & 1}

        used = _Used()
        for key in keys:
            if key in after and after[key].changed:
                used.needs[key] = names([after[key].value])
        # State on which only its own next value depends is a result, too.
        used.state = _closed(
            names(core)
            | {key for key in used.needs if key in _closed(used.needs[key], used.needs)},
            used.needs,
        )
        return used

    def _clear(self, same: dict[int, int]) -> None:
        """Take the gradients before the step to be zero: adding to them gives what is added."""
        tape = self._tape
        zeros = {named.twin for (role, _), named in self._named.items() if role == "gradient"}
        for zero in zeros:
            same[zero] = tape.give(tape.kinds[zero], "constant", "", number=0.0)
        for event in tape.events[self._start :]:
            if event.operator == "add.Tensor" and event.outputs[0] is not None:
                first, second = (
                    getattr(argument, "value", None) for argument in event.arguments[:2]
                )
                if (
                    first in zeros
                    and second is not None
                    and event.arguments[2] == 1
                    and tape.kinds[second] == tape.kinds[event.outputs[0]]
                ):
                    same[event.outputs[0]] = second

    def _settle(
        self,
        key: Key,
        named: Named,
        after: After | None,
        used: _Used,
        same: dict[int, int],
        kept: Kept,
        *,
        everything: bool,
    ) -> None:
        """Decide if a named tensor is a constant, a known number that goes on, or state.

        State is of any value.
        """
        tape, state = self._tape, key in used.state
        left = None if after is None else after.value
        if after is not None and not after.changed:
            same[named.twin] = named.origin
            return
        goes_on = left in tape.known and named.origin in tape.known
        if left is not None and self._same_constant(named.origin, left):
            same[named.twin] = self._before_broadcasts()[named.origin]
            if state and same[named.twin] in self._received():
                raise UnsupportedError(
                    f"{self._said(key, named)} is read by the step before another rank broadcasts "
                    f"it anew; read it after that, or let Program.state name it"
                )
            return
        if left is not None and not goes_on:
            goes_on = self._are_integers(named, left)
        if left is not None and goes_on:
            if named.twin not in tape.given:
                same[named.twin] = named.origin
            if state or key[0] == "buffer":
                kept.numbers.extend(
                    _number(self._called(name), tape.known[left], tape.made_at(left))
                    for name in (key, *self._shared[key])
                )
            return
        if state and left is None:
            raise UnsupportedError(
                f"{self._said(key, named)} is read by the step and is gone, or something else, "
                f"after it; keep it, or let Program.state name it"
            )
        if left is None or not (state or everything or key[0] == "buffer"):
            return
        if state and named.origin in tape.known and tape.looked_at & self._made_of(named.twin):
            raise UnsupportedError(
                f"{self._said(key, named)} has known numbers that the program looks at, and "
                f"unknown ones after the step"
            )
        kind = tape.kinds[named.twin]
        if state and not kind.dtype.is_floating_point and kind.dtype != torch.bool:
            raise UnsupportedError(
                f"{self._said(key, named)} goes from step to step and is "
                f"{dtype_name(kind.dtype)}; of integers nothing tells the range"
            )
        part = named.held.part
        tape.given[named.twin] = Given(named.twin, key[0], self._called(key), part.whole, part.box)
        kept.begun.append(named.twin)
        if (
            key[0] != "gradient"
            and tape.kinds[left].dtype.is_floating_point == kind.dtype.is_floating_point
        ):
            end = after.held.part if after is not None else part
            kept.results.append(
                Result(
                    left,
                    "updated",
                    self._called(key),
                    end.whole,
                    end.box,
                    end.partial,
                    state or key[0] == "buffer",
                    not state,
                )
            )

    def _called(self, key: Key) -> str:
        return f"{LEFT}{key[1]}" if key[0] == "gradient" else key[1]

    def _said(self, key: Key, named: Named) -> str:
        place = self._tape.made_at(named.origin)
        return (
            f"{self._called(key)!r}, which the call before left{f' at {place}' if place else ''},"
        )

    def _same_constant(self, one: int, other: int) -> bool:
        """Return True if two values are the same constant, on this rank or by communication."""
        first = self._tape.numbers(one)
        second = None if first is None else self._tape.numbers(other)
        if first is None or second is None:
            return False
        with _disable_current_modes():
            return first.shape == second.shape and bool(torch.equal(first, second))

    def _are_integers(self, named: Named, left: int) -> bool:
        """Return True if a tensor has integers that communication tells, before and after the step.

        Its value before is then given as these, not as what earlier communication gave.
        """
        if named.held.tensor.dtype not in INTEGERS:
            return False
        begun = self._tape.numbers(named.origin)
        if begun is None or self._tape.numbers(left) is None:
            return False
        with _disable_current_modes():
            integers = tuple(int(item) for item in begun.reshape(-1).tolist())
        self._tape.given[named.twin] = Given(named.twin, "constant", "", integers=integers)
        return True

    def _broadcasts(self) -> Iterator[tuple[int, Event, bool]]:
        """Yield place and event of each broadcast before the step, and if this rank is its root."""
        for place, event in enumerate(self._tape.events[: self._start]):
            if event.operator == "broadcast":
                root = event.arguments[1]
                yield place, event, isinstance(root, int) and event.group[root] == dist.get_rank()

    def _before_broadcasts(self) -> _Final:
        """Map what this rank has broadcast to what it was before, which is the same.

        The other members have what the last broadcast gave them, and read none before it.
        """
        return _Final(
            {
                event.outputs[0]: operand.value
                for _, event, is_root in self._broadcasts()
                if is_root
                and event.outputs[0] is not None
                and isinstance(operand := event.arguments[0], Ref)
            }
        )

    def _received(self) -> set[int]:
        """Return the values that broadcasts of other ranks gave before the step."""
        return {
            number
            for _, event, is_root in self._broadcasts()
            if not is_root
            for number in event.tensors
        }

    def _made_of(self, twin: int) -> set[int]:
        """Return all values that depend on a value, including itself."""
        found = {twin}
        for event in self._tape.events[self._start :]:
            if not found.isdisjoint(operands(event.arguments)):
                found.update(event.tensors)
        return found

    def _check_unnamed(
        self, wanted: Sequence[int], same: dict[int, int], gaps: Collection[int]
    ) -> None:
        """Raise UnsupportedError if the step reads and changes memory without a name.

        ``gaps`` are values of memory between tensors that have names. They are given with a name
        that no reference has: if a result depends on one, there is no counterpart of it.
        """
        _, needed = needed_events(self._tape.events[self._start :], wanted, lambda *_: False)
        for value in sorted(needed & self._held.keys()):
            storage = self._held[value]
            if value not in same and value not in self._tape.given:
                changed = _size(storage, value) != self._sizes[value]
                if changed and not self._again(value, storage):
                    if value not in gaps:
                        raise UnsupportedError(self._unnamed(value, storage))
                    self._give_gap(value)
                    continue
                same[value] = self._origins[value]

    def _again(self, value: int, storage: Storage) -> bool:
        """Return True if the numbers of a value have been written again in its places.

        A counter or map is reset so before its next use.
        """
        begun = self._roots[value]
        roots = {id(piece.root): piece.root for piece in storage.pieces if piece.stop > piece.start}
        if len(roots) != 1:
            return False
        (root,) = roots.values()
        return (
            root.view == begun.view
            and root.dtype == begun.dtype
            and _size(storage, root.value) == self._sizes[value]
            and self._same_constant(self._origins[value], root.value)
        )

    def _give_gap(self, value: int) -> None:
        made = self._tape.made_at(self._origins[value]) or "outside the user's code"
        held = [given.name for given in self._tape.given.values() if given.role == "kept"]
        name = f"the rest of a buffer made at {made}"
        number = sum(other.startswith(name) for other in held)
        self._tape.given[value] = Given(value, "kept", f"{name} ({number})")

    def _unnamed(self, value: int, storage: Storage) -> str:
        kind = self._tape.kinds[value]
        made = self._tape.made_at(self._origins[value]) or "outside the user's code"
        writers = [
            self._tape.made_at(piece.root.value)
            for piece in storage.pieces
            if piece.root.value >= self._first and piece.root.value != value
        ]
        written = (
            f", and changes it at {writers[0]}" if writers and writers[0] else ", and changes it"
        )
        return (
            f"the step reads what its call before left in a {dtype_name(kind.dtype)} tensor of "
            f"shape {kind.shape} at {made}{written}; "
            "that tensor has no name which the reference could have too, so it is not compared; "
            "let Program.state name it"
        )

    def _rewritten(
        self, results: Sequence[Result], kept: Kept, same: Mapping[int, int]
    ) -> tuple[list[Result], Kept]:
        final = _Final(same)
        events = self._tape.events
        before = self._before_broadcasts()
        for place, event, is_root in list(self._broadcasts()):
            if is_root:
                events[place] = with_operands(event, before)
        for place in range(self._start, len(events)):
            events[place] = with_operands(events[place], final)
        self._check_batch(events, [final[result.value] for result in (*results, *kept.results)])
        renamed = [msgspec.structs.replace(result, value=final[result.value]) for result in results]
        return renamed, kept._replace(
            results=[
                msgspec.structs.replace(result, value=final[result.value])
                for result in kept.results
            ]
        )

    def _check_batch(self, events: Sequence[Event], wanted: Sequence[int]) -> None:
        """Raise UnsupportedError if a constant was computed from the batch of the first call."""
        needed, _ = needed_events(
            events, wanted, lambda place, event: place >= self._start and bool(event.group)
        )
        for event in reversed(needed):
            for number in operands(event.arguments):
                given = self._tape.given.get(number)
                if (
                    given is not None
                    and given.role == "input"
                    and number < self._first
                    and given.integers is None
                ):
                    raise UnsupportedError(
                        f"the step reads what its first call made of batch[{given.name!r}] at "
                        f"{event.source or 'a line outside the user code'}, and no call makes it "
                        "anew: what later calls do depends on the first batch"
                    )


class _Final(dict[int, int]):
    """A mapping from values to those that replace them in the end."""

    def __init__(self, same: Mapping[int, int]) -> None:
        super().__init__()
        self._same = same

    def __missing__(self, value: int) -> int:
        while value in self._same:
            value = self._same[value]
        return value


def _is_gone(tensor: torch.Tensor) -> bool:
    """Return True if the memory of a tensor was given back. A view of it would get it again."""
    return tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0


def _closed(keys: set[Key], needs: Mapping[Key, set[Key]]) -> set[Key]:
    """Return the keys and all that they need."""
    found, waiting = set(keys), list(keys)
    while waiting:
        new = needs.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def _size(storage: Storage, value: int) -> int:
    """Return the number of elements of a storage that are those of a value."""
    return sum(piece.stop - piece.start for piece in storage.pieces if piece.root.value == value)


def _number(name: str, known: torch.Tensor, source: str) -> Number:
    with _disable_current_modes():
        numbers = known.detach().cpu().contiguous().flatten().tolist()
    said = str(numbers) if len(numbers) <= FEW else sha256(str(numbers).encode()).hexdigest()
    value = Value(tuple(known.shape), cast(DType, dtype_name(known.dtype)))
    filled = numbers[0] if numbers and len(set(numbers)) == 1 else None
    return Number(name, f"{value.dtype} {value.shape} {said}", value, filled, source)
