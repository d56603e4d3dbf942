"""Small models, and how they are spread."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from programs.program_cases import Case, gpt, llama

from pitcheck.models.config import Batch, Model
from pitcheck.models.presets import preset
from pitcheck.programs.layout import Layout


def mixtral(layers: int = 1, **changes: Any) -> Model:
    """Eight experts in every layer."""
    return replace(preset("mixtral-8x7b-tiny"), layers=layers, **changes)


def spread(model: Model, sequences: int = 4, length: int = 4, **layout: Any) -> Case:
    """A model over ranks; losses over groups of tokens are taken on every rank and micro-batch."""
    how = Layout(**layout)
    return Case(model, Batch(sequences, length, how.dp * how.microbatches), how)


__all__ = ["Case", "gpt", "llama", "mixtral", "spread"]
