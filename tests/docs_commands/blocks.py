"""The blocks of a page: commands, what they print, and files to save."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("*/README.md")),
)
"""Every page with commands for readers, as an absolute path."""

PROGRAMS = re.compile(
    r"(?:\w+=\S+ )*"
    r"(?:[\w./]+/)?(?:pitcheck|python3?|pip|pytest|pre-commit|mkdocs|git|patch|sed|cd|mkdir|mv|ls|source)"
    r"(?: |$)"
)
"""The beginning of a command; everything else in a block without a language is output."""
FENCE = re.compile(r"( *)```(.*)")
TITLE = re.compile(r'title="([^"]+)"')
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``first`` and ``end`` are the indices of its lines in the page."""

    info: str
    lines: tuple[str, ...]
    first: int
    end: int
    remark: str
    """The last line before the block that is not empty."""

    @property
    def text(self) -> str:
        """Return the lines, each with its newline."""
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def title(self) -> str | None:
        """Return the file that a reader saves the block as."""
        found = TITLE.search(self.info)
        return found and found[1]

    @property
    def is_commands(self) -> bool:
        """Return whether a reader runs the block."""
        return not self.info and bool(self.lines) and bool(PROGRAMS.match(self.lines[0]))


@dataclass(frozen=True)
class Step:
    """Something that a reader does: saves a file, or runs commands and sees their output."""

    block: Block
    output: Block | None = None

    @property
    def reason(self) -> str | None:
        """Return why nothing runs the commands, or nothing if they are run."""
        found = NOT_RUN.fullmatch(self.block.remark)
        return found and found[1]


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in their order. Raises ValueError if one does not end."""
    lines = text.splitlines()
    remark, at = "", 0
    while at < len(lines):
        fence = FENCE.fullmatch(lines[at])
        if fence is None:
            remark = lines[at].strip() or remark
            at += 1
            continue
        indent, info = fence.groups()
        end = lines.index(f"{indent}```", at + 1)
        content = tuple(line.removeprefix(indent) for line in lines[at + 1 : end])
        yield Block(info.strip(), content, at + 1, end, remark)
        remark, at = "", end + 1


def steps(text: str) -> list[Step]:
    """Return what a reader of the page does.

    Raises ValueError for a block without a language that is neither commands nor their output.
    """
    found: list[Step] = []
    for block in blocks(text):
        if block.is_commands or block.title:
            found.append(Step(block))
        elif not block.info:
            if not found or found[-1].output or not found[-1].block.is_commands:
                raise ValueError(
                    f"line {block.first}: no command prints this block; give it a language"
                )
            found[-1] = replace(found[-1], output=block)
    return found
