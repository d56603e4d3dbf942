"""Places of errors as lines and columns of the text that is wrong.

>>> line_and_column('{"a": [1,\\n 2]}', "a[1]")
(2, 2)
"""

from __future__ import annotations

import re
from json import JSONDecoder

from pitcheck.errors import PlanError

_BYTE = re.compile(r"byte (\d+)")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_TOML = re.compile(r"\(at line (\d+), column (\d+)\)")
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = JSONDecoder()


def fault_place(text: str, error: PlanError) -> tuple[int, int] | None:
    """Return the line and the column, from 1, at which an error of a text lies.

    None if the error names no place in it.
    """
    toml = _TOML.search(str(error))
    if toml is not None:
        return int(toml.group(1)), int(toml.group(2))
    return line_and_column(text, error.place)


def line_and_column(text: str, place: str) -> tuple[int, int] | None:
    """Return the line and the column, from 1, of a place in a JSON text.

    ``place`` is a path such as ``operators[3].inputs[0]``, or ``byte 57`` of the text in UTF-8. A
    path that does not exist is followed as far as it does. None if nothing of it exists.
    """
    byte = _BYTE.fullmatch(place)
    if byte is not None:
        before = text.encode("utf-8")[: int(byte.group(1))].decode("utf-8", "ignore")
        return _at(text, len(before))
    start = _blank(text, 0)
    position = start
    for name, number in _STEP.findall(place):
        try:
            found = _item(text, position, int(number)) if number else _value(text, position, name)
        except (ValueError, IndexError, RecursionError):
            break
        if found is None:
            break
        position = found
    return None if position == start else _at(text, position)


def _at(text: str, position: int) -> tuple[int, int]:
    line_start = text.rfind("\n", 0, position) + 1
    return text.count("\n", 0, position) + 1, position - line_start + 1


def _blank(text: str, position: int) -> int:
    """Return the position of what follows blanks."""
    found = _BLANK.match(text, position)
    return position if found is None else found.end()


def _item(text: str, position: int, number: int) -> int | None:
    """Return where item ``number`` of the array at ``position`` begins; None if there is none."""
    if text[position] != "[":
        return None
    position = _blank(text, position + 1)
    for _ in range(number):
        _, end = _DECODER.raw_decode(text, position)
        end = _blank(text, end)
        if text[end] != ",":
            return None
        position = _blank(text, end + 1)
    return None if text[position] == "]" else position


def _value(text: str, position: int, name: str) -> int | None:
    """Return where the value of a key of the object at ``position`` begins; None without it."""
    if text[position] != "{":
        return None
    position = _blank(text, position + 1)
    while text[position] == '"':
        key, end = _DECODER.raw_decode(text, position)
        value = _blank(text, _blank(text, end) + 1)
        if key == name:
            return value
        _, end = _DECODER.raw_decode(text, value)
        position = _blank(text, _blank(text, end) + 1)
    return None
