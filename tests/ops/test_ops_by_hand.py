"""Communication and random draws against results computed by hand.

The cases in which an operator must refuse are here, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from ops.ops_hand_rows import HAND_ROWS, HandRow
from ops.ops_numpy_algebra import NumpyAlgebra

from pitcheck.errors import PlanError, ShapeError, UnsupportedError
from pitcheck.ops.registry import evaluate, operator_kind


@pytest.mark.parametrize("row", HAND_ROWS, ids=lambda row: row.label)
def test_result(row: HandRow) -> None:
    (result,) = evaluate(NumpyAlgebra(), row.kind, row.inputs(), row.attributes)
    np.testing.assert_array_equal(result, np.array(row.result, dtype=np.float64))


def test_a_collective_takes_one_stack() -> None:
    for kind in ("all_reduce", "all_gather", "broadcast", "all_to_all", "accumulate"):
        assert operator_kind(kind).collective
        assert operator_kind(kind).derivative is None
    for kind in ("send", "receive", "wait", "chunk"):
        assert not operator_kind(kind).collective


def test_average_divides_by_the_members_not_by_a_literal() -> None:
    """The number of members is asked of the algebra, so that it shrinks with a reduced group."""
    asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    class Watched(NumpyAlgebra):
        def extent(self, a: Any, axes: Any) -> Any:
            asked.append((a.shape, tuple(axes)))
            return super().extent(a, axes)

    evaluate(Watched(), "all_reduce", [np.ones((3, 2))], {"reduction": "avg"})
    evaluate(Watched(), "mean", [np.ones((4, 5))], {"axes": -1})
    evaluate(Watched(), "rms_norm", [np.ones((4, 5))], {"eps": 0})
    assert asked == [((3, 2), (0,)), ((4, 5), (1,)), ((4, 5), (1,))]


def _mask(like: np.ndarray[Any, Any], **attributes: Any) -> np.ndarray[Any, Any]:
    (mask,) = evaluate(
        NumpyAlgebra(), "dropout_mask", [like], {"stream": "a", "probability": 0.5, **attributes}
    )
    return np.asarray(mask)


def test_draws_of_parts_are_the_parts_of_the_draws() -> None:
    (whole,) = evaluate(NumpyAlgebra(), "uniform", [np.zeros((4, 6))], {"stream": "a"})
    for start in ((0, 0), (2, 0), (1, 3), (0, 5)):
        shape = (2, 1)
        (part,) = evaluate(
            NumpyAlgebra(),
            "uniform",
            [np.ones(shape)],
            {"stream": "a", "start": start, "whole": (4, 6)},
        )
        np.testing.assert_array_equal(part, whole[start[0] : start[0] + 2, start[1] : start[1] + 1])
    (later,) = evaluate(NumpyAlgebra(), "uniform", [np.zeros((3, 6))], {"stream": "a", "offset": 6})
    np.testing.assert_array_equal(later, whole[1:])
    (other,) = evaluate(NumpyAlgebra(), "uniform", [np.zeros((4, 6))], {"stream": "b"})
    assert not np.array_equal(other, whole)
    (wrong,) = evaluate(NumpyAlgebra(), "uniform", [np.zeros((4, 3))], {"stream": "a"})
    assert not np.array_equal(wrong, whole[:, :3])


def test_normal_draws_are_the_quantiles_of_the_draws() -> None:
    like = np.zeros((5, 7))
    (draws,) = evaluate(NumpyAlgebra(), "uniform", [like], {"stream": "a"})
    (normal,) = evaluate(NumpyAlgebra(), "normal", [like], {"stream": "a"})
    np.testing.assert_allclose((1 + np.vectorize(math.erf)(normal / math.sqrt(2))) / 2, draws)
    assert operator_kind("normal").random


def test_the_mask_keeps_what_draws_at_least_the_probability() -> None:
    like = np.zeros((5, 7))
    (draws,) = evaluate(NumpyAlgebra(), "uniform", [like], {"stream": "a"})
    np.testing.assert_array_equal(_mask(like), draws >= 0.5)
    assert _mask(like, probability=0).all()
    np.testing.assert_array_equal(_mask(like, probability="1/10"), draws >= 0.1)
    assert operator_kind("dropout_mask").random
    assert not operator_kind("dropout").random


REFUSED: list[tuple[str, list[Any], dict[str, Any], type[Exception]]] = [
    ("all_reduce", [np.ones((2, 3))], {"reduction": "xor"}, UnsupportedError),
    ("reduce_scatter", [np.ones((2, 3))], {"axis": 0, "position": 0}, ShapeError),
    ("reduce_scatter", [np.ones((2, 4))], {"axis": 0, "position": 2}, ShapeError),
    ("reduce_scatter", [np.ones((2, 4))], {"axis": 0}, PlanError),
    ("reduce_scatter", [np.ones((2, 4))], {"axis": 1, "position": 0}, ShapeError),
    ("broadcast", [np.ones((2, 4))], {"root": 2}, ShapeError),
    ("broadcast", [np.ones((2, 4))], {}, PlanError),
    ("dropout_mask", [np.ones((2, 4))], {"stream": "s", "probability": "-1/4"}, PlanError),
    ("dropout_mask", [np.ones((2, 4))], {"stream": "s", "probability": "5/4"}, PlanError),
    ("dropout_mask", [np.ones((2, 4))], {"stream": "s", "probability": "nan"}, PlanError),
    ("dropout_mask", [np.ones((2, 4))], {"stream": "s", "probability": 1}, UnsupportedError),
    (
        "dropout_mask",
        [np.ones((2, 4))],
        {"stream": "s", "probability": "sqrt(1/2)"},
        UnsupportedError,
    ),
    ("view", [np.ones((2, 3))], {"sizes": (4, 2)}, ShapeError),
    ("view", [np.ones((2, 3))], {"sizes": (-1, -1)}, ShapeError),
    ("view", [np.ones((2, 3))], {"sizes": (-1, 4)}, ShapeError),
    ("permute", [np.ones((2, 3))], {"permutation": (0, 0)}, ShapeError),
    ("permute", [np.ones((2, 3))], {"permutation": (1,)}, ShapeError),
    ("transpose", [np.ones((2, 3))], {"dim0": 0, "dim1": 2}, ShapeError),
    ("sum", [np.ones((2, 3))], {"axes": (0, -2)}, ShapeError),
    ("sum", [np.ones((2, 3))], {"axes": 2}, ShapeError),
    ("expand", [np.ones((2, 3))], {"sizes": (4, 3)}, ShapeError),
    ("expand", [np.ones((2, 3))], {"sizes": (3,)}, ShapeError),
    ("expand", [np.ones(3)], {"sizes": (-1, 3)}, ShapeError),
    ("squeeze", [np.ones((2, 3))], {"axis": 0}, ShapeError),
    ("slice", [np.ones(4)], {"axis": 0, "start": -1}, ShapeError),
    ("slice", [np.ones(4)], {"axis": 0, "stop": 5}, ShapeError),
    ("slice", [np.ones(4)], {"axis": 0, "step": 0}, ShapeError),
    ("select", [np.ones(4)], {"axis": 0, "index": 4}, ShapeError),
    ("split", [np.ones(4)], {"axis": 0, "sizes": (1, 2)}, ShapeError),
    ("chunk", [np.ones(4)], {"axis": 0, "count": 3, "position": 0}, ShapeError),
    ("chunk", [np.ones(4)], {"axis": 0, "count": 2, "position": 2}, ShapeError),
    ("pad", [np.ones(4)], {"axis": 0, "before": -1}, ShapeError),
    ("multiref", [np.ones(4)], {"count": 0}, PlanError),
    ("tril", [np.ones(4)], {}, ShapeError),
    ("diagonal", [np.ones((3, 3))], {"axis": 0, "other": -2}, ShapeError),
    ("diagonal", [np.ones((3, 3))], {"axis": 0, "other": 2}, ShapeError),
    ("diagonal", [np.ones((3, 3))], {"axis": 0}, PlanError),
    ("pow", [np.ones(4)], {"exponent": "1/3"}, UnsupportedError),
    ("pow", [np.ones(4)], {"exponent": "sqrt(2)"}, UnsupportedError),
    ("pow", [np.ones(4)], {"exponent": "inf"}, UnsupportedError),
    ("pow", [np.ones(4)], {"exponent": "two"}, PlanError),
    ("pow", [np.ones(4)], {}, PlanError),
    ("clamp", [np.ones(4)], {}, PlanError),
    ("gelu", [np.ones(4)], {"approximate": "sigmoid"}, UnsupportedError),
    ("linear", [np.ones((2, 3)), np.ones((3, 4))], {}, ShapeError),
    ("linear", [np.ones((2, 3)), np.ones(3)], {}, ShapeError),
    ("matmul", [np.ones(()), np.ones(3)], {}, ShapeError),
    ("bmm", [np.ones((2, 3, 4)), np.ones((1, 4, 3))], {}, ShapeError),
    ("bmm", [np.ones((3, 4)), np.ones((4, 3))], {}, ShapeError),
    ("einsum", [np.ones((2, 2))], {"equation": "ii->i"}, UnsupportedError),
    ("einsum", [np.ones((2, 2))], {"equation": "...i->i"}, UnsupportedError),
    ("einsum", [np.ones((2, 2))], {"equation": "ij"}, UnsupportedError),
    ("einsum", [np.ones((2, 2))], {"equation": "ij,jk->ik"}, ShapeError),
    ("einsum", [np.ones((2, 2))], {"equation": "ijk->ik"}, ShapeError),
    ("einsum", [np.ones((2, 2))], {"equation": "ij->ik"}, ShapeError),
    ("einsum", [np.ones((2, 3)), np.ones((2, 3))], {"equation": "ij,jk->ik"}, ShapeError),
    ("var", [np.ones(2)], {"correction": 3}, UnsupportedError),
    ("topk", [np.ones(2)], {"k": 3}, ShapeError),
    ("topk", [np.ones(2)], {"k": 0}, ShapeError),
    ("layer_norm", [np.ones(2)], {"eps": 0, "dims": 2}, ShapeError),
    ("layer_norm", [np.ones(2)], {}, PlanError),
    ("gather", [np.ones((2, 3)), np.zeros((2, 4), dtype=np.int64)], {"axis": 0}, ShapeError),
    ("gather", [np.ones((2, 3)), np.zeros(2, dtype=np.int64)], {"axis": 0}, ShapeError),
    ("masked_fill", [np.ones(3), np.ones((2, 3), bool), np.array(0.0)], {}, ShapeError),
    ("masked_fill", [np.ones(3), np.ones(3, bool), np.zeros(3)], {}, ShapeError),
    ("cross_entropy", [np.ones((2, 3)), np.ones((2, 3))], {}, UnsupportedError),
    ("cross_entropy", [np.ones((2, 3)), np.zeros(3, dtype=np.int64)], {}, ShapeError),
    (
        "cross_entropy",
        [np.ones((2, 3)), np.zeros(2, dtype=np.int64)],
        {"reduction": "average"},
        UnsupportedError,
    ),
    ("mse_loss", [np.ones(2), np.ones(2)], {"reduction": "batchmean"}, UnsupportedError),
    (
        "rotary",
        [np.ones((2, 4)), np.ones(4), np.ones(4)],
        {"convention": "quarter"},
        UnsupportedError,
    ),
    ("rotary", [np.ones((2, 5)), np.ones(5), np.ones(5)], {"convention": "half"}, ShapeError),
    ("rotary", [np.ones((2, 6)), np.ones(2), np.ones(6)], {"convention": "half"}, ShapeError),
    (
        "scaled_dot_product_attention",
        [np.ones((2, 3))] * 3 + [np.ones((2, 2))],
        {"is_causal": True},
        PlanError,
    ),
    (
        "scaled_dot_product_attention",
        [np.ones((3, 2, 3)), np.ones((2, 2, 3)), np.ones((2, 2, 3))],
        {"enable_gqa": True},
        ShapeError,
    ),
    ("cast", [np.ones(2)], {"dtype": "complex64"}, UnsupportedError),
    ("dropout", [np.ones(2), np.ones(2)], {"probability": 1}, UnsupportedError),
    ("dropout", [np.ones(2), np.ones(2)], {"probability": -0.1}, PlanError),
    ("uniform", [np.ones((2, 2))], {"stream": "a", "whole": (2, 3), "start": (0, 2)}, ShapeError),
    ("uniform", [np.ones((2, 2))], {"stream": "a", "whole": (4,)}, ShapeError),
    ("uniform", [np.ones((2, 2))], {}, PlanError),
]


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "error"),
    REFUSED,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_no_meaning_is_refused(
    kind: str, inputs: list[Any], attributes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        evaluate(NumpyAlgebra(), kind, inputs, attributes)
