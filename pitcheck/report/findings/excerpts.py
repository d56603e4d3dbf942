"""The line of a source file that a finding blames, with a mark below it.

>>> marked("    y = self.linear(x)", 18)
['18 | y = self.linear(x)', '   | ^^^^^^^^^^^^^^^^^^']
"""

from __future__ import annotations

from pathlib import Path

from pitcheck.report.sources import source_line

MOST_BYTES = 1 << 20
"""The size of a file up to which its line is shown."""


def excerpt(source: str | None) -> list[str]:
    """Return the line that ``file:line`` names, its number in front, and a mark below its code.

    Return nothing if that is no line of a text file below the working directory: a plan may name
    any file, and a report may be read by others than who made it.
    """
    place = source_line(source)
    if place is None or place.line is None:
        return []
    line = line_at(place.file, place.line)
    return [] if line is None else marked(line, place.line)


def line_at(file: str, number: int) -> str | None:
    """Return a line of a text file of at most ``MOST_BYTES`` below the working directory, or None.

    ``number`` counts from 1.
    """
    try:
        path = Path(file).resolve()
        if not path.is_relative_to(Path.cwd()) or not path.is_file():
            return None
        if path.stat().st_size > MOST_BYTES:
            return None
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    return lines[number - 1] if number <= len(lines) else None


def marked(line: str, number: int) -> list[str]:
    """Return a line of code without its indentation, and a mark below all of it.

    Nothing is returned for an empty line.
    """
    code = line.strip()
    if not code:
        return []
    margin = " " * len(str(number))
    return [f"{number} | {code}", f"{margin} | {'^' * len(code)}"]
