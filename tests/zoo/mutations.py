"""Near misses: every plan that differs from a given one by one small, typical mistake."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from pitcheck.execution.places import rank_coordinates, tensor_name
from pitcheck.plan.model import (
    Box,
    Group,
    Lineage,
    Number,
    Operator,
    Plan,
    Program,
    Shard,
    Step,
    Table,
    Tensor,
    Use,
)

Mutant = tuple[str, Plan]
FREELY = frozenset(
    {
        "linear",
        "matmul",
        "bmm",
        "einsum",
        "mul",
        "square",
        "silu",
        "gelu",
        "relu",
        "embedding",
        "masked_fill",
    }
)
"""Operators whose derivative can only be written with their inputs; of the others it may use the
output instead, and exchanging one of them is ambiguous.
"""

OTHERS = 2
"""The number of other operands of the same form that are tried at each place."""


def mutants(plan: Plan) -> Iterator[Mutant]:
    """(name, plan) of every near miss; names are unique."""
    for number, operator in enumerate(plan.operators):
        for name, changed in _of_operator(plan, operator):
            yield f"{operator.id}: {name}", _complete(_with(plan, number, *changed))
    yield from _pinned(plan)
    yield from _reordered(plan)
    yield from _of_lineage(plan)


def _with(plan: Plan, number: int, *changed: Operator) -> Plan:
    """The plan with operator ``number`` replaced."""
    old = plan.operators[number]
    operators = (*plan.operators[:number], *changed, *plan.operators[number + 1 :])
    ids = tuple(operator.id for operator in changed)
    blocks = {
        name: tuple(itertools.chain.from_iterable(ids if i == old.id else (i,) for i in members))
        for name, members in plan.blocks.items()
    }
    return replace(plan, operators=operators, blocks=blocks)


def _of_operator(plan: Plan, operator: Operator) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    yield from _operands(plan, operator, tensors)
    yield from _attributes(plan, operator)
    if operator.group is not None:
        yield from _collectives(plan, operator, tensors)
    if operator.kind in ("add", "sub"):
        yield from _dropped_terms(operator, tensors)
    if operator.kind == "add":
        yield "sub instead of add", (replace(operator, kind="sub"),)
    if operator.kind == "sub":
        yield "add instead of sub", (replace(operator, kind="add"),)
    if operator.kind == "accumulate" and plan.microbatches > 1:
        yield (
            "the last micro-batch is missing",
            (_attribute(operator, "microbatches", tuple(range(plan.microbatches - 1))),),
        )


def _attribute(operator: Operator, name: str, value: Any) -> Operator:
    return replace(operator, attributes={**operator.attributes, name: value})


# --- operands


def _changeable(operator: Operator, place: int) -> bool:
    """Return True if another operand at ``place`` has an agreed meaning."""
    if not operator.kind.endswith(".backward"):
        return True
    count = len(operator.outputs)
    return place > count or (place < count and operator.kind.removesuffix(".backward") in FREELY)


def _operands(
    plan: Plan, operator: Operator, tensors: dict[str, Tensor]
) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    earlier = _written_before(plan, operator)
    for place, operand in enumerate(operator.inputs):
        if not _changeable(operator, place):
            continue
        if isinstance(operand, Number):
            if not isinstance(operand.value, str) or "inf" not in operand.value:
                yield f"operand {place} doubled", (_operand(operator, place, _doubled(operand)),)
            if isinstance(operand.value, int):
                yield (
                    f"operand {place} off by one",
                    (_operand(operator, place, Number(operand.value + 1)),),
                )
            continue
        if isinstance(operand, Use):
            for other in range(plan.microbatches):
                if other != operand.microbatch:
                    yield (
                        f"operand {place} of micro-batch {other}",
                        (_operand(operator, place, Use(operand.tensor, other)),),
                    )
            continue
        mine = tensors[operand]
        alike = [
            name for name in earlier if name != operand and _form(tensors[name]) == _form(mine)
        ]
        for name in alike[:OTHERS]:
            yield f"operand {place} is {name}", (_operand(operator, place, name),)
        if (
            mine.microbatched
            and plan.microbatches > 1
            and operator.kind not in ("accumulate", "send")
            and operator.group is None
        ):
            yield (
                f"operand {place} always of micro-batch 0",
                (_operand(operator, place, Use(operand, 0)),),
            )


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.microbatched


def _operand(operator: Operator, place: int, operand: Any) -> Operator:
    return replace(
        operator, inputs=(*operator.inputs[:place], operand, *operator.inputs[place + 1 :])
    )


def _written_before(plan: Plan, operator: Operator) -> list[str]:
    """The tensors that are there when an operator runs in the order of the list, nearest first."""
    written = {name for op in plan.operators for name in op.outputs}
    given = [tensor.name for tensor in plan.tensors if tensor.name not in written]
    for op in plan.operators:
        if op.id == operator.id:
            break
        given.extend(name for name in op.outputs if name and name not in given)
    return given[::-1]


def _doubled(literal: Number) -> Number:
    if isinstance(literal.value, (int, float)):
        return Number(2 * literal.value if literal.value else 1)
    if literal.value.startswith("sqrt("):
        numerator, _, denominator = literal.value[5:-1].partition("/")
        return Number(f"sqrt({4 * int(numerator)}/{denominator or 1})")
    numerator, _, denominator = literal.value.partition("/")
    return Number(f"{2 * int(numerator)}/{denominator or 1}")


def _dropped_terms(
    operator: Operator, tensors: dict[str, Tensor]
) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    for place, operand in enumerate(operator.inputs):
        if (
            isinstance(operand, str)
            and tensors[operand].shape == tensors[operator.outputs[0]].shape
        ):
            yield (
                f"only term {place}",
                (replace(operator, kind="identity", inputs=(operand,), attributes={}),),
            )


# --- attributes

AXES = frozenset({"axis", "dim0", "dim1", "split_axis", "concat_axis"})
POSITIONS = frozenset({"position", "offset", "index", "root"})


def _attributes(plan: Plan, operator: Operator) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    for name, value in operator.attributes.items():
        if name in AXES and isinstance(value, int):
            for other in (0, 1, 2):
                if other != value:
                    yield f"{name} {other}", (_attribute(operator, name, other),)
        elif name == "axes" and isinstance(value, tuple) and len(value) == 1:
            yield (
                f"axes {1 - int(str(value[0]))}",
                (_attribute(operator, name, (1 - int(str(value[0])),)),),
            )
        elif (
            isinstance(value, Table)
            and all(isinstance(v, int) for v in value.values)
            and len(value.values) > 1
        ):
            yield (
                f"{name} rotated",
                (
                    _attribute(
                        operator, name, Table(value.over, (*value.values[1:], value.values[0]))
                    ),
                ),
            )
            yield f"{name} of the first for all", (_attribute(operator, name, value.values[0]),)
        elif name in POSITIONS and isinstance(value, int):
            yield f"{name} {abs(1 - value)}", (_attribute(operator, name, abs(1 - value)),)
        elif name == "peer" and isinstance(value, int):
            yield f"peer {value + 1}", (_attribute(operator, name, value + 1),)
        elif name == "convention":
            yield (
                "other pairs",
                (_attribute(operator, name, "interleaved" if value == "half" else "half"),),
            )
        elif name == "permutation" and isinstance(value, tuple):
            yield (
                "other permutation",
                (_attribute(operator, name, (*value[:-2], value[-1], value[-2])),),
            )
        elif name == "reduction" and operator.group is None:
            yield (
                "other reduction",
                (_attribute(operator, name, "sum" if value == "mean" else "mean"),),
            )
        elif name == "shift" and isinstance(value, int):
            yield "the other way", (_attribute(operator, name, -value),)
        elif name == "sizes" and operator.kind in ("view", "reshape") and isinstance(value, tuple):
            for place in range(len(value) - 1):
                exchanged = (*value[:place], value[place + 1], value[place], *value[place + 2 :])
                yield f"sizes {exchanged}", (_attribute(operator, name, exchanged),)
        elif name == "max" and isinstance(value, int):
            yield "another bound", (_attribute(operator, name, value + 1),)
    if operator.kind == "positions" and "offset" in operator.attributes:
        offset = operator.attributes["offset"]
        moved = (
            Table(offset.over, tuple(int(str(v)) + 1 for v in offset.values))
            if isinstance(offset, Table)
            else int(str(offset)) + 1
        )
        yield "the positions are off by one", (_attribute(operator, "offset", moved),)
    if operator.kind == "slice" and isinstance(operator.attributes.get("start"), int):
        start, stop = int(str(operator.attributes["start"])), int(str(operator.attributes["stop"]))
        if start:
            yield (
                "the slice begins one earlier",
                (
                    replace(
                        operator,
                        attributes={**operator.attributes, "start": start - 1, "stop": stop - 1},
                    ),
                ),
            )
        yield (
            "the slice begins one later",
            (
                replace(
                    operator,
                    attributes={**operator.attributes, "start": start + 1, "stop": stop + 1},
                ),
            ),
        )


# --- collectives


def _collectives(
    plan: Plan, operator: Operator, tensors: dict[str, Tensor]
) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    group = operator.group
    if group is None or not isinstance(operator.inputs[0], str):
        return
    source, result = operator.inputs[0], operator.outputs[0]
    if tensors[source].shape == tensors[result].shape:
        yield "dropped", (replace(operator, kind="identity", group=None, attributes={}),)
    if operator.kind == "all_reduce":
        reduction = operator.attributes.get("reduction", "sum")
        for other in ("sum", "avg", "max", "min"):
            if other != reduction:
                yield f"reduction {other}", (_attribute(operator, "reduction", other),)
    size = _members(plan, group)
    if tensors[result].dtype == "float32" and size > 1:
        yield from _after(plan, operator, result, size)
    axes = [axis.name for axis in plan.mesh]
    for names in ((), *((name,) for name in axes), tuple(axes)):
        if group.axes and set(names) != set(group.axes) and names:
            yield f"over {'+'.join(names)}", (replace(operator, group=Group(axes=names)),)
    if group.axes and size > 2 and len(plan.mesh) == 1:
        yield (
            "one rank is left out",
            (replace(operator, group=Group(ranks=(tuple(range(size - 1)), (size - 1,)))),),
        )
    if size > 1 and len(plan.mesh) == 1 and operator.kind != "all_reduce":
        order = tuple(range(size))
        yield (
            "members in another order",
            (replace(operator, group=Group(ranks=((*order[1:], 0),))),),
        )


def _after(
    plan: Plan, operator: Operator, result: str, size: int
) -> Iterator[tuple[str, tuple[Operator, ...]]]:
    """Something more after a collective."""
    inner = f"{result}~"
    first = replace(operator, outputs=(inner,))
    more = Operator(
        f"{operator.id}~",
        "mul",
        (inner, Number(size)),
        (result,),
        where=operator.where,
        source=operator.source,
    )
    yield "times the number of ranks", (first, more)
    less = replace(more, kind="div")
    yield "divided by the number of ranks", (first, less)
    if operator.kind in ("all_reduce", "reduce_scatter"):
        yield (
            "reduced twice",
            (first, replace(more, kind="all_reduce", inputs=(inner,), group=operator.group)),
        )


def _members(plan: Plan, group: Group) -> int:
    if group.ranks:
        return len(group.ranks[0])
    return math.prod(axis.size for axis in plan.mesh if axis.name in group.axes)


# --- one rank alone


def _pinned(plan: Plan) -> Iterator[Mutant]:
    """A record split in two, of which the one of a single rank computes something else: twice the
    result.
    """
    axis = next((axis for axis in plan.mesh if axis.size > 1), None)
    if axis is None:
        return
    dtypes = {tensor.name: tensor.dtype for tensor in plan.tensors}
    for number, operator in enumerate(plan.operators):
        if (
            operator.where
            or operator.group is not None
            or len(operator.outputs) != 1
            or dtypes.get(operator.outputs[0]) != "float32"
        ):
            continue
        last: Box = {axis.name: (axis.size - 1,)}
        others: Box = {axis.name: tuple(range(axis.size - 1))}
        result = operator.outputs[0]
        inner = f"{result}~"
        changed = (
            replace(operator, where=(others,)),
            replace(operator, id=f"{operator.id}@", outputs=(inner,), where=(last,)),
            Operator(
                f"{operator.id}~",
                "mul",
                (inner, Number(2)),
                (result,),
                where=(last,),
                source=operator.source,
            ),
        )
        yield (
            f"{operator.id}: doubled on the last place of {axis.name}",
            _complete(_with(plan, number, *changed)),
        )


# --- another order on one rank


def _reordered(plan: Plan) -> Iterator[Mutant]:
    """The last rank runs two collectives in the other order: different ones hang, like ones
    exchange their data.
    """
    if plan.programs or plan.microbatches > 1 or not any(axis.size > 1 for axis in plan.mesh):
        return
    events = [
        number for number, operator in enumerate(plan.operators) if operator.group is not None
    ]
    *others, last = (
        {axis: (value,) for axis, value in place.items()} for place in rank_coordinates(plan)
    )
    ids = [operator.id for operator in plan.operators]
    for first, second in itertools.pairwise(events):
        moved = plan.operators[first]
        between = plan.operators[first + 1 : second + 1]
        if any(tensor_name(o) in moved.outputs for operator in between for o in operator.inputs):
            continue
        other = (*ids[:first], *ids[first + 1 : second + 1], moved.id, *ids[second + 1 :])
        programs = (
            Program((Step("other", 0),), (last,)),
            Program((Step("listed", 0),), tuple(others)),
        )
        yield (
            f"{moved.id}: after the next collective on the last rank",
            replace(plan, blocks={"listed": tuple(ids), "other": other}, programs=programs),
        )


# --- what is given


def _of_lineage(plan: Plan) -> Iterator[Mutant]:
    """A tensor that is given by another part of the reference's than it should be."""
    written = {name for operator in plan.operators for name in operator.outputs}
    for number, tensor in enumerate(plan.tensors):
        if tensor.name in written or tensor.lineage is None:
            continue
        for name, changed in (*_lineages(plan, tensor.lineage), *_shifted(plan, tensor)):
            tensors = (
                *plan.tensors[:number],
                replace(tensor, lineage=changed),
                *plan.tensors[number + 1 :],
            )
            yield f"{tensor.name}: {name}", replace(plan, tensors=tensors)


def _lineages(plan: Plan, lineage: Lineage) -> Iterator[tuple[str, Lineage]]:
    sizes = {axis.name: axis.size for axis in plan.mesh} | {"mb": plan.microbatches}
    for place, shard in enumerate(lineage.shards):
        if len(shard.by) > 1 and all(sizes[axis] > 1 for axis in shard.by):
            yield (
                f"dimension {shard.dim} cut in the other order of axes",
                _reshard(lineage, place, Shard(shard.dim, by=shard.by[::-1])),
            )
        if shard.intervals is not None and len(shard.intervals.values) > 1:
            values = shard.intervals.values
            yield (
                f"intervals of dimension {shard.dim} rotated",
                _reshard(
                    lineage,
                    place,
                    Shard(
                        shard.dim, intervals=Table(shard.intervals.over, (*values[1:], values[0]))
                    ),
                ),
            )
            moved = tuple(_moved(entry) for entry in values)
            yield (
                f"intervals of dimension {shard.dim} off by one",
                _reshard(
                    lineage, place, Shard(shard.dim, intervals=Table(shard.intervals.over, moved))
                ),
            )


def _shifted(plan: Plan, tensor: Tensor) -> Iterator[tuple[str, Lineage]]:
    """The last part along an even shard of one axis begins one earlier."""
    sizes = {axis.name: axis.size for axis in plan.mesh} | {"mb": plan.microbatches}
    for place, shard in enumerate(tensor.lineage.shards if tensor.lineage is not None else ()):
        if tensor.lineage is None or len(shard.by) != 1 or sizes[shard.by[0]] < 2:
            continue
        step, count = tensor.shape[shard.dim], sizes[shard.by[0]]
        values = tuple(
            (((i * step) - (i == count - 1), (i + 1) * step - (i == count - 1)),)
            for i in range(count)
        )
        yield (
            f"the last part of dimension {shard.dim} is off by one",
            _reshard(tensor.lineage, place, Shard(shard.dim, intervals=Table(shard.by, values))),
        )


def _moved(entry: Any) -> Any:
    return tuple((start, stop) if start < 1 else (start - 1, stop - 1) for start, stop in entry)


def _reshard(lineage: Lineage, place: int, shard: Shard) -> Lineage:
    return replace(lineage, shards=(*lineage.shards[:place], shard, *lineage.shards[place + 1 :]))


def _complete(plan: Plan) -> Plan:
    """The plan with a tensor for every name that a mutation made, shaped as the one it precedes."""
    known = {tensor.name: tensor for tensor in plan.tensors}
    added = [
        replace(
            known[name.removesuffix("~")],
            name=name,
            gradient_of=None,
            updated=None,
            role="activation",
            lineage=None,
        )
        for operator in plan.operators
        for name in operator.outputs
        if name and name not in known
    ]
    return replace(plan, tensors=(*plan.tensors, *added)) if added else plan
