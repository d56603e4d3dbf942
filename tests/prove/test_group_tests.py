"""Trials of several operands at once tell what trials of each tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from attacks.domain_pairs import WRONG
from attacks.domain_pairs_right import RIGHT
from attacks.formulas import planned
from attacks.pairs import found
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.prove.domains import group_tests
from pitcheck.prove.domains.group_tests import groups, needed
from pitcheck.prove.domains.guards import Domains, domains
from pitcheck.prove.draws import unshown

EVERY_THIRD = [*WRONG, *RIGHT][::3]


@given(st.integers(2, 70), st.data())
def test_what_needs_one_operand_tells_which(count: int, data: st.DataObject) -> None:
    which = data.draw(st.lists(st.integers(0, count), min_size=1, max_size=6))
    trials = [np.array([n in group for n in which]) for group in groups(count)]
    numbers = needed(count, trials)
    assert numbers is not None
    assert numbers.tolist() == which


@given(st.integers(3, 70), st.data())
def test_what_needs_several_operands_is_not_told(count: int, data: st.DataObject) -> None:
    several = data.draw(st.sets(st.integers(0, count - 1), min_size=2, max_size=4))
    trials = [np.array([not several.isdisjoint(group), False]) for group in groups(count)]
    assert needed(count, trials) is None


@pytest.mark.parametrize(
    "name",
    [
        name if number % 2 else pytest.param(name, marks=pytest.mark.slow)
        for number, name in enumerate(EVERY_THIRD)
    ],
)
def test_groups_tell_what_single_operands_tell(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[Domains, Domains]] = []

    def both(*given: Any) -> Domains:
        told = [_with_few(few, monkeypatch, domains, given) for few in (1, 1 << 30)]
        seen.append((told[0], told[1]))
        return told[0]

    monkeypatch.setattr(unshown, "domains", both)
    reference, parallel = {**WRONG, **RIGHT}[name]
    found(planned(reference), planned(parallel))
    assert all(first == second for first, second in seen)


def _with_few(
    few: int,
    monkeypatch: pytest.MonkeyPatch,
    compute: Callable[..., Domains],
    given: Sequence[Any],
) -> Domains:
    with monkeypatch.context() as patch:
        patch.setattr(group_tests, "FEW", few)
        return compute(*given)
