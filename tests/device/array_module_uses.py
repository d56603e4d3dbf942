"""Uses of an array module by pitcheck, read from its source without running it.

>>> uses("y = self.xp.where(a > 0, a, xp.uint64(1))", "f.py")
[Use(name='where', place='f.py:1', count=3, keywords=()), \
Use(name='uint64', place='f.py:1', count=1, keywords=())]
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pitcheck

PACKAGE = Path(pitcheck.__file__).parent
NAMED = re.compile(r"\bxp\b")
"""The word in each module that uses an array module; most others have it within words."""
OF_PYTHON = frozenset(("__name__",))
"""The names that every module has."""


@dataclass(frozen=True)
class Use:
    """A name of the array module that is used, with dots; ``place`` is FILE:LINE.

    ``count`` is the number of its positional arguments, None if it is not called here or their
    number is not written. ``keywords`` are the names of the others.
    """

    name: str
    place: str
    count: int | None = None
    keywords: tuple[str, ...] = ()


def uses(source: str, file: str) -> list[Use]:
    """Return the uses of ``xp`` in a source text."""
    tree = ast.parse(source)
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = []
    for node in ast.walk(tree):
        name = _name(node)
        if name and id(node) not in inner and name not in OF_PYTHON:
            call = calls.get(id(node))
            found.append(_use(name, f"{file}:{getattr(node, 'lineno', 0)}", call))
    return found


def _name(node: ast.AST) -> str:
    """Return the name behind ``xp`` of an expression such as ``self.xp.add.at``, or nothing."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and node.attr != "xp":
        names.insert(0, node.attr)
        node = node.value
    is_module = isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id == "xp")
    return ".".join(names) if is_module else ""


def _use(name: str, place: str, call: ast.Call | None) -> Use:
    if call is None:
        return Use(name, place)
    open_ended = any(isinstance(each, ast.Starred) for each in call.args)
    keywords = tuple(each.arg for each in call.keywords if each.arg is not None)
    return Use(name, place, None if open_ended else len(call.args), keywords)


def all_uses() -> list[Use]:
    """Return the uses in all modules of pitcheck."""
    return [
        use
        for path in sorted(PACKAGE.rglob("*.py"))
        if NAMED.search(source := path.read_text(encoding="utf-8"))
        for use in uses(source, path.relative_to(PACKAGE).as_posix())
    ]
