"""Operands that an operator does not look into are read as zeros: exactly those on which no result
depends.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from ops.ops_numpy_algebra import NumpyAlgebra
from ops.ops_rows import Row
from ops.ops_torch_rows import ROWS

from pitcheck.graph.unread_operands import unread
from pitcheck.ops.registry import evaluate, operator_kind

FIELD = ((4, 8), "field")
TABLE: tuple[tuple[str, list[Any], dict[str, Any], set[int]], ...] = (
    ("add.backward", [FIELD, FIELD, FIELD], {"forward_outputs": 0}, {0, 1}),
    ("add.backward", [FIELD, ((8,), "field"), FIELD, FIELD], {}, {0, 1, 2}),
    ("reshape.backward", [FIELD, ((32,), "field")], {"forward_outputs": 0, "sizes": (32,)}, {0}),
    ("mul.backward", [FIELD, FIELD, FIELD, FIELD], {}, {2}),
    (
        "linear.backward",
        [FIELD, ((6, 8), "field"), ((4, 6), "field")],
        {"forward_outputs": 0},
        set(),
    ),
    ("exp.backward", [FIELD, FIELD, FIELD], {}, {0}),
    ("exp.backward", [FIELD, FIELD], {"forward_outputs": 0}, set()),
    ("where.backward", [((4, 8), "bool"), FIELD, FIELD, FIELD], {"forward_outputs": 0}, {1, 2}),
    ("embedding.backward", [((4,), "int"), FIELD, ((4, 8), "field")], {"forward_outputs": 0}, {1}),
    ("sum.backward", [FIELD, ((4,), "field")], {"axes": (1,), "forward_outputs": 0}, {0}),
    ("cast.backward", [FIELD, FIELD], {"forward_outputs": 0, "dtype": "bfloat16"}, {0}),
    ("positions", [FIELD], {"axis": 1}, {0}),
    ("full_like", [FIELD], {"value": 2}, {0}),
    ("unknown.backward", [FIELD, FIELD], {}, set()),
)


@pytest.mark.parametrize(
    ("kind", "operands", "attributes", "expected"),
    TABLE,
    ids=[f"{row[0]}-{len(row[1])}" for row in TABLE],
)
def test_what_is_not_looked_into(
    kind: str, operands: list[Any], attributes: dict[str, Any], expected: set[int]
) -> None:
    assert unread(kind, operands, attributes) == expected


@pytest.mark.parametrize(
    ("attributes", "named", "expected"),
    [({}, (), {0, 2}), ({}, (0,), {0, 2}), ({}, (1,), {2}), ({"wanted": (True, False)}, (1,), {2})],
)
def test_the_gradient_of_a_number_looks_at_the_other_operand(
    attributes: dict[str, Any], named: tuple[int, ...], expected: set[int]
) -> None:
    assert unread("mul.backward", [FIELD, Fraction(2), FIELD, FIELD], attributes, named) == expected


DIFFERENTIABLE = [row for row in ROWS if row.derivative]


@pytest.mark.parametrize(
    "row", DIFFERENTIABLE, ids=[f"{n}-{row.kind}" for n, row in enumerate(DIFFERENTIABLE)]
)
def test_no_gradient_depends_on_what_is_not_looked_into(row: Row) -> None:
    algebra = NumpyAlgebra()
    generator = np.random.default_rng(4)
    if operator_kind(row.kind).derivative is None:
        pytest.skip("no derivative")
    inputs = [np.asarray(x) for x in row.inputs]
    outputs = [np.asarray(y) for y in evaluate(algebra, row.kind, inputs, row.attributes)]
    gradients = [generator.normal(size=y.shape) for y in outputs]
    given = [*inputs, *outputs, *gradients]
    attributes = {**row.attributes, "forward_outputs": len(outputs)}
    unused = unread(f"{row.kind}.backward", [(x.shape, algebra.kind(x)) for x in given], attributes)
    changed = [np.zeros_like(x) if n in unused else x for n, x in enumerate(given)]
    before, after = (
        evaluate(algebra, f"{row.kind}.backward", values, attributes) for values in (given, changed)
    )
    for a, b in zip(before, after, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
