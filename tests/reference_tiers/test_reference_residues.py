"""Residues against plain Python, value by value: rings, division, exponentials, and weights."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from reference_tiers.exact_bounds import Symbols
from reference_tiers.fast_sides import evaluated, primes_of, proof_of
from reference_tiers.formulas import (
    NAMES,
    PLACES,
    Formula,
    Growth,
    chooses_literals,
    is_defined,
    pair_of,
    walk,
)
from reference_tiers.plain_residues import (
    ChainValues,
    Matrix,
    NoLevelError,
    matmul,
    summed,
    transposed,
    weights_of,
)

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.residues.weights import ONES, Pattern, WeightedAlgebra
from pitcheck.algebra.value import Value
from pitcheck.errors import BudgetError

SMALL = (Chain((11, 23, 47)), Chain((359, 719, 1439)), Chain((1439, 2879)))
"""Chains on which logarithms can be looked up in lists."""
UNLINKED = (Chain((31,), linked=False), Chain((1000003,), linked=False), primes_of(11))
TRIALS = (0, 3)
DAY, NIGHT = range(80), range(1000, 4000)
DAY_PAIRS, NIGHT_PAIRS = range(150), range(1000, 5000)
ARITHMETIC = frozenset(("input", "literal", "add", "sub", "mul", "div", "neg", "square", "sum"))
WITH_LOGARITHMS = frozenset(("exp", "log"))


def _residues(value: Value, level: int, trial: int) -> list[int]:
    """The residues of a vector at a level of the chain, in one trial."""
    data = value.data[level - value.lowest]
    found = np.broadcast_to(data, (len(TRIALS), *data.shape[1:]))[trial, 0].reshape(-1)
    numbers: list[int] = found.tolist()
    return numbers


def _special(value: Value, trial: int) -> bool:
    """True if an element is not finite in one trial."""
    if value.special is None:
        return False
    codes = value.special
    return bool(np.broadcast_to(codes, (1, len(TRIALS), *codes.shape[2:]))[:, trial].any())


def _reference(algebra: ResidueAlgebra, trial: int) -> ChainValues:
    """The reference with the inputs and the bases that an algebra draws."""
    chain = algebra.chain
    drawn = {name: algebra.fresh(name, (PLACES,)) for name in NAMES}
    inputs = {
        name: {level: _residues(value, level, trial) for level in range(len(chain))}
        for name, value in drawn.items()
    }
    exponents = algebra.arithmetic._exponential.exponents if chain.linked else []
    bases = [
        pow(4, row[trial], p) for row, p in zip(exponents, chain.primes[1:], strict=chain.linked)
    ]
    return ChainValues(chain.primes, bases, inputs)


def _without(rng: random.Random, kinds: frozenset[str]) -> Formula:
    """A formula of arithmetic and of the functions of ``kinds``."""
    while True:
        growth = Growth(rng, functions=bool(kinds), decides=False)
        root = growth.formula(rng.randint(1, 4))
        if {term.kind for term in walk(root)} <= kinds | ARITHMETIC:
            return root


def values(chains: Iterable[Chain], kinds: frozenset[str], seeds: Iterable[int]) -> Counter[str]:
    """Compare the residues of random formulas at all levels; count how it went."""
    counts: Counter[str] = Counter()
    known = list(chains)
    for seed in seeds:
        rng = random.Random(f"values {seed}")
        chain, root = rng.choice(known), _without(rng, kinds)
        algebra = ResidueAlgebra(np, chain, seed, TRIALS)
        found: Value | None = None
        try:
            found = algebra.plain(evaluated(algebra, root))
        except BudgetError:
            counts["no level"] += 1
        for trial in range(len(TRIALS)):
            counts[_compared(algebra, root, found, trial)] += 1
    return counts


def _compared(algebra: ResidueAlgebra, root: Formula, found: Value | None, trial: int) -> str:
    reference = _reference(algebra, trial)
    said = (algebra.seed, trial, algebra.chain.primes, str(root))
    try:
        expected = reference.plain(reference.value(root))
    except ZeroDivisionError:
        # By chance at some level, or the divisor is 0 for all inputs, as one prime cannot tell.
        undefined = found is None or _special(found, trial) or len(algebra.chain) == 1
        assert undefined or algebra.void[trial], said
        return "void"
    except NoLevelError:
        assert found is None, said
        return "no level"
    assert found is not None, said
    if algebra.void[trial] or _special(found, trial):
        return "void on one side"
    levels = range(found.lowest, found.lowest + found.data.shape[0])
    assert list(levels) == sorted(expected.cells), said
    for level in levels:
        cells = expected.cells[level]
        assert _residues(found, level, trial) == cells, (*said, level)
    return "same"


def test_arithmetic_has_the_residues_of_plain_integers() -> None:
    counts = values(UNLINKED, frozenset(), DAY)
    assert counts["same"] > len(DAY), counts
    assert not counts["void on one side"], counts


@pytest.mark.slow
@pytest.mark.nightly
def test_arithmetic_has_the_residues_of_plain_integers_in_thousands_of_formulas() -> None:
    counts = values(UNLINKED, frozenset(), NIGHT)
    assert counts["same"] > len(NIGHT), counts
    assert not counts["void on one side"], counts


def test_exponentials_and_logarithms_have_the_residues_of_plain_powers() -> None:
    counts = values(SMALL, WITH_LOGARITHMS, DAY)
    assert counts["same"] > len(DAY) // 2, counts
    assert not counts["void on one side"], counts


@pytest.mark.slow
@pytest.mark.nightly
def test_exponentials_and_logarithms_have_the_residues_of_plain_powers_in_thousands() -> None:
    counts = values(SMALL, WITH_LOGARITHMS, NIGHT)
    assert counts["same"] > len(NIGHT) // 2, counts
    assert not counts["void on one side"], counts


def test_exponentials_over_large_chains_have_the_residues_of_plain_powers() -> None:
    counts = values((*chains_of(2)[:3], *chains_of(3)[:3]), frozenset(("exp",)), DAY)
    assert counts["same"] > len(DAY), counts


@pytest.mark.slow
@pytest.mark.nightly
def test_exponentials_over_large_chains_have_the_residues_of_plain_powers_in_thousands() -> None:
    counts = values((*chains_of(2), *chains_of(3), *chains_of(4)), frozenset(("exp",)), NIGHT)
    assert counts["same"] > len(NIGHT), counts


# --- verdicts


def rings(seeds: Iterable[int]) -> Counter[tuple[bool, str]]:
    """Prove random pairs without functions; count (equal, outcome)."""
    counts: Counter[tuple[bool, str]] = Counter()
    for seed in seeds:
        pair = pair_of(random.Random(f"rings {seed}"), functions=False, decides=False)
        if chooses_literals(pair.first) or chooses_literals(pair.second):
            continue
        if any(t.kind not in ARITHMETIC for f in (pair.first, pair.second) for t in walk(f)):
            continue
        try:
            equal = Symbols(seed).error(pair.first, pair.second, (3,)) is None
        except ZeroDivisionError:
            continue
        proof = proof_of(pair.first, pair.second, seed)
        said = (seed, str(pair.first), str(pair.second), proof.outcome, proof.reason)
        assert equal or proof.outcome != "proven", said
        assert not equal or proof.outcome != "failed" or not is_defined(pair.second), said
        assert not equal or proof.outcome == "proven" or not is_defined(pair.second), said
        counts[equal, proof.outcome] += 1
    return counts


def test_a_stage_of_arithmetic_is_proven_if_its_quotients_of_polynomials_are_equal() -> None:
    counts = rings(DAY_PAIRS)
    assert counts[True, "proven"] > 20 < counts[False, "failed"], counts


@pytest.mark.slow
@pytest.mark.nightly
def test_thousands_of_stages_of_arithmetic_are_proven_if_their_quotients_are_equal() -> None:
    counts = rings(NIGHT_PAIRS)
    assert counts[True, "proven"] > 700 < counts[False, "failed"], counts


# --- matrices, and weights


def _matrix(value: Value, level: int, trial: int) -> Matrix:
    data = value.data[level]
    rows: Matrix = np.broadcast_to(data, (len(TRIALS), *data.shape[1:]))[trial, 0].tolist()
    return rows


def matrices(seeds: Iterable[int]) -> int:
    """Compare products, sums and moves of matrices with loops, with weights and without."""
    done = 0
    for seed in seeds:
        rng = random.Random(f"matrices {seed}")
        n, k, m = rng.sample(range(1, 9), 3)
        chain = rng.choice((*UNLINKED[1:], chains_of(2)[0]))
        patterns = {} if rng.random() < 0.3 else {k: _pattern(rng, k)}
        algebra = WeightedAlgebra(patterns, np, chain, seed, TRIALS)
        x, y = algebra.fresh("x", (n, k)), algebra.fresh("y", (k, m))
        found = [
            (algebra.matmul(x, y), matmul),
            (
                algebra.reshape(algebra.sum(x, (1,)), (1, n)),
                lambda a, b, p, w: [summed(a, 1, p, w)],
            ),
            (
                algebra.reshape(algebra.sum(x, (0,)), (1, k)),
                lambda a, b, p, w: [summed(a, 0, p)],
            ),
            (
                algebra.reshape(algebra.sum(x, (0, 1)), (1, 1)),
                lambda a, b, p, w: [summed([summed(a, 0, p)], 1, p, w)],
            ),
            (
                algebra.matmul(algebra.transpose(y, (1, 0)), algebra.transpose(x, (1, 0))),
                lambda a, b, p, w: matmul(transposed(b), transposed(a), p, w),
            ),
            (
                algebra.reshape(algebra.extent(x, (1,)), (1, 1)),
                lambda a, b, p, w: [[(len(b) if w is None else sum(w)) % p]],
            ),
        ]
        units = {
            number: algebra.fresh(f"weights/{number}", (unit,))
            for pattern in patterns.values()
            for number, _, unit in pattern
            if number != ONES
        }
        for level, p in enumerate(chain.primes):
            for trial in range(len(TRIALS)):
                a, b = _matrix(x, level, trial), _matrix(y, level, trial)
                own = {number: _residues(v, level, trial) for number, v in units.items()}
                weights = weights_of(patterns[k], own, p) if patterns else None
                for place, (value, loops) in enumerate(found):
                    expected = loops(a, b, p, weights)
                    assert _matrix(value, level, trial) == expected, (seed, place, patterns)
        done += 1
    return done


def _pattern(rng: random.Random, size: int) -> Pattern:
    """Random factors of an axis: segments of places, the classes of which may have no weights."""
    factors: list[tuple[int, int, int]] = []
    left, number = size, 0
    while left > 1 or not factors:
        whole = rng.choice(
            [d for d in range(1, left + 1) if left % d == 0 and (d > 1 or left == 1)]
        )
        unit = rng.choice([d for d in range(1, whole + 1) if whole % d == 0])
        weighted = rng.random() < 0.8
        factors.append((number, whole // unit, unit) if weighted else (ONES, 1, whole))
        left, number = left // whole, number + 1
    return tuple(factors)


def test_sums_and_products_of_matrices_are_those_of_loops() -> None:
    assert matrices(DAY) == len(DAY)


@pytest.mark.slow
@pytest.mark.nightly
def test_thousands_of_sums_and_products_of_matrices_are_those_of_loops() -> None:
    assert matrices(NIGHT) == len(NIGHT)


def test_a_claim_that_holds_for_one_number_of_places_does_not_hold_with_weights() -> None:
    """n^2 - 7n + 12 is 0 for 3 and 4 places; with weights it is 0 for neither."""
    for size in (3, 4):
        sums = []
        for patterns in ({}, {size: ((0, 1, size),)}):
            algebra = WeightedAlgebra(patterns, np, primes_of(1), 1, TRIALS)
            n = algebra.extent(algebra.fresh("x", (size,)), (0,))
            low = algebra.subtract(n, algebra.constant(3))
            sums.append(algebra.multiply(low, algebra.subtract(n, algebra.constant(4))))
        assert not sums[0].data.any()
        assert sums[1].data.all()
