"""Add what the site has beside the files of this folder (``mkdocs.yml`` names this file).

Files of the repository that pages link to are pages or files of the site, too. Links to its folders
become plain text, because the site has no pages of folders.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"contributing.md": "CONTRIBUTING.md", "plans.md": "plans/README.md"}
"""Page of the site -> the file of the repository that it shows."""
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[\w-]+)?\)")
NAMED = re.compile(r"^```(\w+) (\w+)$", re.MULTILINE)
"""The first line of a block with a name, which tests look for: ``json reference``."""
ALL_CAUSES = "causes/*"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of all codes where the navigation has their folder."""
    causes = sorted(path.name for path in (ROOT / "docs/causes").glob("*.md"))
    config.nav = _with_causes(config.nav, [f"causes/{name}" for name in causes])
    return config


def _with_causes(entry: Any, causes: list[str]) -> Any:
    match entry:
        case list():
            return [
                part
                for each in entry
                for part in (causes if each == ALL_CAUSES else [_with_causes(each, causes)])
            ]
        case dict():
            return {name: _with_causes(each, causes) for name, each in entry.items()}
        case _:
            return entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand in other folders, and the sources that pages link to."""
    for page, file in PAGES.items():
        files.append(File.generated(config, page, content=_text(file)))
    for source in sorted(_linked_sources(files)):
        files.append(File.generated(config, source, abs_src_path=str(ROOT / source)))
    return files


def _linked_sources(files: Files) -> set[str]:
    return {
        target
        for file in files.documentation_pages()
        for _, link, _ in LINK.findall(file.content_string)
        if (target := _in_repository(file.src_uri, link)) not in PAGES.values()
        and not target.startswith("docs/")
        and (ROOT / target).is_file()
    }


def on_page_markdown(markdown: str, page: Page, files: Files, **_: MkDocsConfig) -> str:
    """Return the page's text with links that lead to places of the site, and names as titles."""
    here = page.file.src_uri
    titled = NAMED.sub(r'```\1 title="\2"', markdown)
    return LINK.sub(lambda found: _resolved(found, here, files), titled)


def _resolved(found: re.Match[str], here: str, files: Files) -> str:
    label, link, anchor = found.groups()
    target = _in_repository(here, link)
    place = next((page for page, file in PAGES.items() if file == target), None)
    place = place or target.removeprefix("docs/")
    if (ROOT / target).is_dir():
        return label
    if files.get_file_from_path(place) is None:
        return found[0]  # mkdocs names it
    return f"[{label}]({relpath(place, PurePosixPath(here).parent)}{anchor or ''})"


def _in_repository(page: str, link: str) -> str:
    """Return the path from the repository's root to what a page of the site links to."""
    file = PAGES.get(page, f"docs/{page}")
    return normpath(PurePosixPath(file).parent / link)


def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")
