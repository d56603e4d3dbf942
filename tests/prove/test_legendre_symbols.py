"""Draws in which the argument of a root is a square: how many count, and how many it takes."""

from __future__ import annotations

import numpy as np
import pytest
from zoo.pairs import pair

from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import chains_of
from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.prove.legendre_symbols import Characters

PER_DRAW, TARGET, ENOUGH, MOST = -40.0, -76.0, 2, 256
SEEDS = range(40)


def observed(seed: int, draws: int, arguments: int) -> Characters:
    """The roots of so many drawn numbers, in so many draws."""
    algebra = ResidueAlgebra(np, chains_of(3)[0], seed, list(range(draws)))
    algebra.sqrt(algebra.fresh("x", (arguments,)))
    characters = Characters()
    characters.observe(algebra, (), np.ones(draws, dtype=np.bool_))
    return characters


def error(characters: Characters, per_draw: float = PER_DRAW) -> float:
    """log2 of the error of all draws that count for the argument that fewest count for."""
    counted = characters.counted(ENOUGH)
    return (
        characters.of_counted(per_draw) * int(counted.sum(axis=0).min())
        if counted.size
        else -np.inf
    )


@pytest.mark.parametrize("arguments", [1, 30, 1000])
def test_as_many_draws_as_are_asked_for_are_mostly_enough_and_fewer_are_not(arguments: int) -> None:
    needed = observed(0, 2, arguments).draws(PER_DRAW, TARGET, ENOUGH, MOST)
    least = error(observed(0, 2, arguments))
    assert least > TARGET
    enough = [
        sum(error(observed(seed, draws, arguments)) <= TARGET for seed in SEEDS)
        for draws in (needed, needed // 2)
    ]
    assert enough[0] >= len(SEEDS) / 2
    assert arguments == 1 or enough[1] < len(SEEDS) / 2


def test_draws_without_roots_are_not_asked_for() -> None:
    assert Characters().draws(PER_DRAW, TARGET, ENOUGH, MOST) == 0
    assert error(Characters()) == -np.inf


@pytest.mark.parametrize("per_draw", [-2.5, -2.01, -2.0001, -1.0])
def test_draws_that_say_hardly_anything_are_more_than_there_will_be(per_draw: float) -> None:
    roots = observed(0, 2, 30)
    assert error(roots, per_draw) >= -10
    assert (
        roots.draws(per_draw, TARGET, ENOUGH, MOST) >= MOST
        or roots.draws(per_draw, TARGET, ENOUGH, MOST) == 0
    )


def test_a_seed_at_which_hardly_a_draw_says_anything() -> None:
    assert check(*pair("transformer_block"), Options(seed=4)).verdict == "equivalent"
