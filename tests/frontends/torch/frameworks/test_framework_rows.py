"""The table of programs with frameworks, and the page that is written by running them."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

import framework_rows  # noqa: E402  beside the bench, which uses the same table
import frameworks  # noqa: E402

ROWS = framework_rows.ROWS
IDS = [f"{row.framework}: {row.feature} ({row.at})" for row in ROWS]


@cache
def lines() -> list[list[str]]:
    """The cells of the table of the page."""
    text = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
    table = text.partition("<!-- frameworks -->")[2].partition("<!-- end")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_rows_are_told_apart() -> None:
    assert len({frameworks.key_of_row(row) for row in ROWS}) == len(ROWS)


def test_every_row_has_a_mistake() -> None:
    assert all(row.mistakes for row in ROWS)


def key(cells: list[str]) -> tuple[str, ...]:
    return cells[0].partition(" ")[0], cells[1], cells[2]


def measured() -> list[tuple[Any, list[str]]]:
    """The rows that the page has, each with its cells."""
    table = {frameworks.key_of_row(row): row for row in ROWS}
    return [(table[key(cells)], cells) for cells in lines()]


def test_the_page_has_rows_of_the_table_in_its_order() -> None:
    written = [key(cells) for cells in lines()]
    assert len(written) > len(ROWS) // 2
    assert written == [own for own in map(frameworks.key_of_row, ROWS) if own in written]
    for row, cells in measured():
        assert cells[6].split("; ") == list(row.mistakes)


def test_what_is_not_equivalent_has_a_reason() -> None:
    for row, cells in measured():
        assert cells[4] == ("equivalent" if not row.reason else f"inconclusive ({row.reason})")


def test_every_mistake_was_caught() -> None:
    for cells in lines():
        assert re.fullmatch(r"(\[PIT\d{3}\]\(causes/PIT\d{3}\.md\)(, line)?(; |$))+", cells[7]), (
            cells
        )


def test_lines_are_counted_again() -> None:
    for row, cells in measured():
        assert cells[3] == str(frameworks.lines_of(row)), cells


@pytest.mark.parametrize("name", sorted({row.program for row in ROWS}))
def test_programs_know_their_mistakes(name: str) -> None:
    """What a program does not know would change nothing in it, and look proven."""
    file = BENCH / "programs" / "frameworks" / f"{name}.py"
    text = file.read_text(encoding="utf-8")
    known = {
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    planted = {mistake for row in ROWS if row.program == name for mistake in row.mistakes}
    assert planted <= known


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_a_row_is_as_the_page_says(row: Any) -> None:
    if not frameworks.installed(row.framework):
        pytest.skip(f"{row.framework} is not installed")
    frameworks.program(row)
    right = frameworks.isolated(lambda: frameworks.check_of(row, ""), 600)
    assert right is not None and right.verdict == ("inconclusive" if row.reason else "equivalent")
    for mistake in row.mistakes:
        wrong = frameworks.isolated(lambda mistake=mistake: frameworks.check_of(row, mistake), 600)
        assert wrong is not None and wrong.caught, (mistake, wrong)
