"""The prints of ranks while they are recorded, told once for all ranks that print it.

Each rank is a process, and frameworks warn in every one of them.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from tempfile import TemporaryFile
from typing import IO

from pitcheck.base.runs import spell_numbers
from pitcheck.base.streams import say

MOST_BYTES = 1 << 22
"""The most bytes of a rank that are told; of more it is said how many they are."""

_TRACEBACK = "Traceback (most recent call last):"
_VARYING = re.compile(
    r"\b0x[0-9a-f]+"
    r"|\b[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+(?:\s+\d+)?"
    r"|\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?"
)
"""Parts of a message that differ from rank to rank by nature: addresses, times and processes."""


@dataclass
class _Message:
    """Lines that ranks print, in the words of the first of them, and how often each does."""

    text: str
    times: Counter[int] = field(default_factory=Counter)
    differs: bool = False
    """True if the words of another rank are not quite the same."""

    def heading(self, side: str) -> str:
        """Return who prints it, and how often if a rank does more than once."""
        several = len(self.times) > 1
        ranks = f"rank{'s' * several} {spell_numbers(sorted(self.times))} of the parallel program"
        who = "the reference program" if side == "reference" else ranks
        total = self.times.total()
        often = f", {total} times in all" if total > len(self.times) else ""
        words = f", rank {min(self.times)} in these words" if self.differs else ""
        return f"{who} {'print' if several else 'prints'}{often}{words}:"


class Printed:
    """The messages that were told.

    Of what is recorded again, at another mesh, only other messages are told.
    """

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def tell(self, side: str, outputs: Mapping[int, str]) -> None:
        """Print what ranks printed to standard error, each message once.

        ``side`` is "reference" or "parallel", and ``outputs`` has the text by rank.
        """
        found: dict[str, _Message] = {}
        for rank in sorted(outputs):
            for text in messages_of(outputs[rank]):
                message = found.setdefault(_key(text, rank), _Message(text))
                message.times[rank] += 1
                message.differs = message.differs or message.text != text
        new = [message for key, message in found.items() if (side, key) not in self._told]
        self._told.update((side, key) for key in found)
        for heading, messages in groupby(new, lambda message: message.heading(side)):
            say("\n".join([heading, *(textwrap.indent(each.text, "  ") for each in messages)]))


def messages_of(output: str) -> Iterator[str]:
    """Yield the messages of an output: a line with those that are indented below it.

    A traceback is one message, as is a line with the empty lines behind it.
    """
    lines: list[str] = []
    traced = False
    for line in output.splitlines():
        goes_on = bool(lines) and (not line.strip() or line[0].isspace() or traced)
        if lines and not goes_on:
            yield "\n".join(lines).rstrip()
            lines = []
        ends = traced and bool(line.strip()) and not line[0].isspace()
        traced = line.endswith(_TRACEBACK) or (traced and not ends)
        if lines or line.strip():
            lines.append(line)
    if lines:
        yield "\n".join(lines).rstrip()


def output_file() -> IO[bytes] | None:
    """Return an unnamed file for what a rank prints; None if the system has no place for it."""
    try:
        return TemporaryFile()
    except OSError:
        return None


def output_of(file: IO[bytes]) -> str:
    """Return what a rank printed into its file, and close it."""
    with file:
        size = file.seek(0, 2)
        file.seek(0)
        text = file.read(MOST_BYTES).decode("utf-8", "backslashreplace")
    left = size - MOST_BYTES
    return text if left <= 0 else f"{text}\n... and {left} more bytes\n"


def _key(text: str, rank: int) -> str:
    """Return a message without what differs from rank to rank by nature, the rank included."""
    own = re.compile(rf"(rank\W{{0,3}}){rank}\b", re.IGNORECASE)
    return own.sub(r"\1", _VARYING.sub("", text))
