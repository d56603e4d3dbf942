"""Every operator on dimensions alone gives the shapes that it computes.

This holds at full and at reduced sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ops.ops_hand_rows import HAND_ROWS, HandRow
from ops.ops_numpy_algebra import NumpyAlgebra
from ops.ops_rows import Array, Row, flags, integers, positive, reals
from ops.ops_torch_rows import ROWS

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem, AxisValue
from pitcheck.ops.axis_attributes import reduce_attributes, symbolic_attributes
from pitcheck.ops.registry import evaluate, operator_kind

NUMBERS = NumpyAlgebra()


def on_axes(
    algebra: AxisAlgebra, kind: str, inputs: list[AxisValue], attributes: Any
) -> list[AxisValue]:
    return evaluate(algebra, kind, inputs, symbolic_attributes(kind, attributes))


def plain(value: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in value.shape)


@pytest.mark.parametrize("row", [*ROWS, *HAND_ROWS], ids=lambda row: row.label)
def test_shapes_and_kinds(row: Row | HandRow) -> None:
    arrays = list(row.inputs) if isinstance(row, Row) else row.inputs()
    algebra = AxisAlgebra(AxisSystem())
    symbols = [algebra.tensor(a.shape, NUMBERS.kind(a)) for a in arrays]
    computed = evaluate(NUMBERS, row.kind, arrays, row.attributes)
    found = on_axes(algebra, row.kind, symbols, row.attributes)
    assert [(plain(v), v.kind) for v in found] == [(plain(a), NUMBERS.kind(a)) for a in computed]
    if not isinstance(row, Row) or not row.derivative:
        return
    gradients = [i for i, a in enumerate(computed) if NUMBERS.kind(a) == "field"]
    attributes = {
        **row.attributes,
        "forward_inputs": len(arrays),
        "forward_outputs": len(computed),
        "gradients": tuple(gradients),
    }
    seeds = [algebra.tensor(computed[i].shape) for i in gradients]
    backward = on_axes(algebra, f"{row.kind}.backward", [*symbols, *found, *seeds], attributes)
    for gradient, operand in zip(backward, symbols, strict=True):
        assert gradient is None or plain(gradient) == plain(operand)


LARGE: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("linear", [reals(4, 60, 80), reals(120, 80)], {}),
    ("chunk", [reals(80, 96)], {"axis": -1, "count": 4, "position": 3}),
    ("slice", [reals(80, 96)], {"axis": 1, "start": 24, "stop": 72}),
    ("slice", [reals(80, 96)], {"axis": 0}),
    ("select", [reals(40, 96)], {"axis": 0, "index": 7}),
    ("split", [reals(80, 96)], {"axis": -1, "sizes": (48, 24, 24)}),
    ("pad", [reals(80, 96)], {"axis": 0, "before": 20, "after": 40}),
    ("pad", [reals(80, 96)], {"axis": 0, "before": 1}),
    ("view", [reals(80, 96)], {"sizes": (80, 8, 12)}),
    ("view", [reals(80, 8, 12)], {"sizes": (80, -1)}),
    ("expand", [reals(80, 1)], {"sizes": (40, 80, 60)}),
    ("repeat_interleave", [reals(80, 96)], {"axis": 0, "count": 2}),
    ("roll", [reals(80, 96)], {"axis": 0, "shift": 20}),
    ("flip", [reals(80, 96)], {"axes": (0, 1)}),
    ("tril", [reals(80, 80)], {}),
    ("cumsum", [reals(80, 96)], {"axis": 0}),
    ("cat", [reals(80, 96), reals(40, 96)], {"axis": 0}),
    ("stack", [reals(80, 96), reals(80, 96)], {"axis": 1}),
    ("matmul", [reals(5, 80, 96), reals(5, 96, 60)], {}),
    ("einsum", [reals(4, 60, 80), reals(120, 80)], {"equation": "bsh,oh->bso"}),
    ("softmax", [reals(80, 96)], {"axis": -1}),
    ("layer_norm", [reals(80, 96), reals(96), reals(96)], {"eps": 1e-5}),
    ("rotary", [reals(40, 96), reals(96), reals(96)], {"convention": "half"}),
    ("rotary", [reals(40, 96), reals(48), reals(48)], {"convention": "interleaved"}),
    (
        "scaled_dot_product_attention",
        [reals(8, 40, 64), reals(4, 60, 64), reals(4, 60, 80)],
        {"enable_gqa": True},
    ),
    (
        "scaled_dot_product_attention",
        [reals(8, 40, 64), reals(8, 40, 64), reals(8, 40, 80)],
        {"is_causal": True},
    ),
    ("cross_entropy", [reals(80, 96), integers(3, 80)], {}),
    ("embedding", [integers(3, 80), reals(40, 96)], {}),
    ("gather", [reals(80, 96), integers(3, 80, 5)], {"axis": 1}),
    ("topk", [reals(80, 96)], {"k": 4}),
    ("max", [reals(80, 96)], {"axis": 0}),
    ("amax", [reals(80, 96)], {"axes": (0,)}),
    ("var", [positive(80, 96)], {"axes": -1}),
    ("where", [flags(80, 96), reals(96), reals(80, 1)], {}),
    ("one_hot", [integers(3, 80)], {"classes": 8}),
    ("positions", [reals(80, 96)], {"axis": 0, "offset": 40}),
    ("boundary", [reals(80, 96)], {"axis": 0, "offset": 160}),
    ("causal_mask", [reals(80, 80)], {}),
    ("full_like", [reals(80, 96)], {"value": 0}),
]


@pytest.mark.parametrize(
    ("kind", "arrays", "attributes"),
    LARGE,
    ids=[f"{kind}-{attributes}" for kind, _, attributes in LARGE],
)
@pytest.mark.parametrize("variant", [0, 1])
def test_reduced_shapes_are_those_computed(
    kind: str, arrays: list[Array], attributes: dict[str, Any], variant: int
) -> None:
    system = AxisSystem()
    algebra = AxisAlgebra(system)
    symbols = [algebra.tensor(a.shape, NUMBERS.kind(a)) for a in arrays]
    found = on_axes(algebra, kind, symbols, attributes)
    backward = (
        f"{kind}.backward"
        if operator_kind(kind).derivative is not None and all(v.kind == "field" for v in found)
        else None
    )
    both = {**attributes, "forward_inputs": len(arrays), "forward_outputs": len(found)}
    given = [*symbols, *found, *(AxisValue("field", v.dims) for v in found)]
    gradients = on_axes(algebra, backward, given, both) if backward else []
    sizes = system.solve(variant)

    small = [
        _of_shape(tuple(sizes.size(d) for d in v.dims), a)
        for v, a in zip(symbols, arrays, strict=True)
    ]
    computed = evaluate(
        NUMBERS, kind, small, reduce_attributes(kind, attributes, symbols, found, sizes)
    )
    assert [a.shape for a in computed] == [tuple(sizes.size(d) for d in v.dims) for v in found]
    if backward:
        reduced = reduce_attributes(backward, both, given, gradients, sizes)
        back = evaluate(NUMBERS, backward, [*small, *computed, *computed], reduced)
        assert [None if g is None else g.shape for g in back] == [
            a.shape if g is not None else None for g, a in zip(back, small, strict=True)
        ]
    if kind not in ("select", "pad", "rotary", "roll"):
        assert sum(a.size for a in small) < sum(a.size for a in arrays), "nothing was reduced"


def _of_shape(shape: tuple[int, ...], like: Array) -> Array:
    if like.dtype == np.int64:
        return integers(3, *shape)
    return flags(*shape) if like.dtype == np.bool_ else positive(*shape)
