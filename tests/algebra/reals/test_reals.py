"""float64 against NumPy and known values; 60 digits against mpmath and float64."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.algebra.reals.precise import PreciseAlgebra
from pitcheck.algebra.reals.real import FUNCTIONS, RealAlgebra
from pitcheck.algebra.value import Value
from pitcheck.errors import UnsupportedError

SPECIAL = [0.0, -0.0, 1.0, -2.5, 1e-300, math.inf, -math.inf, math.nan]
floats = st.one_of(st.floats(-1e6, 1e6), st.sampled_from(SPECIAL))
R, P = RealAlgebra(np, 0, [0]), PreciseAlgebra(60)


def pair(x: list[float]) -> tuple[Value, Value]:
    array = np.array(x)[None, None]
    return Value("field", array[None]), P.number(array)


def same(precise: Value, expected: np.ndarray, tolerance: float = 1e-12) -> None:
    found = precise.data.astype(float).reshape(-1)
    np.testing.assert_allclose(
        found, np.broadcast_to(expected, found.shape), rtol=tolerance, atol=1e-290
    )


@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=6))
def test_binary_operations(given_pairs: list[tuple[float, float]]) -> None:
    x, y = (list(c) for c in zip(*given_pairs, strict=True))
    (rx, px), (ry, py) = pair(x), pair(y)
    with np.errstate(all="ignore"):
        for name in ("add", "subtract", "multiply", "maximum", "minimum"):
            expected = getattr(np, name)(np.array(x), np.array(y))
            np.testing.assert_array_equal(getattr(R, name)(rx, ry).data.reshape(-1), expected)
            same(getattr(P, name)(px, py), expected, 1e-9)
        quotient = np.array(x) / (np.array(y) + 0.0)
        positive_zero = np.where(np.array(y) == 0, np.array(x) / 0.0, quotient)
        np.testing.assert_array_equal(
            R.divide(rx, R.add(ry, R.constant(Fraction(0)))).data.reshape(-1), positive_zero
        )
        same(P.divide(px, py), positive_zero)
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            assert (
                R.compare(name, rx, ry).data.tolist()
                == P.compare(name, px, py).data.astype(bool).tolist()
            )


@given(st.lists(floats, min_size=1, max_size=6))
def test_unary_operations(x: list[float]) -> None:
    r, p = pair(x)
    v = np.array(x)
    with np.errstate(all="ignore"):
        for name, oracle in {
            "negate": np.negative,
            "exp": np.exp,
            "log": np.log,
            "sqrt": np.sqrt,
        }.items():
            small = np.where(abs(v) > 600, v / 1e5, v) if name == "exp" else v
            r, p = pair(list(small))
            np.testing.assert_array_equal(getattr(R, name)(r).data.reshape(-1), oracle(small))
            same(getattr(P, name)(p), oracle(small))
        r, p = pair(x)
        for axis_function in ("reduce_max", "reduce_min"):
            expected = (np.max if axis_function == "reduce_max" else np.min)(v)
            np.testing.assert_array_equal(
                getattr(R, axis_function)(r, 0).data.reshape(-1), [expected]
            )
            same(getattr(P, axis_function)(p, 0), expected)
        order = R.order(r, 0, False).data.reshape(-1)
        np.testing.assert_array_equal(order, np.argsort(v, kind="stable"))
        np.testing.assert_array_equal(P.order(p, 0, False).data.reshape(-1), order)


@given(st.lists(st.floats(-6, 6), min_size=1, max_size=5))
def test_functions_by_name(x: list[float]) -> None:
    r, p = pair(x)
    for name in FUNCTIONS.keys() - {"normal_quantile"}:
        same(
            P.function(name, p),
            R.function(name, r).data.reshape(-1),
            1e-9 if name == "tan" else 2e-13,
        )
    with mpmath.workdps(60):
        for found, v in zip(P.function("normal_cdf", p).data.reshape(-1), x, strict=True):
            assert abs(found - mpmath.ncdf(v)) < mpmath.mpf(10) ** -50
            assert (
                abs(
                    found
                    - R.function("normal_cdf", Value("field", np.full((1, 1, 1), v))).data.item()
                )
                < 2e-16
            )


@given(st.lists(st.floats(2**-53, 1 - 2**-53), min_size=1, max_size=5))
def test_quantiles(x: list[float]) -> None:
    """Use probabilities as draws have them. Nothing lies below a number that is no probability."""
    r, p = pair([*x, 0.0, 1.0, -0.5, 2.0])
    found = R.function("normal_quantile", r)
    same(P.function("normal_quantile", p), found.data.reshape(-1))
    back = R.function("normal_cdf", found).data.reshape(-1)
    np.testing.assert_allclose(back[: len(x)], x, rtol=1e-12)
    np.testing.assert_array_equal(
        found.data.reshape(-1)[len(x) :], [-np.inf, np.inf, np.nan, np.nan]
    )


def test_unknown_functions_are_refused() -> None:
    for a in (R, P):
        with pytest.raises(UnsupportedError, match="kernel"):
            a.function("kernel", a.fresh("x", (2,)))
        with pytest.raises(UnsupportedError):
            a.cast(a.constant(math.inf), "int")


def test_matrices_powers_and_sums() -> None:
    r, p = RealAlgebra(np, 3, [0, 5]), PreciseAlgebra(60, 3, [0, 5])
    for a in (r, p):
        x, y = a.fresh("x", (3, 4), 2), a.fresh("y", (4, 2))
        fx, fy = x.data.astype(float), y.data.astype(float)
        np.testing.assert_allclose(a.matmul(x, y).data.astype(float), fx @ fy, rtol=1e-12)
        np.testing.assert_allclose(
            a.sum(x, (0, 1)).data.astype(float), fx.sum(axis=(3, 4)), rtol=1e-10
        )
        np.testing.assert_allclose(a.power(x, -3).data.astype(float), fx**-3.0, rtol=1e-12)
        assert np.array_equal(
            a.cast(a.multiply(x, a.constant(Fraction(100))), "int").data,
            np.trunc(fx * 100).astype(int),
        )
    np.testing.assert_array_equal(
        r.fresh("x", (3, 4)).data, p.fresh("x", (3, 4)).data.astype(float)
    )


def test_sixty_digits_see_what_float64_does_not() -> None:
    third = P.divide(P.constant(Fraction(1)), P.constant(Fraction(3)))
    assert not P.differs(third, P.constant(Fraction(1, 3))).any()
    nearly = P.constant(Fraction(1, 3) + Fraction(1, 10**40))
    assert P.differs(third, nearly).all()
    assert not R.differs(
        R.constant(Fraction(1, 3)), R.constant(Fraction(1, 3) + Fraction(1, 10**40))
    ).any()


def test_the_tolerance_is_relative_to_trial_and_instance() -> None:
    x = np.ones((1, 2, 2, 3))
    y = x.copy()
    y[0, 0, 0, 0] += 1e-8
    y[0, 1, 1, 2] += 1e-11
    a = RealAlgebra(np, 0, [0, 1])
    expected = np.zeros((2, 2, 3), bool)
    expected[0, 0, 0] = True
    assert np.array_equal(a.differs(Value("field", x), Value("field", y)), expected)
    big = np.array([1e6, 0.0])[None, None, None]
    assert not a.differs(Value("field", big), Value("field", big + 1e-5)).any()
    assert a.differs(Value("field", big), Value("field", big + 1e-2)).all()
    special = np.array([math.nan, math.inf, math.inf, 1.0])[None, None, None]
    other = np.array([math.nan, math.inf, -math.inf, math.nan])[None, None, None]
    for b, make in ((a, lambda d: Value("field", d)), (P, lambda d: P.number(d[0]))):
        assert b.differs(make(special), make(other))[0, 0].tolist() == [False, False, True, True]
    assert not R.differs(R.constant(Fraction(0)), R.constant(Fraction(0))).any()


@pytest.mark.parametrize("name", ["exp", "sin", "floor", "round", "normal_cdf", "erf"])
def test_functions_of_numbers_with_too_many_digits_are_refused_at_once(name: str) -> None:
    """mpmath has no overflow: exp(exp(1e300)) would be computed to its last digit."""
    huge = P.exp(P.number(np.full((1, 1), 1e300)))
    with pytest.raises(UnsupportedError, match=r"beyond 2\^2048"):
        P.exp(huge) if name == "exp" else P.function(name, huge)
    assert P.context.isfinite(P.log(huge).data.item())
    masked = P.exp(P.number(np.full((1, 1), -1.7e308))).data.item()
    assert 0 < masked < P.context.mpf(10) ** -1000
