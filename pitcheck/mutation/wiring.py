"""Mutations of what an operator reads: operands, versions, micro-batches, terms, factors."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pitcheck.mutation.edits import Edit, followed, with_attribute, with_operand
from pitcheck.mutation.facts import Facts, form
from pitcheck.ops.registry import (
    BACKWARD,
    communication_of,
    declared,
    kinds_in_order,
    kinds_that_may,
    kinds_with,
    operator_kind,
)
from pitcheck.ops.traits import Communication, Trait
from pitcheck.plan.model import Number, Operand, Operator, Use
from pitcheck.plan.schedule.run_order import PAIRED

Found = Iterator[tuple[str, Edit]]
SUMS = kinds_that_may(Trait.ADDS_PLAINLY)
"""Operators that add up what they read, as it is."""
SIDE_BY_SIDE = kinds_with(Trait.JOINS) & kinds_with(Trait.EXTENDS)
"""Operators that join operands along a dimension that they have."""
STACKED = kinds_with(Trait.JOINS) - SIDE_BY_SIDE
"""Operators that join operands along a dimension of its own."""
OTHERS = 3
"""The number of other operands of the same form that are tried at each place."""


def _changeable(operator: Operator, place: int) -> bool:
    """Return True if another operand at ``place`` has an agreed meaning."""
    if not operator.kind.endswith(BACKWARD):
        return True
    count = len(operator.outputs)
    known = declared(operator.kind.removesuffix(BACKWARD))
    from_inputs = known is not None and known.derives_from_inputs
    return place > count or (place < count and from_inputs)


def operands(facts: Facts, operator: Operator) -> Found:
    """Yield other tensors of the same form."""
    for place, operand in enumerate(operator.inputs):
        if isinstance(operand, str) and operand in facts.tensors and _changeable(operator, place):
            for name in facts.alike(operand, operator, OTHERS):
                yield f"operand {place} is {name}", _reading(place, name)


def _reading(place: int, operand: Operand) -> Edit:
    return lambda o: (with_operand(o, place, operand),)


def exchanged_operands(facts: Facts, operator: Operator) -> Found:
    """Yield two operands in the other order."""
    if operator.kind in kinds_in_order() and len(operator.inputs) >= 2:
        shapes = [facts.tensors[o].shape if isinstance(o, str) else () for o in operator.inputs[:2]]
        if shapes[0] == shapes[1]:
            yield (
                "operands 0 and 1 exchanged",
                lambda o: (replace(o, inputs=(o.inputs[1], o.inputs[0], *o.inputs[2:])),),
            )
    if operator.kind in SIDE_BY_SIDE and len(operator.inputs) >= 2:
        yield (
            "the first two parts exchanged",
            lambda o: (replace(o, inputs=(o.inputs[1], o.inputs[0], *o.inputs[2:])),),
        )


def stale(facts: Facts, operator: Operator) -> Found:
    """Yield the version of an operand before its update."""
    for place, operand in enumerate(operator.inputs):
        tensor = facts.tensors.get(operand) if isinstance(operand, str) else None
        if tensor is not None and tensor.updated is not None and tensor.updated in facts.tensors:
            yield f"operand {place} before its update", _reading(place, tensor.updated)


def microbatches(facts: Facts, operator: Operator) -> Found:
    """Yield other micro-batches than the operator's, or fewer, or one twice."""
    count = facts.plan.microbatches
    if count < 2:
        return
    known = declared(operator.kind)
    if known is not None and "microbatches" in known.attributes:
        mine = operator.attributes.get("microbatches") or tuple(range(count))
        if isinstance(mine, tuple) and len(mine) > 1:
            yield (
                "without the last micro-batch",
                lambda o: (with_attribute(o, "microbatches", mine[:-1]),),
            )
            yield (
                "without the first micro-batch",
                lambda o: (with_attribute(o, "microbatches", mine[1:]),),
            )
        return
    if operator.group is not None or communication_of(operator.kind) is Communication.SEND:
        return
    for place, operand in enumerate(operator.inputs):
        if not _changeable(operator, place):
            continue
        if isinstance(operand, Use):
            yield (
                f"operand {place} of the next micro-batch",
                _reading(place, Use(operand.tensor, (operand.microbatch + 1) % count)),
            )
        elif (
            isinstance(operand, str)
            and operand in facts.tensors
            and facts.tensors[operand].microbatched
        ):
            yield f"operand {place} always of micro-batch 0", _reading(place, Use(operand, 0))
            if facts.written[operand] < 0:
                yield (
                    f"operand {place} always of the last micro-batch",
                    _reading(place, Use(operand, count - 1)),
                )


def terms(facts: Facts, operator: Operator) -> Found:
    """Yield sums in which a term is left out or taken twice."""
    if operator.kind in kinds_with(Trait.ADDS_TERMS) and len(operator.inputs) == 2:
        result = facts.tensors[operator.outputs[0]]
        for place, operand in enumerate(operator.inputs):
            if isinstance(operand, str) and facts.tensors[operand].shape == result.shape:
                yield f"only operand {place}", _only(operand)
        first, second = operator.inputs[:2]
        if (
            operator.kind in SUMS
            and isinstance(first, str)
            and isinstance(second, str)
            and facts.tensors[first].shape == facts.tensors[second].shape
        ):
            yield "operand 0 twice", _reading(1, first)
    if operator.kind in STACKED and len(operator.inputs) > 1:
        yield "operand 0 in place of operand 1", _reading(1, operator.inputs[0])


def _only(operand: str) -> Edit:
    return lambda o: (replace(o, kind="identity", inputs=(operand,), attributes={}),)


def factors(facts: Facts, operator: Operator) -> Found:
    """Yield one factor too many."""
    if operator.kind in PAIRED or not facts.one_real_result(operator):
        return
    sizes = sorted({facts.sizes[axis] for axis in facts.sizes if facts.sizes[axis] > 1} | {2})
    for size in sizes:
        yield f"times {size}", _scaled("mul", size)
        yield f"divided by {size}", _scaled("div", size)
    yield "negated", _scaled("mul", -1)


def _scaled(kind: str, number: int) -> Edit:
    return lambda o: followed(o, kind, Number(number))


def _left_out_elsewhere(operator: Operator) -> bool:
    """Return True if it computes nothing, or another kind of mutation leaves it out."""
    known = declared(operator.kind)
    return known is not None and (
        known.copies
        or known.masked is not None
        or Trait.ADDS_TERMS in known.traits
        or operator_kind(known.mistaken_for or known.name).copies
    )


def skipped(facts: Facts, operator: Operator) -> Found:
    """Yield the operator left out: its operand goes on as its result."""
    if (
        operator.group is not None
        or len(operator.outputs) != 1
        or not operator.inputs
        or _left_out_elsewhere(operator)
    ):
        return
    source, result = operator.inputs[0], operator.outputs[0]
    if (
        isinstance(source, str)
        and not operator.kind.endswith(BACKWARD)
        and form(facts.tensors[source]) == form(facts.tensors[result])
    ):
        yield "left out", _only(source)
