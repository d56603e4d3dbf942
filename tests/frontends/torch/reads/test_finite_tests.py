"""Tests for infinity and NaN are assumed to find neither, and nothing else is assumed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from frontends.torch.reads.recording import recorded
from torch import nn

from pitcheck.errors import UnsupportedError

Test = Callable[[torch.Tensor], Any]


def clipped(g: torch.Tensor) -> bool:
    parameter = nn.Parameter(torch.zeros(4, 3))
    parameter.grad = g
    nn.utils.clip_grad_norm_([parameter], 1.0, error_if_nonfinite=True)
    return False


def asserted(g: torch.Tensor) -> bool:
    torch._assert_async(torch.isfinite(g).all())
    torch._assert_async(torch.isfinite(g.sum()), "not finite")
    return False


def hidden(g: torch.Tensor) -> torch.Tensor:
    """Attention hides scores by infinity; the softmax of them is finite."""
    return g.masked_fill(g > 0, float("-inf")).softmax(-1)


FINITE: dict[str, tuple[Test, bool]] = {
    "isnan": (lambda g: torch.isnan(g.sum()), False),
    "any isnan": (lambda g: torch.isnan(g).any(), False),
    "isnan, as a number": (lambda g: torch.isnan(g).any().item(), False),
    "the number of NaNs": (lambda g: torch.isnan(g).sum() > 0, False),
    "how many are finite": (lambda g: torch.isfinite(g).sum().item() == 12, True),
    "isinf": (lambda g: torch.isinf(g).any(), False),
    "isposinf": (lambda g: torch.isposinf(g).any(), False),
    "isfinite": (lambda g: torch.isfinite(g).all(), True),
    "not isfinite": (lambda g: ~torch.isfinite(g).all(), False),
    "isfinite of the greatest": (lambda g: g.abs().max().isfinite(), True),
    "either": (lambda g: torch.logical_or(g.sum().isnan(), g.sum().isinf()), False),
    "both": (lambda g: torch.isfinite(g).all() & ~torch.isnan(g).any(), True),
    "unequal to itself": (lambda g: (g != g).any(), False),
    "equal to itself": (lambda g: (g == g).all(), True),
    "equal to infinity": (lambda g: g.sum() == float("inf"), False),
    "below infinity": (lambda g: g.sum() < math.inf, True),
    "below an infinite tensor": (lambda g: g.sum() < torch.tensor(math.inf), True),
    "after a softmax of infinities": (lambda g: torch.isnan(hidden(g)).any(), False),
    "of a gradient norm": (clipped, False),
    "of memory that was filled": (lambda g: torch.isnan(torch.empty(3).fill_(2) * g).any(), False),
    "of drawn numbers": (lambda g: (torch.empty(3).uniform_() * g).isfinite().all(), True),
    "asserted": (asserted, False),
    "isnan of Python": (lambda g: math.isnan(g.sum().item()), False),
    "isfinite of Python, of a tensor": (lambda g: math.isfinite(g.sum()), True),
    "isinf of NumPy": (lambda g: np.isinf(g.sum().item()), False),
    "infinite in Python": (lambda g: g.sum().item() == math.inf, False),
    "below infinity in Python": (lambda g: g.sum().item() < math.inf, True),
}


@pytest.mark.parametrize("way", FINITE)
def test_finite_numbers_are_assumed(way: str) -> None:
    test, outcome = FINITE[way]
    found: list[bool] = []
    tape = recorded(lambda g: found.append(bool(test(g))))
    assert found == [outcome]
    assert any("are finite" in sentence for sentence in tape.reads.assumptions)


def test_a_number_that_is_no_number_is_unequal_to_itself() -> None:
    def program(g: torch.Tensor) -> None:
        read = g.sum().item()
        assert read == read

    assert recorded(program).reads.assumptions


def known(_: torch.Tensor) -> None:
    for number in (math.nan, math.inf, 1.0):
        tensor = torch.tensor([number, 2.0])
        assert bool(torch.isfinite(tensor).all()) == math.isfinite(number)
        assert bool(torch.isnan(tensor).any()) == math.isnan(number) == math.isnan(tensor[0])
    with pytest.raises(RuntimeError, match="too large"):
        torch._assert_async(torch.tensor(False), "too large")


def test_of_known_numbers_nothing_is_assumed() -> None:
    assert not recorded(known).reads.assumptions


OTHER: dict[str, Test] = {
    "another condition": lambda g: g.sum() > 3,
    "beside a test": lambda g: torch.isfinite(g).all() & (g > 0).all(),
    "behind a test": lambda g: torch.isnan(g.sum()) or g.sum() > 100,
    "a great number": lambda g: g.sum() < 1e30,
    "an assertion": lambda g: torch._assert_async(g.sum() > 0),
    "NaN on purpose": lambda g: torch.isnan(g.sum() * float("nan")),
    "infinity on purpose": lambda g: torch.isinf(g.masked_fill(g > 0, float("-inf"))).any(),
    "a known infinity": lambda g: torch.isfinite(g + torch.tensor(float("inf"))).all(),
    "a chosen infinity": lambda g: torch.isfinite(torch.where(g > 0, g, torch.inf)).all(),
    "a sum with infinity": lambda g: torch.isnan(
        torch.cat([g, torch.full((1, 3), math.nan)]).sum()
    ),
    "infinity that is written": lambda g: torch.isinf(torch.empty(3).fill_(math.inf) + g).any(),
    "infinity of a shape": lambda g: torch.isinf(torch.full_like(g, math.inf) + g).any(),
    "a division by zero": lambda g: torch.isnan(g.sum() / 0),
    "a division by a tensor of zeros": lambda g: torch.isnan(g / torch.zeros(3)).any(),
    "memory that nobody has written to": lambda g: torch.isnan(torch.empty(3) + g[0]).any(),
    "NaN on purpose, read": lambda g: math.isnan((g.sum() * math.nan).item()),
    "NaN on purpose, of a number": lambda g: math.isnan(g.sum().item() * math.nan),
    "infinity on purpose, of a number": lambda g: (1 + (math.inf - g.sum().item())) == math.inf,
    "infinity of another number": lambda g: np.isinf(g.sum().item() + (g * math.inf).sum().item()),
    "NaN on purpose, of NumPy": lambda g: math.isnan(np.float64(math.nan) * g.sum().item()),
    "NaN on purpose, of a function": lambda g: math.isnan(math.pow(g.sum().item(), math.nan)),
    "unequal to another": lambda g: (g != g.clone() + 1).any(),
    "as places": lambda g: g[torch.isfinite(g)].sum() > 0,
    "of another kind": lambda g: torch.isreal(g) if g.sum() == 0 else None,
}


@pytest.mark.parametrize("way", OTHER)
def test_nothing_else_is_assumed(way: str) -> None:
    with pytest.raises(UnsupportedError):
        recorded(lambda g: bool(OTHER[way](g)))
