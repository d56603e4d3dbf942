"""Tensors that have a shape and no numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from pitcheck.errors import PitcheckError, UnsupportedError

NUMBERLESS = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    UnsupportedFakeTensorException,
)
"""The exceptions that tensors without numbers raise and tensors with numbers would not."""


class Numberless(FakeTensorMode):
    """A mode that gives tensors shapes and no numbers.

    A copy of one of its tensors belongs to the same mode.
    """

    refuse: Callable[[str], PitcheckError] = UnsupportedError
    """A function that keeps and returns the error for what cannot be recorded."""

    def may_turn_const(self, t: torch.Tensor) -> bool:  # noqa: ARG002  PyTorch asks of every tensor
        """Return False, so that PyTorch keeps no numbers.

        The tape has what is known of a value. Numbers that PyTorch keeps beside it would change
        unseen.
        """
        return False

    def __deepcopy__(self, memo: dict[int, Any]) -> Numberless:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self.refuse(
            "a tensor is pickled or saved, whose numbers nobody has while a program is recorded; "
            "leave that out of the step"
        )
