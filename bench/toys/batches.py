"""The batch of a model at toy size, by the names of what its ``forward`` takes."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch

from toys.tiny import LABELS, VOCABULARY

ROWS = 4
LENGTH = 6
FIRST_TOKEN = 4
"""Tokens below have a meaning of their own: padding, begin, end, others."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the batch, with its rows first; ``bounds`` of integers, upper one excluded.

    ``known``: the integers themselves, at which the model has to look.
    """

    shape: tuple[int, ...]
    bounds: tuple[int, int] | None = None
    known: tuple[int, ...] = ()

    def drawn(self) -> torch.Tensor:
        """Return numbers for it, by PyTorch's generator."""
        if self.known:
            return torch.tensor(self.known).reshape(self.shape)
        if self.bounds is None:
            return torch.randn(self.shape)
        return torch.randint(*self.bounds, self.shape)


TOKENS = Tensor((ROWS, LENGTH), (FIRST_TOKEN, VOCABULARY))
ALIGNED = Tensor((ROWS, 3), known=(4, 5, 5, 6, 4, 7, 8, 8, 4, 9, 5, 6))
"""Labels of frames, two of them with a label twice in a row."""
CLASSES = Tensor((ROWS,), (0, LABELS))


def batch_of(head: str, model: Any) -> dict[str, Tensor]:
    """Return the tensors that ``forward`` of the model is called with, by its parameters' names."""
    labels = CLASSES if head.endswith("classification") else TOKENS
    if head.startswith("connectionist"):
        labels = ALIGNED
    return {model.main_input_name: main_input(model), "labels": labels}


def takes_labels(model: Any) -> bool:
    """Tell whether a model computes its loss."""
    return "labels" in signature(model.forward).parameters


def main_input(model: Any) -> Tensor:
    """Return the tensor that a model reads first: tokens, pixels, a wave or features of it."""
    config = getattr(model.config, "vision_config", model.config)
    name = model.main_input_name
    if name == "inputs" and hasattr(model, "encoder"):
        name = model.encoder.main_input_name
    if name == "pixel_values":
        size = getattr(config, "image_size", None) or 32
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return Tensor((ROWS, getattr(config, "num_channels", 3), height, width))
    if name == "input_values":
        return Tensor((ROWS, 28))
    if name == "input_features":
        bins = getattr(config, "num_mel_bins", None) or 8
        return Tensor((ROWS, bins, 64))
    return TOKENS
