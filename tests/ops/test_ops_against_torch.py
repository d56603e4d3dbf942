"""Meaning and derivative of every operator against PyTorch in float64.

They run in the package's float64 algebra and in a plain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from ops.ops_numpy_algebra import NumpyAlgebra
from ops.ops_rows import Array, Row, as_torch
from ops.ops_torch_rows import ROWS

from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import Value
from pitcheck.ops.registry import evaluate, operator_kind


def plainly(kind: str, inputs: Sequence[Array], attributes: Any) -> list[Any]:
    """Evaluate on NumPy arrays."""
    return evaluate(NumpyAlgebra(), kind, inputs, attributes)


def really(kind: str, inputs: Sequence[Array], attributes: Any) -> list[Any]:
    """Evaluate in the package's algebra of float64, one trial and one instance."""
    algebra = RealAlgebra(np, 1, (0,))
    values = [
        Value("field", a[None, None, None])
        if a.dtype == np.float64
        else algebra.integers(a[None, None])
        for a in map(np.asarray, inputs)
    ]
    results = evaluate(algebra, kind, values, attributes)
    return [None if v is None else np.asarray(v.data[0, 0, 0]) for v in results]


@pytest.mark.parametrize("run", [plainly, really], ids=["numpy", "real"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_meaning_and_derivative(row: Row, run: Any) -> None:
    tensors = as_torch(row.inputs, row.derivative)
    expected = row.oracle(*tensors)
    outputs = list(expected) if isinstance(expected, tuple | list) else [expected]
    got = run(row.kind, row.inputs, row.attributes)
    assert len(got) == len(outputs)
    for mine, theirs in zip(got, outputs, strict=True):
        assert mine.shape == tuple(theirs.shape)
        assert mine.dtype == theirs.detach().numpy().dtype
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-9, atol=1e-12)
    if row.derivative:
        _check_derivative(row, tensors, outputs, got, run)


def _check_derivative(
    row: Row, tensors: list[torch.Tensor], outputs: list[torch.Tensor], got: list[Any], run: Any
) -> None:
    assert operator_kind(row.kind).derivative is not None
    smooth = [i for i, t in enumerate(outputs) if t.is_floating_point()]
    generator = np.random.default_rng(3)
    seeds = [np.asarray(generator.normal(size=tuple(outputs[i].shape))) for i in smooth]
    varied = [t for t in tensors if t.requires_grad]
    expected = iter(
        torch.autograd.grad(
            [outputs[i] for i in smooth],
            varied,
            [torch.from_numpy(s) for s in seeds],
            allow_unused=True,
        )
    )
    attributes = {
        **row.attributes,
        "forward_inputs": len(tensors),
        "forward_outputs": len(outputs),
        "gradients": tuple(smooth),
    }
    gradients = run(f"{row.kind}.backward", [*row.inputs, *got, *seeds], attributes)
    assert len(gradients) == len(tensors)
    for tensor, mine in zip(tensors, gradients, strict=True):
        theirs = next(expected) if tensor.requires_grad else None
        if theirs is None:
            assert mine is None or not np.any(mine)
            continue
        assert mine.shape == tuple(tensor.shape)
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-8, atol=1e-11)
