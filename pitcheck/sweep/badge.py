"""The badge of a night: a small picture with its day and its verdict."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from pitcheck.sweep.results import About
from pitcheck.sweep.summary import OPEN, Summary

BADGE = "badge.svg"
"""The name of the file among those of the page."""
LETTER = 6.6
"""The width of a letter, in pixels: generous, as fonts differ."""
MARGIN = 12.0
GREEN, RED, AMBER = "#1a7f37", "#cf222e", "#9a6700"
"""Colours on which white letters can be read (a contrast of 4.5 at least)."""
LABEL = "#57606a"


def badge(about: About, found: Summary) -> str:
    """Return the badge of a sweep as SVG that loads nothing.

    It has the day on which the sweep began: a page that is written no more would stay green. A part
    of a sweep is named as one.
    """
    day = f"{datetime.fromtimestamp(about.started, UTC):%Y-%m-%d}"
    part = "" if about.shards == 1 else f" part {about.shard}/{about.shards}"
    said, colour = _verdict(found)
    return _picture(f"pitcheck {day}{part}", said, colour)


def _verdict(found: Summary) -> tuple[str, str]:
    """Return the verdict in words, and its colour: of what is not known it is neither."""
    done = sum(found.statuses.values()) - found.statuses.get("skipped", 0)
    if found.exit_code == 0:
        return f"good: {done}", GREEN
    bad = len(found.bad) + found.missing
    said = f"{bad} of {done + found.missing}"
    if found.exit_code == OPEN:
        return (f"not known: {said}" if bad else "nothing was checked"), AMBER
    return f"not good: {said}", RED


def _picture(label: str, said: str, colour: str) -> str:
    left, right = (round(len(text) * LETTER + MARGIN, 1) for text in (label, said))
    words = escape(f"{label}: {said}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right:g}" height="20" role="img" '
        f'aria-label="{words}"><title>{words}</title>'
        f'<rect width="{left:g}" height="20" fill="{LABEL}"/>'
        f'<rect x="{left:g}" width="{right:g}" height="20" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" '
        'text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14">{escape(label)}</text>'
        f'<text x="{left + right / 2:g}" y="14">{escape(said)}</text></g></svg>\n'
    )
