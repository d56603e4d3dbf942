"""Attention by one kernel and by matrix products: the latter scales queries and keys each by the
root of the scale, a fourth root of the head's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch.distributed as dist
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from pitcheck.torch import Input, Part, Program, Spec, assert_equivalent, check

pytestmark = pytest.mark.slow
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH)


def program(size: int, backend: SDPBackend, scale: float | None = None, ranks: int = 1) -> Program:
    model = nn.Linear(size, size)

    def step(batch):
        with sdpa_kernel(backend):
            out = nn.functional.scaled_dot_product_attention(
                model(batch["q"]), batch["k"], batch["v"], is_causal=True, scale=scale
            )
        loss = (out**2).sum()
        loss.backward()
        if ranks > 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        return loss

    return Program(model, step)


def spec(size: int, reference: SDPBackend, parallel: SDPBackend) -> Spec:
    batch = {name: Input((4, 2, 3, size), split={0: "dp"}) for name in "qkv"}
    return Spec(
        lambda: program(size, reference),
        lambda rank: program(size, parallel, ranks=2),
        {"dp": 2},
        batch,
        {"loss": Part(sum="dp")},
    )


@pytest.mark.parametrize("order", [BACKENDS, BACKENDS[::-1]], ids=["in order", "in reverse"])
@pytest.mark.parametrize("size", [8, 48])
def test_backends_are_one_function(size: int, order: Sequence[SDPBackend]) -> None:
    """PyTorch's fourth root of 48 is not the nearest number."""
    assert_equivalent(spec(size, *order))


def test_another_scale_is_caught() -> None:
    right = spec(8, *BACKENDS)
    for scale in (8**-0.25, 7**-0.5):
        wrong = replace(
            right, parallel=lambda rank, scale=scale: program(8, SDPBackend.MATH, scale, ranks=2)
        )
        assert check(wrong).verdict == "mismatch"
