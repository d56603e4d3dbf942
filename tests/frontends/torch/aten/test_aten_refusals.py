"""Refusals by name: operators outside the table, and arguments that a meaning does not cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from frontends.torch.aten.aten_harness import (
    Recorded,
    Row,
    as_array,
    by_algebra,
    evaluated,
    flat,
    name_of,
    overload,
    translation_of,
)
from frontends.torch.aten.aten_rows import flags, integers, pairs, positive, reals

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.aten.emitter import stored
from pitcheck.frontends.torch.trace import Event, Ref, Value

_INT8 = torch.tensor([1, 2], dtype=torch.int8)
_TWICE = torch.tensor([0, 0])


def _refused(operator: str, argument: str, *arguments: Any, **keywords: Any) -> Any:
    return pytest.param(Row(operator, arguments, keywords), argument, id=f"{operator}-{argument}")


REFUSED = [
    _refused("add.Tensor", "dtype", _INT8, _INT8),
    _refused("add.Tensor", "alpha", flags(3), flags(3, seed=1), alpha=False),
    _refused("add.Tensor", "alpha", pairs(3), pairs(3), alpha=2),
    _refused("add.Tensor", "other", pairs(3), reals(3)),
    _refused("mul.Tensor", "dtype", _INT8, _INT8),
    _refused(
        "div.Tensor_mode",
        "rounding_mode",
        integers(9, 3) + 1,
        integers(9, 3) + 1,
        rounding_mode="trunc",
    ),
    _refused("div.Tensor_mode", "self", reals(3), reals(3), rounding_mode="floor"),
    _refused("floor_divide.default", "self", reals(3), reals(3)),
    _refused("remainder.Scalar", "self", reals(3), 2),
    _refused("pow.Tensor_Scalar", "exponent", positive(3), 0.3),
    _refused("pow.Tensor_Scalar", "exponent", integers(5, 3), 9),
    _refused("pow.Scalar", "exponent", 2, integers(5, 3)),
    _refused("pow.Scalar", "self", -2.0, integers(5, 3)),
    _refused("_foreach_pow.ScalarAndTensor", "self", -2.0, [reals(3)]),
    _refused("softplus.default", "beta", reals(3), 2),
    _refused("softplus.default", "threshold", reals(3), 1, 30),
    _refused("softplus_backward.default", "beta", reals(3), reals(3), 2, 20),
    _refused("bitwise_and.Tensor", "self", integers(5, 3), integers(5, 3)),
    _refused("bitwise_not.default", "self", integers(5, 3)),
    _refused("sum.default", "dtype", _INT8, dtype=torch.int8),
    _refused("_to_copy.default", "dtype", reals(3), dtype=torch.int8),
    _refused("linalg_vector_norm.default", "ord", reals(3), 3),
    _refused("logsumexp.default", "dim", reals(2, 3), [0, 1]),
    _refused("argmax.default", "keepdim", reals(2, 3), None, True),
    _refused("topk.default", "self", reals(), 1),
    _refused("sort.default", "self", flags(4)),
    _refused("max.dim", "self", flags(4, 2), 0),
    _refused("min.dim", "self", flags(4, 2), 0),
    _refused("any.dims", "dim", flags(2, 3), []),
    _refused("native_dropout.default", "p", reals(3), 0.5, True),
    _refused(
        "nll_loss_forward.default", "weight", reals(4, 5), integers(5, 4), positive(5), 1, -100
    ),
    _refused(
        "binary_cross_entropy_with_logits.default",
        "pos_weight",
        reals(3),
        positive(3),
        None,
        positive(3),
        1,
    ),
    _refused("slice_scatter.default", "step", reals(4), reals(2), 0, 0, 4, 2),
    _refused("_chunk_cat.default", "dim", [reals(4, 2)], 1, 2),
    _refused("index.Tensor", "indices", reals(3, 4), [flags(3, 4)]),
    _refused("index.Tensor", "indices", reals(3, 4, 2), [_TWICE, None, _TWICE]),
    _refused("index_put.default", "accumulate", reals(3, 4), [flags(3, 4)], reals(), True),
    _refused(
        "index_put.default", "values", reals(3), [torch.tensor([True, True, False])], reals(2)
    ),
    _refused("index_put.default", "self", integers(5, 3), [_TWICE], integers(5, 2)),
    _refused("scatter.src", "self", integers(5, 3), 0, _TWICE, integers(5, 2)),
    _refused("scatter_reduce.two", "reduce", reals(3), 0, _TWICE, reals(2), "prod"),
    _refused(
        "scatter_reduce.two",
        "include_self",
        reals(3),
        0,
        _TWICE,
        reals(2),
        "sum",
        include_self=False,
    ),
    _refused(
        "embedding_dense_backward.default",
        "scale_grad_by_freq",
        reals(4, 3),
        integers(5, 4),
        5,
        -1,
        True,
    ),
    _refused("bincount.default", "minlength", integers(5, 30), None, 2),
    _refused("bincount.default", "weights", integers(5, 30), reals(30), 5),
    _refused("arange.start_step", "step", 0, 3, 1.0, dtype=torch.int64),
    _refused("full.default", "value", [2], 1.0, dtype=torch.complex128),
]


@pytest.mark.parametrize(("row", "argument"), REFUSED)
def test_an_argument_that_is_not_covered(row: Row, argument: str) -> None:
    recorded = Recorded(row)
    with pytest.raises(UnsupportedError) as error:
        translation_of(recorded.event, recorded.values)
    assert f"{row.operator!r} with {argument} = " in str(error.value)


@pytest.mark.parametrize(
    "operator",
    [
        "special_bessel_j0.default",
        "bernoulli.float",
        "randint.default",
        "add.Complex",
        "masked_select.default",
        "nonsense",
    ],
)
def test_an_overload_that_is_not_in_the_table(operator: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{operator!r} has no meaning here"):
        translation_of(Event(operator, (Ref(0),), (1,)), [Value((3,), "float32")] * 2)


@pytest.mark.parametrize("probability", [1.5, -0.5, float("nan")])
def test_a_number_that_is_no_probability(probability: float) -> None:
    """PyTorch refuses it itself, so that no run has it; a file may."""
    with pytest.raises(UnsupportedError, match=r"'bernoulli\.p' with p = "):
        translation_of(
            Event("bernoulli.p", (Ref(0), probability, None, "stream"), (1,)),
            [Value((3,), "float32")] * 2,
        )


@pytest.mark.parametrize(
    "row",
    [
        Row("slice.Tensor", (reals(3, 4), 0, 3, 1)),
        Row("zeros.default", ([0, 2],)),
        Row("cat.default", ([torch.zeros(0)],)),
    ],
)
def test_no_operator_makes_a_tensor_without_elements(row: Row) -> None:
    recorded = Recorded(row)
    assert not translation_of(recorded.event, recorded.values).instances


@pytest.mark.parametrize(
    "row",
    [Row("mean.dim", (reals(3, 0), [1]))],
)
def test_no_operator_reads_a_tensor_without_elements(row: Row) -> None:
    recorded = Recorded(row)
    with pytest.raises(UnsupportedError, match=f"{row.operator!r} reads a tensor of shape"):
        translation_of(recorded.event, recorded.values)


@pytest.mark.parametrize(
    "row",
    [
        Row("sum.dim_IntList", (reals(3, 0), [1])),
        Row("mm.default", (reals(3, 0), reals(0, 2))),
        Row("addmm.default", (reals(3, 2), reals(3, 0), reals(0, 2)), {"beta": 0}),
    ],
)
def test_sums_without_terms_are_zero(row: Row) -> None:
    recorded = Recorded(row)
    made = translation_of(recorded.event, recorded.values).instances
    assert {instance.kind for instance in made} == {"full"}
    assert all(not instance.inputs for instance in made)


@pytest.mark.parametrize(
    ("place", "operator"), [("output", "reduce_scatter"), ("operand", "all_reduce")]
)
def test_no_communication_of_a_tensor_without_elements(place: str, operator: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{operator!r} (gives|reads) a tensor of shape"):
        translation_of(
            Event(operator, (Ref(0), "sum"), (1,), (0, 1)), [Value((0, 3), "float32")] * 2
        )


def test_a_number_of_arguments_that_is_not_that_of_the_schema() -> None:
    with pytest.raises(PlanError, match=r"'add.Tensor' takes 3 arguments, not 2"):
        translation_of(Event("add.Tensor", (Ref(0), 1), (1,)), [Value((3,), "float32")] * 2)


def test_a_number_of_outputs_that_is_not_that_of_the_meaning() -> None:
    with pytest.raises(PlanError, match=r"'neg.default' has 1 outputs, not 2"):
        translation_of(Event("neg.default", (Ref(0),), (1, 2)), [Value((3,), "float32")] * 3)


@pytest.mark.parametrize(
    "said", [Value((4,), "float64"), Value((3,), "bool"), Value((3,), "complex64")]
)
def test_an_output_whose_shape_or_kind_is_not_that_of_the_meaning(said: Value) -> None:
    with pytest.raises((PlanError, UnsupportedError), match=r"relu.default"):
        translation_of(Event("relu.default", (Ref(0),), (1,)), [Value((3,), "float64"), said])


@pytest.mark.parametrize(
    "operator",
    [
        "mean.dim",
        "sigmoid.default",
        "_softmax.default",
        "mm.default",
        "amax.default",
        "masked_fill.Scalar",
        "gather.default",
    ],
)
def test_complex_numbers_where_only_real_ones_are_known(operator: str) -> None:
    arguments = {
        "mean.dim": ([1],),
        "sigmoid.default": (),
        "_softmax.default": (1, False),
        "mm.default": (pairs(3, 2),),
        "amax.default": ([1],),
        "masked_fill.Scalar": (flags(2, 3), 1.0),
        "gather.default": (1, integers(3, 2, 3)),
    }[operator]
    row = Row(operator, (pairs(2, 3), *arguments))
    given = dict(
        zip((a.name for a in overload(operator)._schema.arguments), row.arguments, strict=False)
    )
    values = [
        Value(tuple(t.shape), str(t.dtype).removeprefix("torch."))
        for t in flat(list(given.values()))
        if isinstance(t, torch.Tensor)
    ]  # type: ignore[arg-type]
    numbers = iter(range(len(values)))
    whole = tuple(
        Ref(next(numbers))
        if isinstance(v, torch.Tensor)
        else tuple(v)
        if isinstance(v, list)
        else v
        for v in (given.get(a.name, a.default_value) for a in overload(operator)._schema.arguments)
    )
    with pytest.raises(
        UnsupportedError, match=f"{operator!r} has no meaning here for complex numbers"
    ):
        translation_of(
            Event(operator, whole, (len(values),)), [*values, Value((2, 3), "complex128")]
        )


_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu.default"


@pytest.mark.parametrize(
    ("argument", "key", "rest"),
    [
        ("dropout_p", (1, 2, 5, 4), (0.5, False, None, None)),
        ("key", (1, 3, 5, 4), (0.0, False, None, None)),
        ("attn_mask", (1, 2, 5, 4), (0.0, True, Ref(3), None)),
    ],
)
def test_attention_that_is_not_covered(
    argument: str, key: tuple[int, ...], rest: tuple[Any, ...]
) -> None:
    values = [
        Value(shape, "float64")
        for shape in ((1, 2, 3, 4), key, key, (3, 5), (1, 2, 3, 4), (1, 2, 3))
    ]
    with pytest.raises(UnsupportedError, match=f"{_ATTENTION!r} with {argument} = "):
        translation_of(Event(_ATTENTION, (Ref(0), Ref(1), Ref(2), *rest), (4, 5)), values)


def test_what_is_written_twice_is_nan() -> None:
    """PyTorch leaves open which of two values stands at an index that is named twice."""
    for row in (
        Row("index_put.default", (reals(3), [_TWICE], reals(2))),
        Row("scatter.src", (reals(3), 0, _TWICE, reals(2))),
    ):
        recorded = Recorded(row)
        translation = translation_of(recorded.event, recorded.values)
        said = {
            **{name_of(i): stored(v) for i, v in enumerate(recorded.values)},
            **translation.tensors,
        }
        known = {name_of(i): as_array(t) for i, t in enumerate(recorded.tensors[: recorded.inputs])}
        result = evaluated(translation, known, said, by_algebra)[name_of(recorded.inputs)]
        np.testing.assert_array_equal(np.isnan(result), [True, False, False])
