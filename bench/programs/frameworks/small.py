"""The small networks and the training step that programs of several frameworks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from pitcheck.torch import Input, Part, Program, Rank, Spec

ROWS, FEATURES, HIDDEN, CLASSES = 24, 6, 8, 5
Batch = Mapping[str, torch.Tensor]
Around = Callable[[int], AbstractContextManager[Any]]
"""A function from the number of a micro-batch to the context in which it runs."""


class Network(nn.Module):
    """Two layers with a norm between."""

    def __init__(self, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(FEATURES, hidden), nn.LayerNorm(hidden)
        self.down = nn.Linear(hidden, CLASSES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        hidden: torch.Tensor = nn.functional.silu(self.norm(self.up(x)))
        return self.down(hidden)  # type: ignore[no-any-return]


def loss_of(model: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of some rows."""
    return nn.functional.cross_entropy(model(x), labels)


def parts_of(batch: Batch, micro: int) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield the micro-batches of a batch, each with its number."""
    pairs = zip(batch["x"].chunk(micro), batch["labels"].chunk(micro), strict=True)
    for number, (x, labels) in enumerate(pairs):
        yield number, x, labels


def training(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    micro: int = 1,
    divisor: float | None = None,
    around: Around = lambda _: nullcontext(),
    before: Callable[[], Any] = lambda: None,
    **more: Any,
) -> Program:
    """Return a program that accumulates gradients over micro-batches and makes a step.

    ``divisor``: of each loss, by default the number of micro-batches. ``around``: the context of
    each. ``before``: runs between the backward pass and the step of the optimizer.
    """

    def step(batch: Batch) -> torch.Tensor:
        if optimizer is None:
            model.zero_grad()
        total = torch.zeros(())
        for number, x, labels in parts_of(batch, micro):
            with around(number):
                loss = loss_of(model, x, labels) / (divisor or micro)
                loss.backward()
            total += loss.detach()
        before()
        if optimizer is not None:
            optimizer.step()
            model.zero_grad()
        return total

    return Program(model, step, optimizer, **more)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.5),
    "fused AdamW": lambda parameters: torch.optim.AdamW(
        parameters, lr=0.1, weight_decay=0.5, fused=True
    ),
    "foreach Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, foreach=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.1),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=0.1),
}


def over(
    reference: Callable[[], Program],
    parallel: Callable[[Rank], Program],
    mesh: Mapping[str, int],
    axes: str | tuple[str, ...] = "dp",
    loss: Part | None = None,
) -> Spec:
    """Return the specification of rows that are divided over mesh axes."""
    split = {0: axes}
    batch = {
        "x": Input((ROWS, FEATURES), split=split),
        "labels": Input((ROWS,), "int64", (0, CLASSES), split),
    }
    return Spec(
        reference, parallel, mesh, batch, {"loss": Part(mean=axes) if loss is None else loss}
    )


def except_last(micro: int, quiet: Callable[[], AbstractContextManager[Any]]) -> Around:
    """Return what is around micro-batches: ``quiet`` for all but the last."""
    return lambda number: nullcontext() if number == micro - 1 else quiet()


def named(names: Sequence[str], mistake: str) -> None:
    """Raise KeyError for a mistake that the program does not have."""
    if mistake and mistake not in names:
        raise KeyError(mistake)
