"""The verifier's arithmetic: residues, tables, bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pitcheck.certificate.arithmetic import Residues
from pitcheck.certificate.forms import LEAST_PRIME, PRIME_LIMIT, Form, Forms, vanishing
from pitcheck.certificate.modular import draw_primes, inverse, is_prime, matmul
from pitcheck.certificate.moves import POSITIVE, Value, VoidError
from pitcheck.errors import UnsupportedError
from pitcheck.ops.registry import evaluate


@pytest.fixture
def algebra() -> Residues:
    return Residues(np.random.default_rng(5))


def same(a: Value, b: Value) -> bool:
    return bool((a.data == b.data).all())


def test_primes() -> None:
    sieve = [n for n in range(2, 3000) if all(n % d for d in range(2, n))]
    assert [n for n in range(3000) if is_prime(n)] == sieve
    assert not any(map(is_prime, (3215031751, 1373653, 25326001)))
    primes = draw_primes(np.random.default_rng(1)).tolist()
    assert len(set(primes)) == 3
    assert all(LEAST_PRIME < p < PRIME_LIMIT for p in primes)


def test_products_and_inverses_are_those_of_integers() -> None:
    generator = np.random.default_rng(2)
    primes = draw_primes(generator)
    a, b = (generator.integers(0, primes[0], size=shape) for shape in ((5, 300), (300, 4)))
    found = matmul(a, b, primes[0])
    assert (found == a.astype(object) @ b.astype(object) % int(primes[0])).all()
    ones = a[:, :9] * inverse(a[:, :9], primes[0]) % primes[0]
    assert (ones[a[:, :9] != 0] == 1).all()


def test_rationals(algebra: Residues) -> None:
    third, half = algebra.constant(Fraction(1, 3)), algebra.constant(Fraction(1, 2))
    assert same(algebra.add(third, half), algebra.constant(Fraction(5, 6)))
    assert same(algebra.divide(third, half), algebra.constant(Fraction(2, 3)))
    with pytest.raises(VoidError):
        algebra.divide(third, algebra.subtract(half, algebra.constant(Fraction(1, 2))))


def test_softmax_does_not_change_with_a_shift(algebra: Residues) -> None:
    x, shift = algebra.fresh((3, 4)), algebra.fresh((3, 1))
    moved = algebra.subtract(x, shift)
    one, other = (evaluate(algebra, "softmax", [v], {"axis": 1})[0] for v in (x, moved))
    assert same(one, other)
    assert not same(one, evaluate(algebra, "softmax", [x], {"axis": 0})[0])


def test_minus_infinity_is_0_in_an_exponential(algebra: Residues) -> None:
    x = algebra.fresh((4, 4))
    mask = algebra.exactly(np.tri(4, dtype=np.bool_))
    hidden = algebra.where(mask, x, algebra.constant(float("-inf")))
    assert (algebra.exp(hidden).data[:, ~np.tri(4, dtype=np.bool_)] == 0).all()
    with pytest.raises(UnsupportedError, match="infinity"):
        algebra.multiply(hidden, x)


def test_outcomes_of_numbers_are_told_apart(algebra: Residues) -> None:
    a, b = algebra.fresh((5,)), algebra.fresh((5,))
    greater, least = algebra.compare("gt", a, b), algebra.compare("ge", a, b)
    assert same(greater, algebra.compare("lt", b, a))
    assert not same(greater, least)
    assert same(algebra.where(greater, a, a), a)
    assert not same(algebra.where(greater, a, b), algebra.where(greater, b, a))


@pytest.mark.parametrize("operation", ["sum", "int", "index"])
def test_outcomes_of_numbers_are_no_integers(algebra: Residues, operation: str) -> None:
    truth = algebra.compare("gt", algebra.fresh((5,)), algebra.fresh((5,)))
    with pytest.raises(UnsupportedError):
        if operation == "sum":
            algebra.sum(truth, (0,))
        elif operation == "int":
            algebra.cast(truth, "int")
        else:
            algebra.where(truth, *(algebra.exactly(np.arange(5)) for _ in range(2)))


def test_what_is_positive_is_so_by_construction(algebra: Residues) -> None:
    x, one = algebra.fresh((3,)), algebra.constant(Fraction(1))
    positive = algebra.add(algebra.multiply(x, x), one)
    assert positive.sign == POSITIVE
    assert algebra.exp(x).sign == POSITIVE
    assert all(
        v.sign != POSITIVE
        for v in (x, algebra.multiply(x, x), algebra.subtract(positive, one), algebra.negate(one))
    )
    algebra.divide(one, positive)
    assert not algebra.guards["reference"]
    algebra.divide(one, x)
    assert len(algebra.guards["reference"]) == 3


def test_bounds_hold_what_is_computed() -> None:
    """(x1 + ... + xn) / x1 - 1 has degree n at most over the divisors of the whole step."""
    forms = Forms()
    x = Form(1)
    quotient = forms.product(forms.total(x, 5), forms.inverse(x, 5))
    assert quotient.degree == 5
    assert vanishing(quotient) >= 5 / (PRIME_LIMIT - 1)
    assert forms.added(quotient, Form()).degree == 5
    assert forms.added(quotient, forms.inverse(x, 5)).degree == 10


def test_a_height_counts_though_the_degree_is_0() -> None:
    assert vanishing(Form(0, 3000.0)) > 0
    assert vanishing(Form(10**12)) == 1
