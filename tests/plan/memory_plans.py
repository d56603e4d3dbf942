"""Random plans that use memory and communication in unusual but legal ways, and mistakes in them.

Mistakes are of time, memory and state. A plan is first made in single assignment. Then its tensors
are given places in a few storages, which are used again as soon as nothing needs their contents: no
reader, no operation in flight, no result. So every plan is right by construction.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from pitcheck.plan.model import Axis, Group, Operator, Output, Plan, Program, Step, Table, Tensor

SIZE = 4
MESH = (Axis("a", 2), Axis("b", 2))
GROUPS = (
    Group(axes=("a",)),
    Group(axes=("b",)),
    Group(axes=("a", "b")),
    Group(axes=("a",), name="second"),
    Group(ranks=((0, 1, 2, 3),), name="third"),
)
SHIFTS = {"a": (2, 3, 0, 1), "b": (1, 0, 3, 2)}


@dataclass
class _Draft:
    """A plan in single assignment, under construction.

    ``until`` is the place in the order up to which a tensor must stay.
    """

    choose: random.Random
    tensors: dict[str, Tensor] = field(default_factory=dict)
    order: list[Operator] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[str, str, str]] = field(default_factory=list)
    """(launch, tensor that it reads, tensor that it makes or "")."""
    usable: list[str] = field(default_factory=list)
    in_place: dict[str, str] = field(default_factory=dict)
    waited: set[str] = field(default_factory=set)
    over: dict[str, str] = field(default_factory=dict)
    """Results that may take the place of an operand, if nothing needs it any more."""
    count: int = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def add(self, kind: str, inputs: tuple[str, ...], output: str = "", **rest: Any) -> Operator:
        place = len(self.order)
        operator = Operator(
            self.name(f"{kind}:"),
            kind,
            inputs,
            (output,) if output else (),
            rest.pop("attributes", {}),
            **rest,
        )
        self.order.append(operator)
        for name in inputs:
            self.until[name] = place
        if output:
            self.tensors[output] = Tensor(output, (SIZE,))
            self.made[output] = self.until[output] = place
        return operator


def draft(seed: int) -> _Draft:
    """Return a right plan in single assignment, as a draft."""
    choose = random.Random(seed)
    d = _Draft(choose)
    for name, role in (("x", "input"), ("w", "parameter")):
        d.tensors[name] = Tensor(name, (SIZE,), role=role)  # type: ignore[arg-type]
        d.made[name] = -1
        d.until[name] = -1
        d.usable.append(name)
    actions: list[Callable[[_Draft], None]] = [
        _compute,
        _compute,
        _compute,
        _collective,
        _launch,
        _launch,
        _ring,
        _async_ring,
        _wait,
        _wait,
        _view,
        _barrier,
    ]
    actions += [_from_root, _to_root]
    for _ in range(choose.randint(6, 14)):
        choose.choice(actions)(d)
    while d.pending:
        _wait(d)
    return d


def _operand(d: _Draft) -> str:
    return d.choose.choice(d.usable[-4:] if d.choose.random() < 0.8 else d.usable)


def _compute(d: _Draft) -> None:
    kind = d.choose.choice(("neg", "square", "add", "mul", "sub", "tanh"))
    inputs = (_operand(d),) if kind in ("neg", "square", "tanh") else (_operand(d), _operand(d))
    output = d.name("t")
    d.add(kind, inputs, output)
    d.usable.append(output)


def _reduction(d: _Draft) -> dict[str, Any]:
    return {"reduction": d.choose.choice(("sum", "avg", "sum"))}


def _collective(d: _Draft) -> None:
    output = d.name("c")
    d.add(
        "all_reduce",
        (_operand(d),),
        output,
        attributes=_reduction(d),
        group=d.choose.choice(GROUPS),
    )
    d.usable.append(output)


def _root(d: _Draft) -> tuple[Group, int, tuple[dict[str, tuple[int, ...]], ...]]:
    """Return a group, a root in it, and the coordinates of the roots."""
    group = d.choose.choice(GROUPS)
    if len(group.axes) == 1:
        root = d.choose.randrange(2)
        return group, root, ({group.axes[0]: (root,)},)
    root = d.choose.randrange(4)
    return group, root, ({"a": (root // 2,), "b": (root % 2,)},)


def _from_root(d: _Draft) -> None:
    """Broadcast what the roots alone hold; in place, elsewhere, or asynchronously."""
    group, root, where = _root(d)
    held, output = d.name("h"), d.name("c")
    d.add("neg", (_operand(d),), held, where=where)
    launched = d.choose.random() < 0.3
    operator = d.add(
        "broadcast",
        (held,),
        output,
        attributes={"root": root, **({"async": True} if launched else {})},
        group=group,
    )
    if launched:
        d.pending.append((operator.id, held, output))
    else:
        d.over[output] = held
        d.usable.append(output)


def _to_root(d: _Draft) -> None:
    """Reduce to a root, and broadcast from there."""
    group, root, _ = _root(d)
    read, reduced, output = _operand(d), d.name("h"), d.name("c")
    d.add("reduce", (read,), reduced, attributes={**_reduction(d), "root": root}, group=group)
    d.add("broadcast", (reduced,), output, attributes={"root": root}, group=group)
    d.over |= {reduced: read, output: reduced}
    d.usable.append(output)


def _launch(d: _Draft) -> None:
    read, output = _operand(d), d.name("l")
    operator = d.add(
        "all_reduce",
        (read,),
        output,
        attributes={**_reduction(d), "async": True},
        group=d.choose.choice(GROUPS),
    )
    d.pending.append((operator.id, read, output))


def _wait(d: _Draft) -> None:
    if not d.pending:
        return
    identity, read, made = d.pending.pop(d.choose.randrange(len(d.pending)))
    if made:
        output = d.name("w")
        d.add("wait", (made,), output)
        d.until[made] = d.until[read] = max(d.until[read], len(d.order) - 1)
        d.in_place[output] = made
        d.waited.add(output)
        d.usable.append(output)
    else:
        d.add("wait", (read,), attributes={"of": identity})


def _peers(d: _Draft) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the peers of a shift along an axis: of the send, of the receive."""
    axis = d.choose.choice(("a", "b"))
    table = Table(("a", "b"), SHIFTS[axis])
    return {"peer": table, "tag": d.count}, {"peer": table, "tag": d.count}


def _ring(d: _Draft) -> None:
    sent, received = _peers(d)
    batch = d.name("batch")
    read, output = _operand(d), d.name("r")
    pair = [
        ("send", (read,), "", {**sent, "batch": batch}),
        ("receive", (), output, {**received, "batch": batch}),
    ]
    d.choose.shuffle(pair)
    for kind, inputs, made, attributes in pair:
        d.add(kind, inputs, made, attributes=attributes)
    # Both use their buffers while the whole batch runs.
    d.until[read] = len(d.order) - 1
    d.made[output] = len(d.order) - 2
    d.usable.append(output)


def _async_ring(d: _Draft) -> None:
    sent, received = _peers(d)
    read, output = _operand(d), d.name("r")
    operator = d.add("send", (read,), attributes={**sent, "async": True})
    d.pending.append((operator.id, read, ""))
    if d.choose.random() < 0.5:
        operator = d.add("receive", (), output, attributes={**received, "async": True})
        d.pending.append((operator.id, read, output))
    else:
        d.add("receive", (), output, attributes=received)
        d.usable.append(output)


def _view(d: _Draft) -> None:
    read, output = _operand(d), d.name("v")
    d.add("identity", (read,), output)
    d.in_place[output] = read
    d.usable.append(output)


def _barrier(d: _Draft) -> None:
    d.add("barrier", (), group=d.choose.choice(GROUPS))


# --- places in memory


def right_plan(seed: int) -> Plan:
    """Return a right plan of a seed."""
    d = draft(seed)
    outputs = d.choose.sample([n for n in d.usable if n not in ("x", "w")] or d.usable, k=1)
    update = d.name("new")
    d.add("sub", ("w", d.usable[-1]), update)
    end = len(d.order)
    for name in (*outputs, update):
        d.until[name] = end
    tensors = {**d.tensors, update: replace(d.tensors[update], updated="w")}
    for name, (storage, offset) in _placed(d, update).items():
        tensors[name] = replace(tensors[name], storage=storage, offset=offset)
    return Plan(
        MESH, tuple(tensors.values()), tuple(d.order), tuple(Output(name) for name in outputs)
    )


def _placed(d: _Draft, update: str) -> dict[str, tuple[str, int]]:
    """Return places of the tensors, each in the first free place, or in a separate storage.

    A view lies where its operand lies, if that stays as long.
    """
    root: dict[str, str] = {}
    for name in d.made:
        shown = d.in_place.get(name)
        # A wait moves nothing; another view may be a copy as well.
        there = shown is not None and (name in d.waited or d.choose.random() < 0.7)
        root[name] = root.get(shown, shown) if there and shown is not None else name
    until: dict[str, int] = {}
    for name, owner in root.items():
        until[owner] = max(until.get(owner, -1), d.until[name])
    places = [("S", offset) for offset in (0, SIZE, 2 * SIZE)] + [("T", 0), ("U", 1)]
    busy: dict[tuple[str, int], int] = {("W", 0): len(d.order)}
    found: dict[str, tuple[str, int]] = (
        {"w": ("W", 0), update: ("W", 0)} if until["w"] <= d.made[update] else {}
    )
    for name in sorted((n for n in d.made if n not in ("x", "w", update)), key=lambda n: d.made[n]):
        owner = root[name]
        if owner != name:
            if owner in found:
                found[name] = found[owner]
            continue
        if d.choose.random() < 0.25:
            continue
        free = [
            place
            for place in places
            if busy.get(place, -1) < d.made[name]
            or (_gives_way(d, found, name, place) and busy[place] == d.made[name])
        ]
        if free:
            found[name] = d.choose.choice(free)
            busy[found[name]] = until[name]
    return found


def _gives_way(
    d: _Draft, found: dict[str, tuple[str, int]], name: str, place: tuple[str, int]
) -> bool:
    """Return True if an operand lies in a place that the result may take over."""
    return name in d.over and found.get(d.over[name]) == place


# --- mistakes


def mistakes(plan: Plan, choose: random.Random, count: int) -> Iterator[tuple[str, Plan]]:
    """Yield wrong or right changes of a plan, each as (kind, plan).

    The interleavings say which are wrong.
    """
    kinds = list(_MISTAKES)
    for _ in range(count):
        kind = choose.choice(kinds)
        changed = _MISTAKES[kind](plan, choose)
        if changed is not None:
            yield kind, changed


def _operators(plan: Plan, kind: str) -> list[int]:
    return [n for n, operator in enumerate(plan.operators) if operator.kind == kind]


def _with(plan: Plan, place: int, *new: Operator) -> Plan:
    return replace(plan, operators=(*plan.operators[:place], *new, *plan.operators[place + 1 :]))


def _drop_a_wait(plan: Plan, choose: random.Random) -> Plan | None:
    found = _operators(plan, "wait")
    if not found:
        return None
    place = choose.choice(found)
    wait = plan.operators[place]
    if not wait.outputs:
        return _with(plan, place)
    # What read the output of the wait reads the result itself.
    return _renamed(_with(plan, place), wait.outputs[0], str(wait.inputs[0]))


def _renamed(plan: Plan, old: str, new: str) -> Plan:
    operators = tuple(
        replace(o, inputs=tuple(new if name == old else name for name in o.inputs))
        for o in plan.operators
    )
    outputs = tuple(
        replace(output, tensor=new if output.tensor == old else output.tensor)
        for output in plan.outputs
    )
    tensors = tuple(tensor for tensor in plan.tensors if tensor.name != old)
    return replace(plan, operators=operators, outputs=outputs, tensors=tensors)


def _move(plan: Plan, choose: random.Random, kinds: tuple[str, ...] = ()) -> Plan | None:
    found = [n for n, operator in enumerate(plan.operators) if not kinds or operator.kind in kinds]
    if not found:
        return None
    place = choose.choice(found)
    moved = plan.operators[place]
    rest = [*plan.operators[:place], *plan.operators[place + 1 :]]
    to = choose.randrange(len(rest) + 1)
    return replace(plan, operators=(*rest[:to], moved, *rest[to:]))


def _move_a_wait(plan: Plan, choose: random.Random) -> Plan | None:
    return _move(plan, choose, ("wait",))


def _share_a_buffer(plan: Plan, choose: random.Random) -> Plan | None:
    first, second = choose.sample(range(len(plan.tensors)), 2)
    given = plan.tensors[first]
    storage, offset = (
        (given.storage, given.offset) if given.storage else ("S", choose.choice((0, 2, SIZE)))
    )
    changed = replace(plan.tensors[second], storage=storage, offset=offset)
    return replace(plan, tensors=(*plan.tensors[:second], changed, *plan.tensors[second + 1 :]))


def _shift_a_buffer(plan: Plan, choose: random.Random) -> Plan | None:
    found = [n for n, tensor in enumerate(plan.tensors) if tensor.storage is not None]
    if not found:
        return None
    at = choose.choice(found)
    changed = replace(plan.tensors[at], offset=choose.randrange(3 * SIZE))
    return replace(plan, tensors=(*plan.tensors[:at], changed, *plan.tensors[at + 1 :]))


def _one_rank(plan: Plan, choose: random.Random, kinds: tuple[str, ...]) -> Plan | None:
    """Leave an operator out on one rank."""
    found = [n for kind in kinds for n in _operators(plan, kind)]
    if not found:
        return None
    place = choose.choice(found)
    return _with(
        plan, place, replace(plan.operators[place], where=({"a": (0,)}, {"a": (1,), "b": (0,)}))
    )


def _drop_a_barrier(plan: Plan, choose: random.Random) -> Plan | None:
    return _one_rank(plan, choose, ("barrier",))


def _wait_on_some_ranks(plan: Plan, choose: random.Random) -> Plan | None:
    found = [n for n in _operators(plan, "wait") if not plan.operators[n].outputs]
    if not found:
        return None
    place = choose.choice(found)
    return _with(
        plan, place, replace(plan.operators[place], where=({"a": (0,)}, {"a": (1,), "b": (0,)}))
    )


def _exchange_handles(plan: Plan, choose: random.Random) -> Plan | None:
    found = _operators(plan, "wait")
    if len(found) < 2:
        return None
    first, second = sorted(choose.sample(found, 2))
    one, two = plan.operators[first], plan.operators[second]
    if bool(one.outputs) != bool(two.outputs):
        return None
    changed = _with(plan, first, replace(one, inputs=two.inputs, attributes=two.attributes))
    return _with(changed, second, replace(two, inputs=one.inputs, attributes=one.attributes))


def _asynchronous(plan: Plan, choose: random.Random) -> Plan | None:
    """Launch what blocked; nothing waits for it."""
    found = [
        n
        for kind in ("all_reduce", "broadcast", "reduce", "send", "receive")
        for n in _operators(plan, kind)
        if not plan.operators[n].attributes.get("async")
    ]
    if not found:
        return None
    place = choose.choice(found)
    operator = plan.operators[place]
    return _with(plan, place, replace(operator, attributes={**operator.attributes, "async": True}))


def _blocking(plan: Plan, choose: random.Random) -> Plan | None:
    """Let something that was launched block: it is waited for once more later."""
    found = [n for n, o in enumerate(plan.operators) if o.attributes.get("async") and o.outputs]
    if not found:
        return None
    place = choose.choice(found)
    operator = plan.operators[place]
    return _with(
        plan,
        place,
        replace(
            operator, attributes={k: v for k, v in operator.attributes.items() if k != "async"}
        ),
    )


def _one_batch(plan: Plan, choose: random.Random) -> Plan | None:
    """Put two neighbouring operations into one batch, or take one out of its own."""
    events = [
        n
        for n, o in enumerate(plan.operators)
        if o.kind in ("send", "receive", "all_reduce", "broadcast", "reduce")
    ]
    pairs = [n for n in events if n + 1 in events]
    if not pairs:
        return None
    place = choose.choice(pairs)
    for n in (place, place + 1):
        plan = _with(
            plan,
            n,
            replace(
                plan.operators[n], attributes={**plan.operators[n].attributes, "batch": "together"}
            ),
        )
    return plan


def _no_batch(plan: Plan, choose: random.Random) -> Plan | None:
    found = [n for n, o in enumerate(plan.operators) if "batch" in o.attributes]
    if not found:
        return None
    place = choose.choice(found)
    operator = plan.operators[place]
    return _with(
        plan,
        place,
        replace(
            operator, attributes={k: v for k, v in operator.attributes.items() if k != "batch"}
        ),
    )


def _another_communicator(plan: Plan, choose: random.Random) -> Plan | None:
    """Run two collectives in another order on some ranks."""
    found = [n for n, o in enumerate(plan.operators) if o.group is not None]
    if len(found) < 2:
        return None
    first, second = sorted(choose.sample(found, 2))
    ids = [operator.id for operator in plan.operators]
    crossed = list(ids)
    crossed[first], crossed[second] = crossed[second], crossed[first]
    blocks = {"straight": tuple(ids), "crossed": tuple(crossed)}
    some = ({"a": (0,)},)
    programs = (Program((Step("crossed"),), some), Program((Step("straight"),), ({"a": (1,)},)))
    return replace(plan, blocks=blocks, programs=programs)


def _table_of_reductions(plan: Plan, choose: random.Random) -> Plan | None:
    found = _operators(plan, "all_reduce")
    if not found:
        return None
    place = choose.choice(found)
    operator = plan.operators[place]
    said = choose.choice(
        (
            Table(("a",), ("sum", "avg")),
            Table(("b",), ("sum", "sum")),
            Table(("a", "b"), ("avg", "avg", "avg", "max")),
        )
    )
    return _with(
        plan, place, replace(operator, attributes={**operator.attributes, "reduction": said})
    )


def _another_root(plan: Plan, choose: random.Random) -> Plan | None:
    found = [n for n, o in enumerate(plan.operators) if "root" in o.attributes]
    if not found:
        return None
    place = choose.choice(found)
    operator = plan.operators[place]
    root = choose.choice(
        (1 - int(operator.attributes["root"]) % 2, Table(("a",), (0, 1)), Table(("b",), (1, 0)))
    )  # type: ignore[call-overload]
    return _with(plan, place, replace(operator, attributes={**operator.attributes, "root": root}))


def _read_another_version(plan: Plan, choose: random.Random) -> Plan | None:
    """Let an operator read another tensor that lies in the same storage."""
    place = choose.randrange(len(plan.operators))
    operator = plan.operators[place]
    if not operator.inputs or operator.kind == "wait":
        return None
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    storage = tensors[str(operator.inputs[0])].storage
    others = [tensor.name for tensor in plan.tensors if tensor.storage == storage]
    return _with(
        plan, place, replace(operator, inputs=(choose.choice(others), *operator.inputs[1:]))
    )


_MISTAKES: dict[str, Callable[[Plan, random.Random], Plan | None]] = {
    "drop a wait": _drop_a_wait,
    "move a wait": _move_a_wait,
    "move": _move,
    "share a buffer": _share_a_buffer,
    "shift a buffer": _shift_a_buffer,
    "drop a barrier": _drop_a_barrier,
    "wait on some ranks": _wait_on_some_ranks,
    "exchange handles": _exchange_handles,
    "asynchronous": _asynchronous,
    "blocking": _blocking,
    "one batch": _one_batch,
    "no batch": _no_batch,
    "collectives crossed": _another_communicator,
    "a table of reductions": _table_of_reductions,
    "another root": _another_root,
    "another version": _read_another_version,
}
