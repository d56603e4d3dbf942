"""The values that may be infinite or NaN because the program itself makes them so.

Tests of these are not assumed to find nothing. Infinity also comes from other ranks, and a rank
that is recorded does not see that. So it is noted through which meetings of ranks a value came.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.recording.known_values import UNDEFINED
from pitcheck.frontends.torch.trace import Argument, Event, Ref, operands

TAMING = frozenset(
    {
        "_softmax",
        "_safe_softmax",
        "_log_softmax",
        "logsumexp",
        "exp",
        "sigmoid",
        "tanh",
        "maximum",
        "minimum",
        "amax",
        "amin",
        "max",
        "min",
        "clamp",
        "clamp_min",
        "clamp_max",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "nan_to_num",
    }
)
"""The operators that are given infinity on purpose, and that make finite numbers of it."""
SHAPED = frozenset(
    {
        *(f"{name}_like" for name in ("full", "zeros", "ones", "rand", "randn")),
        *(f"new_{name}" for name in ("full", "zeros", "ones")),
        "uniform",
        "normal",
        "normal_functional",
        "fill",
        "zero",
        "copy",
    }
)
"""The operators that read no number of their first operand, but only its shape."""
DIVISIONS = frozenset({"div", "floor_divide", "remainder"})


class Source(NamedTuple):
    """The source of infinity that may be in some values.

    ``made``: this rank may have made it. ``through``: the meetings by which it may have come from
    other ranks; bit n stands for meeting n of this rank.
    """

    made: bool = False
    through: int = 0

    def joined(self, others: Iterable[Source]) -> Source:
        """Return this source and others as one."""
        found = self
        for other in others:
            found = Source(found.made or other.made, found.through | other.through)
        return found


class InfiniteValues:
    """The values that may be infinite or NaN on purpose.

    ``known`` has the values whose numbers are known. ``taming`` are the operators whose results
    are taken to be finite.
    """

    def __init__(self, known: Mapping[int, torch.Tensor], taming: Collection[str] = TAMING) -> None:
        self._known = known
        self._taming = taming
        self._values: set[int] = set()
        self._through: dict[int, int] = {}

    def __contains__(self, value: int) -> bool:
        return value in self._values

    def follow(
        self, event: Event, read: tuple[Argument, ...], floating: bool, chosen: int = 0
    ) -> None:
        """Take in an event whose results are made of ``read``, a part of its arguments.

        ``floating``: the results are floating-point numbers. ``chosen``: the meetings on which it
        depends that they are made of that part.
        """
        name = event.operator.partition(".")[0]
        if name in self._taming:
            return
        read = read[1:] if name in SHAPED else read
        if floating and self._is_made(name, event, read):
            self._values.update(event.tensors)
        through = chosen
        for value in operands(read):
            through |= self._through.get(value, 0)
        if through:
            self._through.update(dict.fromkeys(event.tensors, through))

    def arrive(self, event: Event, number: int, infinite: bool) -> None:
        """Take in that results come out of meeting ``number`` of this rank.

        ``infinite``: what this rank gives may be.
        """
        if infinite:
            self._values.update(event.tensors)
        self._through.update(dict.fromkeys(event.tensors, 1 << number))

    def source(self, values: Iterable[int]) -> Source:
        """Return the source of infinity that may be in some values."""
        return Source().joined(
            Source(self.may_be(value), self._through.get(value, 0)) for value in values
        )

    def may_be(self, value: int) -> bool:
        """Return True if a value is infinite or NaN somewhere, or if the program may make it so."""
        if value in self._values:
            return True
        if value not in self._known:
            return False
        with _disable_current_modes():
            known = self._known[value]
            return known.is_floating_point() and not bool(known.isfinite().all())

    def _is_made(self, name: str, event: Event, read: tuple[Argument, ...]) -> bool:
        """Return True if the results may be infinite because the program says so.

        So may memory that nobody has written to.
        """
        return (
            name in UNDEFINED
            or any(map(self.may_be, operands(read)))
            or (name in DIVISIONS and self._has_zero(event.arguments[1]))
            or _has_infinite_literal(read)
        )

    def _has_zero(self, divisor: object) -> bool:
        if isinstance(divisor, Ref):
            if divisor.value not in self._known:
                return False
            with _disable_current_modes():
                return bool((self._known[divisor.value] == 0).any())
        return divisor == 0


def _has_infinite_literal(arguments: object) -> bool:
    if isinstance(arguments, tuple):
        return any(map(_has_infinite_literal, arguments))
    return isinstance(arguments, float) and not math.isfinite(arguments)
