"""Attributes at full and at reduced sizes, by their declared roles.

>>> from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
>>> algebra = AxisAlgebra(AxisSystem())
>>> x, attributes = algebra.tensor((80, 96)), {"axis": 1, "start": 48, "stop": 96}
>>> y = algebra.slice(x, 1, Size(48), Size(96))
>>> reduced = reduce_attributes("slice", attributes, [x], [y], algebra.system.solve())
>>> reduced["stop"] == 2 * reduced["start"] < 48
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from pitcheck.algebra.dimensions.axis_values import AxisValue, Size
from pitcheck.algebra.dimensions.size_choice import Sizes
from pitcheck.errors import ShapeError
from pitcheck.ops.declaration import Attributes, OperatorKind
from pitcheck.ops.registry import BACKWARD, divided, operator_kind


def reduced_dimensions(attributes: Attributes, rank: int) -> frozenset[int]:
    """Return the dimensions that a reduction's attribute ``axes`` names, out of ``rank``.

    ``axes`` is one number or several. Without it a reduction is over all dimensions.
    """
    axes = attributes.get("axes")
    if axes is None:
        return frozenset(range(rank))
    return frozenset(int(axis) % rank for axis in ((axes,) if isinstance(axes, int) else axes))


def symbolic_attributes(kind: OperatorKind | str, attributes: Attributes) -> dict[str, Any]:
    """Return attributes for the run on axes.

    Numbers that :func:`reduce_attributes` rewrites are marked as following the dimensions, so that
    they are not literals.
    """
    return _rewritten(kind, attributes, lambda _, value: _followed(value))


def _followed(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_followed(n) for n in value)
    return (
        Size(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
        else value
    )


def reduce_attributes(
    kind: OperatorKind | str,
    attributes: Attributes,
    input_values: Sequence[AxisValue],
    output_values: Sequence[AxisValue | None],
    sizes: Sizes,
) -> dict[str, Any]:
    """Return attributes at reduced sizes, for an operator or its derivative (``.backward``).

    Role ``sizes``: the reduced sizes of output 0's dimensions (-1 is kept). Role ``position``: an
    offset along dimension ``axis`` of input 0, or a tuple of lengths of consecutive parts of it,
    scaled with it. Others are unchanged.

    Raises:
        ReductionError: if an offset is not a boundary.
        ShapeError: if the sizes are not those of the result.
    """
    forward, result = _forward(kind, attributes, input_values, output_values)

    def rewrite(role: str, value: Any) -> Any:
        if role == "sizes":
            return _reduced_sizes(value, result, sizes)
        return _reduced_positions(value, forward, attributes, sizes)

    return _rewritten(kind, attributes, rewrite)


def _rewritten(
    kind: OperatorKind | str, attributes: Attributes, rewrite: Callable[[str, Any], Any]
) -> dict[str, Any]:
    declared: Mapping[str, str] = (
        operator_kind(kind) if isinstance(kind, str) else kind
    ).attributes
    collective = (operator_kind(kind) if isinstance(kind, str) else kind).collective
    roles = {"sizes"} if collective else {"sizes", "position"}
    return {
        name: rewrite(declared[name], value)
        if declared.get(name) in roles and value is not None
        else value
        for name, value in attributes.items()
    }


def _forward(
    kind: OperatorKind | str,
    attributes: Attributes,
    inputs: Sequence[AxisValue],
    outputs: Sequence[AxisValue | None],
) -> tuple[AxisValue | None, AxisValue | None]:
    """Return input 0 and output 0 of the forward operator."""
    first = inputs[0] if inputs else None
    if not isinstance(kind, str) or not kind.endswith(BACKWARD):
        return first, outputs[0] if outputs else None
    operands, _, _ = divided(attributes, len(inputs))
    return first, inputs[operands] if operands < len(inputs) else None


def _reduced_sizes(value: Any, result: AxisValue | None, sizes: Sizes) -> Any:
    if result is None:
        return value
    given = tuple(value)
    if len(given) != len(result.dims):
        raise ShapeError(
            f"the sizes {given} are not those of a result of {len(result.dims)} dimensions"
        )
    return tuple(n if n == -1 else sizes.size(d) for n, d in zip(given, result.dims, strict=True))


def _reduced_positions(
    value: Any, first: AxisValue | None, attributes: Attributes, sizes: Sizes
) -> Any:
    if first is None or "axis" not in attributes:
        return value
    node = first.dims[int(attributes["axis"]) % len(first.dims)]
    if not isinstance(value, (tuple, list)):
        return sizes.position(node, int(value))
    ends = [0, *(sizes.position(node, end) for end in accumulate(int(n) for n in value))]
    return tuple(stop - start for start, stop in pairwise(ends))
