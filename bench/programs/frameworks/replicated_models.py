"""Layers, optimizers and techniques of training with DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from small import CLASSES, FEATURES, HIDDEN, Batch, Network, loss_of, named, over
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from pitcheck.torch import Program, Rank, Spec

MISTAKES = (
    "a hook that reduces nothing",
    "statistics of each rank",
    "another scale on one rank",
    "another table on the first rank",
    "another learning rate on one rank",
)


class Convolutions(nn.Module):
    """Convolutions over the features, with a norm between."""

    def __init__(self, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(1, 4, 3, padding=1), norm()
        self.head = nn.Linear(4 * FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        hidden = nn.functional.relu(self.norm(self.first(x.unsqueeze(1))))
        return self.head(hidden.flatten(1))  # type: ignore[no-any-return]


class Recomputed(Network):
    """The network, whose inner layers are computed again in the backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the last layer is given."""
        return nn.functional.silu(self.norm(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        x = x.requires_grad_(self.reentrant)
        hidden = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return self.down(hidden)  # type: ignore[no-any-return]


class Adapted(nn.Module):
    """A frozen layer beside a product of two small ones, by hand."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES).requires_grad_(False)
        self.a = nn.Linear(FEATURES, 2, bias=False)
        self.b = nn.Linear(2, CLASSES, bias=False)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        return self.layer(x) + self.scale * self.b(self.a(x))  # type: ignore[no-any-return]


class Rotated(nn.Module):
    """A network with a table of frequencies that it computes, and that no checkpoint has."""

    def __init__(self, base: float = 100.0) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        frequencies = base ** -(torch.arange(0, HIDDEN, 2).float() / HIDDEN)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of classes."""
        angles = torch.cat((self.frequencies, self.frequencies))
        return self.down(self.up(x) * angles.cos())  # type: ignore[no-any-return]


def normed() -> nn.Module:
    """Return the network, of which one weight is a direction and a length."""
    model = Network()
    weight_norm(model.up)
    return model


MODELS: dict[str, Callable[..., nn.Module]] = {
    "": Network,
    "convolutions": partial(Convolutions, lambda: nn.GroupNorm(2, 4)),
    "batch norm": partial(Convolutions, lambda: nn.BatchNorm1d(4)),
    "recomputation": partial(Recomputed, False),
    "reentrant recomputation": partial(Recomputed, True),
    "adapted": Adapted,
    "rotated": Rotated,
    "weight norm": normed,
}
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "Adafactor": lambda model: torch.optim.Adafactor(model.parameters(), lr=0.1),
    "Muon": lambda model: torch.optim.Muon(
        [each for each in model.parameters() if each.dim() == 2], lr=0.1, ns_steps=1
    ),
    "Adamax": lambda model: torch.optim.Adamax(model.parameters(), lr=0.1),
    "RAdam": lambda model: torch.optim.RAdam(model.parameters(), lr=0.1),
    "Adadelta": lambda model: torch.optim.Adadelta(model.parameters(), lr=0.1),
    "ASGD": lambda model: torch.optim.ASGD(model.parameters(), lr=0.1),
}


def spec(
    mesh: Mapping[str, int],
    mistake: str = "",
    model: str = "",
    optimizer: str = "SGD",
    scaled: bool = False,
    **options: Any,
) -> Spec:
    """Return a model on one device, and its replicas."""
    named(MISTAKES, mistake)

    def reference() -> Program:
        made = MODELS[model]()
        return stepped(made, OPTIMIZERS[optimizer](made), scaled)

    def parallel(rank: Rank) -> Program:
        changed = {}
        if mistake == "another scale on one rank":
            changed = {"scale": 2.0 + rank.number}
        elif mistake == "another table on the first rank" and not rank.number:
            changed = {"base": 10.0}
        made = MODELS[model](**changed)
        if mistake != "statistics of each rank":
            made = nn.SyncBatchNorm.convert_sync_batchnorm(made)
        replicas = DistributedDataParallel(made, **options)
        if mistake == "a hook that reduces nothing":
            replicas.register_comm_hook(None, debugging_hooks.noop_hook)
        stepper = OPTIMIZERS[optimizer](replicas)
        if mistake == "another learning rate on one rank" and rank.number:
            stepper.param_groups[0]["lr"] *= 2
        return stepped(replicas, stepper, scaled, names=lambda name: name.removeprefix("module."))

    return over(reference, parallel, mesh)


def stepped(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaled: bool, **more: Any
) -> Program:
    """Return a program that makes a step, with a loss that is scaled or as it is."""
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)

    def step(batch: Batch) -> torch.Tensor:
        loss = loss_of(model, batch["x"], batch["labels"])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return Program(model, step, optimizer, **more)
