"""Patches for numbers that a program reads from tensors to log them or to test them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from pitcheck.frontends.torch.patches.patching import Patch
from pitcheck.frontends.torch.reads.unknown_numbers import Reads, UnknownNumber, is_finite

FUNCTIONS = ("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "pow", "fabs", "tanh")
"""The functions of Python of which a log may have the results."""


def read_patches(reads: Reads) -> Iterator[Patch]:
    """Yield the patches that give unknown numbers to who reads tensors."""
    item: Callable[[torch.Tensor], Any] = _item(reads, torch.Tensor.item)
    yield torch.Tensor, "item", item
    yield torch.Tensor, "__format__", _format(item, torch.Tensor.__format__)
    for name, if_finite in (("isnan", False), ("isinf", False), ("isfinite", True)):
        yield math, name, _tested(item, getattr(math, name), if_finite)
    for name in FUNCTIONS:
        yield math, name, _computed(item, getattr(math, name))
    yield json.JSONEncoder, "default", _default(json.JSONEncoder.default)


def _item(reads: Reads, original: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """Return the number in a tensor, an unknown one if nobody has it.

    PyTorch would make a plain number of it on the way.
    """

    def item(tensor: torch.Tensor) -> Any:
        with reads.taking() as taken:
            number = original(tensor)
        return taken[-1] if taken else number

    return item


def _format(
    item: Callable[[torch.Tensor], Any], original: Callable[..., str]
) -> Callable[[torch.Tensor, str], str]:
    """Return the text of the number in a tensor, as of a tensor with numbers."""

    def form(tensor: torch.Tensor, spec: str) -> str:
        if type(tensor) is not FakeTensor or tensor.dim() != 0:
            return original(tensor, spec)
        return format(item(tensor), spec)

    return form


def _number(item: Callable[[torch.Tensor], Any], given: Any) -> Any:
    return item(given) if isinstance(given, torch.Tensor) else given


def _tested(
    item: Callable[[torch.Tensor], Any], original: Callable[[Any], bool], if_finite: bool
) -> Callable[[Any], bool]:
    """Return a test of Python that takes unknown numbers for finite ones."""

    def test(given: Any) -> bool:
        number = _number(item, given)
        if type(number) is not UnknownNumber:
            return original(number)
        number.finite()
        return if_finite

    return test


def _computed(
    item: Callable[[torch.Tensor], Any], original: Callable[..., float]
) -> Callable[..., Any]:
    """Return a function of Python whose results of unknown numbers are unknown."""

    def function(*given: Any) -> Any:
        numbers = [_number(item, each) for each in given]
        unknown = [each for each in numbers if type(each) is UnknownNumber]
        if not unknown:
            return original(*numbers)
        return unknown[0].derived(finite=all(map(is_finite, numbers)))

    return function


def _default(original: Callable[[json.JSONEncoder, Any], Any]) -> Callable[..., Any]:
    """Return the method that says how JSON writes what it does not know."""

    def default(encoder: json.JSONEncoder, given: Any) -> Any:
        return str(given) if type(given) is UnknownNumber else original(encoder, given)

    return default
