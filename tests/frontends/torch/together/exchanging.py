"""Programs whose ranks exchange something before the step computes, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn

from pitcheck.errors import PitcheckError
from pitcheck.frontends.torch.recording.record import record
from pitcheck.frontends.torch.trace import Trace
from pitcheck.torch import Input, Program, Rank, Spec

Batch = dict[str, torch.Tensor]
Body = Callable[[int], object]
"""What a rank, of this number, does before it computes."""
WIDTH, ROWS = 4, 2


def model() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, WIDTH)


def reference() -> Program:
    own = model()

    def step(batch: Batch) -> torch.Tensor:
        loss = own(batch["x"]).square().sum()
        loss.backward()
        return loss

    return Program(own, step)


def averaging(body: Body, built: Body = lambda _: None, ranks: int = 2) -> Spec:
    """Data parallelism by hand: ``body`` runs first in every step, and ``built`` before them."""

    def parallel(rank: Rank) -> Program:
        own = model()
        built(rank.number)

        def step(batch: Batch) -> torch.Tensor:
            body(rank.number)
            loss = own(batch["x"]).square().sum()
            loss.backward()
            for parameter in own.parameters():
                dist.all_reduce(parameter.grad)
            dist.all_reduce(loss)
            return loss

        return Program(own, step)

    batch = {"x": Input((ROWS * ranks, WIDTH), split={0: "dp"})}
    return Spec(reference, parallel, {"dp": ranks}, batch)


def recorded(body: Body, built: Body = lambda _: None, ranks: int = 2) -> list[Trace]:
    """Record all ranks of a program."""
    return record(averaging(body, built, ranks), "parallel", 2)


def refused(kind: type[PitcheckError], code: str, body: Body, ranks: int = 2) -> str:
    """Return the message with which a program is refused, with an error of a kind and a code."""
    with pytest.raises(kind) as caught:
        recorded(body, ranks=ranks)
    assert caught.value.code == code, caught.value
    return str(caught.value)
