"""The same numbers from galois, whose arithmetic is not ours."""

import numpy as np
import pytest
from support.algebra_samples import random_expression
from support.by_day import some_by_day

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain, chains_of
from pitcheck.algebra.residues.galois_oracle import GaloisAlgebra

TINY = Chain((359, 719, 1439))


def agree(
    chain: Chain,
    seed: int,
    steps: int,
    trials: tuple[int, ...],
    roots: bool = True,
    logs: bool = True,
) -> None:
    ours, oracle = ResidueAlgebra(np, chain, seed, trials), GaloisAlgebra(chain, seed, trials)
    pairs = zip(
        *(
            random_expression(a, np.random.default_rng(seed), steps, roots, logs)
            for a in (ours, oracle)
        ),
        strict=True,
    )
    for mine, theirs in pairs:
        x, y = ours.plain(mine), oracle.plain(theirs)
        assert x.lowest == y.lowest and x.kind == y.kind
        assert (x.special is None) == (y.special is None) and (
            x.special is None or np.array_equal(x.special, y.special)
        )
        finite = np.ones((1, 1, 1), bool) if x.special is None else x.special == 0
        kept = ~ours.void[None, :, None].reshape((1, -1) + (1,) * (x.data.ndim - 2))
        assert np.array_equal(x.data * finite * kept, y.data * finite * kept)
    assert np.array_equal(ours.void, oracle.void)
    for first, second in zip(ours.decisions, oracle.decisions, strict=True):
        assert first.site == second.site
        assert np.array_equal(first.true, second.true) and np.array_equal(first.false, second.false)


@pytest.mark.parametrize("seed", range(25))
def test_random_expressions_on_a_tiny_chain(seed: int) -> None:
    agree(TINY, seed, 10, (0, 3))


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_by_day(range(100, 110), 3))
def test_random_expressions_on_a_full_chain(seed: int) -> None:
    agree(chains_of(3)[seed % 5], seed, 8, (1,), logs=False)


@pytest.mark.slow
def test_one_expression_on_a_full_chain() -> None:
    agree(chains_of(3)[0], 4, 8, (1,), logs=False)
