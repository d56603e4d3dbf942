"""The computation that a plan describes: every rank's program, followed without numbers.

Each different computation is one node, numbered after what it reads. Ranks run in any order in
which nothing is read before it is written, which is an order of the proof, too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pitcheck.certificate.modular import Array
from pitcheck.errors import PlanError
from pitcheck.ops.meanings.cast import NARROW, kind_named
from pitcheck.ops.registry import BACKWARD, check_attributes, has_trait, operator_kind
from pitcheck.ops.traits import Communication, Trait
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Group, Number, Operand, Operator, Plan, Table, Tensor, Use
from pitcheck.plan.rules.ssa import ACCUMULATE

Instance = tuple[str, int, int]
"""A tensor, a rank and a micro-batch (0 for a tensor that exists once)."""
Channel = tuple[int, int, Any]
"""The rank that sends, the one that receives, and the tag of their messages."""
HIDDEN = frozenset({"peer", "protocol", "batch", "tag", "async", "of", "microbatches"})
"""The attributes of communication that say who meets whom and when, not what is computed."""
UNWRITTEN = "uninitialised"


def computing(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that say what an operator computes.

    One that neither communicates nor gathers micro-batches keeps all of them, whatever their names.
    """
    if operator_kind(kind).communication is Communication.NONE and kind != ACCUMULATE:
        return dict(attributes)
    return {name: value for name, value in attributes.items() if name not in HIDDEN}


@dataclass(frozen=True)
class Node:
    """A step, an output of a step, or a leaf.

    ``kind`` is an operator's name, or "output", "stack", "part", "input", "constant", "shape",
    "unwritten" or "narrow" after a colon. ``inputs`` are nodes or literal numbers.
    """

    kind: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[int | Number, ...] = ()
    leaf: Any = None

    @property
    def read(self) -> Iterator[int]:
        """The nodes that are read."""
        return (operand for operand in self.inputs if not isinstance(operand, Number))


class Nodes:
    """The nodes of both plans."""

    def __init__(self) -> None:
        self.all: list[Node] = []
        self._numbers: dict[tuple[object, ...], int] = {}

    def add(self, node: Node) -> int:
        """Return the number of a node; an equal one is not added again."""
        said = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
        operands = tuple(repr(o.value) if isinstance(o, Number) else o for o in node.inputs)
        key = node.kind, said, operands, node.leaf
        if key not in self._numbers:
            self._numbers[key] = len(self.all)
            self.all.append(node)
        return self._numbers[key]


@dataclass
class _Meeting:
    """A collective that members of a group have reached, with what each brings."""

    members: tuple[int, ...]
    brought: dict[int, tuple[Operator, int, dict[str, Any], int | None]] = field(
        default_factory=dict
    )


class Trace:
    """One plan followed. ``given`` makes the leaf of a tensor that nothing writes.

    ``claimed`` is told what every written instance is, and returns the node that stands for it
    from there on. ``found`` has these nodes, ``read`` the instances that are read.
    """

    def __init__(
        self,
        plan: Plan,
        nodes: Nodes,
        given: Callable[[Tensor, int, int], Node],
        claimed: Callable[[str, int, int, int], int] | None = None,
    ) -> None:
        self.mesh = Coordinates.of(plan)
        self.nodes = nodes
        self.found: dict[Instance, int] = {}
        self.read: set[Instance] = set()
        self._plan = plan
        self._given = given
        self._claimed = claimed
        self.tensors = {tensor.name: tensor for tensor in plan.tensors}
        self.written = {name for operator in plan.operators for name in operator.outputs}
        self._masks = [self.mesh.mask(operator.where) for operator in plan.operators]
        self._ready = deque(range(self.mesh.ranks))
        self._programs = [(self.mesh.mask(own.where), own) for own in plan.programs]
        self._mail: dict[Channel, deque[int]] = defaultdict(deque)
        self._waiting: dict[Channel, deque[tuple[Operator, int, int]]] = defaultdict(deque)
        self._counts: dict[tuple[object, ...], int] = defaultdict(int)
        self._meetings: dict[tuple[object, ...], _Meeting] = {}
        self._communicators: dict[tuple[int, ...], int] = {}
        self._groups: dict[Group, dict[int, tuple[tuple[int, ...], int, int]]] = {}
        self._tables: dict[tuple[str, ...], Array] = {}
        self._fresh = 0

    def run(self) -> Trace:
        """Follow all ranks to their ends. Raises PlanError if none can go on."""
        programs = [deque(self._program(rank)) for rank in range(self.mesh.ranks)]
        while self._ready:
            rank = self._ready.popleft()
            self._advance(programs[rank], rank)
        if any(programs) or any(self._waiting.values()):
            raise PlanError("the ranks wait for each other for ever", "programs")
        if self._meetings:
            raise PlanError("not all members of a group reach a collective", "programs")
        return self

    def _program(self, rank: int) -> Iterator[tuple[int, int]]:
        """Yield (operator's place, micro-batch) in the order of one rank."""
        plan, mesh = self._plan, self.mesh
        places = {operator.id: place for place, operator in enumerate(plan.operators)}
        steps: list[tuple[str, int | None]] = [
            (operator.id, microbatch)
            for operator in plan.operators
            for microbatch in (range(mesh.microbatches) if self._repeats(operator) else (None,))
        ]
        if plan.programs:
            steps = [
                (name, step.microbatch)
                for where, program in self._programs
                if where[rank].any()
                for step in program.steps
                for name in plan.blocks[step.block]
            ]
        for name, microbatch in steps:
            mask = self._masks[places[name]][rank]
            if mask[microbatch] if microbatch is not None else mask.any():
                yield places[name], microbatch or 0

    def _repeats(self, operator: Operator) -> bool:
        """Return True if an operator runs once for each micro-batch."""
        outputs = [name for name in operator.outputs if name]
        inputs = [o.tensor if isinstance(o, Use) else o for o in operator.inputs]
        named = outputs or [name for name in inputs if isinstance(name, str)]
        return any(self.tensors[name].microbatched for name in named)

    def _advance(self, program: deque[tuple[int, int]], rank: int) -> None:
        """Follow a rank until it needs what is not there yet; who writes that makes it ready."""
        while program:
            place, microbatch = program[0]
            if not self._step(self._plan.operators[place], rank, microbatch):
                return
            program.popleft()

    def _step(self, operator: Operator, rank: int, microbatch: int) -> bool:  # noqa: PLR0911  one way for each kind
        """Run an operator; return False if something that it reads is not there yet."""
        kind = operator_kind(operator.kind)
        attributes = self._attributes(operator, rank, microbatch)
        plain = computing(operator.kind, attributes)
        way = Communication.NONE if operator.kind.endswith(BACKWARD) else kind.communication
        if way in (Communication.BARRIER, Communication.WAIT) and not operator.outputs:
            return True
        if way is Communication.RECEIVE:
            channel = int(attributes["peer"]), rank, attributes.get("tag")
            self._waiting[channel].append((operator, rank, microbatch))
            self._deliver(channel)
            return True
        if operator.group is not None:
            return self._meet(operator, rank, microbatch, plain)
        if operator.kind == ACCUMULATE:
            chosen = attributes.get("microbatches") or range(self.mesh.microbatches)
            stack = [self._of(str(operator.inputs[0]), rank, m) for m in chosen]
            return self._computed(operator, rank, microbatch, plain, [self._stack(stack)])
        found = [self._operand(o, rank, microbatch) for o in operator.inputs]
        if way is Communication.SEND:
            if found[0] is not None:
                channel = rank, int(attributes["peer"]), attributes.get("tag")
                self._mail[channel].append(found[0])
                self._deliver(channel)
            return found[0] is not None
        if has_trait(operator.kind, Trait.READS_SHAPE, plain) and isinstance(
            operator.inputs[0], str
        ):
            found = [self._shape(operator.inputs[0])]
        plain_copy = kind.copies and not isinstance(operator.inputs[0], Number)
        if plain_copy and not operator.kind.endswith(BACKWARD):
            check_attributes(kind, attributes)
            if found[0] is not None:
                self._write(operator, rank, microbatch, [found[0]] * len(operator.outputs))
            return found[0] is not None
        return self._computed(operator, rank, microbatch, plain, found)

    def _attributes(self, operator: Operator, rank: int, microbatch: int) -> dict[str, Any]:
        return {
            name: value.values[self._places(value.over)[rank, microbatch]]
            if isinstance(value, Table)
            else value
            for name, value in operator.attributes.items()
        }

    def _members(self, group: Group, rank: int) -> tuple[tuple[int, ...], int, int]:
        """Return the members that a rank meets, their number, and its place among them."""
        if group not in self._groups:
            known, numbers = self.mesh.groups(group), self._communicators
            self._groups[group] = {
                member: (members, number, place)
                for members in known
                for number in [numbers.setdefault(members, len(numbers))]
                for place, member in enumerate(members)
            }
        return self._groups[group].get(rank, ((), 0, 0))

    def _places(self, over: tuple[str, ...]) -> Array:
        if over not in self._tables:
            self._tables[over] = self.mesh.row_major(over)
        return self._tables[over]

    def _next(self, *key: object) -> int:
        self._counts[key] += 1
        return self._counts[key] - 1

    def _shape(self, name: str) -> int:
        tensor = self.tensors[name]
        return self.nodes.add(Node(":shape", leaf=(tensor.shape, kind_named(tensor.dtype))))

    def _operand(self, operand: Operand, rank: int, microbatch: int) -> Any:
        if isinstance(operand, Number):
            return operand
        if isinstance(operand, Use):
            return self._of(operand.tensor, rank, operand.microbatch)
        return self._of(operand, rank, microbatch)

    def _of(self, name: str, rank: int, microbatch: int) -> int | None:
        """Return the node of an instance, None if it is not there yet."""
        tensor = self.tensors[name]
        key = name, rank, microbatch if tensor.microbatched else 0
        if key not in self.found and name not in self.written:
            self.found[key] = self.nodes.add(self._given(tensor, *key[1:]))
        if key in self.found:
            self.read.add(key)
        return self.found.get(key)

    def _computed(
        self, operator: Operator, rank: int, microbatch: int, attributes: dict[str, Any], found: Any
    ) -> bool:
        """Add a step, and its outputs; return False if an operand is not there yet."""
        if None in found:
            return False
        if operator.kind == UNWRITTEN:
            self._write(operator, rank, microbatch, [self._unwritten()])
            return True
        wanted = tuple(map(bool, operator.outputs))
        step = self.nodes.add(Node(operator.kind, attributes, tuple(found), wanted))
        kinds = [":narrow" if self._is_narrow(name) else ":output" for name in operator.outputs]
        outputs = [self.nodes.add(Node(kind, {}, (step,), n)) for n, kind in enumerate(kinds)]
        self._write(operator, rank, microbatch, outputs)
        return True

    def _is_narrow(self, name: str) -> bool:
        """Return True for a tensor of integers that wrap around what does not fit."""
        return bool(name) and self.tensors[name].dtype in NARROW

    def _stack(self, found: list[int | None]) -> int | None:
        """Return the node of several values along a new first axis, None if one is not there."""
        members = tuple(node for node in found if node is not None)
        return self.nodes.add(Node(":stack", {}, members)) if len(members) == len(found) else None

    def _unwritten(self) -> int:
        """Return a leaf of its own: memory that nobody has written to."""
        self._fresh += 1
        return self.nodes.add(Node(":unwritten", leaf=(self._plan.mesh, self._fresh)))

    def _write(self, operator: Operator, rank: int, microbatch: int, found: list[int]) -> None:
        if len(found) != len(operator.outputs):
            raise PlanError(
                f"{len(found)} results for {len(operator.outputs)} outputs", operator.id
            )
        for name, node in zip(operator.outputs, found, strict=True):
            if not name:
                continue
            key = name, rank, microbatch if self.tensors[name].microbatched else 0
            if key in self.found:
                raise PlanError(f"{key} is written twice", operator.id)
            self.found[key] = node if self._claimed is None else self._claimed(*key, node)

    def _deliver(self, channel: Channel) -> None:
        """Hand over the messages of a channel that have arrived and are waited for, in order."""
        mail, waiting = self._mail[channel], self._waiting[channel]
        while mail and waiting:
            operator, rank, microbatch = waiting.popleft()
            self._write(operator, rank, microbatch, [mail.popleft()])
            self._ready.append(rank)

    def _meet(
        self, operator: Operator, rank: int, microbatch: int, attributes: dict[str, Any]
    ) -> bool:
        """Bring an operand to a collective, the next one of this rank in its communicator."""
        group = operator.group or Group()
        members, number, place = self._members(group, rank)
        if not members:
            raise PlanError(f"rank {rank} is in no group", operator.id)
        kind = operator_kind(operator.kind)
        read = not kind.reads_root or place == attributes["root"]
        found = self._operand(operator.inputs[0], rank, microbatch) if read else None
        if read and found is None:
            return False
        key = number, group.name, self._next(number, group.name, rank)
        meeting = self._meetings.setdefault(key, _Meeting(members))
        meeting.brought[rank] = operator, microbatch, attributes, found
        if len(meeting.brought) == len(members):
            del self._meetings[key]
            self._conclude(meeting)
        return True

    def _conclude(self, meeting: _Meeting) -> None:
        """Write what each member has of a collective that all have reached."""
        met = [meeting.brought[rank] for rank in meeting.members]
        if len({(o.kind, repr(sorted(a.items()))) for o, _, a, _ in met}) > 1:
            raise PlanError(f"the members of {meeting.members} meet in several", met[0][0].id)
        kind, common = operator_kind(met[0][0].kind), met[0][2]
        brought = [found for *_, found in met]
        if kind.reads_root:
            brought = [brought[common["root"]]] * len(met)
        stack = self._stack(brought)
        for place, (operator, microbatch, _, _) in enumerate(met):
            rank = meeting.members[place]
            more = {"position": place} if "position" in kind.attributes else {}
            if kind.gives_root and place != common["root"]:
                self._write(operator, rank, microbatch, [self._unwritten()])
            else:
                self._computed(operator, rank, microbatch, {**common, **more}, [stack])
            self._ready.append(rank)
