"""Optimizers whose step is one operator over all tensors, as the plain operators of each tensor.

They are Adam (Kingma and Ba, *Adam*, 2015), AdamW (Loshchilov and Hutter, *Decoupled Weight Decay
Regularization*, 2019), SGD with momentum, and Adagrad (Duchi et al. 2011), as PyTorch computes them
with ``fused=True``.

>>> parameter = torch.tensor([1.0])
>>> sgd([parameter], [torch.tensor([2.0])], [], weight_decay=0.0, momentum=0.0, lr=0.5,
...     dampening=0.0, nesterov=False, maximize=False, is_first_step=True)
>>> parameter
tensor([0.])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from math import sqrt
from typing import Any

import torch

from pitcheck.frontends.torch.formulas.loss_scaling import unscaled

Tensors = Sequence[torch.Tensor]
Scale = torch.Tensor | None
Rate = float | torch.Tensor


def adam(
    self: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *,
    lr: Rate,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    amsgrad: bool,
    maximize: bool,
    decoupled: bool,
    grad_scale: Scale = None,
    found_inf: Scale = None,
) -> None:
    """Change parameters and moments by a step of Adam; of AdamW if decay is ``decoupled``."""
    if not unscaled(grads, grad_scale, found_inf):
        return
    for parameter, grad, first, second, largest, step in zip_longest(
        self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps
    ):
        number = step.item()
        gradient = -grad if maximize else grad
        if weight_decay and decoupled:
            parameter.mul_(1 - lr * weight_decay)
        elif weight_decay:
            gradient = gradient + parameter * weight_decay
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).add_(gradient * gradient * (1 - beta2))
        if amsgrad:
            largest.copy_(torch.maximum(largest, second))
        deviation = (largest if amsgrad else second).sqrt() / sqrt(1 - beta2**number) + eps
        parameter.sub_(first / deviation * (lr / (1 - beta1**number)))


def sgd(
    self: Tensors,
    grads: Tensors,
    momentum_buffer_list: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Rate,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Scale = None,
    found_inf: Scale = None,
) -> None:
    """Change parameters and their momentum by a step of SGD.

    The first step does not read the momentum, which is memory that nobody has written to.
    """
    if not unscaled(grads, grad_scale, found_inf):
        return
    for parameter, grad, kept in zip_longest(self, grads, momentum_buffer_list):
        gradient = -grad if maximize else grad
        if weight_decay:
            gradient = gradient + parameter * weight_decay
        if momentum:
            if is_first_step:
                kept.copy_(gradient)
            else:
                kept.mul_(momentum).add_(gradient * (1 - dampening))
            gradient = gradient + kept * momentum if nesterov else kept
        parameter.sub_(gradient * lr)


def adagrad(
    self: Tensors,
    grads: Tensors,
    state_sums: Tensors,
    state_steps: Tensors,
    *,
    lr: Rate,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Scale = None,
    found_inf: Scale = None,
) -> None:
    """Change parameters and their sums of squares by a step of Adagrad."""
    if not unscaled(grads, grad_scale, found_inf):
        return
    for parameter, grad, total, step in zip(self, grads, state_sums, state_steps, strict=True):
        gradient = -grad if maximize else grad
        if weight_decay:
            gradient = gradient + parameter * weight_decay
        total.add_(gradient * gradient)
        rate = lr / (1 + (step.item() - 1) * lr_decay)
        parameter.sub_(gradient / (total.sqrt() + eps) * rate)


def on_copies(step: Callable[..., None], written: int) -> Callable[..., tuple[Tensors, ...]]:
    """Return a step that changes nothing, and returns the lists that ``step`` would change.

    They are its first ``written`` arguments.
    """

    def pure(*lists: Tensors, **options: Any) -> tuple[Tensors, ...]:
        copies = tuple([tensor.clone() for tensor in own] for own in lists[:written])
        step(*copies, *lists[written:], **options)
        return copies

    return pure


ADAM, ADAMW = (partial(adam, decoupled=decoupled) for decoupled in (False, True))
FUSED: dict[tuple[str, str], Callable[..., Any]] = {
    ("aten", f"{name}{suffix}"): step if suffix else on_copies(step, written)
    for name, step, written in (
        ("_fused_adagrad", adagrad, 4),
        ("_fused_adam", ADAM, 5),
        ("_fused_adamw", ADAMW, 5),
        ("_fused_sgd", sgd, 3),
    )
    for suffix in ("", "_")
}
"""The steps by the namespace and name of their operator, which ends in "_" if it works in place."""
