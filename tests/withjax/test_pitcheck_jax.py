"""``pitcheck.jax``: programs of JAX on several devices, in tests.

The checks are made in a process of their own, since JAX has threads: nothing is imported here that
starts it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from withjax.cases import PROVEN, RIGHT, WRONG, said, start_jax

from pitcheck.errors import UsageError
from pitcheck.jax import assert_partitioned

Said = Callable[[str], str]


@pytest.fixture(scope="module")
def said_of() -> Iterator[Said]:
    """Return what makes a check by its name, in a process that has eight devices."""
    with ProcessPoolExecutor(1, get_context("spawn"), start_jax) as process:
        yield lambda name: process.submit(said, name).result()


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_is_proven(said_of: Said, name: str) -> None:
    assert said_of(name) == PROVEN


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_a_mismatch(said_of: Said, name: str) -> None:
    assert said_of(name).strip().startswith("mismatch: ")


def test_a_finding_stands_at_the_line_of_the_program(said_of: Said) -> None:
    assert "withjax/cases.py:" in said_of("a mean")


@pytest.mark.parametrize(
    "name",
    [
        "an argument is not used",
        "explicit axes",
        "arrays",
        "gradients of a network",
        "jitted with named arguments",
        "steps of a loop",
        "a sum is left out",
        "partitioned shard_map",
        "gathered layers",
        "donated",
        "numbers by name",
        "compiled before",
    ],
)
def test_programs_of_other_forms(said_of: Said, name: str) -> None:
    assert said_of(name) == PROVEN


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("other results", "results correspond by their places"),
        ("another structure", "returns PyTreeDef({'y': *}) and the plain one PyTreeDef([*])"),
        ("other shapes", "sharded program is f32[8,6], and f32[4,6] of the plain one"),
        ("a row less", "sharded program is f32[8], and f32[7] of the plain one"),
        ("another dtype", "sharded program is f32[8], and bf16[8] of the plain one"),
        ("the plain function is sharded", "give a function of whole arrays"),
        ("of one device", "XLA does not partition the program"),
        ("unpartitioned", "XLA does not partition the program"),
        ("another argument is used", "mismatch: "),
        ("copies that differ", "devices 0 and 1 compute by different steps"),
    ],
)
def test_a_pair_that_cannot_be_meant(said_of: Said, name: str, text: str) -> None:
    assert text in " ".join(said_of(name).split())


def test_what_a_function_raises_is_raised(said_of: Said) -> None:
    with pytest.raises(ZeroDivisionError, match="mine"):
        said_of("raises")


def test_one_device_is_too_few(said_of: Said) -> None:
    with pytest.raises(UsageError, match="jax_num_cpu_devices"):
        said_of("one device")


def test_without_jax_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return x

    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(UsageError, match=r"install pitcheck\[jax\]"):
        assert_partitioned(function, (1.0,))
