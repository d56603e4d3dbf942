"""Labels of an operator's results against the elements that really change.

They follow from labels of a part of its operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ops.ops_hand_rows import HAND_ROWS
from ops.ops_torch_rows import ROWS

from pitcheck.algebra.dependence.taint import TaintAlgebra, Tainted
from pitcheck.algebra.dependence.taint_mask import blocks_of
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import Value
from pitcheck.errors import PitcheckError
from pitcheck.ops.registry import evaluate, operator_kind

Array = NDArray[Any]
Case = tuple[str, Sequence[Array], dict[str, Any]]
MOVES = {
    "view",
    "reshape",
    "transpose",
    "permute",
    "slice",
    "cat",
    "stack",
    "flip",
    "expand",
    "pad",
    "roll",
    "index_select",
    "chunk",
    "split",
    "select",
}
MOVES |= {
    "squeeze",
    "unsqueeze",
    "unbind",
    "identity",
    "all_gather",
    "broadcast",
    "all_to_all",
    "scatter_from",
    "gather_to",
    "tril",
    "triu",
}
"""Operators whose result has a label exactly where an operand's element went."""


def _real(kind: str, inputs: Sequence[Array], attributes: dict[str, Any]) -> list[Array | None]:
    algebra = RealAlgebra(np, 1, (0,))
    values = [
        algebra.integers(a[None, None])
        if a.dtype.kind in "ib"
        else Value("field", a[None, None, None])
        for a in inputs
    ]
    with np.errstate(all="ignore"):
        results = evaluate(algebra, kind, values, attributes)
    return [None if v is None else np.asarray(v.data[0, 0, 0]) for v in results]


def _tainted(a: Array, part: Array | None, known: bool) -> Tainted:
    kind = {"b": "bool", "i": "int"}.get(a.dtype.kind, "field")
    number = (
        RealAlgebra(np, 1, (0,)).integers(a[None, None])
        if known and part is None and kind != "field"
        else None
    )
    return Tainted(kind, a.shape, blocks_of(part[None]) if part is not None else None, number)  # type: ignore[arg-type]


def _labelled(
    kind: str,
    inputs: Sequence[Array],
    attributes: dict[str, Any],
    place: int,
    part: Array,
    known: bool,
) -> list[Array | None]:
    algebra = TaintAlgebra()
    results = evaluate(
        algebra,
        kind,
        [_tainted(a, part if i == place else None, known) for i, a in enumerate(inputs)],
        attributes,
    )
    found: list[Array | None] = []
    for result in results:
        cells = (
            None
            if result is None or result.labels is None
            else result.labels.refined(tuple(tuple(range(n + 1)) for n in result.shape)).cells
        )
        found.append(
            None
            if result is None
            else np.zeros(result.shape, dtype=bool)
            if cells is None
            else np.asarray(cells[0] > 0)
        )
    return found


def _others(a: Array, part: Array, generator: np.random.Generator) -> list[Array]:
    """Return the operand with other numbers in the part."""
    if a.dtype.kind == "b":
        return [np.where(part, ~a, a)]
    if a.dtype.kind == "i":
        return [
            np.where(part, generator.permutation(a.reshape(-1)).reshape(a.shape), a),
            np.where(part, np.min(a, initial=0), a),
        ]
    return [
        np.where(part, fill, a)
        for fill in (
            np.nan,
            np.inf,
            0.0,
            generator.normal(size=a.shape),
            -generator.exponential(size=a.shape),
        )
    ]


@cache
def _cases() -> list[Case]:
    """Every row, and the derivative of those that have one."""
    found: list[Case] = []
    for row in ROWS:
        found.append((row.kind, row.inputs, dict(row.attributes)))
        if row.derivative and operator_kind(row.kind).derivative is not None:
            outputs = _real(row.kind, row.inputs, dict(row.attributes))
            smooth = [
                i
                for i, output in enumerate(outputs)
                if output is not None and output.dtype == np.float64
            ]
            generator = np.random.default_rng(3)
            seeds = [np.asarray(generator.normal(size=outputs[i].shape)) for i in smooth]  # type: ignore[union-attr]
            more = {
                "forward_inputs": len(row.inputs),
                "forward_outputs": len(outputs),
                "gradients": tuple(smooth),
            }
            found.append(
                (
                    f"{row.kind}.backward",
                    [*row.inputs, *outputs, *seeds],
                    {**row.attributes, **more},
                )
            )  # type: ignore[list-item]
    found += [(row.kind, row.inputs(), dict(row.attributes)) for row in HAND_ROWS]
    return found


def _parts(shape: tuple[int, ...], generator: np.random.Generator) -> list[Array]:
    """Elements here and there, all, and the last row."""
    scattered, last = generator.random(shape) < 0.3, np.zeros(shape, dtype=bool)
    last[(slice(-1, None),) if shape else ()] = True
    return [scattered, np.ones(shape, dtype=bool), last]


def _changed(a: Array, b: Array) -> Array:
    return ~((a == b) | ((a != a) & (b != b)))


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in _cases()}))
def test_what_changes_has_a_label(kind: str) -> None:
    generator = np.random.default_rng(5)
    for _, inputs, attributes in (case for case in _cases_of(kind)):
        plain = _real(kind, inputs, attributes)
        for place, operand in enumerate(inputs):
            for part in _parts(np.asarray(operand).shape, generator):
                labels = [
                    _labelled(kind, inputs, attributes, place, part, known)
                    for known in (False, True)
                ]
                moved = [np.zeros_like(own) if own is not None else None for own in labels[1]]
                for other in _others(np.asarray(operand), part, generator):
                    _hold(
                        kind,
                        [*inputs[:place], other, *inputs[place + 1 :]],
                        attributes,
                        plain,
                        labels,
                        moved,
                    )
                if kind in MOVES and operand.dtype.kind == "f":
                    assert all(
                        np.array_equal(own, seen)
                        for own, seen in zip(labels[1], moved, strict=True)
                        if own is not None
                    ), (kind, attributes)


def _cases_of(kind: str) -> list[Case]:
    return [case for case in _cases() if case[0] == kind]


def _hold(
    kind: str,
    inputs: Sequence[Array],
    attributes: dict[str, Any],
    plain: Sequence[Any],
    labels: Sequence[Any],
    moved: list[Any],
) -> None:
    try:
        got = _real(kind, inputs, attributes)
    except PitcheckError:
        return
    for number, (before, after) in enumerate(zip(plain, got, strict=True)):
        if before is None or after is None:
            continue
        changed = _changed(before, after)
        moved[number] |= changed
        for own in labels:
            assert not (changed & ~own[number]).any(), (kind, attributes, number)
