"""Pages and docstrings name files and modules that exist; pages link to what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|json|toml))`")
"""A file in backticks: a path from the repository's root, or from the package."""
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
OF_OTHERS = ("nnscaler/",)
"""Folders of other projects."""


def missing_files(text: str) -> list[str]:
    """Return the files that a text names and that neither the repository nor the package has."""
    return [
        name
        for name in FILE.findall(text)
        if not name.startswith(OF_OTHERS)
        and not any((ROOT / top / name).exists() for top in ("", "pitcheck"))
    ]


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def broken_links(page: Path, text: str) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for target, anchor in LINK.findall(text):
        file = page.parent / target if target else page
        if not file.exists():
            broken.append(target)
        elif anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            broken += [] if anchor in map(slug, headings) else [f"{target}#{anchor}"]
    return broken


def missing_modules(text: str) -> list[str]:
    """Return the modules and names in ``:mod:`` and like roles that the package lacks."""
    missing = []
    for name in re.findall(r":(?:mod|func|class|attr|meth):`~?(pitcheck[\w.]*)`", text):
        parts = name.split(".")
        files = [ROOT.joinpath(*parts[:end]) for end in range(2, len(parts) + 1)]
        if not any(file.with_suffix(".py").exists() or file.is_dir() for file in files[-3:]):
            missing.append(name)
    return missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_what_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not missing_files(text)
    assert not broken_links(page, text)


def test_docstrings_name_what_exists() -> None:
    for file in (ROOT / "pitcheck").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not missing_files(text), file
        assert not missing_modules(text), file


def test_what_is_missing_is_found() -> None:
    assert missing_files("`plan/model.py`, `docs/bound.md`, `plan/modle.py`") == ["plan/modle.py"]
    links = "[a](docs/bound.md) [b](docs/none.md) [c](docs/decisions.md#cuts) [d](docs/bound.md#no)"
    assert broken_links(ROOT / "README.md", links) == ["docs/none.md", "docs/bound.md#no"]
    modules = ":mod:`pitcheck.ops.traits` :class:`~pitcheck.ops.traits.Trait` :mod:`pitcheck.no.x`"
    assert missing_modules(modules) == ["pitcheck.no.x"]
