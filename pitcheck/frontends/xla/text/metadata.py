"""Reading the metadata of instructions."""

from __future__ import annotations

from pitcheck.frontends.xla.text.lexer import Kind, Lexer
from pitcheck.frontends.xla.text.sources import Metadata, Place

_STRINGS = frozenset({"op_name", "source_file"})
_NUMBERS = frozenset({"source_line", "stack_frame_id"})


def read_metadata(lexer: Lexer, frames: int) -> Metadata:
    """Return the metadata that are next, in a module of so many stack frames.

    Fields that are of no use here are passed over, known or not: they do not change what an
    instruction computes.
    """
    lexer.expect("{", "before metadata")
    strings: dict[str, str] = {}
    numbers: dict[str, int] = {}
    while not lexer.take("}"):
        lexer.take(",")
        key = lexer.word("a field of metadata")
        if key in strings or key in numbers:
            raise lexer.damaged(f"metadata have {key} twice")
        lexer.expect("=", f"behind {key[:60]}")
        if key in _STRINGS:
            strings[key] = lexer.string(key)
        elif key in _NUMBERS:
            numbers[key] = lexer.integer(key)
        else:
            _pass_value(lexer)
    frame = numbers.get("stack_frame_id", 0)
    if frame > frames:
        raise lexer.damaged(f"stack_frame_id={frame} is not among the {frames} frames")
    place = None
    if "source_file" in strings:
        place = Place(strings["source_file"], numbers.get("source_line", 0))
    return Metadata(strings.get("op_name", ""), place, frame)


def _pass_value(lexer: Lexer) -> None:
    if lexer.at("{"):
        lexer.balanced("metadata")
    elif lexer.kind in (Kind.STRING, Kind.NUMBER, Kind.WORD):
        lexer.advance()
    else:
        raise lexer.damaged(f"a value of metadata is expected, not {lexer.shown()}")
