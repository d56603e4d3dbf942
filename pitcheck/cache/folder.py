"""The folder of what pitcheck writes unasked: remembered proofs, and witnesses."""

from __future__ import annotations

from pathlib import Path

FOLDER = ".pitcheck"
"""The folder below the working directory."""
_IGNORED = "# Made by pitcheck. Nothing in here is worth a commit.\n*\n"


def made(folder: Path) -> Path:
    """Return a folder, made if it is missing, whose ``.gitignore`` keeps it out of git.

    Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ignored = folder / ".gitignore"
    if not ignored.exists():
        ignored.write_text(_IGNORED, encoding="utf-8")
    return folder
