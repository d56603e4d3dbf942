"""Operators at shapes and attributes that Hypothesis chooses, against PyTorch.

Laws that hold for all of them are here, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.ops_numpy_algebra import NumpyAlgebra
from ops.ops_rows import integers, reals

from pitcheck.ops.registry import evaluate

SETTINGS = settings(deadline=None, derandomize=True, max_examples=50)
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def run(kind: str, *inputs: Any, **attributes: Any) -> list[Any]:
    return evaluate(NumpyAlgebra(), kind, inputs, attributes)


@SETTINGS
@given(data=st.data())
def test_broadcast_operands_get_gradients_of_their_shape(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)

    def shrunk() -> tuple[int, ...]:
        kept = tuple(n if data.draw(st.booleans()) else 1 for n in shape)
        return kept[data.draw(st.integers(0, len(kept))) :]

    kind = data.draw(st.sampled_from(["add", "sub", "mul", "div", "maximum", "minimum"]))
    a, b = reals(*shrunk(), seed=1), reals(*shrunk(), seed=2)
    x, y = (torch.from_numpy(v).requires_grad_() for v in (a, b))
    expected = getattr(torch, kind)(x, y)
    dy = reals(*expected.shape, seed=3)
    (result,) = run(kind, a, b)
    np.testing.assert_allclose(result, expected.detach().numpy(), rtol=1e-12)
    mine = run(f"{kind}.backward", a, b, result, dy)
    for gradient, theirs in zip(
        mine, torch.autograd.grad(expected, (x, y), torch.from_numpy(dy)), strict=True
    ):
        assert gradient.shape == tuple(theirs.shape)
        np.testing.assert_allclose(gradient, theirs.numpy(), rtol=1e-9, atol=1e-12)


@SETTINGS
@given(data=st.data())
def test_reductions_over_any_axes(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    signed = tuple(a - len(shape) if data.draw(st.booleans()) else a for a in axes)
    keepdim = data.draw(st.booleans())
    x = reals(*shape)
    for kind in ("sum", "mean", "amax", "amin"):
        expected = getattr(torch, kind)(torch.from_numpy(x), dim=signed, keepdim=keepdim).numpy()
        (result,) = run(kind, x, axes=signed, keepdim=keepdim)
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-12)


@SETTINGS
@given(
    members=st.integers(1, 4),
    rows=st.integers(1, 3),
    columns=st.integers(1, 3),
    axis=st.integers(-2, 1),
)
def test_what_is_scattered_and_gathered_is_whole_again(
    members: int, rows: int, columns: int, axis: int
) -> None:
    """Compare all-gather of a reduce-scatter's parts with all-reduce.

    All-to-all there and back changes nothing.
    """
    stack = integers(100, members, members * rows, members * columns).astype(np.float64)
    parts = [run("reduce_scatter", stack, axis=axis, position=p)[0] for p in range(members)]
    (whole,) = run("all_gather", np.stack(parts), axis=axis)
    np.testing.assert_array_equal(whole, run("all_reduce", stack)[0])
    there = np.stack(
        [
            run("all_to_all", stack, split_axis=axis, concat_axis=1 - axis % 2, position=p)[0]
            for p in range(members)
        ]
    )
    back = np.stack(
        [
            run("all_to_all", there, split_axis=1 - axis % 2, concat_axis=axis, position=p)[0]
            for p in range(members)
        ]
    )
    np.testing.assert_array_equal(back, stack)


@SETTINGS
@given(shape=SHAPES, axis=st.integers(0, 3), count=st.integers(1, 4))
def test_chunks_joined_are_the_whole(shape: tuple[int, ...], axis: int, count: int) -> None:
    axis %= len(shape)
    x = reals(*(n * count if i == axis else n for i, n in enumerate(shape)))
    chunks = [run("chunk", x, axis=axis, count=count, position=p)[0] for p in range(count)]
    np.testing.assert_array_equal(run("cat", *chunks, axis=axis)[0], x)
    np.testing.assert_array_equal(np.concatenate(np.split(x, count, axis), axis), x)
    np.testing.assert_array_equal(np.stack(chunks), np.stack(np.split(x, count, axis)))


@SETTINGS
@given(data=st.data())
def test_contractions_of_any_indices(data: st.DataObject) -> None:
    sizes = {name: data.draw(st.integers(1, 3)) for name in "abcd"}
    names = st.lists(st.sampled_from("abcd"), unique=True, max_size=3).map("".join)
    operands = data.draw(st.lists(names, min_size=1, max_size=3))
    present = sorted(set("".join(operands)))
    result = "".join(data.draw(st.lists(st.sampled_from(present), unique=True))) if present else ""
    equation = f"{','.join(operands)}->{result}"
    arrays = [reals(*(sizes[n] for n in names), seed=i) for i, names in enumerate(operands)]
    expected = np.einsum(equation, *arrays)
    np.testing.assert_allclose(
        run("einsum", *arrays, equation=equation)[0], expected, rtol=1e-9, atol=1e-12
    )
