"""The values over ranks of a finding, as a small table of text.

A row has ranks and micro-batches that hold the same value, that value, and what it must be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pitcheck.report.coordinate_names import describe_microbatches
from pitcheck.report.findings.values import whole
from pitcheck.report.lines import Line, Style, printable, rows_of, wrapped
from pitcheck.report.pictures import HeldValues

MOST_ROWS = 8
"""The most rows of a table that is not shown whole."""

_INDENT, _STACKED, _GAP = 7, 5, 3


class Row(NamedTuple):
    """A line of the table: where a value is, the value, what it must be, and how it is shown."""

    where: str
    held: str
    due: str = ""
    style: Style = "plain"


def table_lines(
    held: HeldValues, microbatches: int, width: int, *, complete: bool = False
) -> list[Line]:
    """Return the table in ``width`` columns, what is wrong first.

    Unless it is ``complete``, it has MOST_ROWS values, and as many sums. Where there is no room
    for columns, each value stands below its place. ``microbatches`` is the number of all of them.
    """
    most = None if complete else MOST_ROWS
    rows, all_sums = _rows(held, microbatches), _sums(held)
    shown, sums = rows[:most], all_sums[:most]
    hidden = len(rows) + len(all_sums) - len(shown) - len(sums)
    lines = _columns([_head(held), *shown, *sums], width)
    if lines is None:
        lines = [line for row in (*shown, *sums) for line in _stacked(row, held, width)]
    return [*lines, *_left_out(held, hidden, width)]


def _head(held: HeldValues) -> Row:
    return Row("where", "term" if held.terms else "is", "must be", "faint")


def _rows(held: HeldValues, microbatches: int) -> list[Row]:
    """Return a row for each value and the ranks that hold it, those that are wrong first."""
    places: dict[tuple[str, str], list[int]] = {}
    for each in held.values:
        batches = places.setdefault((_said(each.value), each.ranks), [])
        batches += [] if each.microbatch is None else [each.microbatch]
    due = _said(held.reference_value)
    rows = []
    for (value, ranks), batches in places.items():
        where = [ranks, describe_microbatches(batches, microbatches)]
        named = printable(", ".join(part for part in where if part))
        wrong = not held.terms and value != due
        rows.append(Row(named, value, "" if held.terms else due, "bad" if wrong else "plain"))
    return sorted(rows, key=lambda row: row.style != "bad")


def _said(value: str) -> str:
    return printable(whole(value))


def _sums(held: HeldValues) -> list[Row]:
    """Return a row for each sum, of values that are terms, those that are wrong first."""
    due = _said(held.reference_value)
    rows = []
    for each in held.sums:
        ranks = printable(each.ranks)
        where = "their sum" if len(held.sums) == 1 else f"sum over {ranks}"
        value = _said(each.value)
        rows.append(Row(where, value, due, "plain" if value == due else "bad"))
    return sorted(rows, key=lambda row: row.style != "bad")


def _columns(rows: Sequence[Row], width: int) -> list[Line] | None:
    """Return rows as columns; None if they are not so wide."""
    numbers = [max(len(row.held) for row in rows), max(len(row.due) for row in rows)]
    room = width - _INDENT - sum(numbers) - 2 * _GAP
    longest = max(len(word) for row in rows for word in row.where.split() or [""])
    if longest > room:
        return None
    place = min(room, max(len(row.where) for row in rows))
    return [line for row in rows for line in _row(row, place, numbers)]


def _row(row: Row, place: int, numbers: Sequence[int]) -> Iterable[Line]:
    """Yield a row; its place may take several lines, and its values stand on the first."""
    first, *others = rows_of(row.where, place)
    values = f"{row.held:>{numbers[0]}}{' ' * _GAP}{row.due:>{numbers[1]}}"
    indent = " " * _INDENT
    yield Line(f"{indent}{first:<{place}}{' ' * _GAP}{values}".rstrip(), row.style)
    for other in others:
        yield Line(f"{indent}{other}", row.style)


def _stacked(row: Row, held: HeldValues, width: int) -> Iterable[Line]:
    """Yield a row of a table without room for columns, a line for each of its parts."""
    yield from wrapped(" " * _STACKED, row.where, width, row.style)
    is_ = "term" if held.terms and not row.due else "is"
    for label, value in ((is_, row.held), ("must be", row.due)):
        if value:
            yield from wrapped(" " * (_STACKED + 2), f"{label} {value}", width, row.style)


def _left_out(held: HeldValues, hidden: int, width: int) -> list[Line]:
    more = hidden + held.left_out
    some = "them" if not held.left_out else f"{hidden} of them"
    shown = f", --verbose shows {some}" if hidden else ""
    return (
        wrapped(" " * _INDENT, f"… and {more} more values{shown}", width, "faint") if more else []
    )
