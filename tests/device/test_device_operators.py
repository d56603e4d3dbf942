"""Every operator in every algebra of residues gives on the stand-in for CuPy what NumPy gives, bit
for bit, and records the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from device.device_cases import KINDS, SORTS, cases, facts_of
from device.strict_cupy import StrictCupy
from ops.ops_law_cases import Case, cases_of

from kernels import host_kernels
from pitcheck.ops.registry import operator_names

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)
NIGHTLY = [pytest.mark.slow, pytest.mark.nightly]
EVERY = 20
"""By day, every so many-th case is tried."""


def differing(
    kind: str, sort: str, tried: Iterable[Case], made: Callable[[], StrictCupy] = StrictCupy
) -> Iterator[str]:
    """Yield the cases that differ, in words."""
    for case in tried:
        expected = facts_of(np, KINDS[kind], case, sort)
        if facts_of(made(), KINDS[kind], case, sort) != expected:
            yield f"{case.operator.name} {[x.shape for x in case.inputs]} {case.attributes}"


class Careless(StrictCupy):
    """A device that takes the wrong one of two elements."""

    def where(self, condition: Any, x: Any = None, y: Any = None) -> Any:
        return super().where(condition, y, x)


def test_every_operator_has_a_case() -> None:
    """A barrier has no operands."""
    named = {name for name in operator_names() if not name.endswith(".backward")}
    assert named - {case.operator.name for case in cases()} == {"barrier"}


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("kind", KINDS)
def test_some_cases(kind: str, sort: str) -> None:
    number = list(KINDS).index(kind) + SORTS.index(sort)
    assert not list(differing(kind, sort, cases()[number % EVERY :: EVERY]))


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=NIGHTLY) for kind in KINDS])
def test_all_cases(kind: str, sort: str) -> None:
    assert not list(differing(kind, sort, cases()))


def test_a_wrong_number_is_seen() -> None:
    chosen = cases_of("maximum")
    assert list(differing("residues", "drawn", chosen, Careless))
    assert not list(differing("residues", "drawn", chosen))
