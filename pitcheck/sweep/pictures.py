"""Small pictures of how a number went, as SVG within a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HEIGHT = 24
MARGIN = 3


def trend(values: Sequence[float], name: str, width: int = 80) -> Any:
    """Return a line through some numbers, from 0 at the bottom, as markup that is safe in a page.

    ``name`` says what they are to people who do not see the picture.
    """
    from markupsafe import Markup  # noqa: PLC0415  only a page pays for it

    most = max(values, default=0.0) or 1.0
    step = (width - 2 * MARGIN) / max(1, len(values) - 1)
    points = [
        (round(MARGIN + n * step, 1), round(HEIGHT - MARGIN - v / most * (HEIGHT - 2 * MARGIN), 1))
        for n, v in enumerate(values)
    ]
    said = ", ".join(f"{value:.4g}" for value in values)
    line = " ".join(f"{x},{y}" for x, y in points)
    x, y = points[-1] if points else (0, 0)
    return Markup(
        '<svg width="{width}" height="{height}" role="img" aria-label="{name}: {said}">'
        '<polyline points="{line}"/><circle cx="{x}" cy="{y}" r="2"/></svg>'
    ).format(width=width, height=HEIGHT, name=name, said=said, line=line, x=x, y=y)
