"""The places in Python programs that instructions come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = f"{Path(__file__).resolve().parents[3]}/"
"""The folder of pitcheck, which calls programs that it lets JAX compile."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a program. ``function`` is "" if it is not known."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Metadata:
    """The origin that an instruction states. It has no meaning for its result.

    Attributes:
        name: the path of transformations and operators that it was traced below.
        place: the line that is stated, None if there is none.
        frame: the number of its stack frame in the tables of the module, 0 if there is none.
    """

    name: str = ""
    place: Place | None = None
    frame: int = 0


NO_METADATA = Metadata()


@dataclass(frozen=True)
class Frame:
    """A frame of a stack: its line, and the number of its caller's frame, 0 for the outermost."""

    place: Place
    caller: int


class Stacks:
    """The stack frames of a module. ``frames[0]`` has number 1; callers stand before callees."""

    def __init__(self, frames: Sequence[Frame] = ()) -> None:
        self._frames = tuple(frames)
        self._user: list[Place | None] = [None]
        for frame in self._frames:
            outside = _is_library(frame.place.file)
            self._user.append(self._user[frame.caller] if outside else frame.place)

    def __len__(self) -> int:
        return len(self._frames)

    def place(self, metadata: Metadata) -> Place | None:
        """Return the line of the user's program that an instruction comes from.

        It is the innermost one that belongs to no library, or else the innermost; None if the
        metadata state none, or one of pitcheck alone.
        """
        if not metadata.frame:
            return metadata.place
        user = self._user[metadata.frame]
        if user is not None:
            return user
        innermost = self._frames[metadata.frame - 1].place
        return None if innermost.file.startswith(_PACKAGE) else innermost


def _is_library(file: str) -> bool:
    """Return True for a file that was installed, or that is part of Python or of pitcheck."""
    parts = file.replace("\\", "/").split("/")
    installed = not {"site-packages", "dist-packages"}.isdisjoint(parts)
    return installed or file.startswith(("<", _PACKAGE))
