"""Lines of text of a width, in which nothing steers a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal as OneOf
from typing import NamedTuple

WIDTH = 100
"""The columns of a text that no terminal shows."""
LEAST_WIDTH = 40
"""The columns of a narrower terminal, which breaks lines itself."""

Style = OneOf["plain", "strong", "good", "bad", "unsure", "faint", "added", "removed"]


class Line(NamedTuple):
    """One line of output and how a terminal shows it."""

    text: str
    style: Style = "plain"


def printable(text: str) -> str:
    """Return ``text`` with escapes for what a terminal would obey or UTF-8 cannot hold."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def told_apart(texts: Iterable[str]) -> list[str]:
    """Return texts as they are printed, of which later ones that equal another are numbered.

    No two results are equal: a number that another text has already is left out.
    """
    names = list(map(printable, texts))
    found: dict[str, None] = {}
    for name in names:
        again = name if name not in found else f"{name} (2)"
        number = 2
        while again in found or (again != name and again in names):
            number += 1
            again = f"{name} ({number})"
        found[again] = None
    return list(found)


def rows_of(text: str, width: int) -> list[str]:
    """Return a text as rows of ``width`` columns at most, and at least one row.

    A word stays whole, so that names and paths can be copied: a longer one is a longer row. Runs
    of spaces inside a row are kept.
    """
    return textwrap.wrap(
        printable(text), max(width, 1), break_on_hyphens=False, break_long_words=False
    ) or [""]


def wrapped(prefix: str, text: str, width: int, style: Style = "plain") -> list[Line]:
    """Return ``text`` behind ``prefix``, later lines indented as far."""
    return [
        Line((" " * len(prefix) if number else prefix) + row, style)
        for number, row in enumerate(rows_of(text, width - len(prefix)))
    ]


def filled(prefix: str, parts: Iterable[str], width: int, style: Style = "plain") -> list[Line]:
    """Return parts behind ``prefix``: as many beside each other as fit, each as whole as it can be.

    They are three columns apart.
    """
    rows: list[str] = []
    for part in map(printable, parts):
        beside = f"{rows[-1]}   {part}" if rows else part
        if rows and len(prefix) + len(beside) <= width:
            rows[-1] = beside
        else:
            rows.append(part)
    lines = [line for row in rows for line in wrapped(" " * len(prefix), row, width, style)]
    return [Line(prefix + lines[0].text[len(prefix) :], style), *lines[1:]] if lines else []


def cut_short(lines: Sequence[Line], most: int, what: str) -> list[Line]:
    """Return the lines, or the first of them and ``what`` about the rest: ``most`` in all."""
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 1], Line(what, "faint")]
