"""Systems of linear equations whose matrix is a triangle with ones on its diagonal."""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


def solve_triangular(
    self: Tensor,
    B: Tensor,  # noqa: N803  as PyTorch names it
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Any:
    """Return X with A X = B (X A = B unless ``left``); NotImplemented for any other diagonal.

    A is 1 - N with N^n = 0, whose inverse is the product of 1 + N, 1 + N^2, 1 + N^4 and so on. So
    there is nothing to divide by.
    """
    if not unitriangular or self.is_complex():
        return NotImplemented
    power = -(self.triu(1) if upper else self.tril(-1))
    batch = torch.broadcast_shapes(self.shape[:-2], B.shape[:-2])
    result, reached = B.expand(*batch, *B.shape[-2:]), 1
    while reached < self.shape[-1]:
        result = result + (power @ result if left else result @ power)
        reached *= 2
        if reached < self.shape[-1]:
            power = power @ power
    return result
