"""Operators without exp, roots and order on residues.

They give exactly the rational results, modulo every prime of the chain.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from ops.ops_hand_rows import HAND_ROWS, HandRow
from ops.ops_rows import Array, Row, as_torch
from ops.ops_torch_rows import ROWS

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.algebra.value import Value
from pitcheck.ops.registry import evaluate

CHAIN = chains_of(3)[0]
RATIONAL = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "square",
        "reciprocal",
        "linear",
        "matmul",
        "bmm",
        "einsum",
        "sum",
        "mean",
        "var",
        "cumsum",
        "view",
        "reshape",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "expand",
        "identity",
        "contiguous",
        "multiref",
        "repeat_interleave",
        "chunk",
        "slice",
        "select",
        "split",
        "unbind",
        "cat",
        "stack",
        "pad",
        "flip",
        "roll",
        "tril",
        "triu",
        "embedding",
        "index_select",
        "index_add",
        "gather",
        "scatter_add",
        "where",
        "masked_fill",
        "one_hot",
        "positions",
        "boundary",
        "causal_mask",
        "full",
        "full_like",
        "rotary",
        "nll_loss",
        "mse_loss",
        "cast",
        "dropout",
    ]
)
RATIONAL_HAND = [row for row in HAND_ROWS if row.attributes.get("reduction") not in ("max", "min")]


def _whole(row: Row, number: int) -> Row:
    """Return the row with small integers, none 0, as its field inputs."""
    generator = np.random.default_rng([11, number])

    def chosen(a: Array) -> Array:
        drawn = generator.integers(1, 5, a.shape) * generator.choice([-1, 1], a.shape)
        return (
            np.asarray(drawn, dtype=np.float64)
            if a.dtype == np.float64 and np.isfinite(a).all()
            else a
        )

    return replace(row, inputs=tuple(chosen(a) for a in row.inputs))


EXACT = [
    _whole(row, i)
    for i, row in enumerate(ROWS)
    if row.kind in RATIONAL and not (row.kind == "cast" and row.attributes["dtype"] == "int64")
]


def residues(numbers: Array) -> Array:
    """Return rationals modulo every prime, shape (levels, *shape).

    They are given as floats and have small denominators.
    """
    exact = [Fraction(float(n)).limit_denominator(10**4) for n in numbers.reshape(-1)]
    assert all(abs(float(e) - n) < 1e-9 for e, n in zip(exact, numbers.reshape(-1), strict=True))
    return np.array(
        [[e.numerator * pow(e.denominator, -1, p) % p for e in exact] for p in CHAIN.primes],
        dtype=np.int64,
    ).reshape(len(CHAIN), *numbers.shape)


def value(algebra: ResidueAlgebra, a: Array) -> Value:
    """Return an array as the same value in every trial."""
    if a.dtype != np.float64:
        return algebra.integers(np.asarray(a)[None, None])
    if not np.isfinite(a).all():
        return algebra.constant(float(a))
    data = residues(a)
    return Value("field", np.repeat(data[:, None, None], len(algebra.trials), axis=1))


def check(result: Any, expected: Array) -> None:
    if expected.dtype != np.float64:
        assert result.kind == ("bool" if expected.dtype == np.bool_ else "int")
        np.testing.assert_array_equal(
            np.broadcast_to(result.data, (1, *result.data.shape[1:3], *expected.shape))[0, 0, 0],
            expected,
        )
        return
    finite = np.isfinite(expected)
    wanted = residues(np.where(finite, expected, 0.0))
    assert (result.special is None) == finite.all()
    for trial in range(result.data.shape[1]):
        np.testing.assert_array_equal(
            np.where(finite, result.data[:, trial, 0], 0), np.where(finite, wanted, 0)
        )


@pytest.mark.parametrize("row", EXACT, ids=lambda row: row.label)
def test_residues_are_the_exact_results(row: Row) -> None:
    algebra = ResidueAlgebra(np, CHAIN, 5, (0, 1))
    tensors = as_torch(row.inputs, row.derivative)
    expected = row.oracle(*tensors)
    outputs = list(expected) if isinstance(expected, tuple | list) else [expected]
    inputs = [value(algebra, a) for a in row.inputs]
    got = evaluate(algebra, row.kind, inputs, row.attributes)
    for mine, theirs in zip(got, outputs, strict=True):
        check(mine, theirs.detach().numpy())
    if not row.derivative:
        return
    seeds = [
        np.random.default_rng(12).integers(-4, 5, tuple(t.shape)).astype(np.float64)
        for t in outputs
    ]
    varied = [t for t in tensors if t.requires_grad]
    gradients = iter(
        torch.autograd.grad(
            outputs, varied, [torch.from_numpy(np.asarray(s)) for s in seeds], allow_unused=True
        )
    )
    attributes = {**row.attributes, "forward_inputs": len(inputs), "forward_outputs": len(got)}
    back = evaluate(
        algebra,
        f"{row.kind}.backward",
        [*inputs, *got, *(value(algebra, np.asarray(s)) for s in seeds)],
        attributes,
    )
    for tensor, mine in zip(tensors, back, strict=True):
        theirs = next(gradients) if tensor.requires_grad else None
        if theirs is not None:
            check(mine, theirs.numpy())


@pytest.mark.parametrize("row", RATIONAL_HAND, ids=lambda row: row.label)
def test_residues_of_communication(row: HandRow) -> None:
    algebra = ResidueAlgebra(np, CHAIN, 5, (0, 1))
    (result,) = evaluate(
        algebra, row.kind, [value(algebra, a) for a in row.inputs()], row.attributes
    )
    check(result, np.array(row.result, dtype=np.float64))
