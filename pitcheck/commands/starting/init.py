"""``pitcheck init``: find the framework of a repository, and write a check that runs."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterator
from pathlib import Path

from pitcheck.commands.settings_file import nearest_settings, pyproject_settings
from pitcheck.commands.starting.all_or_nothing import write_all
from pitcheck.commands.starting.frameworks import (
    FRAMEWORKS,
    NONE,
    SETTINGS,
    Framework,
    settings_text,
)
from pitcheck.commands.starting.scan import MOST_FILES, Found, scan
from pitcheck.errors import UsageError
from pitcheck.report.destinations import print_bytes
from pitcheck.report.lines import printable
from pitcheck.report.text import count


def run(directory: str, framework: str | None, *, force: bool) -> int:
    """Write a specification or a configuration, and settings, into a directory; return 0.

    ``framework`` is the name of one, None for the one that its Python files import. Raises
    UsageError, and writes nothing, if a file is there already and ``force`` is False.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise UsageError(f"{directory} is no directory; name the root of your repository")
    found = scan(folder)
    chosen = _chosen(found, framework)
    contents = {chosen.target: chosen.text()}
    elsewhere = pyproject_settings(folder)
    if elsewhere is None:
        contents[SETTINGS] = settings_text()
    write_all(folder, contents, replace=force)
    lines = [*_said_of(found, chosen), *(f"wrote        {folder / name}" for name in contents)]
    if elsewhere is not None:
        lines.append(f"settings     stay in {elsewhere.path}, which has [tool.pitcheck]")
    else:
        lines += _hidden(folder)
    lines += _next(folder, chosen)
    print_bytes("".join(f"{printable(line)}\n" for line in lines).encode("utf-8"))
    return 0


def _chosen(found: Found, name: str | None) -> Framework:
    if name is not None:
        return next(each for each in (*FRAMEWORKS, NONE) if each.name == name)
    return next(iter(found.frameworks()), NONE)


def _said_of(found: Found, chosen: Framework) -> Iterator[str]:
    """Yield what was found."""
    read = count(found.files, "Python file")
    files = found.importing.get(chosen.name, [])
    if files:
        yield f"framework    {chosen.title}: imported by {len(files)} of {read}, {files[0]} first"
    elif chosen is NONE:
        yield f"framework    none: no known one is imported by {read}"
    else:
        yield f"framework    {chosen.title}: asked for, and imported by none of {read}"
    for other in found.frameworks():
        if other is not chosen:
            yield (
                f"also         {other.title}: imported by {len(found.importing[other.name])} "
                f"(--framework {other.name} writes a start for it)"
            )
    if found.unread:
        yield f"not read     {count(found.unread, 'file')}: too large, or no Python"
    if not found.whole:
        yield f"not read     more than {MOST_FILES} files; name a smaller directory to read others"


def _hidden(folder: Path) -> Iterator[str]:
    """Yield a note on the settings of a folder above, which count no longer in this one."""
    farther = nearest_settings(folder.resolve().parent)
    if farther is not None:
        yield (
            f"note         {folder / SETTINGS} hides the settings of {farther.path}: checks that "
            f"run in {folder.resolve()} read the nearest file alone; copy what must count, or "
            f"remove it"
        )


def _next(folder: Path, chosen: Framework) -> Iterator[str]:
    """Yield what to know, and the command to run next."""
    yield f"note         {chosen.example}"
    if chosen.note:
        yield f"note         {chosen.note}"
    if chosen.is_program and importlib.util.find_spec("torch") is None:
        yield "first        pip install 'pitcheck[torch]'"
    inside = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    yield f"next         {inside}pitcheck check {chosen.source}"
