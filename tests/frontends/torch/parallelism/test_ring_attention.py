"""Ring attention by hand: keys and values go round the ranks, blocks are merged by their maxima and
sums, and gradients go round behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frontends.torch.proving import caught, proven
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec

WIDTH, HEADS, LENGTH = 4, 1, 4
SIZE = WIDTH // HEADS
SCALE = SIZE**-0.5


def turned(tensors: list[torch.Tensor], rank: int, ranks: int, to: int = 1) -> list[torch.Tensor]:
    """Return the tensors of the rank before, as every rank sends to the next."""
    received = [torch.empty_like(tensor) for tensor in tensors]
    operations = []
    for sent, got in zip(tensors, received, strict=True):
        operations.append(dist.P2POp(dist.isend, sent.contiguous(), (rank + to) % ranks))
        operations.append(dist.P2POp(dist.irecv, got, (rank - to) % ranks))
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


class Ring(torch.autograd.Function):
    """Full attention of a rank's queries over the keys and values of all ranks. ``rescaled``: sums
    so far are scaled to a new maximum.
    """

    @staticmethod
    def forward(
        context: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rank: int,
        ranks: int,
        rescaled: bool,
        to: int,
    ) -> torch.Tensor:
        own = [k, v]
        greatest = torch.full((*q.shape[:-1], 1), float("-inf"))
        total, out = torch.zeros_like(greatest), torch.zeros_like(q)
        for turn in range(ranks):
            scores = (q @ k.transpose(-1, -2)) * SCALE
            new = torch.maximum(greatest, scores.amax(-1, keepdim=True))
            weights = torch.exp(scores - new)
            if rescaled:
                factor = torch.exp(greatest - new)
                total, out = total * factor, out * factor
            total = total + weights.sum(-1, keepdim=True)
            out = out + weights @ v  # of this block
            greatest = new
            if turn < ranks - 1:
                k, v = turned([k, v], rank, ranks)
        out = out / total
        context.save_for_backward(q, *own, out, greatest + total.log())
        context.place = rank, ranks, to
        return out

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, normaliser = context.saved_tensors
        rank, ranks, to = context.place
        spread = (gradient * out).sum(-1, keepdim=True)
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for _ in range(ranks):
            weights = torch.exp((q @ k.transpose(-1, -2)) * SCALE - normaliser)
            dv = dv + weights.transpose(-1, -2) @ gradient
            ds = weights * (gradient @ v.transpose(-1, -2) - spread)
            dq = dq + (ds @ k) * SCALE
            dk = dk + (ds.transpose(-1, -2) @ q) * SCALE
            k, v = turned([k, v], rank, ranks)
            dk, dv = turned([dk, dv], rank, ranks, to)  # behind their keys
        return dq, dk, dv, None, None, None, None


class Attention(nn.Module):
    def __init__(self, inner: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, HEADS, SIZE).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        return self.out(self.inner(q, k, v).transpose(1, 2).reshape(batch, length, WIDTH))


def whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax((q @ k.transpose(-1, -2)) * SCALE, -1) @ v


def training(inner: Callable[..., torch.Tensor], summed: bool) -> Program:
    model = Attention(inner)

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = (model(batch["x"]) - batch["y"]).square().sum()
        loss.backward()
        if summed:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        return loss

    return Program(model, step)


def spec(ranks: int, rescaled: bool = True, to: int = 1) -> Spec:
    def parallel(rank: Rank) -> Program:
        return training(lambda q, k, v: Ring.apply(q, k, v, rank.number, ranks, rescaled, to), True)

    batch = {name: Input((2, LENGTH * ranks, WIDTH), split={1: "cp"}) for name in ("x", "y")}
    return Spec(
        lambda: training(whole, False), parallel, {"cp": ranks}, batch, {"loss": Part(sum="cp")}
    )


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_round_the_ranks(ranks: int) -> None:
    """A batch that is launched at once waits for nobody.

    So there is no warning of a ring in which all send first.
    """
    assert not proven(spec(ranks)).findings


@pytest.mark.slow
def test_without_rescaling() -> None:
    """Sums of exponentials that are never rescaled are right where the maximum stays the first
    hop's: that is the smallest change that was tried.
    """
    report = caught(spec(2, rescaled=False), "torch.maximum", "PIT102")
    assert report.findings[0].output == "loss"
    assert "tried" in str(report.findings[0].repair)


@pytest.mark.slow
def test_gradients_sent_the_other_way() -> None:
    """Three ranks; two send to each other either way."""
    report = caught(spec(3, to=-1), "dv = dv + weights", "PIT100")
    assert report.findings[0].output in ("grad:v.weight", "grad:k.weight")
