"""One training step in plain PyTorch: whether a toy model runs, and what data parallelism changes.

The step on the whole batch is compared with the mean of the steps on its halves, in float64. What
differs there is no fault of a wrapper, and a check has to find it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from toys.batches import batch_of
from toys.programs import Batch, built, loss_of

TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-4}
"""The dtypes that are tried: some models cast to float32 themselves, and run in nothing else."""


@dataclass(frozen=True)
class Plain:
    """The result of a step of a toy model in plain PyTorch.

    ``problem``: why it does not run, or nothing. ``unused``: parameters without a gradient.
    ``differs``: what the halves of the batch do not average to: "loss" or a parameter's name.
    ``because``: the reason.
    """

    problem: str = ""
    parameters: int = 0
    unused: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    because: str = ""

    def told(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def plain_step(name: str, head: str) -> Plain:
    """Train one step of a toy model on the whole batch, and on its halves."""
    failed = None
    for dtype in TOLERANCES:
        try:
            return step_in(dtype, name, head)
        except Exception as error:  # whatever the library raises is the reason that is stated
            failed = failed or error
    return Plain(f"{type(failed).__name__}: {' '.join(str(failed).split())[:200]}")


def step_in(dtype: torch.dtype, name: str, head: str) -> Plain:
    """Train one step in numbers of a dtype."""
    torch.manual_seed(0)
    model = built(name).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    batch = {key: each.drawn() for key, each in batch_of(head, model).items()}
    batch = {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}
    loss, unused, differs = halved(model, batch)
    because = differs and differs_because(model, batch)
    if not torch.isfinite(loss):
        return Plain("the loss is not finite")
    count = sum(each.numel() for each in model.parameters())
    return Plain("", count, tuple(unused), tuple(differs), because or "")


def halved(model: Any, batch: Batch) -> tuple[torch.Tensor, list[str], list[str]]:
    """Compare a step on the whole batch with the mean of the steps on its halves.

    Returns:
        The loss; the parameters without a gradient; and what differs.
    """
    state = {key: value.clone() for key, value in model.state_dict().items()}
    whole, unused = gradients(model, batch)
    halves = []
    for half in range(2):
        model.load_state_dict(state)
        halves.append(gradients(model, {k: v.chunk(2)[half] for k, v in batch.items()})[0])
    model.load_state_dict(state)
    within = TOLERANCES[model.dtype]
    differs = [
        key
        for key, value in whole.items()
        if not torch.allclose(value, (halves[0][key] + halves[1][key]) / 2, within, within)
    ]
    return whole["loss"], unused, differs


def differs_because(model: Any, batch: Batch) -> str:
    """Return why the halves differ: BatchNorm, if they do not where it has fixed statistics."""
    norms = [each for each in model.modules() if isinstance(each, _BatchNorm)]
    for norm in norms:
        norm.eval()
    if norms and not halved(model, batch)[2]:
        return "BatchNorm has the mean and deviation of the rows of its rank"
    return "the loss is no mean over rows"


def gradients(model: Any, batch: Batch) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return the loss and the gradients of a step, and the parameters without a gradient."""
    model.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    named = [(key, each) for key, each in model.named_parameters() if each.requires_grad]
    found = {key: each.grad.clone() for key, each in named if each.grad is not None}
    return {"loss": loss.detach(), **found}, [key for key, each in named if each.grad is None]
