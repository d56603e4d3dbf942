"""Integers that a dtype cannot hold, and indices behind a whole dimension."""

from __future__ import annotations

import pytest
import torch
from frontends.torch.proving import proven, verdict
from torch import nn

from pitcheck.torch import Input, Program, Spec


def selected(step, other=None) -> Spec:
    """Two programs whose model is a matrix, each a function of it and of the batch."""

    def program(step) -> Program:
        model = nn.Linear(4, 3, bias=False)

        def run(batch):
            model.zero_grad()
            loss = step(model.weight, batch["x"]).sum()
            loss.backward()
            return loss

        return Program(model, run)

    x = Input((3,), "uint8", bounds=(0, 5))
    return Spec(lambda: program(step), lambda rank: program(other or step), {"dp": 1}, {"x": x})


@pytest.mark.parametrize("number", [-1, 256, 300])
def test_a_number_that_wraps_around_is_not_compared(number: int) -> None:
    def compared(weight, x):
        return weight * (x == number).unsqueeze(1)

    assert verdict(selected(compared, lambda weight, _: weight * 0)) == "inconclusive"


def test_known_indices_behind_a_whole_dimension() -> None:
    right = selected(lambda w, _: w[:, torch.tensor([1, -1])] * 2)
    proven(right)
    other = selected(lambda w, _: w[:, torch.tensor([1, -1])], lambda w, _: w[:, [1, 0]])
    assert verdict(other) == "mismatch"
