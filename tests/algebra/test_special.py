"""NaN and infinity beside residues follow IEEE 754: NumPy's float64 is the oracle."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from support.algebra_samples import classes, numbers, residues, small_integers

from pitcheck.algebra.value import Value

GIVEN = [0.0, 1.0, -2.0, float("inf"), float("-inf"), float("nan")]
PAIRS = list(itertools.product(GIVEN, GIVEN))


def ieee(values: np.ndarray) -> list[str]:
    return [
        "nan" if np.isnan(v) else "+inf" if v == np.inf else "-inf" if v == -np.inf else "finite"
        for v in values.reshape(-1)
    ]


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
def test_binary_rules(name: str) -> None:
    a = residues()
    x, y = (np.array(column) for column in zip(*PAIRS, strict=True))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    found = getattr(a, name)(numbers(a, list(x)), numbers(a, list(y)))
    assert classes(a, found) == ieee(expected)
    whole = [int(v) if np.isfinite(v) and v == int(v) else None for v in expected]
    for number, exact in zip(small_integers(a, found), whole, strict=True):
        assert exact is None or number == exact


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name: str) -> None:
    a = residues()
    x, y = (np.array(column) for column in zip(*PAIRS, strict=True))
    numpy_name = {
        "eq": "equal",
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
    }[name]
    found = a.compare(name, numbers(a, list(x)), numbers(a, list(y)))
    assert found.data[0, 0, 0].tolist() == getattr(np, numpy_name)(x, y).tolist()


def test_unary_rules() -> None:
    a = residues()
    x = numbers(a, GIVEN)
    values = np.array(GIVEN)
    with np.errstate(all="ignore"):
        assert classes(a, a.negate(x)) == ieee(-values)
        assert classes(a, a.exp(x)) == ieee(np.exp(values))
        assert classes(a, a.log(a.maximum(x, a.constant(Fraction(0))))) == ieee(
            np.log(np.maximum(values, 0))
        )
        assert classes(a, a.sqrt(a.maximum(x, a.constant(float("-inf"))))) == [
            "finite",
            "finite",
            "finite",
            "+inf",
            "nan",
            "nan",
        ]
        for n in (-2, -1, 0, 1, 2, 3):
            assert classes(a, a.power(x, n)) == ieee(values ** float(n)), n
    assert small_integers(a, a.exp(x)) == [1, "no integer", "no integer", "+inf", 0, "nan"]
    assert small_integers(a, a.power(x, 0)) == [1] * 6


def test_sums_and_products_of_matrices() -> None:
    a = residues()
    generator = np.random.default_rng(1)
    m = generator.choice(GIVEN, (4, 3), p=[0.2, 0.3, 0.3, 0.08, 0.06, 0.06])
    n = generator.choice(GIVEN, (3, 5), p=[0.2, 0.3, 0.3, 0.08, 0.06, 0.06])
    x, y = (
        a.reshape(numbers(a, list(m.reshape(-1))), (4, 3)),
        a.reshape(numbers(a, list(n.reshape(-1))), (3, 5)),
    )
    with np.errstate(all="ignore"):
        assert classes(a, a.matmul(x, y)) == ieee(m @ n)
        assert classes(a, a.sum(x, (1,))) == ieee(m.sum(axis=1))
        assert classes(a, a.reduce_max(x, 1)) == ieee(m.max(axis=1))
        assert classes(a, a.reduce_min(x, 1)) == ieee(m.min(axis=1))
        added = m.copy()
        np.add.at(added, (np.array([0, 0, 1]),), m[:3])
    index = a.integers(np.array([0, 0, 1])[None, None])
    assert classes(a, a.add_at(x, 0, index, a.slice(x, 0, 0, 3))) == ieee(added)


def test_functions_at_infinity() -> None:
    a = residues()
    x = numbers(a, [float("inf"), float("-inf"), float("nan"), 0.0])
    assert small_integers(a, a.function("erf", x)) == [1, -1, "nan", 0]
    assert small_integers(a, a.function("normal_cdf", x))[:3] == [1, 0, "nan"]
    assert classes(a, a.function("unknown kernel", x)) == ["nan", "nan", "nan", "finite"]


def test_a_fully_masked_row_is_nan_and_a_partly_masked_one_is_not() -> None:
    a = residues()
    x = a.fresh("x", (2, 3))
    mask = a.integers(np.array([[True, True, True], [False, True, False]])[None, None])
    masked = a.where(mask, a.constant(float("-inf")), x)
    m = a.reshape(a.reduce_max(masked, 1), (2, 1))
    e = a.exp(a.subtract(masked, m))
    y = a.divide(e, a.reshape(a.sum(e, (1,)), (2, 1)))
    assert classes(a, y) == ["nan"] * 3 + ["finite"] * 3
    two = a.exp(a.concatenate([a.slice(x, 1, 0, 1), a.slice(x, 1, 2, 3)], 1))
    kept = a.divide(two, a.reshape(a.sum(two, (1,)), (2, 1)))
    assert not a.differs(
        a.slice(a.slice(kept, 0, 1, 2), 1, 0, 1), a.slice(a.slice(y, 0, 1, 2), 1, 0, 1)
    ).any()
    assert small_integers(a, a.slice(y, 1, 1, 2))[1] == 0


def test_nan_equals_nan_and_nothing_else() -> None:
    a = residues()
    x, y = (
        numbers(a, [1.0, float("nan"), float("inf"), float("inf"), float("-inf"), 1.0]),
        numbers(a, [1.0, float("nan"), float("inf"), float("-inf"), float("-inf"), float("nan")]),
    )
    assert a.differs(x, y)[0, 0].tolist() == [False, False, False, True, False, True]


def test_a_divisor_that_vanishes_by_chance_voids_its_trial_alone() -> None:
    a = residues(trials=(0, 1, 2))
    b = a.fresh("b", (4,), 2, "nonzero")
    data = b.data.copy()
    data[1, 2, 0, 3] = 0
    a.divide(a.fresh("a", (4,)), Value("field", data))
    assert a.void.tolist() == [False, False, True]
    zero = residues(trials=(0, 1, 2))
    data[:, 2, 0, 3] = 0
    quotient = zero.divide(zero.fresh("a", (4,)), Value("field", data))
    assert zero.void.tolist() == [False] * 3
    assert quotient.special[0, 2, 0, 3] in (2, 3) and np.count_nonzero(quotient.special) == 1


def test_infinities_keep_their_sign_by_the_order() -> None:
    a = residues()
    zero = a.constant(Fraction(0))
    assert small_integers(a, a.divide(numbers(a, [1.0, -1.0, 0.0]), zero)) == [
        "+inf",
        "-inf",
        "nan",
    ]


def test_without_specials_no_codes_appear() -> None:
    a = residues()
    x = a.fresh("x", (2, 2), 1, "nonzero")
    for value in [
        a.add(x, x),
        a.divide(x, x),
        a.exp(x),
        a.matmul(x, x),
        a.maximum(x, x),
        a.sqrt(x),
        a.where(a.compare("gt", x, x), x, x),
    ]:
        assert value.special is None
    assert (
        a.where(a.integers(np.ones((1, 1, 2, 2), bool)), x, a.constant(float("nan"))).special
        is None
    )
