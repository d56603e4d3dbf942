"""Functions whose backward pass communicates otherwise than their forward pass, as Megatron-LM
writes them, and wrong ones.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional


class ToRanks(torch.autograd.Function):
    """The same for all ranks; their gradients are added up, in place."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class FromRanks(torch.autograd.Function):
    """The sum over ranks, in place."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class ToRanksFunctional(ToRanks):
    """By a collective that gives a new tensor."""

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(gradient.contiguous(), "sum", dist.group.WORLD)


class FromRanksFunctional(FromRanks):
    """By a collective that gives a new tensor."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(x, "sum", dist.group.WORLD)


class Forgotten(ToRanks):
    """Wrong: nobody adds the gradients up."""

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Averaged(FromRanks):
    """Wrong: the mean of what ranks have, where the sum is due."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x, op=dist.ReduceOp.AVG)
        return x


class Exchange(torch.autograd.Function):
    """Rows to other ranks, in equal parts or by counts; gradients the same way back."""

    @staticmethod
    def forward(
        context: Any, x: torch.Tensor, sent: list[int] | None, received: list[int] | None
    ) -> torch.Tensor:
        context.sizes = sent, received
        out = x.new_empty(x.shape[0] if received is None else sum(received), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        sent, received = context.sizes
        return Exchange.apply(gradient, received, sent), None, None
