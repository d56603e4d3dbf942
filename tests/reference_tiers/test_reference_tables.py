"""Functions as tables, and comparisons among them: the same verdict from a plain reference.

A pair of random formulas is decided three times: by the tables of ``pitcheck``, by those of the
reference, and by real numbers with many digits. The first two must always agree, and what they
accept must hold for real numbers.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from reference_tiers.fast_sides import draws, plan_of, primes_of, proof_of, same_by_tables
from reference_tiers.formulas import (
    Formula,
    Pair,
    chooses_literals,
    is_defined,
    literal,
    one,
    pair_of,
    picked,
    ranked,
    two,
    where,
)
from reference_tiers.real_numbers import shown_unequal
from reference_tiers.tables import Tables, UndefinedError

from pitcheck.algebra.interface import Comparison
from pitcheck.algebra.residues.free_functions import FreeFunctions
from pitcheck.algebra.residues.free_outcomes import FreeOutcomes
from pitcheck.algebra.residues.prime import PrimeAlgebra
from pitcheck.algebra.value import Value
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.prove.proof import Proof

KINDS = ("functions", "outcomes", "orders")
DAY, NIGHT = range(150), range(1000, 5000)
DAY_STAGES, NIGHT_STAGES = range(5000, 5060), range(6000, 7500)
DAY_CHECKS, NIGHT_CHECKS = range(8000, 8006), range(8100, 8300)

Decided = tuple[Pair, bool]


def decided(kind: str, seed: int, formal_roots: bool = True) -> Decided | None:
    """A random pair with the verdict of the reference; None if an element has no value."""
    decides, orders = kind == "outcomes", kind == "orders"
    pair = pair_of(random.Random(f"{kind} {seed}"), decides=decides, orders=orders)
    try:
        return pair, same(pair, seed, formal_roots)
    except UndefinedError:
        return None


def same(pair: Pair, seed: int, formal_roots: bool = True) -> bool:
    """True if the reference says of all draws that both formulas are equal."""
    return all(
        Tables(seed + (draw << 32), formal_roots).same(pair.first, pair.second)
        for draw in range(draws(pair.first) // 2)
    )


def compared(kind: str, seeds: Iterable[int]) -> Counter[tuple[bool, bool]]:
    """Compare both kinds of tables on random pairs; count (right, accepted)."""
    counts: Counter[tuple[bool, bool]] = Counter()
    chain = primes_of(7)
    for seed in seeds:
        formal = seed % 4 != 0
        found = decided(kind, seed, formal)
        if found is None:
            continue
        pair, expected = found
        accepted = same_by_tables(pair.first, pair.second, seed, chain, formal)
        assert accepted == expected, (seed, expected, str(pair.first), str(pair.second))
        if accepted or pair.right:
            unequal = shown_unequal(pair.first, pair.second, seed)
            assert not unequal, (seed, str(pair.first), str(pair.second))
        counts[pair.right, accepted] += 1
    return counts


def _many_of_each(counts: Counter[tuple[bool, bool]]) -> None:
    """Most right pairs are accepted, and most mistakes are not."""
    total = sum(counts.values())
    assert counts[True, True] > 0.3 * total, counts
    assert counts[False, False] > 0.3 * total, counts
    assert counts[True, False] > 0.01 * total, counts


@pytest.mark.parametrize("kind", KINDS)
def test_tables_decide_as_the_reference_does(kind: str) -> None:
    _many_of_each(compared(kind, DAY))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_tables_decide_as_the_reference_does_in_thousands_of_pairs(kind: str) -> None:
    _many_of_each(compared(kind, NIGHT))


def proven(kind: str, seeds: Iterable[int]) -> Counter[tuple[bool, str]]:
    """Prove random pairs as stages; count (accepted by the reference, outcome).

    A stage with roots is tried with formal ones, and with roots as functions like any other.
    """
    counts: Counter[tuple[bool, str]] = Counter()
    for seed in seeds:
        found = decided(kind, seed)
        if found is None:
            continue
        pair, expected = found
        if chooses_literals(pair.first) or chooses_literals(pair.second):
            continue
        either = expected or same(pair, seed, False)
        proof = proof_of(pair.first, pair.second, seed)
        _judge(seed, pair, expected, either, proof)
        way = "by tables" if not proof.no_tables else "over a chain"
        counts[expected, f"proven {way}" if proof.outcome == "proven" else "not proven"] += 1
    return counts


def _judge(seed: int, pair: Pair, expected: bool, either: bool, proof: Proof) -> None:
    said = (seed, str(pair.first), str(pair.second), proof.outcome, proof.reason)
    if proof.outcome == "proven":
        assert proof.no_tables or either, said
        assert not shown_unequal(pair.first, pair.second, seed), said
        assert proof.error_log2 <= -64 + math.log2(proof.attempts), said
    elif expected:
        assert not is_defined(pair.second), said


@pytest.mark.parametrize("kind", KINDS)
def test_stages_are_proven_as_the_reference_says(kind: str) -> None:
    counts = proven(kind, DAY_STAGES)
    assert counts[True, "proven by tables"] > 10 < counts[False, "not proven"], counts


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_stages_are_proven_as_the_reference_says_in_thousands_of_pairs(kind: str) -> None:
    counts = proven(kind, NIGHT_STAGES)
    assert counts[True, "proven by tables"] > 400 < counts[False, "not proven"], counts


def checked(kind: str, seeds: Iterable[int]) -> Counter[tuple[bool, str]]:
    """Check plans of random pairs; count (right, verdict)."""
    counts: Counter[tuple[bool, str]] = Counter()
    for seed in seeds:
        found = decided(kind, seed)
        if found is None or any(map(chooses_literals, (found[0].first, found[0].second))):
            continue
        pair, expected = found
        options = Options(seed=seed, explain=False)
        verdict = check(plan_of(pair.first), plan_of(pair.second), options).verdict
        said = (seed, str(pair.first), str(pair.second), verdict)
        unequal = shown_unequal(pair.first, pair.second, seed)
        assert not (unequal and verdict == "equivalent"), said
        if is_defined(pair.first) and is_defined(pair.second):
            assert not expected or verdict == "equivalent", said
            assert not pair.right or verdict != "mismatch", said
        counts[pair.right, verdict] += 1
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_check_of_a_pair_says_what_real_numbers_say(kind: str) -> None:
    assert sum(checked(kind, DAY_CHECKS).values()) > 3


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_a_check_of_a_pair_says_what_real_numbers_say_in_hundreds(kind: str) -> None:
    counts = checked(kind, NIGHT_CHECKS)
    assert counts[True, "equivalent"] > 50 < counts[False, "mismatch"], counts


X, Y = (Formula("input", name=name) for name in "xy")
FEW = two("add", one("square", Y), literal(1))
LAWS: dict[str, tuple[Callable[[], tuple[Formula, Formula]], bool]] = {
    "exp of a difference": (
        lambda: (one("exp", two("sub", X, Y)), two("div", one("exp", X), one("exp", Y))),
        True,
    ),
    "exp of a sum": (
        lambda: (one("exp", two("add", X, Y)), two("mul", one("exp", X), one("exp", Y))),
        False,
    ),
    "exp of a logarithm": (
        lambda: (one("exp", two("add", one("log", FEW), X)), two("mul", FEW, one("exp", X))),
        True,
    ),
    "log of a product": (
        lambda: (
            one("log", two("mul", FEW, one("exp", X))),
            two("add", X, one("log", FEW)),
        ),
        True,
    ),
    "a root squared": (lambda: (one("square", one("sqrt", FEW)), FEW), True),
    "the root of a square": (lambda: (one("sqrt", one("square", X)), X), False),
    "a product of roots": (
        lambda: (
            two("mul", one("sqrt", FEW), one("sqrt", one("exp", X))),
            one("sqrt", two("mul", FEW, one("exp", X))),
        ),
        True,
    ),
    "a choice of the greater one": (
        lambda: (where(two("ge", X, Y), X, Y), two("max", Y, X)),
        True,
    ),
    "a choice of the lesser one": (
        lambda: (where(two("gt", X, Y), Y, X), two("max", Y, X)),
        False,
    ),
    "greater, and greater or equal": (
        lambda: (one("number", two("gt", X, Y)), one("number", two("ge", X, Y))),
        False,
    ),
    "an order, and a sum in it": (lambda: (one("sum", ranked(X, Y)), one("sum", Y)), True),
    "an order of an order": (lambda: (ranked(ranked(X, X), ranked(X, Y)), ranked(X, Y)), False),
    "an order of opposites": (lambda: (ranked(one("neg", X), Y), ranked(X, Y)), False),
    "an order of doubles": (lambda: (ranked(two("mul", literal(2), X), Y), ranked(X, Y)), False),
    "the greatest comes first": (
        lambda: (one("top", X), one("sum", picked(ranked(X, X), literal(0)))),
        False,
    ),
    "a mask squared": (
        lambda: (
            one("square", one("number", two("lt", X, Y))),
            one("number", two("lt", X, Y)),
        ),
        False,
    ),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_reference_and_the_tables_know_a_law(law: str) -> None:
    make, holds = LAWS[law]
    first, second = make()
    assert same(Pair(first, second, holds), 1) == holds
    assert same_by_tables(first, second, 1, primes_of(1)) == holds


def _every_sum_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = PrimeAlgebra._sum_of_two

    def split(self: FreeFunctions, what: str, *rest: Any) -> Value:
        result: Value = plain(self, what, *rest)
        if result.kind != "field":
            return result
        a, b, sign = rest[-3:]
        second = tuple((sign * n, part) for n, part in self._own_parts(b))
        return self._with_parts(result, (*self._own_parts(a), *second))

    monkeypatch.setattr(FreeFunctions, "_sum_of_two", split)


def _every_root_is_formal(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FreeFunctions.sqrt

    def formal(self: FreeFunctions, a: Value) -> Value:
        return plain(self, replace(self.plain(a), nonnegative=True))

    monkeypatch.setattr(FreeFunctions, "sqrt", formal)


def _an_odd_function_is_even(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FreeFunctions._looked_up

    def even(self: FreeFunctions, name: str, arguments: list[Value], odd: bool, even: bool) -> Any:
        return plain(self, name, arguments, False, odd or even)

    monkeypatch.setattr(FreeFunctions, "_looked_up", even)


def _greater_or_equal_is_greater(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FreeOutcomes._outcome

    def strict(self: FreeOutcomes, comparison: Comparison, a: Value, b: Value) -> Value:
        strictly: dict[Comparison, Comparison] = {"le": "lt", "ge": "gt"}
        return plain(self, strictly.get(comparison, comparison), a, b)

    monkeypatch.setattr(FreeOutcomes, "_outcome", strict)


@pytest.mark.parametrize(
    "change",
    [
        _every_sum_is_split,
        _every_root_is_formal,
        _an_odd_function_is_even,
        _greater_or_equal_is_greater,
    ],
)
def test_tables_with_another_law_are_told_from_the_reference(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    with pytest.raises(AssertionError, match=r"^\(\d+, "):
        compared("outcomes", range(600))
