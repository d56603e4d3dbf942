"""Operations of an algebra on kernels that run on the host: NumPy's values, in few launches."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from kernels.host_cupy import HostCupy

from kernels import host_kernels
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.residues.free_functions import FreeAlgebra
from pitcheck.errors import UnsupportedError

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason=host_kernels.MISSING)

TRIALS = (0, 1, 2)
UNLINKED = Chain((2147481311, 2147366399, 2147260631), linked=False)
ALGEBRAS: dict[str, Callable[[Any], Any]] = {
    "residues": lambda xp: ResidueAlgebra(xp, chains_of(3)[0], 7, TRIALS),
    "tables": lambda xp: FreeAlgebra(xp, UNLINKED, 7, TRIALS),
}


def _bench() -> ModuleType:
    path = Path(__file__).parents[2] / "bench" / "gpu_programs.py"
    found = importlib.util.spec_from_file_location("bench_gpu_programs", path)
    if found is None or found.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


PROGRAMS = _bench().programs


def outcome(algebra: Any, program: Callable[[Any], Any]) -> list[Any]:
    """Return what a program gives: its arrays, or the error that it raises."""
    try:
        value = program(algebra)
    except UnsupportedError as error:
        return [str(error)]
    codes = np.zeros(0, np.uint8) if value.special is None else value.special
    return [value.data, codes, algebra.void]


@pytest.mark.parametrize("of", ALGEBRAS)
@pytest.mark.parametrize("name", PROGRAMS(3, 5))
def test_values_are_those_of_numpy(of: str, name: str) -> None:
    for shape in ((3, 5), (70, 4)):
        program = PROGRAMS(*shape)[name]
        expected, found = (outcome(ALGEBRAS[of](xp), program) for xp in (np, HostCupy()))
        for e, f in zip(expected, found, strict=True):
            assert np.array_equal(e, f), (shape, e, f)
            assert getattr(e, "dtype", None) == getattr(f, "dtype", None)


LAUNCHES = {
    "add": {"elementwise": 1},
    "subtract": {"elementwise": 1},
    "negate": {"elementwise": 1},
    "multiply": {"elementwise": 1},
    "divide": {"inverses": 1, "elementwise": 1},
    "sum": {"sum_residues": 1},
    "matmul": {"modular_matmul": 1},
    "exp": {"exponential": 1},
    "sqrt": {"elementwise": 1},
    "draw": {"keyed_function": 1},
    "add_at": {"add_at_places": 1, "elementwise": 1},
    "maximum": {"order_keys": 2},
}
"""The launches of kernels beside those that make the operands."""


@pytest.mark.parametrize("name", LAUNCHES)
def test_an_operation_is_one_launch_or_two(name: str) -> None:
    xp = HostCupy()
    PROGRAMS(3, 5)[name](ALGEBRAS["residues"](xp))
    assert {k: n for k, n in xp.launches.items() if k != "residues_of_words"} == LAUNCHES[name]


def test_equal_arrays_take_the_kernels_without_strides() -> None:
    xp = HostCupy()
    algebra = ALGEBRAS["residues"](xp)
    x, y = algebra.fresh("x", (4, 5)), algebra.fresh("y", (4, 5))
    xp.launches.clear()
    for operation in ("add", "subtract", "multiply"):
        getattr(algebra, operation)(x, y)
    assert xp.launches == {"add_residues": 1, "subtract_residues": 1, "multiply_residues": 1}


def test_a_large_product_is_three_launches_beside_the_gemm() -> None:
    xp = HostCupy()
    algebra = ALGEBRAS["residues"](xp)
    x, y = algebra.fresh("x", (70, 400)), algebra.fresh("y", (400, 3))
    xp.launches.clear()
    algebra.matmul(x, y)
    assert xp.launches == {"split_left": 1, "split_right": 1, "join_products": 1}
