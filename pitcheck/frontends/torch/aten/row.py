"""The rows of the table of ATen overloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pitcheck.frontends.torch.aten.emitter import Tensor

Results = Tensor | None | Sequence[Tensor | None]

UNREAD = frozenset(
    {
        "dtype",
        "layout",
        "device",
        "pin_memory",
        "non_blocking",
        "memory_format",
        "input_dtype",
        "output_size",
    }
)
"""Arguments that say nothing beside what the outputs' dtypes and shapes say."""


@dataclass(frozen=True)
class Row:
    """An overload: ``meaning(emitter, *arguments)`` gives its outputs, None for one that nobody may
    read; ``parameters`` in the schema's order.
    """

    meaning: Callable[..., Results]
    parameters: tuple[str, ...]


def row(meaning: Callable[..., Results], parameters: str = "") -> Row:
    """A row whose parameters are written with spaces between them. The meaning is not given those
    that are in ``UNREAD``.
    """
    return Row(meaning, tuple(parameters.split()))
