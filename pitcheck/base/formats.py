"""The formats of pitcheck's JSON files, recognised where another one is expected."""

from __future__ import annotations

from pathlib import Path

import msgspec

_MOST_BYTES = 1 << 26
_FORMATS = {
    "pitcheck.plan/": "a plan; `pitcheck check REFERENCE PARALLEL` checks it",
    "pitcheck.witness/": "a witness; `pitcheck replay WITNESS` computes it again",
    "pitcheck.report/": "a report that a check has written, and no input; name the file that "
    "was checked",
    "pitcheck.mutants/": "a result of `pitcheck mutate`, and no input; name the plans",
    "pitcheck.baseline/": "a baseline; give it with --baseline",
}


class _Header(msgspec.Struct):
    """The fields that name a format."""

    format: object = None
    schema: object = None


def known_content(data: bytes) -> str:
    """Return what a JSON file of pitcheck is, with the way to use it; "" for other data."""
    try:
        header = msgspec.json.decode(data, type=_Header)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ""
    said = next((text for text in (header.format, header.schema) if isinstance(text, str)), "")
    return next((kind for start, kind in _FORMATS.items() if said.startswith(start)), "")


def known_file(path: Path) -> str:
    """Return :func:`known_content` of a file; "" for one that is large or cannot be read."""
    try:
        return known_content(path.read_bytes()) if path.stat().st_size <= _MOST_BYTES else ""
    except OSError:
        return ""
