"""One row per operator and case: the operator, its inputs and attributes, and an oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Row:
    """One operator on inputs.

    ``oracle(*tensors)`` gives a tensor or a tuple of them; field inputs require gradients unless
    ``derivative`` is False.
    """

    kind: str
    inputs: tuple[Array, ...]
    oracle: Callable[..., Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    derivative: bool = True

    @property
    def label(self) -> str:
        shapes = "-".join("x".join(map(str, a.shape)) or "0d" for a in self.inputs[:4])
        return f"{self.kind}-{shapes}-" + ",".join(f"{k}={v}" for k, v in self.attributes.items())


def reals(*shape: int, seed: int = 0) -> Array:
    """Reals of both signs, none near 0."""
    generator = np.random.default_rng([7, seed, *shape])
    return np.asarray(generator.uniform(0.2, 2.0, shape) * generator.choice([-1.0, 1.0], shape))


def positive(*shape: int, seed: int = 0) -> Array:
    """Reals above 0."""
    return np.asarray(np.random.default_rng([8, seed, *shape]).uniform(0.2, 2.0, shape))


def integers(high: int, *shape: int, seed: int = 0) -> Array:
    """Integers 0 .. high - 1."""
    return np.random.default_rng([9, seed, *shape]).integers(0, high, shape)


def flags(*shape: int, seed: int = 0) -> Array:
    """Booleans."""
    return np.random.default_rng([10, seed, *shape]).random(shape) < 0.5


def as_torch(arrays: tuple[Array, ...], derivative: bool) -> list[torch.Tensor]:
    """Return the inputs as float64, int64 and bool tensors."""
    tensors = [torch.from_numpy(np.array(a)) for a in arrays]
    return [t.requires_grad_(derivative and t.is_floating_point()) for t in tensors]
