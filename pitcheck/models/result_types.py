"""Shapes and dtypes of results, read off an operator's meaning once per distinct use."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
from pitcheck.algebra.interface import Kind
from pitcheck.base.dtypes import DType
from pitcheck.ops.registry import evaluate, operator_kind
from pitcheck.plan.model import Table
from pitcheck.plan.schedule.run_order import MATCHING_ONLY

Signature = tuple[tuple[int, ...], DType]
"""Shape and dtype of a tensor."""

_KINDS: Mapping[str, Kind] = {
    "bool": "bool",
    **dict.fromkeys(("int64", "int32", "int16", "int8", "uint8"), "int"),
}
_DEFAULT: Mapping[Kind, DType] = {"field": "float32", "int": "int64", "bool": "bool"}
_WIDTH: Mapping[DType, int] = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
}
"""Bytes per element, if more than one."""


def kind_of(dtype: DType) -> Kind:
    """Return the kind of value that a dtype is to the algebras: field, int or bool."""
    return _KINDS.get(dtype, "field")


class Signatures:
    """Infers the outputs of operators by running their meaning on shapes alone.

    Equal uses, as in the layers of a model, are run once.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Signature, ...]] = {}

    def outputs(
        self,
        kind: str,
        inputs: tuple[Signature | None, ...],
        attributes: Mapping[str, Any],
        members: int | None,
    ) -> tuple[Signature, ...]:
        """Return the shape and dtype of every output.

        A None among ``inputs`` is a literal. ``members``: the size of a collective's group. An
        output has the widest dtype among the inputs of its kind (floating-point, integer, boolean),
        unless the operator says otherwise. Raises PlanError and UnsupportedError as the operator
        does.
        """
        key = (kind, inputs, tuple(attributes.items()), members)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _infer(kind, inputs, attributes, members)
        return found


def _infer(
    kind: str,
    inputs: tuple[Signature | None, ...],
    attributes: Mapping[str, Any],
    members: int | None,
) -> tuple[Signature, ...]:
    if kind in ("accumulate", "wait", "identity", "send"):
        return tuple(given for given in inputs if given is not None)
    algebra = AxisAlgebra(AxisSystem())
    front = () if members is None else (members,)
    values = [
        algebra.tensor((*front, *given[0]), kind_of(given[1]))
        if given is not None
        else algebra.constant(1)
        for given in inputs
    ]
    results = evaluate(algebra, kind, values, _plain(kind, attributes, members))
    return tuple(
        (
            tuple(int(size) for size in algebra.shape(result)),
            _dtype(algebra.kind(result), inputs, attributes),
        )
        for result in results
    )


def _plain(kind: str, attributes: Mapping[str, Any], members: int | None) -> dict[str, Any]:
    """Return the attributes at one coordinate; result sizes are the same at all coordinates."""
    plain = {
        name: value.values[0] if isinstance(value, Table) else value
        for name, value in attributes.items()
        if members is None or name not in MATCHING_ONLY
    }
    if members is not None and "position" in operator_kind(kind).attributes:
        plain["position"] = 0
    return plain


def _dtype(kind: Kind, inputs: Sequence[Signature | None], attributes: Mapping[str, Any]) -> DType:
    stated: DType | None = attributes.get("dtype")
    if stated is not None and kind_of(stated) == kind:
        return stated
    same = [given[1] for given in inputs if given is not None and kind_of(given[1]) == kind]
    return max(same, key=lambda dtype: _WIDTH.get(dtype, 1)) if same else _DEFAULT[kind]
