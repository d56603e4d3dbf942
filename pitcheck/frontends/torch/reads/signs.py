"""The values that are not negative, whatever the numbers are of which they are made."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.trace import Argument, Event, Ref, operands

NOT_NEGATIVE = frozenset(
    {
        "abs",
        "sqrt",
        "rsqrt",
        "square",
        "exp",
        "sigmoid",
        "relu",
        "linalg_vector_norm",
        "norm",
        "_softmax",
    }
)
"""The operators whose results are not negative."""
MOVES = frozenset(
    {
        "view",
        "_unsafe_view",
        "expand",
        "clone",
        "_to_copy",
        "cat",
        "stack",
        "slice",
        "select",
        "squeeze",
        "unsqueeze",
        "permute",
        "transpose",
        "t",
        "sum",
        "mean",
        "amax",
        "amin",
        "wait",
    }
)
"""The operators that give no negative numbers if all tensors that they read have none."""
COMBINES = frozenset({"add", "mul", "div", "maximum", "minimum", "where", "masked_fill"})
"""The operators that also read literals, none of which may be negative."""


class Signs:
    """The values that are not negative, each with the lines of tests on which this depends."""

    def __init__(self, known: Mapping[int, torch.Tensor]) -> None:
        self._known = known
        self._lines: dict[int, frozenset[str]] = {}

    def lines(self, value: int) -> frozenset[str] | None:
        """Return the lines of tests by which a value is not negative; None if it may be negative.

        The result is empty if no test has to do with it.
        """
        if value in self._lines:
            return self._lines[value]
        if value not in self._known:
            return None
        known = self._known[value]
        if known.is_complex():
            return None
        with _disable_current_modes():
            return frozenset() if bool((known >= 0).all()) else None

    def follow(self, event: Event, read: tuple[Argument, ...], tests: frozenset[str]) -> None:
        """Take in an event whose results are made of ``read``, a part of its arguments.

        ``tests`` are the lines of tests that tell which part it is.
        """
        lines = self._of(event.operator, read)
        if lines is not None:
            self._lines.update(dict.fromkeys(event.tensors, lines | tests))

    def _of(self, operator: str, read: tuple[Argument, ...]) -> frozenset[str] | None:
        name = operator.partition(".")[0]
        if name in NOT_NEGATIVE or (name == "pow" and _is_root_or_even(operator, read)):
            return frozenset()
        if name not in MOVES | COMBINES:
            return None
        literals = [each for each in read if isinstance(each, int | float)]
        if name in COMBINES and any(literal < 0 for literal in literals):
            return None
        found = [self.lines(value) for value in operands(read)]
        told = [lines for lines in found if lines is not None]
        return frozenset().union(*told) if found and len(told) == len(found) else None


def _is_root_or_even(operator: str, read: tuple[Argument, ...]) -> bool:
    """Return True for a power whose exponent is even, or no whole number."""
    exponent = read[1] if operator == "pow.Tensor_Scalar" else None
    return isinstance(exponent, int | float) and (exponent % 2 == 0 or exponent % 1 != 0)


def is_told(name: str, literal: object) -> bool:
    """Return True if the sign of a number tells its comparison with a literal.

    ``name`` is that of the comparison. The number is not negative, and its comparison has then the
    same outcome as that of 0.
    """
    if isinstance(literal, Ref) or not isinstance(literal, int | float):
        return False
    return literal < 0 or (literal == 0 and name in ("lt", "ge"))
