"""The operators of ``torch.amp.GradScaler``.

The scale is a tensor that the program multiplies the loss by. Dividing gradients by it is exact. A
scaler leaves out a step if a gradient is infinite or NaN; here none is, which the report says.

>>> gradient, found = torch.tensor([6.0]), torch.tensor(0.0)
>>> check_and_unscale([gradient], found, torch.tensor(0.5))
>>> gradient, found
(tensor([3.]), tensor(0.))
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def check_and_unscale(
    self: Sequence[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor
) -> None:
    """Multiply gradients by ``inv_scale``. Set ``found_inf`` to 1 if a number is not finite."""
    for gradient in self:
        if gradient.numel() and not torch.isfinite(gradient.abs().amax()):
            found_inf.fill_(1)
        gradient.mul_(inv_scale)


def update_scale(
    self: torch.Tensor,
    growth_tracker: torch.Tensor,
    found_inf: torch.Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> torch.Tensor:
    """Return the scale, lower if ``found_inf`` is set and greater after ``growth_interval`` steps.

    ``growth_tracker`` counts the steps since the scale was changed.
    """
    if found_inf.item():
        self.mul_(scale_backoff_factor)
        growth_tracker.zero_()
    elif growth_tracker.item() + 1 == growth_interval:
        grown = self * scale_growth_factor
        if torch.isfinite(grown):
            self.copy_(grown)
        growth_tracker.zero_()
    else:
        growth_tracker.add_(1)
    return self


def unscaled(
    gradients: Sequence[torch.Tensor],
    grad_scale: torch.Tensor | None,
    found_inf: torch.Tensor | None,
) -> bool:
    """Divide gradients by a scale, as optimizers of one operator do; return True if they may step.

    They change nothing if ``found_inf`` is set.
    """
    if found_inf is not None and found_inf.item():
        return False
    if grad_scale is not None:
        for gradient in gradients:
            gradient.div_(grad_scale)
    return True
