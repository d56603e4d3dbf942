"""Rules on shapes and kinds: every operator's meaning, run on shapes alone, must give the outputs that the plan states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.algebra.axes import AxisAlgebra, AxisSystem, AxisValue
from pitcheck.algebra.base import Kind
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.ops.registry import evaluate, operator_kind
from pitcheck.plan.model import Number, Operand, Operator, Table, Tensor
from pitcheck.plan.numbers import parse_number
from pitcheck.plan.schedule import COMMUNICATION, Schedule, tensor_of
from pitcheck.plan.ssa import ACCUMULATE
from pitcheck.plan.structure import first_coordinates
from pitcheck.plan.violations import Violation

_MATCHING_ONLY = frozenset({"peer", "protocol", "batch", "tag", "async", "microbatches"})
"""Attributes that say who meets whom and when, not what is computed."""

# What an operator's meaning may raise on attribute values that it was not written for (a text as an axis, a tuple of the wrong length).
_BAD_ATTRIBUTES = (TypeError, ValueError, IndexError, KeyError, ZeroDivisionError, OverflowError, AttributeError)

Finding = tuple[str, str]
"""(part of the operator, message)."""


def kind_of_dtype(dtype: str) -> Kind:
    """What a dtype is to the algebras: a field value, an integer or a boolean."""
    if dtype == "bool":
        return "bool"
    return "int" if dtype.startswith(("int", "uint")) else "field"


class ShapeRules:
    """Checks PIT003. Operators with equal kinds, shapes and attributes are run once. What has no meaning is no violation."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.plan = schedule.plan
        self.tensors = {tensor.name: tensor for tensor in self.plan.tensors}
        self._known: dict[object, list[Finding]] = {}
        self._sizes: dict[object, tuple[int, ...]] = {}

    def run(self) -> Iterator[Violation]:
        """All findings, of operators whose tensors are known."""
        for position, operator in enumerate(self.plan.operators):
            if operator.kind in COMMUNICATION and operator.kind != "wait":
                continue
            named = [tensor_of(operand) for operand in operator.inputs] + [name for name in operator.outputs if name]
            if all(name is None or name in self.tensors for name in named):
                yield from self._check(position, operator)

    def _check(self, position: int, operator: Operator) -> Iterator[Violation]:
        members = self._members(operator)
        inputs = tuple(self._signature(operand) for operand in operator.inputs)
        outputs = tuple((self.tensors[name].shape, kind_of_dtype(self.tensors[name].dtype)) if name else None for name in operator.outputs)
        for attributes, ranks, microbatches in self._attributes(position, operator):
            key = (operator.kind, inputs, outputs, members, repr(sorted(attributes.items())))
            if key not in self._known:
                self._known[key] = [found for size in members for found in _findings(operator.kind, inputs, outputs, attributes, size)]
            for part, message in self._known[key][:1]:
                where = f" (rank {ranks[0]}, micro-batch {microbatches[0]})" if ranks else ""
                text = f"{operator.kind} {operator.id!r}{where}: {message}"
                yield Violation("PIT003", f"operators[{position}]{part}", text, operator=operator.id, ranks=ranks, microbatches=microbatches)

    def _members(self, operator: Operator) -> tuple[int | None, ...]:
        """Sizes of the stack that a collective reads; (None,) for an operator that reads no stack."""
        if operator.kind == ACCUMULATE:
            chosen = operator.attributes.get("microbatches")
            return (len(chosen) if isinstance(chosen, tuple) else self.schedule.microbatches,)
        if operator.group is None:
            return (None,)
        if operator.group not in self._sizes:
            self._sizes[operator.group] = tuple(sorted({len(ranks) for ranks in self.schedule.coordinates.groups(operator.group)}))
        return self._sizes[operator.group]

    def _signature(self, operand: Operand) -> object:
        if isinstance(operand, Number):
            return Fraction(1)
        tensor: Tensor = self.tensors[tensor_of(operand) or ""]
        return tensor.shape, kind_of_dtype(tensor.dtype)

    def _attributes(self, position: int, operator: Operator) -> Iterator[tuple[Mapping[str, Any], tuple[int, ...], tuple[int, ...]]]:
        """Every combination of attribute values that occurs, with the first coordinates where it does (none without tables)."""
        hidden = _MATCHING_ONLY if operator.group is not None or operator.kind in (*COMMUNICATION, ACCUMULATE) else frozenset()
        shown = {name: value for name, value in operator.attributes.items() if name not in hidden}
        tables = {name: value for name, value in shown.items() if isinstance(value, Table)}
        if not tables:
            yield shown, (), ()
            return
        mask = self.schedule.mask(position)
        resolved = [self.schedule.coordinates.table(table, f"operators[{position}].attributes.{name}") for name, table in tables.items()]
        rows = np.stack([index[mask] for index, _ in resolved], axis=1)
        seen: set[str] = set()
        for row in np.unique(rows, axis=0):
            values = {name: table[1][int(i)] for name, table, i in zip(tables, resolved, row, strict=True)}
            if repr(values) not in seen:
                seen.add(repr(values))
                here = mask & np.logical_and.reduce([index == i for (index, _), i in zip(resolved, row, strict=True)])
                yield {**shown, **values}, *first_coordinates(here)


def _findings(kind: str, inputs: Sequence[Any], outputs: Sequence[Any], attributes: Mapping[str, Any], members: int | None) -> list[Finding]:
    """What is wrong with one operator on shapes."""
    algebra = AxisAlgebra(AxisSystem())
    try:
        declared = operator_kind(kind)
        given = [_value(algebra, signature, members) for signature in inputs]
        placed = {**attributes, "position": 0} if members is not None and "position" in declared.attributes else attributes
        if declared.collective and members is None:
            return [("", "the operator communicates and needs a group")]
        results = evaluate(algebra, kind, given, placed, tuple(output is not None for output in outputs))
    except UnsupportedError:
        return []
    except PlanError as error:
        return [(f".{error.place}" if error.place else "", error.message)]
    except _BAD_ATTRIBUTES as error:
        return [(".attributes", f"the attributes {dict(attributes)!r} do not fit the operator: {error}")]
    return list(_differences(results, outputs))


def _value(algebra: AxisAlgebra, signature: Any, members: int | None) -> AxisValue:
    if isinstance(signature, Fraction):
        return algebra.constant(signature)
    shape, kind = signature
    return algebra.tensor(shape if members is None else (members, *shape), kind)


def _differences(results: Sequence[AxisValue | None], outputs: Sequence[Any]) -> Iterator[Finding]:
    if len(results) != len(outputs):
        yield ".outputs", f"has {len(results)} outputs, but {len(outputs)} are named"
        return
    for number, (result, output) in enumerate(zip(results, outputs, strict=True)):
        if output is None:
            continue
        if result is None:
            yield f".outputs[{number}]", "the operator gives no such output; write an empty name"
            continue
        shape = tuple(int(size) for size in result.shape)
        if shape != output[0]:
            yield f".outputs[{number}]", f"the output is {list(shape)}, but the tensor is {list(output[0])}"
        elif result.kind != output[1]:
            yield f".outputs[{number}]", f"the output is of kind {result.kind}, but the tensor's dtype is of kind {output[1]}"


def check_values(schedule: Schedule) -> Iterator[Violation]:
    """PIT003 for constants, bounds and literal operands that are no numbers or do not fit their tensor."""
    for number, tensor in enumerate(schedule.plan.tensors):
        for part, message in _tensor_problems(tensor):
            yield Violation("PIT003", f"tensors[{number}].{part}", f"{tensor.name!r}: {message}", tensor=tensor.name)
    for position, operator in enumerate(schedule.plan.operators):
        for number, operand in enumerate(operator.inputs):
            if isinstance(operand, Number):
                message = _number_problem(operand.value)
                if message:
                    yield Violation("PIT003", f"operators[{position}].inputs[{number}].value", message, operator=operator.id)


def _tensor_problems(tensor: Tensor) -> Iterator[Finding]:
    if tensor.value is not None:
        kind = kind_of_dtype(tensor.dtype)
        if tensor.role != "constant":
            yield "value", f"only a constant has a value; the role is {tensor.role!r}"
        message = _number_problem(tensor.value)
        if message:
            yield "value", message
        elif kind != "field" and not isinstance(tensor.value, int):
            yield "value", f"{tensor.value!r} is no value of dtype {tensor.dtype}"
    if tensor.bounds is not None:
        if tensor.bounds[0] >= tensor.bounds[1]:
            yield "bounds", f"the half-open range {tensor.bounds} is empty"
        if kind_of_dtype(tensor.dtype) != "int":
            yield "bounds", f"only integers have bounds; the dtype is {tensor.dtype}"


def _number_problem(value: bool | int | float | str) -> str:
    try:
        parse_number(value)
    except PlanError as error:
        return error.message
    return ""
