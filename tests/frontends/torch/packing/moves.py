"""Communication of context parallelism with its backward: gather, all-to-all, halo, ring."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def gathered(x: torch.Tensor, ranks: int, dim: int) -> torch.Tensor:
    x = x.contiguous()
    parts = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(parts, x)
    return torch.cat(parts, dim)


class Gather(torch.autograd.Function):
    """The tokens of all ranks; dimension 2 is theirs."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, ranks: int) -> torch.Tensor:
        context.ranks = ranks
        return gathered(x, ranks, 2)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(context.ranks, 2)[dist.get_rank()], None


def exchanged(x: torch.Tensor, ranks: int, cut: int, joined: int) -> torch.Tensor:
    sent = torch.stack(x.chunk(ranks, cut))
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent)
    return torch.cat(got.unbind(0), joined)


class Exchange(torch.autograd.Function):
    """Parts along ``cut`` go to the ranks; what comes is joined along ``joined``."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, ranks: int, cut: int, joined: int) -> torch.Tensor:
        context.how = ranks, joined, cut
        return exchanged(x, ranks, cut, joined)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return exchanged(gradient, *context.how), None, None, None


def passed_on(x: torch.Tensor, by: int) -> torch.Tensor:
    """Return what the rank ``by`` places before sends."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = x.contiguous()
    got = torch.empty_like(x)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, x, (rank + by) % ranks),
            dist.P2POp(dist.irecv, got, (rank - by) % ranks),
        ]
    )
    for work in works:
        work.wait()
    return got


class Halo(torch.autograd.Function):
    """The last ``size`` tokens of the rank before, in front of this rank's tokens."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, size: int) -> torch.Tensor:
        context.size = size
        return torch.cat([passed_on(x[:, :, -size:], 1), x], 2)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        size = context.size
        own = gradient[:, :, size:].clone()
        own[:, :, -size:] += passed_on(gradient[:, :, :size], -1)
        return own, None


class Ring(torch.autograd.Function):
    """Attention of a rank's queries to keys that go round; ``seen`` has a mask for each hop."""

    @staticmethod
    def forward(
        context: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        seen: list[torch.Tensor],
    ) -> torch.Tensor:
        context.seen = seen
        scale = q.shape[-1] ** -0.5
        keys, values = k, v
        out, lse = torch.zeros_like(q), torch.full((*q.shape[:-1], 1), float("-inf"))
        for hop, mask in enumerate(seen):
            if hop:
                keys, values = passed_on(keys, 1), passed_on(values, 1)
            scores = (q @ keys.transpose(-1, -2) * scale).masked_fill(~mask, float("-inf"))
            own = scores.logsumexp(-1, keepdim=True)
            new = torch.logaddexp(lse, own)
            out = out * (lse - new).exp() + (scores - new).exp() @ values
            lse = new
        context.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, lse = context.saved_tensors
        scale = q.shape[-1] ** -0.5
        spread = (gradient * out).sum(-1, keepdim=True)
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for mask in context.seen:
            scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~mask, float("-inf"))
            weights = (scores - lse).exp()
            dv = dv + weights.transpose(-1, -2) @ gradient
            ds = weights * (gradient @ v.transpose(-1, -2) - spread)
            dq = dq + ds @ k * scale
            dk = dk + ds.transpose(-1, -2) @ q * scale
            k, v, dk, dv = (passed_on(x, 1) for x in (k, v, dk, dv))
        return dq, dk, dv, None


def added_up(model: nn.Module) -> None:
    """Add gradients up over all ranks."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


# PyTorch's function has no types.
gather: Any = Gather.apply
exchange: Any = Exchange.apply
with_halo: Any = Halo.apply
around: Any = Ring.apply
