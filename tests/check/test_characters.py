"""Draws in which the argument of a root is a square: how many count, and how many it takes."""

from __future__ import annotations

import numpy as np
import pytest

from pitcheck.algebra.chains import chains_of
from pitcheck.algebra.residues import ResidueAlgebra
from pitcheck.check.characters import Characters

PER_DRAW, TARGET, ENOUGH = -40.0, -76.0, 2
SEEDS = range(40)


def observed(seed: int, draws: int, arguments: int) -> Characters:
    """The roots of so many drawn numbers, in so many draws."""
    algebra = ResidueAlgebra(np, chains_of(3)[0], seed, list(range(draws)))
    algebra.sqrt(algebra.fresh("x", (arguments,)))
    characters = Characters()
    characters.observe(algebra, (), np.ones(draws, dtype=np.bool_))
    return characters


@pytest.mark.parametrize("arguments", [1, 30, 1000])
def test_as_many_draws_as_are_asked_for_are_mostly_enough_and_fewer_are_not(arguments: int) -> None:
    needed = observed(0, 2, arguments).draws(PER_DRAW, TARGET, ENOUGH)
    least = observed(0, 2, arguments).error(PER_DRAW, ENOUGH)
    assert least > TARGET
    enough = [sum(observed(seed, draws, arguments).error(PER_DRAW, ENOUGH) <= TARGET for seed in SEEDS) for draws in (needed, needed // 2)]
    assert enough[0] >= len(SEEDS) / 2
    assert arguments == 1 or enough[1] < len(SEEDS) / 2


def test_draws_without_roots_are_not_asked_for() -> None:
    assert Characters().draws(PER_DRAW, TARGET, ENOUGH) == 0
    assert Characters().error(PER_DRAW, ENOUGH) == -np.inf
