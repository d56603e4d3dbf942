"""The registry: names, attributes, numbers of inputs and derivatives.

Every operator has a test of its meaning.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ops.ops_hand_rows import HAND_ROWS
from ops.ops_numpy_algebra import NumpyAlgebra
from ops.ops_torch_rows import ROWS

from pitcheck.errors import PlanError, ShapeError, UnsupportedError
from pitcheck.ops.operator_table import operator_table
from pitcheck.ops.registry import check_attributes, evaluate, operator_kind, operator_names

DRAWS = {"uniform", "normal", "dropout_mask"}
"""Tested by properties instead of rows."""
WITHOUT_VALUES = {"barrier"}
"""Operators that compute nothing."""
ROLES = {"value", "axis", "axes", "sizes", "position", "literal"}


def test_every_operator_has_an_oracle() -> None:
    tested = {row.kind for row in ROWS} | {row.kind for row in HAND_ROWS} | DRAWS | WITHOUT_VALUES
    assert tested == set(operator_names())


def test_every_derivative_has_an_oracle() -> None:
    tested = {row.kind for row in ROWS if row.derivative} | {"detach"}
    assert tested == {
        name for name in operator_names() if operator_kind(name).derivative is not None
    }


def test_every_attribute_is_used_by_a_row() -> None:
    used = {(row.kind, name) for row in (*ROWS, *HAND_ROWS) for name in row.attributes}
    ignored = {"async", "tag", "batch", "protocol", "peer", "of"}
    declared = {
        (name, a)
        for name in operator_names()
        if name not in DRAWS
        for a in operator_kind(name).attributes
        if a not in ignored
    }
    assert declared - used == set()


@pytest.mark.parametrize("name", operator_names())
def test_declaration(name: str) -> None:
    kind = operator_kind(name)
    assert kind.name == name
    assert set(kind.attributes.values()) <= ROLES
    assert set(kind.required) <= set(kind.attributes)
    assert kind.inputs[0] <= kind.inputs[1]
    assert kind.doc.endswith(".")
    with pytest.raises(TypeError):
        kind.attributes["another"] = "value"  # type: ignore[index]


@pytest.mark.parametrize("name", operator_names())
def test_an_attribute_that_is_misspelt_is_refused(name: str) -> None:
    kind = operator_kind(name)
    given = dict.fromkeys(kind.required, 0)
    check_attributes(kind, given)
    with pytest.raises(UnsupportedError, match="keepdims"):
        check_attributes(kind, {**given, "keepdims": True})
    for absent in kind.required:
        with pytest.raises(PlanError, match=absent):
            check_attributes(kind, {a: 0 for a in kind.required if a != absent})


def test_attributes_of_derivatives_belong_to_derivatives() -> None:
    kind = operator_kind("mul")
    check_attributes(kind, {"forward_inputs": 2, "wanted": (True, False)}, backward=True)
    with pytest.raises(UnsupportedError, match="forward_inputs"):
        check_attributes(kind, {"forward_inputs": 2})
    with pytest.raises(UnsupportedError, match="forward_input"):
        check_attributes(kind, {"forward_input": 2}, backward=True)


@pytest.mark.parametrize(
    "name",
    [
        "flash_attention",
        "Add",
        "",
        "add.forward",
        "flash_attention.backward",
        "add.backward.backward",
    ],
)
def test_unknown_operators_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="no meaning"):
        operator_kind(name)
    with pytest.raises(UnsupportedError):
        evaluate(NumpyAlgebra(), name, [np.ones(2), np.ones(2)], {})


def test_a_wrong_number_of_inputs_is_refused() -> None:
    for count in (0, 1, 3):
        with pytest.raises(PlanError, match="2 inputs"):
            evaluate(NumpyAlgebra(), "add", [np.ones(2)] * count, {})
    with pytest.raises(PlanError, match="2 to 3"):
        evaluate(NumpyAlgebra(), "linear", [np.ones((2, 2))] * 4, {})


def test_a_missing_derivative_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="all_reduce"):
        evaluate(
            NumpyAlgebra(), "all_reduce.backward", [np.ones((2, 2)), np.ones(2), np.ones(2)], {}
        )


A, B, DY = np.array([2.0, 3.0]), np.array([5.0, 7.0]), np.array([1.0, 10.0])


def test_gradients_that_are_not_wanted_are_not_computed() -> None:
    for attributes, wanted in (({}, (False, True)), ({"wanted": (False, True)}, None)):
        to_a, to_b = evaluate(NumpyAlgebra(), "mul.backward", [A, B, A * B, DY], attributes, wanted)
        assert to_a is None
        np.testing.assert_array_equal(to_b, [2.0, 30.0])
    to_a, to_b = evaluate(NumpyAlgebra(), "mul.backward", [A, B, A * B, DY], {})
    np.testing.assert_array_equal(to_a, [5.0, 70.0])
    with pytest.raises(PlanError, match="flags"):
        evaluate(NumpyAlgebra(), "mul.backward", [A, B, A * B, DY], {}, (True,))


def test_gradients_of_outputs_may_be_absent() -> None:
    x = np.arange(6.0)
    parts = [x[:1], x[1:3], x[3:]]
    split = {"axis": 0, "sizes": (1, 2, 3), "forward_outputs": 3}
    (gradient,) = evaluate(
        NumpyAlgebra(),
        "split.backward",
        [x, *parts, np.array([8.0, 9.0])],
        {**split, "gradients": (1,)},
    )
    np.testing.assert_array_equal(gradient, [0, 8, 9, 0, 0, 0])
    (gradient,) = evaluate(
        NumpyAlgebra(),
        "split.backward",
        [x, *parts, np.ones(3), np.array([4.0])],
        {**split, "gradients": (2, 0), "forward_inputs": 1},
    )
    np.testing.assert_array_equal(gradient, [4, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    "attributes",
    [
        {"forward_inputs": 1},
        {"forward_inputs": 3},
        {"forward_outputs": 2},
        {"gradients": (1,)},
        {"gradients": (0, 0)},
        {"gradients": ()},
    ],
)
def test_inputs_of_a_derivative_that_do_not_add_up_are_refused(
    attributes: dict[str, object],
) -> None:
    with pytest.raises(PlanError):
        evaluate(NumpyAlgebra(), "mul.backward", [A, B, A * B, DY], attributes)


def test_outputs_that_are_not_given_are_computed() -> None:
    (gradient,) = evaluate(
        NumpyAlgebra(), "sqrt.backward", [np.array([4.0, 25.0]), DY], {"forward_outputs": 0}
    )
    np.testing.assert_array_equal(gradient, [0.25, 1.0])
    (gradient,) = evaluate(
        NumpyAlgebra(),
        "max.backward",
        [np.array([4.0, 25.0]), np.array(3.0)],
        {"axis": 0, "forward_outputs": 0},
    )
    np.testing.assert_array_equal(gradient, [0, 3])


def test_a_gradient_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match="output 0"):
        evaluate(NumpyAlgebra(), "mul.backward", [A, B, A * B, np.ones((2, 2))], {})


def test_integers_have_no_gradient() -> None:
    to_table = evaluate(
        NumpyAlgebra(),
        "embedding.backward",
        [np.array([1, 1]), np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 3))],
        {},
    )
    assert to_table[0] is None
    np.testing.assert_array_equal(to_table[1], [[0, 0, 0], [2, 2, 2]])
    assert (
        evaluate(NumpyAlgebra(), "mul.backward", [A, np.array([True, False]), A, DY], {})[1] is None
    )


def test_the_reference_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "operators.md"
    assert page.read_text(encoding="utf-8") == operator_table(), (
        "write docs/operators.md anew with pitcheck.ops.operator_table.operator_table"
    )


@pytest.mark.parametrize("wanted", [5, True, "ab"])
def test_flags_of_a_derivative_are_several(wanted: object) -> None:
    with pytest.raises(PlanError, match="a flag for each forward input"):
        check_attributes(operator_kind("linear"), {"wanted": wanted}, backward=True)
    check_attributes(operator_kind("linear"), {"wanted": (True, False)}, backward=True)


@pytest.mark.parametrize("value", ["no", "False", (), None, 2, 1.5])
@pytest.mark.parametrize(
    ("kind", "name", "others"),
    [
        ("sum", "keepdim", {}),
        ("logsumexp", "keepdim", {"axis": 0}),
        ("sort", "descending", {"axis": 0}),
        ("topk", "largest", {"k": 1}),
        ("scan", "reverse", {"position": 0}),
    ],
)
def test_what_is_no_flag_is_not_taken_for_one(
    kind: str, name: str, others: dict[str, int], value: object
) -> None:
    with pytest.raises(PlanError, match=f"'{name}' is true or false, and not"):
        evaluate(NumpyAlgebra(), kind, [A], {**others, name: value})
    for known in (True, False, 1, 0):
        evaluate(NumpyAlgebra(), kind, [A], {**others, name: known})
