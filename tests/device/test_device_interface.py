"""All that pitcheck uses of CuPy is there, with these parameters, and the stand-in has no more.

CuPy's package is imported, which needs no GPU.
"""

from __future__ import annotations

import inspect
import re
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
from device.array_module_uses import Use, all_uses
from device.strict_array import COMPARING, DeviceArray
from device.strict_cupy import DTYPES, UFUNCS, StrictCupy, Ufunc

from pitcheck.algebra.discrete import COMPARISONS

cupy = pytest.importorskip("cupy", reason="the package cupy is not installed")

OF_UFUNCS = ("out", "dtype", "casting", "where")
OWN = frozenset(("counter", "owns", "made", "function"))
"""The names that the stand-in alone has."""
OWN_OF_ARRAYS = frozenset(("device", "host", "memory", "as_view"))
OPERATORS = re.compile("__(?!init|slots|module|doc|annotations|static|firstline)")
USES = all_uses()
NAMED = {use.name: use for use in USES}
"""One use of every name."""
SAMPLES = [np.dtype(name) for name in ("bool", "uint8", "uint32", "int64", "uint64", "float64")]
NUMBERS = (True, 1, 0.5)


def found(name: str) -> Any:
    return reduce(getattr, name.split("."), cupy)


def parameters(function: Any) -> inspect.Signature:
    """Return the signature of a function, which compiled ones have in their docstring."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        line = function.__doc__.splitlines()[0].split(" ->")[0]
        given = re.sub(r"\b(str|int|tuple|bool|object) (?=\w+)", "", line[line.index("(") :])
        scope: dict[str, Any] = {}
        exec(f"def function{given}: ...", scope)
        return inspect.signature(scope["function"])


def test_uses_are_found() -> None:
    assert len(USES) > 100
    assert {"where", "add.at", "lib.stride_tricks.as_strided", "RawModule"} <= NAMED.keys()
    assert NAMED["asnumpy"].count == 1


@pytest.mark.parametrize("name", [*NAMED, *COMPARISONS.values()])
def test_cupy_has_what_is_used(name: str) -> None:
    assert found(name) is not None


@pytest.mark.parametrize("use", [u for u in USES if u.keywords or u.count], ids=lambda u: u.place)
def test_cupy_takes_what_is_given(use: Use) -> None:
    function = found(use.name)
    if isinstance(function, type) and issubclass(function, np.generic):
        return
    if isinstance(function, cupy.ufunc):
        assert set(use.keywords) <= set(OF_UFUNCS)
        assert use.count is None or function.nin <= use.count <= function.nargs
        return
    given = dict.fromkeys(use.keywords)
    if use.count is None:
        parameters(function).bind_partial(**given)
    elif use.name != "add.at":
        parameters(function).bind(*[None] * use.count, **given)


def assert_no_more(mine: Any, theirs: Any) -> None:
    """The parameters of ``mine`` are those of ``theirs``, or the first of them."""
    own, known = list(inspect.signature(mine).parameters), list(parameters(theirs).parameters)
    known = [name for name in known if name != "self"]
    own = [name for name in own if name != "self"]
    assert own in (known[: len(own)], [name for name in known if name in own])


@pytest.mark.parametrize(
    "name", [n for n, m in vars(StrictCupy).items() if inspect.isfunction(m) and n[0] != "_"]
)
def test_functions_of_the_stand_in(name: str) -> None:
    if name in OWN:
        assert not hasattr(cupy, name)
    elif name != "matmul":
        assert_no_more(getattr(StrictCupy, name), found(name))


@pytest.mark.parametrize("name", vars(DeviceArray))
def test_members_of_arrays_of_the_stand_in(name: str) -> None:
    member = getattr(DeviceArray, name)
    if name in OWN_OF_ARRAYS:
        assert not hasattr(cupy.ndarray, name) or name == "device"
    elif name[0] != "_":
        assert hasattr(cupy.ndarray, name)
        if inspect.isfunction(member) and name not in ("view", "reshape", "transpose"):
            assert_no_more(member, getattr(cupy.ndarray, name))
    elif OPERATORS.match(name):
        assert hasattr(cupy.ndarray, name), name


def test_names_are_cupys() -> None:
    assert all(isinstance(found(name), cupy.ufunc) for name in UFUNCS)
    assert all(found(name) is getattr(np, name) for name in DTYPES)
    assert set(COMPARING) <= set(UFUNCS)


def type_of(types: list[str], given: tuple[Any, ...]) -> Any:
    """Return the dtype that CuPy's rule gives: the first loop that takes all operands.

    Numbers of Python adapt to arrays, if no array is of a lower kind. Return None for no loop.
    """
    order = "biuf"
    kinds = [order.index(d.kind.replace("u", "i")) for d in given if isinstance(d, np.dtype)]
    weak = [order.index(np.dtype(type(n)).kind) for n in given if type(n) in (int, float)]
    adapting = bool(kinds and weak and max(kinds) >= max(weak))
    # CuPy has loops of bfloat16, which NumPy lacks, if ml_dtypes is installed, as with JAX.
    for loop in (each for each in types if set(each) <= {*np.typecodes["All"], "-", ">"}):
        before, after = loop.split("->")
        if all(takes(np.dtype(c), d, adapting) for c, d in zip(before, given, strict=True)):
            return np.dtype(after)
    return None


def takes(loop: np.dtype[Any], given: Any, adapting: bool) -> bool:
    if isinstance(given, np.dtype) or not adapting or isinstance(given, bool):
        dtype = given if isinstance(given, np.dtype) else np.dtype(type(given))
        return np.can_cast(dtype, loop)
    return bool(np.result_type(given, loop) == loop)


def operand(device: StrictCupy, sample: Any) -> Any:
    return device.ones(2, sample) if isinstance(sample, np.dtype) else sample


@pytest.mark.parametrize("name", ["where", *UFUNCS])
def test_results_have_cupys_dtypes(name: str) -> None:
    """Any two operands, arrays or numbers: where CuPy has no loop, both raise."""
    device = StrictCupy()
    function: Any = getattr(device, name)
    known = cupy._sorting.search._where_ufunc if name == "where" else found(name)
    first = SAMPLES[:1] if name == "where" else []
    count = known.nin - len(first)
    for tried in product([*SAMPLES, *NUMBERS], repeat=count):
        if not any(isinstance(each, np.dtype) for each in tried):
            continue
        given = [operand(device, each) for each in (*first, *tried)]
        expected = type_of(known.types, (*first, *tried))
        try:
            result = function(*given).dtype
        except (TypeError, ValueError):
            result = None
        if expected is not None and result is not None:
            assert result == expected, (name, tried)
        else:
            assert result is None, (name, tried)


def test_a_function_of_the_stand_in_is_elementwise() -> None:
    assert all(isinstance(getattr(StrictCupy(), name), Ufunc) for name in UFUNCS)
