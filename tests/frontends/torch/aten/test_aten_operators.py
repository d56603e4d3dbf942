"""Every overload of the table against PyTorch, in the package's algebra of float64 and by meanings
written over PyTorch.
"""

from __future__ import annotations

from typing import Any

import pytest
from frontends.torch.aten.aten_harness import Row, by_algebra, by_oracle, check, overload
from frontends.torch.aten.aten_more_rows import ROWS as MORE
from frontends.torch.aten.aten_rows import ROWS

from pitcheck.frontends.torch.aten.operators import table
from pitcheck.frontends.torch.aten.random import TABLE as RANDOM
from pitcheck.frontends.torch.rewrites.index_bounds import BOUNDARY
from pitcheck.frontends.torch.rewrites.mean_gradients import SPREAD_MEAN
from pitcheck.frontends.torch.trace import COLLECTIVES

ALL = [*ROWS, *MORE]
OVERLOADS = set(table()) - COLLECTIVES - {BOUNDARY, SPREAD_MEAN}


@pytest.mark.parametrize("run", [by_algebra, by_oracle], ids=["algebra", "oracle"])
@pytest.mark.parametrize("row", ALL, ids=lambda row: row.label)
def test_translation_is_what_pytorch_computes(row: Row, run: Any) -> None:
    check(row, run)


def test_every_overload_has_an_example() -> None:
    """Random draws have theirs beside (test_aten_random.py): two never draw the same."""
    assert {row.operator for row in ALL} == OVERLOADS - RANDOM.keys()


@pytest.mark.parametrize("name", sorted(OVERLOADS))
def test_parameters_are_those_of_the_schema(name: str) -> None:
    """And of a random draw the stream."""
    further = ("stream",) if name in RANDOM else ()
    assert table()[name].parameters == (
        *(argument.name for argument in overload(name)._schema.arguments),
        *further,
    )
