"""Activation functions in pieces, and their derivatives, element by element."""

from __future__ import annotations

from collections.abc import Callable

import torch

Tensor = torch.Tensor


def in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function that writes what ``function`` returns to its first argument."""

    def write(self: Tensor, *more: float) -> Tensor:
        return self.copy_(function(self, *more))

    return write


def leaky_relu(self: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return positive elements, and others times a slope."""
    return torch.where(self > 0, self, self * negative_slope)


def leaky_relu_backward(
    grad_output: Tensor,
    self: Tensor,
    negative_slope: float,
    self_is_result: bool,  # noqa: ARG001  the sign of both is the same
) -> Tensor:
    """Return the gradient of :func:`leaky_relu`."""
    return torch.where(self > 0, grad_output, grad_output * negative_slope)


def elu(self: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """Return positive elements times a scale, and an exponential of others."""
    below = torch.expm1(self * input_scale) * (alpha * scale)
    return torch.where(self > 0, self * scale, below)


def celu(self: Tensor, alpha: float = 1.0) -> Tensor:
    """Return :func:`elu` with a continuous derivative."""
    return elu(self, alpha, 1.0, 1.0 / alpha)


def elu_backward(
    grad_output: Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    self_or_result: Tensor,
) -> Tensor:
    """Return the gradient of :func:`elu`, given its operand or its result."""
    below = (
        self_or_result + alpha * scale
        if is_result
        else torch.exp(self_or_result * input_scale) * (alpha * scale)
    )
    slope = grad_output * below * input_scale
    return torch.where(self_or_result <= 0, slope, grad_output * scale)


def hardtanh(self: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Return elements within bounds."""
    return self.clamp(min_val, max_val)


def hardtanh_backward(grad_output: Tensor, self: Tensor, min_val: float, max_val: float) -> Tensor:
    """Return the gradient of :func:`hardtanh`, which is 0 on the bounds."""
    inside = torch.logical_and(self > min_val, self < max_val)
    return torch.where(inside, grad_output, torch.zeros_like(grad_output))


def hardswish(self: Tensor) -> Tensor:
    """Return elements times a line between 0 and 1."""
    return self * (self + 3).clamp(0, 6) / 6


def hardswish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of :func:`hardswish`."""
    within = torch.where(self < 3, grad_output * (self / 3 + 0.5), grad_output)
    return torch.where(self <= -3, torch.zeros_like(within), within)


def mish(self: Tensor) -> Tensor:
    """Return elements times the hyperbolic tangent of their softplus."""
    return self * torch.nn.functional.softplus(self).tanh()


def mish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of :func:`mish`."""
    bent = torch.nn.functional.softplus(self).tanh()
    return grad_output * (bent + self * self.sigmoid() * (1 - bent * bent))


def xlogy(self: Tensor, other: Tensor) -> Tensor:
    """Return elements times logarithms; 0 where an element is 0, whatever the logarithm is of."""
    return torch.where(self == 0, torch.zeros_like(other), self * other.log())


def prelu(self: Tensor, weight: Tensor) -> Tensor:
    """Return positive elements, and others times a weight of their channel."""
    return torch.where(self > 0, self, weight * self)


def prelu_backward(grad_output: Tensor, self: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`prelu`, both of the shape of the result."""
    zeros = torch.zeros_like(grad_output)
    return (
        torch.where(self > 0, grad_output, weight * grad_output),
        torch.where(self > 0, zeros, self * grad_output),
    )
