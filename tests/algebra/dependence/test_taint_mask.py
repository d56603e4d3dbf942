"""Labels in blocks, against arrays of one label per element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pitcheck.algebra.dependence import taint_mask
from pitcheck.algebra.dependence.taint import TaintAlgebra
from pitcheck.algebra.dependence.taint_mask import Labels, blocks_of, everywhere, joined, union

Array = NDArray[Any]
ROWS = 2
VIEWS = (
    ((4, 6), (24,)),
    ((4, 6), (2, 2, 6)),
    ((4, 6), (8, 3)),
    ((4, 6), (3, 8)),
    ((24,), (2, 3, 4)),
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (4, 3, 2)),
    ((2, 1, 12), (1, 24, 1)),
    ((1,), ()),
    ((), (1, 1)),
    ((5, 4), (2, 10)),
)


def random(generator: np.random.Generator, *shape: int) -> Array:
    """Labels of a few boxes."""
    result = np.zeros((ROWS, *shape), dtype=np.int32)
    for label in range(1, 4):
        box = tuple(
            slice(*sorted(generator.integers(0, n + 1, 2).tolist())) for n in (ROWS, *shape)
        )
        result[box] = label
    return result


def dense(labels: Labels) -> Array:
    """One label per element, for all instances."""
    cells = labels.refined(tuple(tuple(range(n + 1)) for n in labels.shape)).cells
    return np.broadcast_to(cells, (ROWS, *labels.shape))


@pytest.mark.parametrize(("old", "new"), VIEWS)
def test_views(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    generator = np.random.default_rng(1)
    for _ in range(30):
        array = random(generator, *old)
        np.testing.assert_array_equal(
            dense(blocks_of(array).reshaped(new)), array.reshape(ROWS, *new)
        )


def test_moves_and_sums() -> None:
    generator = np.random.default_rng(2)
    for _ in range(60):
        array, other = random(generator, 4, 5, 3), random(generator, 4, 2, 3)
        labels = blocks_of(array)
        start, stop = sorted(generator.integers(0, 6, 2).tolist())
        if start < stop:
            np.testing.assert_array_equal(
                dense(labels.part(1, start, stop)), array[:, :, start:stop]
            )
        places = generator.integers(0, 5, 7)
        np.testing.assert_array_equal(dense(labels.at(1, places)), array[:, :, places])
        np.testing.assert_array_equal(dense(labels.flipped(1)), array[:, :, ::-1])
        np.testing.assert_array_equal(
            dense(labels.transposed((2, 0, 1))), array.transpose(0, 3, 1, 2)
        )
        np.testing.assert_array_equal(dense(labels.largest((1,)).without((1,))), array.max(axis=2))
        np.testing.assert_array_equal(
            dense(joined([labels, blocks_of(other)], 1)), np.concatenate([array, other], axis=2)
        )
        np.testing.assert_array_equal(
            dense(union([labels, blocks_of(other[:, :, :1]).expanded((4, 5, 3))])),
            np.maximum(array, other[:, :, :1]),
        )


def test_instances() -> None:
    generator, algebra = np.random.default_rng(3), TaintAlgebra()
    array, other = (generator.integers(0, 3, (ROWS, 3, 4)) for _ in range(2))
    first, second = (replaced(algebra, a) for a in (array, other))
    index = np.array([[1, 0], [1, 1], [0, 0]])
    stacked = algebra.stack(first, index)
    assert stacked.shape == (2, 3, 4)
    assert stacked.labels is not None
    np.testing.assert_array_equal(
        stacked.labels.refined(((0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4))).cells, array[index]
    )
    both = algebra.join([first, second], (2, 2))
    chosen = algebra.gather(both, np.array([3, 0]))
    assert chosen.labels is not None
    np.testing.assert_array_equal(dense(chosen.labels), np.stack([other[1], array[0]]))


def replaced(algebra: TaintAlgebra, array: Array) -> Any:
    """Return a value with these labels."""
    held = algebra.clean("field", array.shape[1:])
    return type(held)(held.kind, held.shape, blocks_of(array))


def test_what_it_costs_does_not_depend_on_sizes() -> None:
    algebra = TaintAlgebra()
    rows, columns = 1 << 20, 1 << 12
    buffer = algebra.concatenate(
        [algebra.clean("field", (rows * columns,)), algebra.labelled(5, "field", (columns,))], 0
    )
    matrix = algebra.reshape(buffer, (rows + 1, columns))
    assert matrix.labels is not None
    assert matrix.labels.cuts == ((0, rows, rows + 1), (0, columns))
    product = algebra.matmul(matrix, algebra.clean("field", (columns, 8)))
    assert algebra.slice(product, 0, 0, rows).labels is None
    assert algebra.slice(product, 0, rows - 1, rows + 1).labels is not None


def test_too_many_blocks_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taint_mask, "MOST_CELLS", 8)
    array = np.arange(ROWS * 24, dtype=np.int32).reshape(ROWS, 4, 6) % 5
    for labels in (
        blocks_of(array),
        Labels(((0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5, 6)), array).reshaped((24,)),
    ):
        assert (dense(labels) == 4).all()
    assert (dense(union([everywhere(0, (4, 6)), blocks_of(array)])) == 4).all()
