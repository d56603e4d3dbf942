"""Narrow integers: those of 8 and 16 bits wrap around what does not fit.

Every algebra here computes with whole numbers, so computing such integers has no meaning.

>>> _fits(127, "int8"), _fits(128, "int8")
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from pitcheck.base.numbers import parse_number
from pitcheck.ops.meanings.cast import NARROW
from pitcheck.ops.registry import declared, has_trait, kinds_with
from pitcheck.ops.traits import Communication, Trait
from pitcheck.plan.model import Number, Operator, Output, Plan, attribute_values
from pitcheck.plan.schedule.run_order import tensor_of
from pitcheck.report.report import Finding

CAST = "cast"
LITERALS = frozenset({"value", "min", "max"})
"""The attributes that are literals of results."""


def wrapping(plan: Plan, side: str) -> Iterator[Finding]:
    """Yield a finding for the first operator that may wrap around and on which an output depends.

    ``side`` is the name of the plan in the finding.
    """
    narrow = {tensor.name: tensor.dtype for tensor in plan.tensors if tensor.dtype in NARROW}
    found = (
        [
            (operator, name)
            for operator in plan.operators
            for name in operator.outputs
            if name in narrow and _wraps(operator, narrow[name])
        ]
        if narrow
        else []
    )
    needed = _needed(plan) if found else frozenset()
    for operator, name in found:
        if needed.isdisjoint(operator.outputs):
            continue
        title = (
            f"{side} plan: {operator.kind} {operator.id!r} computes {name!r} in {narrow[name]}, "
            f"which wraps around what does not fit, and that has "
            "no meaning here; compute it in int32 or int64"
        )
        yield Finding(code="PIT200", verdict="inconclusive", title=title, operator=operator.id)
        return


def _wraps(operator: Operator, dtype: str) -> bool:
    """Return True if a result of an operator may not fit into a narrow dtype."""
    # The meaning of a cast refuses what it cannot convert.
    return operator.kind != CAST and not (
        _keeps_range(operator) and all(_fits(number, dtype) for number in _literals(operator))
    )


def _keeps_range(operator: Operator) -> bool:
    """Return True if every result is an element of an operand, 0, 1, -1 or a literal."""
    if _meets(operator) in (Communication.SEND, Communication.RECEIVE):
        return True
    kind = operator.kind
    rounds_nothing = all(
        has_trait(kind, Trait.ROUNDS_NOTHING, {**operator.attributes, "reduction": reduction})
        for reduction in attribute_values(operator.attributes.get("reduction", "sum"))
    )
    return kind in kinds_with(Trait.GIVES_BITS) or (
        rounds_nothing and kind not in kinds_with(Trait.FLIPS_SIGNS)
    )


def _literals(operator: Operator) -> Iterator[object]:
    """Yield the numbers that an operator may put among its results."""
    yield from (operand.value for operand in operator.inputs if isinstance(operand, Number))
    for name in LITERALS & operator.attributes.keys():
        yield from attribute_values(operator.attributes[name])


def _fits(number: object, dtype: str) -> bool:
    """Return True if a number is an integer within the range of a narrow dtype, or no rational."""
    least, most = NARROW[dtype]
    value = parse_number(number) if isinstance(number, int | float | str) else None
    return not isinstance(value, Fraction) or least <= value <= most


def _needed(plan: Plan) -> frozenset[str]:
    """Return the tensors that outputs are computed from.

    An operator is taken to need all of its operands.
    """
    sources: dict[str, set[str]] = {}
    for operator in plan.operators:
        given = {name for operand in operator.inputs if (name := tensor_of(operand)) is not None}
        for name in operator.outputs:
            sources.setdefault(name, set()).update(given)
    # A receive may give whatever is sent anywhere.
    sent = {
        name
        for operator in plan.operators
        if _meets(operator) is Communication.SEND
        and (name := tensor_of(operator.inputs[0])) is not None
    }
    for operator in plan.operators:
        for name in operator.outputs if _meets(operator) is Communication.RECEIVE else ():
            sources[name] |= sent
    return _from(plan.outputs, sources)


def _meets(operator: Operator) -> Communication:
    """Return who meets in an operator; NONE for a derivative."""
    kind = declared(operator.kind)
    return Communication.NONE if kind is None else kind.communication


def _from(outputs: tuple[Output, ...], sources: Mapping[str, set[str]]) -> frozenset[str]:
    """Return all tensors from which outputs come, given the sources of each tensor."""
    found: set[str] = set()
    open_ = [output.tensor for output in outputs]
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += sources.get(name, ())
    return frozenset(found)
