"""Losses of differences, small ones squared and great ones not, and the loss of probabilities."""

from __future__ import annotations

import torch

Tensor = torch.Tensor
NONE, MEAN = 0, 1
"""The numbers of reductions; any other is a sum."""


def smooth_l1_loss(
    self: Tensor, target: Tensor, reduction: int = MEAN, beta: float = 1.0
) -> Tensor:
    """Return a loss that changes from one to the other at a difference of ``beta``."""
    difference = (self - target).abs()
    near = 0.5 * difference.square() / beta
    return _reduced(torch.where(difference < beta, near, difference - 0.5 * beta), reduction)


def smooth_l1_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, beta: float
) -> Tensor:
    """Return the gradient of :func:`smooth_l1_loss`."""
    difference = self - target
    slope = torch.where(difference.abs() < beta, difference / beta, difference.sign())
    return slope * _spread(grad_output, self, reduction)


def huber_loss(self: Tensor, target: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Tensor:
    """Return a loss that changes from one to the other at a difference of ``delta``."""
    difference = (self - target).abs()
    far = delta * (difference - 0.5 * delta)
    return _reduced(torch.where(difference < delta, 0.5 * difference.square(), far), reduction)


def huber_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, delta: float
) -> Tensor:
    """Return the gradient of :func:`huber_loss`."""
    difference = self - target
    slope = torch.where(difference.abs() < delta, difference, difference.sign() * delta)
    return slope * _spread(grad_output, self, reduction)


def binary_cross_entropy(
    self: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Return the cross-entropy of probabilities, whose logarithms are at least -100."""
    hit, miss = self.log().clamp(min=-100), torch.log1p(-self).clamp(min=-100)
    elements = (target - 1) * miss - target * hit
    return _reduced(elements if weight is None else elements * weight, reduction)


def binary_cross_entropy_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """Return the gradient of :func:`binary_cross_entropy`."""
    slope = (self - target) / ((1 - self) * self).clamp(min=1e-12)
    slope = slope if weight is None else slope * weight
    return slope * _spread(grad_output, self, reduction)


def _reduced(elements: Tensor, reduction: int) -> Tensor:
    if reduction == NONE:
        return elements
    return elements.mean() if reduction == MEAN else elements.sum()


def _spread(grad_output: Tensor, self: Tensor, reduction: int) -> Tensor:
    return grad_output / self.numel() if reduction == MEAN else grad_output
