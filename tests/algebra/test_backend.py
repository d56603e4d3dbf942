"""Choosing the array module."""

import importlib.util

import numpy as np
import pytest

from pitcheck.algebra.backend import array_module, to_host
from pitcheck.errors import UsageError


def test_numpy_is_always_there() -> None:
    assert array_module("numpy") is np
    array = np.arange(3)
    assert to_host(np, array) is array


def test_auto_begins_with_numpy() -> None:
    assert array_module("auto") is np


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(UsageError, match="'torch'"):
        array_module("torch")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="cupy is installed here")
def test_without_cupy_it_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"pitcheck\[cuda12\]"):
        array_module("cupy")
