"""The contents of memory that nobody has written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

UNINITIALISED = "uninitialised"
SPECIAL = (np.nan, np.nan, np.inf, -np.inf, 0.0)
SPECIAL_SHARE = 0.4


def unwritten(attributes: dict[str, Any], seed: Sequence[int]) -> torch.Tensor:
    """Return any numbers, NaN and infinity among them, of the shape and dtype in the attributes."""
    generator = np.random.default_rng([29, *seed])
    shape, dtype = tuple(attributes["sizes"]), str(attributes.get("dtype", "float32"))
    if dtype == "bool":
        return torch.from_numpy(np.asarray(generator.random(shape) < 0.5))
    if dtype.startswith(("int", "uint")):
        return torch.from_numpy(np.asarray(generator.integers(-(2**31), 2**31, size=shape)))
    numbers = np.where(
        generator.random(shape) < SPECIAL_SHARE,
        generator.choice(SPECIAL, size=shape),
        4.0 * generator.normal(size=shape),
    )
    return torch.from_numpy(np.asarray(numbers))
