"""Results of the bench: one line of JSON for each class and wrapper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Row:
    """A class under a wrapper, or in plain PyTorch.

    ``verdict``: that of the check, or whether a step of plain PyTorch trains. ``code``, ``place``
    and ``reason``: those of the first finding. ``unused``: the parameters without a gradient.
    ``differs``: in plain PyTorch, what the halves of the batch do not average to, and ``because``
    of what.
    """

    name: str
    head: str
    wrapper: str
    verdict: str
    mistake: str = ""
    code: str = ""
    place: str = ""
    reason: str = ""
    proven: str = ""
    unused: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    because: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> Key:
        """Equal for two rows if the later one replaces the earlier one."""
        return (self.name, self.wrapper, self.mistake)

    def line(self) -> str:
        """Return a line for a person who watches."""
        words = (self.name, self.wrapper, self.mistake, self.verdict, self.proven, self.code)
        said = " ".join(word for word in words if word)
        return f"{self.seconds:6.1f} s  {said}  {self.place}  {self.reason[:150]}"


def appended(file: Path, row: Row) -> None:
    """Add a row to a file of JSON lines."""
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(row)) + "\n")


def rows(file: Path) -> list[Row]:
    """Return the last row of each key, in the order of their first ones."""
    return list({row.key: row for row in all_rows(file)}.values())


def all_rows(file: Path) -> Iterator[Row]:
    """Yield every row of a file of JSON lines; a file that is not there has none."""
    if file.is_file():
        for line in file.read_text().splitlines():
            told = json.loads(line)
            yield Row(
                **{
                    key: tuple(value) if isinstance(value, list) else value
                    for key, value in told.items()
                }
            )
