"""Several files, written all or none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pitcheck.errors import UsageError
from pitcheck.report.destinations import write_whole


def write_all(folder: Path, contents: Mapping[str, str], *, replace: bool) -> None:
    """Write texts to files below a folder, by their relative names.

    Raises UsageError if one cannot be written, or is there already and ``replace`` is False; then
    everything is as it was before.
    """
    there = [name for name in contents if os.path.lexists(folder / name)]
    if there and not replace:
        raise UsageError(
            f"{folder / there[0]} is there already, and nothing was written; --force replaces it"
        )
    name = ""
    with ExitStack() as undo:
        try:
            for name, text in contents.items():
                _write(folder, folder / name, text, undo, replace=replace)
        except FileExistsError:
            raise UsageError(
                f"{folder / name} was made meanwhile, and nothing was written; --force replaces it"
            ) from None
        except OSError as error:
            raise UsageError(
                f"cannot write {folder / name}: {error.strerror or error}; nothing was written"
            ) from None
        undo.pop_all()


def _write(folder: Path, path: Path, text: str, undo: ExitStack, *, replace: bool) -> None:
    """Write one file; ``undo`` is told how to take it back. Raises OSError and UsageError."""
    if not path.parent.is_dir():
        path.parent.mkdir()
        undo.callback(path.parent.rmdir)
    if folder.resolve() not in (path.parent.resolve(), *path.parent.resolve().parents):
        raise UsageError(f"{path.parent} leads out of {folder}, and nothing was written; remove it")
    if replace and os.path.lexists(path):
        _replace(path, text, undo)
        return
    with path.open("x", encoding="utf-8") as file:
        undo.callback(path.unlink)
        file.write(text)


def _replace(path: Path, text: str, undo: ExitStack) -> None:
    """Put a new file in the place of one, which comes back if anything fails."""
    if path.is_symlink() or not path.is_file():
        raise UsageError(f"{path} is no plain file, and nothing was written; remove it")
    undo.callback(partial(write_whole, path, path.read_bytes()))
    write_whole(path, text.encode("utf-8"))
