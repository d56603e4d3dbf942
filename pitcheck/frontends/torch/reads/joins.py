"""The parts of a joined tensor from which a stretch of it is cut.

A buffer is joined of what was written to it and of memory that nobody has written to. A stretch
that avoids this memory has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.frontends.torch.trace import Event, Ref

Parts = tuple[tuple[int, int, int], ...]
"""First row, last row (exclusive) and value of each part."""


class Joins:
    """The tensors that are joined along dimension 0, and stretches of them, by their parts."""

    def __init__(self) -> None:
        self._parts: dict[int, Parts] = {}

    def parts(self, event: Event, shapes: Sequence[tuple[int, ...]]) -> tuple[Ref, ...] | None:
        """Return the parts of which the result of an event is cut.

        ``shapes`` are those of its operands. Returns None for an event that cuts no joined tensor.
        """
        if event.operator == "cat.default" and event.arguments[1] == 0:
            self._join(event, shapes)
        if event.operator != "slice.Tensor" or event.arguments[1] != 0:
            return None
        first, _, start, stop, step = event.arguments
        if not isinstance(first, Ref) or first.value not in self._parts or step != 1:
            return None
        begin, end, _ = slice(_place(start), _place(stop)).indices(shapes[0][0])
        kept = tuple(
            (max(low, begin) - begin, min(high, end) - begin, value)
            for low, high, value in self._parts[first.value]
            if max(low, begin) < min(high, end)
        )
        self._parts.update(dict.fromkeys(event.tensors, kept))
        return tuple(Ref(value) for _, _, value in kept)

    def _join(self, event: Event, shapes: Sequence[tuple[int, ...]]) -> None:
        given = event.arguments[0]
        parts, at = [], 0
        for part, shape in zip(given if isinstance(given, tuple) else (), shapes, strict=True):
            if isinstance(part, Ref):
                parts.append((at, at + shape[0], part.value))
                at += shape[0]
        self._parts.update(dict.fromkeys(event.tensors, tuple(parts)))


def _place(literal: object) -> int | None:
    return literal if isinstance(literal, int) else None
