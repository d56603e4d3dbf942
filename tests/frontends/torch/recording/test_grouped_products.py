"""Products in groups against PyTorch's, and group by group in float64."""

from __future__ import annotations

import pytest
import torch

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.recording.grouped_products import grouped_product


def product(left: torch.Tensor, right: torch.Tensor, ends: list[int] | None) -> torch.Tensor:
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    found: torch.Tensor = grouped_product(lambda x: x, "here", (left, right), {"offs": offs})
    return found


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(
    ("left", "right", "ends"),
    [
        ((8, 4), (3, 4, 8), [2, 2, 8]),
        ((8, 4), (3, 4, 8), [0, 5, 8]),
        ((3, 8, 4), (4, 8), [3, 3, 8]),
        ((4, 8), (8, 4), [2, 2, 8]),
        ((3, 8, 4), (3, 4, 8), None),
    ],
)
def test_as_pytorch(left: tuple[int, ...], right: tuple[int, ...], ends: list[int] | None) -> None:
    a, b = drawn(*left), drawn(*right)
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    assert torch.allclose(product(a, b, ends), torch._grouped_mm(a, b, offs=offs), atol=1e-5)


def test_gradients_of_groups() -> None:
    """They are products in groups again, along the other dimensions."""
    x, weights, gradient = drawn(8, 4).double(), drawn(3, 4, 5).double(), drawn(8, 5).double()
    ends = [2, 2, 8]
    experts = [weights[0].clone()] * 2 + [weights[2].clone()] * 6
    by_row = torch.stack([gradient[row] @ expert.T for row, expert in enumerate(experts)])
    assert torch.allclose(product(gradient, weights.mT, ends), by_row)
    of_weights = product(x.T, gradient, ends)
    assert torch.equal(of_weights[1], torch.zeros(4, 5).double())
    assert torch.allclose(of_weights[2], x[2:].T @ gradient[2:])


def test_rows_behind_the_last_group_are_unwritten() -> None:
    assert product(drawn(8, 4), drawn(2, 4, 3), [2, 5]).shape == (8, 3)


@pytest.mark.parametrize("ends", [[5, 2], [2, 9], [-1, 3]])
def test_ends_that_do_not_rise(ends: list[int]) -> None:
    with pytest.raises(UnsupportedError, match="rise from 0 to 8"):
        product(drawn(8, 4), drawn(2, 4, 3), ends)


def test_unknown_ends_and_a_bias() -> None:
    given = drawn(8, 4), drawn(2, 4, 3), torch.tensor([2, 8])
    with pytest.raises(UnsupportedError, match=r"here: the ends .* Spec\.routings"):
        grouped_product(lambda _: None, "here", given, {})
    with pytest.raises(UnsupportedError, match="add it afterwards"):
        grouped_product(lambda x: x, "here", given, {"bias": drawn(3)})
