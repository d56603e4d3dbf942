"""The inputs of a check, as they were when it ran."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pitcheck.commands.watching.answers import (
    ASKED,
    LISTED,
    OPENED,
    SEARCHED,
    Answer,
    Question,
    kind,
    now,
    signature,
)
from pitcheck.commands.watching.files_read import Reads
from pitcheck.report.lines import printable

_FOLDERS = (LISTED, SEARCHED)


@dataclass
class Inputs:
    """The questions that a check asks the file system, with the answers that it was given.

    ``named`` are the files of the command line. ``made`` are files that the check itself writes,
    and ``restless`` those that change in every check, because a program writes them that it starts.
    """

    named: tuple[str, ...]
    answers: dict[Question, Answer] = field(default_factory=dict)
    made: frozenset[str] = frozenset()
    restless: set[str] = field(default_factory=set)
    started: set[str] = field(default_factory=set)
    _moved: set[str] = field(default_factory=set)

    @property
    def files(self) -> int:
        """The number of files that are read."""
        return len({name for what, name in self.answers if what == OPENED})

    def look(self) -> None:
        """Take the state of the named files, before a check reads them."""
        self.answers = {(OPENED, name): signature(name) for name in self.named}

    def take(self, read: Reads) -> list[str]:
        """Take what a check has asked, and return a line for each thing that is not watched."""
        self.answers.update(read.answers)
        self.made = read.made
        moved = {name for what, name in self._changed() if what == ASKED}
        restless = sorted(moved & self._moved - self.restless)
        started = sorted(set(read.started) - self.started)
        self._moved = moved
        self.restless.update(restless)
        self.started.update(started)
        return [
            *(
                f"pitcheck: {_short(name)} changes in every check; watched is its existence"
                for name in restless
            ),
            *(
                f"pitcheck: the check starts {printable(name)}; what that reads is not watched"
                for name in started
            ),
        ]

    def now(self) -> Mapping[Question, Answer]:
        """Return the answers of this moment to the same questions."""
        return {question: now(question, self.made) for question in self.answers}

    def changed(self) -> list[str]:
        """Return the files, or else the folders, that are no longer what they were, sorted."""
        found = set(self._changed())
        files = {name for what, name in found if what not in _FOLDERS}
        return sorted(files or {name for _, name in found})

    def _changed(self) -> Iterator[Question]:
        for question, then in self.answers.items():
            found = now(question, self.made)
            rests = question[0] != ASKED or question[1] not in self.restless
            if then != found and (rests or kind(then) != kind(found)):
                yield question


def _short(name: str) -> str:
    return printable(os.path.relpath(name))
