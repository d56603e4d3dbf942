"""Operators run on dimensions: shapes, messages, ties."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem, AxisValue, Size, Sizes
from pitcheck.errors import ShapeError
from pitcheck.ops.axis_attributes import reduce_attributes, symbolic_attributes
from pitcheck.ops.registry import evaluate


@pytest.fixture
def system() -> AxisSystem:
    return AxisSystem()


@pytest.fixture
def axes(system: AxisSystem) -> AxisAlgebra:
    return AxisAlgebra(system)


def run(algebra: AxisAlgebra, kind: str, *inputs: AxisValue, **attributes: Any) -> AxisValue:
    return evaluate(algebra, kind, inputs, symbolic_attributes(kind, attributes))[0]


def small(sizes: Sizes, value: AxisValue) -> tuple[int, ...]:
    return tuple(sizes.size(d) for d in value.dims)


# --- shape rule


@pytest.mark.parametrize(
    ("shapes", "compute", "message"),
    [
        (((3, 4), (5,)), lambda a, x, y: a.add(x, y), "do not broadcast"),
        (((3, 4), (5, 6)), lambda a, x, y: a.matmul(x, y), r"not \(3, 4\) and \(5, 6\)"),
        (((4,), (4, 2)), lambda a, x, y: a.matmul(x, y), "matmul takes"),
        (((2, 3), (3, 3)), lambda a, x, y: a.concatenate([x, y], 1), "dimension 0 differs"),
        (((2, 3), (3,)), lambda a, x, y: a.concatenate([x, y], 1), "number of dimensions"),
        (((2, 3), ()), lambda a, x, y: a.reshape(x, (4, 2)), "number of elements"),
        (((2, 3), ()), lambda a, x, y: a.slice(x, 1, 1, 4), "does not lie within"),
        (((2, 3), ()), lambda a, x, y: a.slice(x, 1, 0, 3, 0), "does not lie within"),
        (((2, 3), ()), lambda a, x, y: a.sum(x, (2,)), "axis 2 is outside"),
        (((2, 3), ()), lambda a, x, y: a.sum(x, (1, 1)), "stands twice"),
        (((2, 3), ()), lambda a, x, y: a.transpose(x, (0, 0)), "permutation"),
        (((2, 3), ()), lambda a, x, y: a.expand(x, (4, 3)), "cannot be expanded"),
        (((2, 0), ()), lambda a, x, y: a.reduce_max(x, 1), "empty"),
        (((2, 3), (2,)), lambda a, x, y: a.take(x, 0, y), "takes int values"),
        (((2, 3), (2, 3)), lambda a, x, y: a.logical_and(x, y), "takes bool values"),
        (((2, 3), (2, 3)), lambda a, x, y: a.where(x, x, y), "takes bool values"),
        (((2, 3), (2, 3)), lambda a, x, y: a.add(x, a.cast(y, "int")), "one kind"),
        (((2, 3), (2, 3)), lambda a, x, y: a.exp(a.cast(x, "int")), "takes field values"),
        (
            ((2, 3), (2, 3)),
            lambda a, x, y: a.sum(a.cast(x, "bool"), (0,)),
            "takes field or int values",
        ),
        (
            ((2, 3), (4, 3)),
            lambda a, x, y: a.add_at(x, 0, a.cast(a.tensor((5,)), "int"), y),
            r"source of shape \(5, 3\)",
        ),
        (
            ((2, 3), (2, 3)),
            lambda a, x, y: a.take_along(x, 0, a.tensor((2, 4), "int")),
            "do not index",
        ),
    ],
)
def test_operands_that_do_not_fit(
    axes: AxisAlgebra, shapes: Any, compute: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        compute(axes, *(axes.tensor(s) for s in shapes))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4,)),
        ((2, 1, 4), (3, 1)),
        ((), (2, 3)),
        ((5, 1), (1, 7)),
        ((0, 3), (1, 3)),
        ((1,), (0,)),
    ],
)
def test_broadcasting_as_numpy(axes: AxisAlgebra, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    expected = np.broadcast_shapes(a, b)
    assert axes.shape(axes.multiply(axes.tensor(a), axes.tensor(b))) == expected
    assert (
        axes.shape(axes.where(axes.tensor(a, "bool"), axes.tensor(b), axes.constant(Fraction(1))))
        == expected
    )


def test_shapes_of_indexing(axes: AxisAlgebra) -> None:
    x, indices = axes.tensor((6, 50, 7)), axes.tensor((2, 3), "int")
    assert axes.shape(axes.take(x, 1, indices)) == (6, 2, 3, 7)
    assert axes.shape(axes.take_along(x, 1, axes.tensor((6, 4, 7), "int"))) == (6, 4, 7)
    assert axes.shape(axes.order(x, 1, True)) == (6, 50, 7)
    assert axes.kind(axes.order(x, 1, True)) == "int"
    assert axes.shape(axes.stack(x, np.zeros((5, 4), dtype=np.int64))) == (4, 6, 50, 7)


# --- ties


def test_attention_projection_of_a_shard(system: AxisSystem, axes: AxisAlgebra) -> None:
    x, whole, local = axes.tensor((4, 128, 512)), axes.tensor((512, 512)), axes.tensor((64, 512))
    system.tie(local.dims[0], whole.dims[0], 64)
    heads = run(axes, "view", run(axes, "linear", x, whole), sizes=(4, 128, 32, 16))
    mine = run(axes, "view", run(axes, "linear", x, local), sizes=(4, 128, 4, 16))
    sizes = system.solve(0)
    assert small(sizes, heads)[2] == 8 * small(sizes, mine)[2]
    assert small(sizes, heads)[3] == small(sizes, mine)[3]
    assert sizes.size(whole.dims[0]) == small(sizes, heads)[2] * small(sizes, heads)[3]
    assert len(set(small(sizes, heads))) == 4


def test_split_and_join_in_order_is_the_same_dimension(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    x = axes.tensor((6, 64))
    back = run(axes, "view", run(axes, "view", x, sizes=(6, 8, 8)), sizes=(6, 64))
    axes.add(x, back)
    sizes = system.solve(0)
    assert small(sizes, x) == small(sizes, back)
    assert sizes.size(x.dims[1]) < 64


def test_joining_factors_in_another_order_marks_them_permuted(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    x = axes.tensor((1000 * 700,))
    parts = run(axes, "view", x, sizes=(1000, 700))
    run(axes, "view", run(axes, "transpose", parts, dim0=0, dim1=1), sizes=(-1,))
    assert min(small(system.solve(0), parts)) == 5
    other = AxisSystem()
    plain = run(
        AxisAlgebra(other), "view", AxisAlgebra(other).tensor((1000 * 700,)), sizes=(1000, 700)
    )
    assert min(small(other.solve(0), plain)) == 3


def test_interleaving_and_its_opposite_keep_the_dimension_whole(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    x = axes.tensor((60,))
    turned = run(
        axes,
        "view",
        run(axes, "transpose", run(axes, "view", x, sizes=(30, 2)), dim0=0, dim1=1),
        sizes=(60,),
    )
    axes.add(x, turned)
    sizes = system.solve(0)
    assert small(sizes, x) == small(sizes, turned)


def test_twelve_as_three_by_four_and_four_by_three_is_rigid(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    x = axes.tensor((300, 400))
    turned = run(axes, "view", x, sizes=(400, 300))
    assert small(system.solve(0), x) == (300, 400)
    assert small(system.solve(0), turned) == (400, 300)


def test_all_gather_of_shards_is_the_whole(system: AxisSystem, axes: AxisAlgebra) -> None:
    whole, local = axes.tensor((5, 512)), axes.tensor((5, 64))
    for i in range(8):
        system.tie(local.dims[1], whole.dims[1], 64 * i)
    gathered = run(axes, "all_gather", axes.stack(local, np.zeros((8, 8), dtype=np.int64)), axis=1)
    axes.add(gathered, whole)
    sizes = system.solve(0)
    assert small(sizes, whole) == small(sizes, gathered) == (
        5,
        8 * small(sizes, local)[1],
    ) or small(sizes, whole)[0] in (3, 4)
    assert small(sizes, whole)[1] == 24


def test_reduce_scatter_and_all_to_all_keep_the_number_of_members(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    stack = axes.stack(axes.tensor((64, 80)), np.zeros((4, 4), dtype=np.int64))
    scattered = run(axes, "reduce_scatter", stack, axis=0, position=2)
    exchanged = run(axes, "all_to_all", stack, split_axis=0, concat_axis=1, position=1)
    assert axes.shape(scattered) == (16, 80)
    assert axes.shape(exchanged) == (16, 320)
    sizes = system.solve(0)
    assert sizes.size(stack.dims[1]) == 4 * small(sizes, scattered)[0]
    assert small(sizes, exchanged)[1] == 4 * sizes.size(stack.dims[2])


def test_stacked_single_elements_stay(system: AxisSystem, axes: AxisAlgebra) -> None:
    parts = [axes.reshape(x, (1, *axes.shape(x))) for x in (axes.tensor((50,)) for _ in range(8))]
    stacked = axes.concatenate(parts, 0)
    assert small(system.solve(0), stacked)[0] == 8


def test_positions_compared_with_each_other_do_not_fix_a_dimension(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    scores = axes.tensor((4, 100, 100))
    run(axes, "causal_mask", scores)
    sizes = system.solve(0)
    assert small(sizes, scores)[1] == small(sizes, scores)[2] < 100


@pytest.mark.parametrize(
    "use",
    [
        lambda a, x, p: a.cast(p, "field"),
        lambda a, x, p: a.add(p, a.constant(Fraction(1), "int")),
        lambda a, x, p: a.compare("lt", p, a.constant(Fraction(7), "int")),
        lambda a, x, p: a.compare("lt", a.reshape(p, (Size(100), 1)), a.arange(a.tensor((90,)), 0)),
        lambda a, x, p: a.take(a.tensor((5, 6)), 0, p),
        lambda a, x, p: a.draw("s", p),
        lambda a, x, p: a.concatenate([p, p], 0),
        lambda a, x, p: a.slice(p, 0, 0, Size(50)),
        lambda a, x, p: a.flip(p, 0),
        lambda a, x, p: a.sum(p, (0,)),
        lambda a, x, p: a.where(a.tensor((100,), "bool"), p, p),
    ],
)
def test_positions_used_as_values_fix_a_dimension(
    system: AxisSystem, axes: AxisAlgebra, use: Callable[..., Any]
) -> None:
    x = axes.tensor((100,))
    use(axes, x, axes.arange(x, 0))
    assert small(system.solve(0), x) == (100,)


def places(axes: AxisAlgebra, whole: AxisValue, start: int) -> AxisValue:
    """Return the places of a quarter of a dimension, which begins there."""
    part = axes.slice(whole, 0, Size(start), Size(start + 25))
    return axes.add(axes.arange(part, 0), axes.boundary(whole, 0, Size(start)))


def test_places_of_parts_that_are_joined_remain_places(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    whole = axes.tensor((100,))
    ends = axes.concatenate([places(axes, whole, 75), places(axes, whole, 0)], 0)
    axes.compare("lt", axes.reshape(ends, (Size(50), Size(1))), axes.arange(whole, 0))
    sizes = system.solve(0)
    assert small(sizes, whole)[0] == 2 * small(sizes, ends)[0] < 100


@pytest.mark.parametrize(
    "use",
    [
        lambda a, p, q: a.concatenate([p, a.tensor((7,), "int")], 0),
        lambda a, p, q: a.add(a.concatenate([p, q], 0), a.constant(Fraction(1), "int")),
        lambda a, p, q: a.cast(a.concatenate([p, q], 0), "field"),
    ],
)
def test_places_joined_with_other_integers_or_used_as_such_are_numbers(
    system: AxisSystem, axes: AxisAlgebra, use: Callable[..., Any]
) -> None:
    whole = axes.tensor((100,))
    use(axes, places(axes, whole, 75), places(axes, whole, 0))
    assert small(system.solve(0), whole) == (100,)


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "fixed"),
    [
        ("embedding", ((8, 90), (70, 50)), {}, {(1, 0)}),
        ("topk", ((60, 70),), {"k": 4, "axis": 1}, {(0, 1)}),
        ("sort", ((60, 70),), {"axis": 0}, {(0, 0)}),
        ("roll", ((60, 70),), {"axis": 0, "shift": 20}, {(0, 0)}),
        ("pad", ((60, 70),), {"axis": 0, "before": 20}, set()),
        ("pad", ((60, 70),), {"axis": 0, "before": 7}, {(0, 0)}),
        ("repeat_interleave", ((60, 70),), {"axis": 0, "count": 5}, set()),
        ("slice", ((60, 70),), {"axis": 0, "start": 20, "stop": 41}, {(0, 0)}),
        ("slice", ((60, 70),), {"axis": 0, "start": 20, "stop": 40, "step": 2}, {(0, 0)}),
        ("slice", ((60, 70),), {"axis": 0, "start": 20, "stop": 40}, set()),
        ("select", ((60, 70),), {"axis": 0, "index": 59}, {(0, 0)}),
        ("cumsum", ((60, 70),), {"axis": 0}, set()),
        ("amax", ((60, 70),), {"axes": (0,)}, set()),
        ("softmax", ((60, 70),), {"axis": 1}, set()),
        ("uniform", ((60, 70),), {"stream": "s"}, {(0, 0), (0, 1)}),
    ],
)
def test_what_becomes_rigid(
    system: AxisSystem,
    axes: AxisAlgebra,
    kind: str,
    shapes: Any,
    attributes: dict[str, Any],
    fixed: set[tuple[int, int]],
) -> None:
    inputs = [
        axes.tensor(s, "int" if kind == "embedding" and i == 0 else "field")
        for i, s in enumerate(shapes)
    ]
    run(axes, kind, *inputs, **attributes)
    sizes = system.solve(0)
    assert {
        (i, j)
        for i, v in enumerate(inputs)
        for j, d in enumerate(v.dims)
        if sizes.size(d) == d.size
    } == fixed


def test_a_flipped_dimension_has_at_least_five(system: AxisSystem, axes: AxisAlgebra) -> None:
    x = axes.tensor((60,))
    axes.flip(x, 0)
    assert small(system.solve(0), x) == (5,)


def test_a_result_filled_in_the_shape_of_an_input_is_tied_to_it(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    x = axes.tensor((60, 70))
    zeros = run(axes, "full_like", x, value=0)
    sizes = system.solve(0)
    assert small(sizes, zeros) == small(sizes, x)


def test_a_literal_mean_keeps_the_dimension_and_an_extent_does_not(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    x, y = axes.tensor((60, 70)), axes.tensor((60, 70))
    run(axes, "mean", x, axes=(1,))
    axes.multiply(axes.sum(y, (1,)), axes.constant(Fraction(1, 70)))
    sizes = system.solve(0)
    assert small(sizes, y)[1] == 70
    other = AxisSystem()
    z = AxisAlgebra(other).tensor((60, 70))
    run(AxisAlgebra(other), "mean", z, axes=(1,))
    assert small(other.solve(0), z)[1] < 70


def test_a_literal_mean_over_two_dimensions_keeps_both(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    x = axes.tensor((60, 70))
    axes.multiply(axes.sum(x, (0, 1)), axes.constant(Fraction(1, 4200)))
    assert small(system.solve(0), x) == (60, 70)


# --- attributes


def test_attributes_at_reduced_sizes(system: AxisSystem, axes: AxisAlgebra) -> None:
    x = axes.tensor((60, 80))
    view_attributes = {"sizes": (60, 8, -1)}
    y = run(axes, "view", x, **view_attributes)
    cut = {"axis": -1, "start": 20, "stop": 60}
    z = run(axes, "slice", x, **cut)
    sizes = system.solve(0)
    assert reduce_attributes("view", view_attributes, [x], [y], sizes)["sizes"] == (
        *small(sizes, y)[:2],
        -1,
    )
    reduced = reduce_attributes("slice", cut, [x], [z], sizes)
    assert reduced["axis"] == -1
    assert reduced["stop"] - reduced["start"] == small(sizes, z)[1]
    assert reduced["start"] * 4 == small(sizes, x)[1]


def test_sizes_of_a_split_are_scaled(system: AxisSystem, axes: AxisAlgebra) -> None:
    x = axes.tensor((60,))
    attributes = {"axis": 0, "sizes": (10, 20, 30)}
    parts = evaluate(axes, "split", [x], symbolic_attributes("split", attributes))
    assert reduce_attributes("split", attributes, [x], parts, system.solve(0))["sizes"] == (3, 6, 9)


def test_the_place_of_a_member_in_a_group_is_no_position(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    stack = axes.stack(axes.tensor((64,)), np.zeros((4, 4), dtype=np.int64))
    attributes = {"axis": 0, "position": 3}
    out = run(axes, "reduce_scatter", stack, **attributes)
    assert (
        reduce_attributes("reduce_scatter", attributes, [stack], [out], system.solve(0))
        == attributes
    )


def test_attributes_of_a_derivative_refer_to_the_forward_operator(
    system: AxisSystem, axes: AxisAlgebra
) -> None:
    x, y, dy = axes.tensor((60, 80)), axes.tensor((60, 8, 10)), axes.tensor((60, 8, 10))
    attributes = {"sizes": (60, 8, 10)}
    (dx,) = evaluate(
        axes, "view.backward", [x, y, dy], symbolic_attributes("view.backward", attributes)
    )
    sizes = system.solve(0)
    assert reduce_attributes("view.backward", attributes, [x, y, dy], [dx], sizes)[
        "sizes"
    ] == small(sizes, y)


# --- sizes that follow


def test_arithmetic_of_sizes() -> None:
    size = Size(12)
    follows = [
        size + Size(2),
        size - Size(2),
        size * 3,
        3 * size,
        size // 4,
        size // Size(6),
        size + 0,
        0 + size,
        Size(2) * size,
    ]
    assert [int(n) for n in follows] == [14, 10, 36, 36, 3, 2, 12, 12, 24]
    assert all(isinstance(n, Size) for n in follows)
    literal = [size + 1, 1 + size, size - 1, 13 - size, size // 5, size % 5, -size]
    assert [int(n) for n in literal] == [13, 13, 11, 1, 2, 2, -12]
    assert not any(isinstance(n, Size) for n in literal)
