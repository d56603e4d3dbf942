"""A lexer of HLO text.

Tokens are made one by one, with one expression that never looks at a character twice, so that the
time is linear in the text whatever stands in it. Pieces of the grammar that are one token in XLA's
printer are one token here: an array with its layout, ``0_0x1_1``, ``3x3``, ``b01f_01io->b01f``.
"""

from __future__ import annotations

import re
from enum import Enum

from pitcheck.errors import BudgetError, PlanError, UnsupportedError
from pitcheck.frontends.xla.text.limits import DEEPEST, LARGEST_TEXT
from pitcheck.frontends.xla.text.shapes import ElementType


class Kind(Enum):
    """A kind of token."""

    ARRAY = "an array's shape"
    STRING = "a string"
    NAME = "a name"
    WORD = "a word"
    LABELS = "labels of dimensions"
    PADDING = "a padding"
    SIZES = "sizes"
    SPECIAL = "a special number"
    NUMBER = "a number"
    MARK = "a mark"
    END = "the end of the text"


_ELEMENTS = "|".join(sorted((kind.value for kind in ElementType), key=len, reverse=True))
_COMMENT = r"/\*(?:[^*]|\*(?!/))*+\*/"
_PATTERNS = {
    "COMMENT": _COMMENT,
    Kind.ARRAY.name: rf"(?:{_ELEMENTS})\[[0-9,]*+\](?:\{{[^{{}}\"\n]*+\}})?",
    Kind.STRING.name: r'"[^"\\]*+(?:\\.[^"\\]*+)*+"' + r"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'",
    Kind.NAME.name: r"%[A-Za-z_][\w.\-]*+",
    Kind.LABELS.name: r"[0-9bf?]{2,}+_[0-9io?]{2,}+->[0-9bf?]{2,}+",
    Kind.SPECIAL.name: r"(?:-?nan\(0x[0-9a-fA-F]{1,16}\)|-?(?:nan|inf)(?![\w.(\-]))",
    Kind.WORD.name: r"[A-Za-z_][\w.\-]*+",
    Kind.PADDING.name: r"-?\d++_-?\d++(?:_\d++)?(?:x-?\d++_-?\d++(?:_\d++)?)*+",
    Kind.SIZES.name: r"\d++(?:x\d++)++",
    Kind.NUMBER.name: r"-?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?",
    Kind.MARK.name: r"->|<=|\.\.\.|[\[\]{}(),:=?*#+~;]",
}
_TOKEN = re.compile(
    r"\s*+(?:" + "|".join(f"(?P<{name}>{text})" for name, text in _PATTERNS.items()) + ")",
    re.ASCII | re.DOTALL,
)
_PIECE = re.compile(r'[^{}"]++|[{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"|"', re.DOTALL)
_SPACE = re.compile(r"\s*+", re.ASCII)
_REMARK = re.compile(_COMMENT, re.DOTALL)
_PLAIN = rf"[A-Za-z0-9.,+\-{{}}\s]++|{_COMMENT}|\(0x[0-9a-fA-F]{{1,16}}\)"
_ENCLOSED = re.compile(rf"(?:{_PLAIN}|\((?:{_PLAIN})*+\))*+(?=\))", re.ASCII | re.DOTALL)
_KINDS = {kind.name: kind for kind in Kind}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_LONGEST_NUMBER = 100


class Lexer:
    """The tokens of one text. ``kind`` and ``text`` are those of the token that is next to be read.

    Args:
        source: the whole text.
        name: the name of its file, for messages.

    Raises:
        BudgetError: if the text is too long.
        PlanError: if its start is no token.
    """

    def __init__(self, source: str, name: str) -> None:
        self.source = source
        self.name = name
        self.kind = Kind.END
        self.text = ""
        self.start = 0
        """The place of the next token in the source."""
        self.blamed = 0
        """The line that errors name: that of the instruction or entry that is being read. 0 stands
        for that of the next token.
        """
        self._end = 0
        self._counted = (0, 1)
        if len(source) > LARGEST_TEXT:
            raise self.too_large(f"the text has {len(source)} characters; {LARGEST_TEXT} are read")
        self.advance()

    def advance(self) -> str:
        """Return the text of the token that was next, and go to the one behind it."""
        passed = self.text
        found = _TOKEN.match(self.source, self._end)
        while found is not None and found.lastgroup == "COMMENT":
            found = _TOKEN.match(self.source, found.end())
        if found is None:
            self._finish()
            return passed
        group = found.lastgroup or ""
        self.kind = _KINDS[group]
        self.text = found[group]
        self._end = found.end()
        self.start = self._end - len(self.text)
        return passed

    def _finish(self) -> None:
        """Stand at the end of the text. Raises PlanError if something stands there."""
        place = self._end
        while (comment := _TOKEN.match(self.source, place)) is not None:
            place = comment.end()
        space = _SPACE.match(self.source, place)
        self.start = self._end = place if space is None else space.end()
        if self.start < len(self.source):
            raise self.damaged(f"{self.source[self.start]!r} begins nothing that HLO text has")
        self.kind, self.text = Kind.END, ""

    def line(self) -> int:
        """Return the number of the line of the next token, counted on from the last one."""
        counted, line = self._counted
        line += self.source.count("\n", counted, self.start)
        self._counted = (self.start, line)
        return line

    def damaged(self, message: str) -> PlanError:
        """Return an error for a text that is no HLO, or contradicts itself."""
        return PlanError(message, self._here())

    def unsupported(self, message: str) -> UnsupportedError:
        """Return an error for HLO that has no meaning here."""
        return UnsupportedError(f"{self._here()}: {message}")

    def too_large(self, message: str) -> BudgetError:
        """Return an error for a text that needs too much."""
        return BudgetError(f"{self._here()}: {message}")

    def _here(self) -> str:
        return f"{self.name}:{self.blamed or self.line()}"

    def shown(self) -> str:
        """Return the next token, cut short, for messages."""
        if self.kind is Kind.END:
            return "the text ends"
        return repr(self.text if len(self.text) <= 60 else f"{self.text[:60]}...")

    def at(self, mark: str) -> bool:
        """Return True if the next token is this mark or word."""
        return self.text == mark and self.kind in (Kind.MARK, Kind.WORD)

    def take(self, mark: str) -> bool:
        """Pass this mark or word if it is next, and return True then."""
        if self.at(mark):
            self.advance()
            return True
        return False

    def expect(self, mark: str, where: str) -> None:
        """Pass this mark or word. Raises PlanError if another token is next."""
        if not self.take(mark):
            raise self.damaged(f"{mark!r} is expected {where}, not {self.shown()}")

    def followed_by(self, mark: str) -> bool:
        """Return True if the token behind the next one is this mark or word."""
        found = _TOKEN.match(self.source, self._end)
        return found is not None and found[found.lastgroup or 0] == mark

    def word(self, meaning: str) -> str:
        """Return the word that is next."""
        if self.kind is not Kind.WORD:
            raise self.damaged(f"{meaning} is expected, not {self.shown()}")
        return self.advance()

    def identifier(self, meaning: str) -> str:
        """Return a name, without the ``%`` that may stand before it."""
        if self.kind is Kind.NAME:
            return self.advance()[1:]
        return self.word(meaning)

    def string(self, meaning: str) -> str:
        """Return the string that is next, without quotes and escapes."""
        if self.kind is not Kind.STRING:
            raise self.damaged(f"{meaning}, a string, is expected, not {self.shown()}")
        return _plain(self.advance()[1:-1])

    def integer(self, meaning: str, least: int = 0, most: int = (1 << 63) - 1) -> int:
        """Return the whole number that is next, from ``least`` to ``most``."""
        digits = self.text.removeprefix("-")
        if self.kind is not Kind.NUMBER or not digits.isdecimal() or len(digits) > _LONGEST_NUMBER:
            raise self.damaged(f"{meaning}, a whole number, is expected, not {self.shown()}")
        value = int(self.text)
        if not least <= value <= most:
            raise self.damaged(f"{meaning} is {value}; it must be from {least} to {most}")
        self.advance()
        return value

    def integers(self, opening: str, closing: str, meaning: str, least: int = 0) -> tuple[int, ...]:
        """Return whole numbers between two marks, separated by commas."""
        self.expect(opening, f"before {meaning}")
        values: list[int] = []
        while not self.take(closing):
            if values:
                self.expect(",", f"between {meaning}")
            values.append(self.integer(f"one of {meaning}", least))
        return tuple(values)

    def flag(self, meaning: str) -> bool:
        """Return a truth value."""
        if not (self.at("true") or self.at("false")):
            raise self.damaged(f"{meaning} is true or false, not {self.shown()}")
        return self.advance() == "true"

    def balanced(self, meaning: str) -> str:
        """Return the source from the brace that is next to the one that closes it.

        Between them may stand what is no HLO, such as JSON. Braces in strings do not count.
        """
        if not self.at("{"):
            raise self.damaged(f"'{{' is expected before {meaning}, not {self.shown()}")
        start, depth = self.start, 0
        for piece in _PIECE.finditer(self.source, start):
            depth += {"{": 1, "}": -1}.get(piece[0], 0)
            self.nested(depth, meaning)
            if piece[0] == '"':
                break
            if not depth:
                self._end = piece.end()
                self.advance()
                return self.source[start : piece.end()]
        raise self.damaged(f"the text ends within {meaning}")

    def enclosed(self) -> str | None:
        """Return the source from the next token to the parenthesis that closes what it stands in.

        None stands for source with more in it than numbers, words without ``_``, braces, commas,
        comments, and pairs of parentheses around such, as complex numbers have. Its tokens have to
        be read one by one.
        """
        found = _ENCLOSED.match(self.source, self.start)
        return None if found is None else found[0]

    def skip(self, piece: str) -> None:
        """Go to the token behind a piece of source that begins with the next token."""
        self._end = self.start + len(piece)
        self.advance()

    def nested(self, depth: int, meaning: str) -> None:
        """Raise BudgetError for a depth that is not read."""
        if depth > DEEPEST:
            raise self.too_large(f"{meaning} is nested more than {DEEPEST} levels deep")

    def counted(self, dimensions: int, meaning: str) -> None:
        """Raise BudgetError for a number of dimensions, or axes of a mesh, that is not read."""
        if dimensions > DEEPEST:
            raise self.too_large(f"{meaning} has more than {DEEPEST} dimensions or axes")


def without_comments(piece: str) -> str:
    """Return a piece of source without strings, with a space in place of each comment."""
    return _REMARK.sub(" ", piece)


def _plain(text: str) -> str:
    """Return a string without escapes. Bytes that are written as escapes are read as UTF-8."""
    if "\\" not in text:
        return text
    pieces: list[bytes] = []
    end = 0
    for escape in _ESCAPE.finditer(text):
        pieces.append(text[end : escape.start()].encode())
        code = escape[1]
        if code[0] == "x" and len(code) > 1:
            pieces.append(bytes([int(code[1:], 16)]))
        elif code.isdecimal() and code.isascii():
            pieces.append(bytes([int(code, 8) & 0xFF]) if code[0] < "8" else code.encode())
        else:
            pieces.append(_ESCAPED.get(code, code).encode())
        end = escape.end()
    return b"".join([*pieces, text[end:].encode()]).decode(errors="replace")
