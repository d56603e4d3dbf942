"""The imports of the Python files below a folder, which are read and never run."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from stat import S_ISREG

from pitcheck.commands.starting.frameworks import FRAMEWORKS, Framework

MOST_FILES = 2000
"""The most files that are read."""
MOST_ENTRIES = 200_000
"""The most names that are looked at."""
MOST_BYTES = 1 << 20
"""The most bytes of a file that is read."""
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


@dataclass
class Found:
    """The number of files that were read, and those that import each framework, by its name.

    ``unread`` files are too large or no Python; ``whole`` is False if there were too many.
    """

    files: int = 0
    unread: int = 0
    whole: bool = True
    importing: dict[str, list[str]] = field(default_factory=dict)

    def frameworks(self) -> list[Framework]:
        """Return the frameworks that are imported, the nearest to a program first."""
        return [each for each in FRAMEWORKS if each.name in self.importing]


def scan(folder: Path) -> Found:
    """Return what the Python files below a folder import."""
    found = Found()
    files = list(islice(_python_files(folder, found), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        found.whole = False
    for path in files[:MOST_FILES]:
        modules = _imports(path)
        if modules is None:
            found.unread += 1
            continue
        found.files += 1
        for framework in FRAMEWORKS:
            if any(_is_of(module, framework) for module in modules):
                found.importing.setdefault(framework.name, []).append(str(path.relative_to(folder)))
    return found


def _python_files(folder: Path, found: Found) -> Iterator[Path]:
    """Yield the Python files below a folder, in the order of their names.

    Hidden folders, environments and links that lead out of the folder are left out.
    """
    root, entries = folder.resolve(), 0
    for here, folders, names in os.walk(folder):
        entries += len(folders) + len(names)
        if entries > MOST_ENTRIES:
            found.whole = False
            return
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in _LEFT_OUT
        )
        for name in sorted(names):
            path = Path(here, name)
            if name.endswith(".py") and _is_inside(path, root):
                yield path


def _is_inside(path: Path, root: Path) -> bool:
    try:
        return not path.is_symlink() or root in path.resolve(strict=True).parents
    except (OSError, RuntimeError):
        return False


def _imports(path: Path) -> set[str] | None:
    """Return the modules that a file imports, absolute ones alone; None if it cannot be read."""
    try:
        state = path.stat()
        if not S_ISREG(state.st_mode) or state.st_size > MOST_BYTES:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's code, which is not run
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def _is_of(module: str, framework: Framework) -> bool:
    return any(f"{module}.".startswith(f"{each}.") for each in framework.modules)
