"""One rule for seeds, wherever one is given."""

from __future__ import annotations

import click
import pytest

from pitcheck.base.seeds import LAST_SEED, seed_of
from pitcheck.cli import cli
from pitcheck.commands import texts
from pitcheck.errors import UsageError
from pitcheck.pytest_plugin import marks


@pytest.mark.parametrize("seed", [0, 2**63, LAST_SEED])
def test_a_seed_is_taken_everywhere(seed: int) -> None:
    assert seed_of(str(seed)) == texts._seed(f" {seed} ") == seed
    assert marks._seeds([seed]) == [seed]


@pytest.mark.parametrize("seed", [-1, LAST_SEED + 1])
def test_another_number_is_refused_everywhere(seed: int) -> None:
    with pytest.raises(UsageError, match="an integer from 0 to 2"):
        texts._seed(str(seed))
    with pytest.raises(UsageError, match="an integer from 0 to 2"):
        marks._seeds([seed])


@pytest.mark.parametrize("name", ["check", "mutate", "sweep"])
def test_all_commands_take_the_same_seeds(name: str) -> None:
    (option,) = (each for each in cli.commands[name].params if each.name == "seed")
    assert isinstance(option.type, click.IntRange)
    assert (option.type.min, option.type.max) == (0, LAST_SEED)


@pytest.mark.parametrize("text", ["", "1.0", "1e3", "0x1", "\u0661", "9" * 5000])
def test_other_texts_are_no_seed(text: str) -> None:
    assert seed_of(text) is None
