"""Memory that nobody has written to, and tensors without elements: programs have both where nothing
depends on them.
"""

from __future__ import annotations

import torch
from torch import nn

from pitcheck.torch import Input, Program, Spec, check

BATCH, LENGTH, WIDTH = 2, 3, 4


class Scores(nn.Module):
    """Products added to a buffer that is kept over steps, as Megatron does; ``beta``: how much of
    the buffer is added. What is not turned has no elements.
    """

    def __init__(self, beta: float) -> None:
        super().__init__()
        self.beta = beta
        self.up = nn.Linear(WIDTH, WIDTH)
        self.buffer = torch.empty(2 * BATCH * LENGTH * LENGTH)

    def forward(self, x):
        x = self.up(x)
        turned, rest = x[..., :WIDTH], x[..., WIDTH:]
        x = torch.cat([turned * 2, rest * 3], dim=-1)
        place = self.buffer[: BATCH * LENGTH * LENGTH].view(BATCH, LENGTH, LENGTH)
        return torch.baddbmm(place, x, x.transpose(1, 2), beta=self.beta, alpha=0.5)


def spec(beta: float) -> Spec:
    def built(beta):
        model = Scores(beta)

        def step(batch):
            loss = (model(batch["x"]) ** 2).sum()
            loss.backward()
            return loss

        return Program(model, step)

    return Spec(
        lambda: built(0), lambda rank: built(beta), {"dp": 1}, {"x": Input((BATCH, LENGTH, WIDTH))}
    )


def test_what_is_not_read_needs_no_value() -> None:
    assert check(spec(0)).verdict == "equivalent"


def test_what_is_read_is_any_value() -> None:
    report = check(spec(0.5))
    assert report.verdict == "mismatch"
    assert report.findings[0].code == "PIT118"
