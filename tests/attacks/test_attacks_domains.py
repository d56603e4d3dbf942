"""Pairs that are equal as formulas, and do not have a value at the same places."""

from __future__ import annotations

from typing import Any

import pytest
from attacks.formulas import Expression, Formula, at_small_numbers, planned
from attacks.pairs import found

NOT_PROVEN = ("mismatch", "inconclusive")
E = Expression
Pair = tuple[Formula, Formula]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch writes its counterexample where it is run."""
    monkeypatch.chdir(tmp_path)


def flip(a: E) -> E:
    return a.flip(axes=(0,))


def rows(a: E) -> E:
    return a.sum(axes=(1,))


WRONG: dict[str, Pair] = {
    "quotient beside": (
        lambda x, z: (z * (x / x)).cat(z / x, axis=0) if False else z.cat(z / x, axis=0),
        lambda x, z: (z * (x / x)).cat(z / x, axis=0),
    ),
    "flipped": (lambda x, z: z / x, lambda x, z: (z / x) * (flip(x) / flip(x))),
    "one branch of integers": (
        lambda x, z, i: (i > 2).where(z / x, z),
        lambda x, z, i: (i > 2).where(z / x, z * (x / x)),
    ),
    "mask by numbers as factor": (
        lambda x, z: (x > 0).where(z / x, z - z),
        lambda x, z: (z / x) * (x > 0).cast(dtype="float32"),
    ),
}
RIGHT: dict[str, Pair] = {
    "times the inverse": (lambda x, z: z / x, lambda x, z: z * x.reciprocal()),
    "one after the other": (lambda x, y, z: z / (x * y), lambda x, y, z: z / x / y),
    "both at once": (lambda x, y, z: z / x / y, lambda x, y, z: z / (x * y)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    reference, parallel = WRONG[name]
    assert at_small_numbers(reference, parallel) == (False, True)
    assert found(planned(reference), planned(parallel))[0] in NOT_PROVEN


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    reference, parallel = RIGHT[name]
    assert at_small_numbers(reference, parallel) == (True, True)
    assert found(planned(reference), planned(parallel)) == ("equivalent", "")
