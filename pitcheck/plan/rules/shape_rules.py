"""Rules on shapes and kinds: operators run on shapes alone must give the outputs of the plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem, AxisValue
from pitcheck.algebra.interface import Kind
from pitcheck.base.dtypes import INTEGERS
from pitcheck.base.numbers import parse_number
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.ops.registry import communication_of, evaluate, operator_kind
from pitcheck.ops.traits import Communication
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Number, Operator, Plan, Table, Tensor
from pitcheck.plan.rules.name_rules import first_coordinates
from pitcheck.plan.rules.ssa import ACCUMULATE
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.run_order import COMMUNICATION, MATCHING_ONLY, Mask, tensor_of

# A meaning may raise these on attribute values that it was not written for: a text as an axis, a
# tuple of the wrong length.
_BAD_ATTRIBUTES = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    ZeroDivisionError,
    OverflowError,
    AttributeError,
)

LARGEST_BOUND = 1 << 62
"""The largest magnitude that an input may have: differences of two are then integers of 64 bits."""

Finding = tuple[str, str]
"""The part of the operator, and the message."""


def kind_of_dtype(dtype: str) -> Kind:
    """Return the kind of a dtype in an algebra: "field", "int" or "bool"."""
    if dtype == "bool":
        return "bool"
    return "int" if dtype.startswith(("int", "uint")) else "field"


_MATCHED = frozenset({*COMMUNICATION, ACCUMULATE})
_ALONE: tuple[int | None, ...] = (None,)
_WHOLE, _BROKEN = Fraction(1), Fraction(1, 2)

Signature = tuple[tuple[int, ...], Kind] | Fraction
"""The shape and kind of a tensor. For a literal, any number that is whole if the literal is."""


class ShapeRules:
    """Checks PIT003.

    Operators with equal kinds, shapes and attributes are run once. An operator without a meaning is
    no violation.
    """

    def __init__(self, plan: Plan, coordinates: Coordinates) -> None:
        self.plan = plan
        self.coordinates = coordinates
        self.microbatched = {tensor.name: tensor.microbatched for tensor in plan.tensors}
        kinds = {dtype: kind_of_dtype(dtype) for dtype in {tensor.dtype for tensor in plan.tensors}}
        self.signatures = {
            tensor.name: (tensor.shape, kinds[tensor.dtype]) for tensor in plan.tensors
        }
        self.dtypes = {tensor.name: tensor.dtype for tensor in plan.tensors}
        self._known: dict[object, list[Finding]] = {}
        self._sizes: dict[object, tuple[int, ...]] = {}
        self._chosen: dict[Hashable, list[tuple[dict[str, Any], Mask]]] = {}

    def run(self) -> Iterator[Violation]:
        """Yield all findings for operators whose tensors are known."""
        for position, operator in enumerate(self.plan.operators):
            if operator.kind in COMMUNICATION and not (
                communication_of(operator.kind) is Communication.WAIT and operator.outputs
            ):
                continue
            try:
                inputs = tuple(
                    [
                        _number(operand.value)
                        if isinstance(operand, Number)
                        else self.signatures[tensor_of(operand) or ""]
                        for operand in operator.inputs
                    ]
                )
                outputs = tuple(
                    [self.signatures[name] if name else None for name in operator.outputs]
                )
            except KeyError:
                continue
            yield from self._check(position, operator, inputs, outputs)
            if operator.group is not None:
                yield from self._check_dtypes(operator, f"operators[{position}]")

    def _check_dtypes(self, operator: Operator, place: str) -> Iterator[Violation]:
        """Yield a finding if a collective's operand and result differ in dtype."""
        given = self.dtypes.get(tensor_of(operator.inputs[0]) or "") if operator.inputs else None
        other = next(
            (
                name
                for name in operator.outputs
                if given is not None and self.dtypes.get(name, given) != given
            ),
            None,
        )
        if other is not None:
            message = (
                f"{operator.kind} gives {other!r} as {self.dtypes[other]}, and its operand "
                f"is {given}; cast before it or after it"
            )
            yield Violation(
                "PIT003", f"{place}.outputs", message, operator=operator.id, tensor=other
            )

    def _check(
        self,
        position: int,
        operator: Operator,
        inputs: tuple[Signature, ...],
        outputs: tuple[Signature | None, ...],
    ) -> Iterator[Violation]:
        members = self._members(operator)
        for attributes, where in (
            self._attributes(operator) if operator.attributes else (({}, None),)
        ):
            key = (
                operator.kind,
                inputs,
                outputs,
                members,
                repr(sorted(attributes.items())) if attributes else "",
            )
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = [
                    found
                    for size in members
                    for found in _findings(operator.kind, inputs, outputs, attributes, size)
                ]
            for part, message in found[:1]:
                ranks, microbatches = self._first(where)
                said = f" (rank {ranks[0]}, micro-batch {microbatches[0]})" if ranks else ""
                text = f"{operator.kind} {operator.id!r}{said}: {message}"
                yield Violation(
                    "PIT003",
                    f"operators[{position}]{part}",
                    text,
                    operator=operator.id,
                    ranks=ranks,
                    microbatches=microbatches,
                )

    def _first(self, where: Mask | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if where is None:
            return (), ()
        shape = (*self.coordinates.shape[:-1], where.shape[-1])
        return first_coordinates(np.broadcast_to(where, shape).reshape(self.coordinates.ranks, -1))

    def _members(self, operator: Operator) -> tuple[int | None, ...]:
        """Return the sizes of the stack that a collective reads; (None,) for any other operator."""
        if operator.kind == ACCUMULATE:
            chosen = operator.attributes.get("microbatches")
            return (len(chosen) if isinstance(chosen, tuple) else self.plan.microbatches,)
        group = operator.group
        if group is None:
            return _ALONE
        key = (group.axes, id(group.ranks))
        if key not in self._sizes:
            self._sizes[key] = tuple(self.coordinates.group_sizes(group))
        return self._sizes[key]

    def _attributes(self, operator: Operator) -> Sequence[tuple[Mapping[str, Any], Mask | None]]:
        """Return every combination of attribute values that occurs.

        Each comes with the coordinates of its first occurrence, or None without tables.
        """
        hidden = (
            MATCHING_ONLY
            if operator.group is not None or operator.kind in _MATCHED
            else frozenset()
        )
        shown = {name: value for name, value in operator.attributes.items() if name not in hidden}
        tables = {name: value for name, value in shown.items() if isinstance(value, Table)}
        if not tables:
            return ((shown, None),)
        names = [name for name in operator.outputs if name] or [
            name for name in map(tensor_of, operator.inputs) if name
        ]
        per_microbatch = any(self.microbatched.get(name, False) for name in names)
        key = (
            tuple([(name, id(table)) for name, table in tables.items()]),
            id(operator.where),
            per_microbatch,
        )
        if key not in self._chosen:
            mask = self.coordinates.mask_grid(operator.where)
            self._chosen[key] = self._combinations(
                tables,
                mask if per_microbatch else np.asarray(mask.any(axis=-1, keepdims=True)),
                per_microbatch,
            )
        return [({**shown, **values}, where) for values, where in self._chosen[key]]

    def _combinations(
        self, tables: Mapping[str, Table], mask: Mask, per_microbatch: bool
    ) -> list[tuple[dict[str, Any], Mask]]:
        grids = [self.coordinates.row_major_grid(table.over) for table in tables.values()]
        # An operator that runs once does so at micro-batch 0.
        grids = grids if per_microbatch else [grid[..., :1] for grid in grids]
        *places, here = np.broadcast_arrays(*grids, mask)
        found: dict[str, tuple[dict[str, Any], Mask]] = {}
        for row in np.unique(np.stack([place[here] for place in places], axis=1), axis=0).tolist():
            values = {
                name: table.values[place]
                for (name, table), place in zip(tables.items(), row, strict=True)
            }
            said = repr(values)
            if said not in found:
                found[said] = (
                    values,
                    here
                    & np.logical_and.reduce(
                        [place == own for place, own in zip(places, row, strict=True)]
                    ),
                )
        return list(found.values())


def _findings(
    kind: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    attributes: Mapping[str, Any],
    members: int | None,
) -> list[Finding]:
    """Return the faults of one operator on shapes.

    A whole literal is an integer unless a tensor beside it is floating-point, as in evaluation. A
    plan may take it for a floating-point number, too.
    """
    found = _read_as(kind, inputs, outputs, attributes, members, "field")
    kinds = {signature[1] for signature in inputs if not isinstance(signature, Fraction)}
    if not found or _WHOLE not in inputs or not kinds or "field" in kinds:
        return found
    return found if _read_as(kind, inputs, outputs, attributes, members, "int") else []


def _read_as(
    kind: str,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    attributes: Mapping[str, Any],
    members: int | None,
    whole: Kind,
) -> list[Finding]:
    """Return the faults of an operator if whole literals are of kind ``whole``."""
    algebra = AxisAlgebra(AxisSystem())
    try:
        declared = operator_kind(kind)
        given = [_value(algebra, signature, members, whole) for signature in inputs]
        placed = (
            {**attributes, "position": 0}
            if members is not None and "position" in declared.attributes
            else attributes
        )
        if declared.collective and members is None:
            return [("", "the operator communicates and needs a group")]
        results = evaluate(
            algebra, kind, given, placed, tuple(output is not None for output in outputs)
        )
    except UnsupportedError:
        return []
    except PlanError as error:
        return [(f".{error.place}" if error.place else "", error.message)]
    except _BAD_ATTRIBUTES as error:
        return [
            (".attributes", f"the attributes {dict(attributes)!r} do not fit the operator: {error}")
        ]
    return list(_differences(results, outputs))


@lru_cache(maxsize=1024)
def _number(value: int | float | str) -> Fraction:
    try:
        number = parse_number(value)
    except PlanError:
        return _BROKEN
    return _WHOLE if isinstance(number, Fraction) and number.denominator == 1 else _BROKEN


def _value(algebra: AxisAlgebra, signature: Any, members: int | None, whole: Kind) -> AxisValue:
    if isinstance(signature, Fraction):
        return algebra.constant(signature, whole if signature == _WHOLE else "field")
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
            yield (
                f".outputs[{number}]",
                f"the output is {list(shape)}, but the tensor is {list(output[0])}",
            )
        elif result.kind != output[1]:
            yield (
                f".outputs[{number}]",
                f"the output is of kind {result.kind}, but the tensor's dtype is of kind "
                f"{output[1]}",
            )


def check_values(plan: Plan) -> Iterator[Violation]:
    """Yield PIT003 for constants, bounds and literals that are not numbers or do not fit."""
    for number, tensor in enumerate(plan.tensors):
        if tensor.value is None and tensor.bounds is None:
            continue
        for part, message in _tensor_problems(tensor):
            yield Violation(
                "PIT003",
                f"tensors[{number}].{part}",
                f"{tensor.name!r}: {message}",
                tensor=tensor.name,
            )
    said: dict[tuple[type, object], str] = {}
    for position, operator in enumerate(plan.operators):
        for number, operand in enumerate(operator.inputs):
            if isinstance(operand, Number):
                key = (type(operand.value), operand.value)
                if key not in said:
                    said[key] = _number_problem(operand.value)
                message = said[key]
                if message:
                    yield Violation(
                        "PIT003",
                        f"operators[{position}].inputs[{number}].value",
                        message,
                        operator=operator.id,
                    )


def _tensor_problems(tensor: Tensor) -> Iterator[Finding]:
    if tensor.value is not None:
        kind = kind_of_dtype(tensor.dtype)
        if tensor.role != "constant":
            yield "value", f"only a constant has a value; the role is {tensor.role!r}"
        message = _number_problem(tensor.value)
        if message:
            yield "value", message
        elif kind != "field":
            yield from _discrete_problems(tensor.value, tensor.dtype)
    if tensor.bounds is not None:
        yield from _bounds_problems(tensor, *tensor.bounds)


def _discrete_problems(value: object, dtype: str) -> Iterator[Finding]:
    least, most = INTEGERS.get(dtype, (0, 1))
    if not isinstance(value, int):
        yield "value", f"{value!r} is no value of dtype {dtype}"
    elif not least <= value <= most:
        yield "value", _outside(value, dtype, least, most)


def _bounds_problems(tensor: Tensor, low: int, high: int) -> Iterator[Finding]:
    if low >= high:
        yield "bounds", f"the half-open range {tensor.bounds} is empty"
    if kind_of_dtype(tensor.dtype) != "int":
        yield "bounds", f"only integers have bounds; the dtype is {tensor.dtype}"
        return
    least, most = INTEGERS[tensor.dtype]
    least, most = max(least, -LARGEST_BOUND), min(most, LARGEST_BOUND)
    for number in (low, high - 1):
        if not least <= number <= most:
            yield "bounds", _outside(number, tensor.dtype, least, most)


def _outside(number: int, dtype: str, least: int, most: int) -> str:
    return f"{number} is outside of {least} to {most}, which {dtype} may hold here"


def _number_problem(value: bool | int | float | str) -> str:
    try:
        parse_number(value)
    except PlanError as error:
        return error.message
    return ""
