"""The nearest file with settings: ``pitcheck.toml``, or ``[tool.pitcheck]`` of a pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pitcheck.errors import UsageError


@dataclass(frozen=True)
class Settings:
    """The keys of a file with settings.

    ``prefix`` is what its keys stand behind: "tool.pitcheck." or nothing.
    """

    path: Path
    prefix: str
    keys: dict[str, Any]

    def place(self, key: str) -> str:
        """Return the file and the whole name of a key in it."""
        return f"{self.path}: {self.prefix}{key}"


def nearest_settings(start: Path) -> Settings | None:
    """Return the settings of the folder ``start`` or of the nearest one above it, or None.

    Raises UsageError for a file on the way that is not TOML, and for a folder with two of them.
    """
    for folder in (start, *start.parents):
        found = [
            each for each in (_own_file(folder), pyproject_settings(folder)) if each is not None
        ]
        if len(found) > 1:
            raise UsageError(
                f"{found[0].path} and [tool.pitcheck] in {found[1].path} both have settings; keep "
                f"one of them"
            )
        if found:
            return found[0]
    return None


def _own_file(folder: Path) -> Settings | None:
    path = folder / "pitcheck.toml"
    return Settings(path, "", _content(path)) if path.is_file() else None


def pyproject_settings(folder: Path) -> Settings | None:
    """Return the settings in a pyproject.toml; None without it, or without a table for pitcheck.

    Raises UsageError for a file that is not TOML.
    """
    path = folder / "pyproject.toml"
    tool = _content(path).get("tool", {}) if path.is_file() else {}
    if not isinstance(tool, dict) or "pitcheck" not in tool:
        return None
    if not isinstance(tool["pitcheck"], dict):
        raise UsageError(
            f"{path}: tool.pitcheck is {tool['pitcheck']!r}; it must be a table of settings"
        )
    return Settings(path, "tool.pitcheck.", tool["pitcheck"])


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
