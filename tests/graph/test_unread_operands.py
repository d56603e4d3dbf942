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
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.graph.unread_operands import unread
from pitcheck.ops.registry import evaluate, operator_kind
from pitcheck.plan.model import Axis, Group, Lineage, Number, Operator, Output, Plan, Shard, Tensor

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


def _plan(name: str, operand: str) -> Plan:
    """A derivative of a product, of which one operand is what is given, or something else of that
    shape.
    """
    b = Builder(name)
    x, w, dy = b.input("x", (6, 5)), b.parameter("w", (6, 5)), b.input("dy", (6, 5))
    b.op("mul", x, Number(2), out="twice")
    y = b.op("mul", x, w)
    b.back("mul", [operand, w], y, dy, ["", "dw"])
    b.gradient("dw", "w")
    return b.plan()


def test_an_operand_that_matters_is_looked_into() -> None:
    assert (
        check(_plan("reference", "x"), _plan("parallel", "x"), Options(seed=1)).verdict
        == "equivalent"
    )
    assert (
        check(_plan("reference", "x"), _plan("parallel", "twice"), Options(seed=1)).verdict
        == "mismatch"
    )


def _factor(dp: int, wrong: str = "") -> Plan:
    """The gradient of a literal factor, added up over ranks; ``wrong``: an operator through which
    the operand of the product goes before its derivative.
    """
    shape = (32 // dp, 6)
    split = {
        name: Lineage(name, shards=(Shard(0, by=("dp",)),)) if dp > 1 else None
        for name in ("x", "dy")
    }
    operators = [Operator("f", "mul", ("x", Number(2)), ("y",))]
    if wrong:
        operators.append(
            Operator(
                "r", wrong, ("x",), ("other",), {"axis": 0, "shift": 1} if wrong == "roll" else {}
            )
        )
    operators.append(
        Operator(
            "b", "mul.backward", ("other" if wrong else "x", Number(2), "y", "dy"), ("dx", "d2")
        )
    )
    operators.append(Operator("a", "all_reduce", ("d2",), ("added",), group=Group(axes=("dp",))))
    tensors = [Tensor(name, shape, role="input", lineage=held) for name, held in split.items()]
    tensors += [Tensor(name, shape) for name in ("y", "dx", *(("other",) if wrong else ()))]
    return Plan(
        (Axis("dp", dp),),
        (*tensors, Tensor("d2", ()), Tensor("added", ())),
        tuple(operators),
        (Output("added"),),
    )


@pytest.mark.parametrize(
    ("wrong", "verdict"), [("", "equivalent"), ("roll", "mismatch"), ("neg", "mismatch")]
)
def test_the_gradient_of_a_number_is_that_of_all_ranks(wrong: str, verdict: str) -> None:
    assert check(_factor(1), _factor(8, wrong), Options(seed=1)).verdict == verdict
