"""Adafactor (Shazeer and Stern, 2018), as ``torch.optim.Adafactor`` computes it.

PyTorch reads two norms of each parameter as numbers, and goes on with the greater one of each and a
constant. Here they stay tensors, so that a step can be recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def adafactor(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    row_vars: Sequence[Tensor | None],
    col_vars: Sequence[Tensor | None],
    variances: Sequence[Tensor | None],
    state_steps: Sequence[Tensor],
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
    *,
    lr: float | Tensor,
    maximize: bool,
    **options: Any,
) -> None:
    """Change parameters and their statistics by a step.

    The statistics of a matrix are those of its rows and of its columns. Raises ValueError for a
    scale, which has to be undone before the step.
    """
    if grad_scale is not None or found_inf is not None:
        raise ValueError("Adafactor undoes no scale; call GradScaler.unscale_ before")
    rate = float(lr.item()) if isinstance(lr, torch.Tensor) else lr
    for each in zip(params, grads, row_vars, col_vars, variances, state_steps, strict=True):
        param, grad, row_var, col_var, variance, step = each
        step.add_(1)
        gradient = -grad if maximize else grad
        _step(param, gradient, row_var, col_var, variance, step.item(), lr=rate, **options)


def _step(
    param: Tensor,
    grad: Tensor,
    row_var: Tensor | None,
    col_var: Tensor | None,
    variance: Tensor | None,
    step: float,
    *,
    lr: float,
    d: float,
    beta2_decay: float,
    weight_decay: float,
    eps1: float | None,
    eps2: float,
    **_: Any,
) -> None:
    least = torch.finfo(param.dtype).eps if eps1 is None else eps1
    weight = step**beta2_decay
    size = _deviation(param).clamp(min=eps2) * min(lr, step**-0.5)
    if weight_decay:
        param.mul_(1 - lr * weight_decay)
    squares = grad * grad
    if row_var is not None and col_var is not None:
        row_var.lerp_(squares.mean(-1, keepdim=True), weight)
        col_var.lerp_(squares.mean(-2, keepdim=True), weight)
        estimate = row_var @ col_var / row_var.mean(-2, keepdim=True).clamp(min=least)
    elif variance is not None:
        variance.lerp_(squares, weight)
        estimate = variance
    else:
        raise ValueError("Adafactor has no statistics of a parameter")
    update = estimate.clamp(min=least * least).rsqrt() * grad
    param.sub_(update * (size / (_deviation(update) / d).clamp(min=1.0)))


def _deviation(tensor: Tensor) -> Tensor:
    """Return the root of the mean of the squares."""
    return tensor.square().mean().sqrt()
