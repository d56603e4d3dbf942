"""Tests for infinity and NaN, which are assumed to find neither.

Nobody has the numbers while a program is recorded. A program that tests them to raise, to abort or
to leave out a step is recorded as it runs if they are finite. Nothing else is assumed: of other
conditions, and of numbers that the program itself makes infinite or NaN, nobody knows the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.recording.known_values import evaluate
from pitcheck.frontends.torch.trace import Event, Ref, operands

TESTED_ELEMENTS = 1 << 24
"""The greatest number of elements of a test whose outcome is followed."""
TESTS = frozenset({"isnan", "isinf", "isposinf", "isneginf", "isfinite"})
"""The operators whose outcome is the same for all finite numbers."""
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
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
DIVISIONS = frozenset({"div", "floor_divide", "remainder"})


class FiniteTests:
    """The outcomes of tests for infinity and NaN if what is tested is finite, by value.

    ``known`` has the values whose numbers are known; these are never assumed.
    """

    def __init__(self, known: Mapping[int, torch.Tensor]) -> None:
        self.outcomes: dict[int, torch.Tensor] = {}
        self._known = known
        self._infinite: set[int] = set()

    def follow(self, event: Event, shapes: Sequence[tuple[int, ...]], floating: bool) -> None:
        """Note what an event gives, of which not all operands are known.

        ``shapes`` are those of the operands, in order. ``floating``: its results are floating-point
        numbers.
        """
        if floating and self._makes_infinity(event):
            self._infinite.update(event.tensors)
        if event.group:
            return
        numbers = self._numbers(event, shapes)
        results = evaluate(event, numbers) if numbers is not None else None
        for number, result in zip(event.outputs, results or (), strict=False):
            if number is not None and result is not None:
                self.outcomes[number] = result

    def outcome(self, value: int) -> bool | int | float | None:
        """Return the only element of an outcome; None for a value that is none."""
        if value not in self.outcomes:
            return None
        with _disable_current_modes():
            number: bool | int | float = self.outcomes[value].item()
        return number

    def _numbers(
        self, event: Event, shapes: Sequence[tuple[int, ...]]
    ) -> dict[int, torch.Tensor] | None:
        """Return numbers of the operands that tell the outcome; None if nothing tells it."""
        read = operands(event.arguments)
        if not read or any(math.prod(shape) > TESTED_ELEMENTS for shape in shapes):
            return None
        if self._is_test(event) and self._infinite.isdisjoint(read):
            # Any finite numbers have the same outcome.
            with _disable_current_modes():
                zeros = {
                    number: torch.zeros(()).expand(shape)
                    for number, shape in zip(read, shapes, strict=True)
                }
            return {**zeros, **{n: self._known[n] for n in read if n in self._known}}
        if any(number in self.outcomes for number in read) and all(
            number in self.outcomes or number in self._known for number in read
        ):
            return {n: self.outcomes.get(n, self._known.get(n)) for n in read}  # type: ignore[misc]
        return None

    def _is_test(self, event: Event) -> bool:
        name = event.operator.partition(".")[0]
        if name in TESTS:
            return True
        if name not in COMPARISONS:
            return False
        first, second = event.arguments[:2]
        if isinstance(second, Ref):
            return (first == second and name in ("eq", "ne")) or self._is_infinity(second.value)
        return isinstance(second, float) and math.isinf(second)

    def _is_infinity(self, value: int) -> bool:
        if value not in self._known:
            return False
        with _disable_current_modes():
            known = self._known[value]
            return known.is_floating_point() and known.numel() > 0 and bool(known.isinf().all())

    def _makes_infinity(self, event: Event) -> bool:
        """Return True if the results may be infinite or NaN because the program says so."""
        name = event.operator.partition(".")[0]
        if name in TAMING:
            return False
        if any(map(self._is_or_has_infinity, operands(event.arguments))):
            return True
        if name in DIVISIONS and self._is_or_has_zero(event.arguments[1]):
            return True
        return _has_infinite_literal(event.arguments)

    def _is_or_has_infinity(self, value: int) -> bool:
        if value in self._infinite:
            return True
        if value not in self._known:
            return False
        with _disable_current_modes():
            known = self._known[value]
            return known.is_floating_point() and not bool(known.isfinite().all())

    def _is_or_has_zero(self, divisor: object) -> bool:
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
