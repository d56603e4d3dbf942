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
"""The arguments that say nothing beyond the outputs' dtypes and shapes."""


@dataclass(frozen=True)
class Row:
    """An overload.

    ``meaning(emitter, *arguments)`` returns its outputs; None for one that nobody may read.
    ``parameters`` are in the schema's order.
    """

    meaning: Callable[..., Results]
    parameters: tuple[str, ...]


def row(meaning: Callable[..., Results], parameters: str = "") -> Row:
    """Return a row whose parameters are written with spaces between them.

    The meaning does not get those that are in ``UNREAD``.
    """
    return Row(meaning, tuple(parameters.split()))
