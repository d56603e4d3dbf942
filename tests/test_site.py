"""The pages as a site: built strictly, complete, and without anything from elsewhere."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report.browser import SWITCHES, chromium

ROOT = Path(__file__).parents[1]
LOADING = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""Element -> the attribute whose file a browser loads with the page."""
NOT_LOADED = ("canonical", "edit", "prev", "next")
"""Relations of ``link`` that only name a page."""
FILES = (
    "plan.schema.json",
    "report.schema.json",
    "examples/tensor_parallel.py",
    "examples/data_parallel.py",
    "pitcheck/frontends/protocol.py",
)
"""What the site serves as it is."""


def _build(tree: Path, site: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mkdocs")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, as a folder."""
    folder = tmp_path_factory.mktemp("built") / "site"
    built = _build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


class _Loaded(HTMLParser):
    """Collects what a browser loads for a page, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        elif tag in LOADING and values.get("rel") not in NOT_LOADED:
            self.loaded.append(values.get(LOADING[tag]) or "")


def _read(file: Path) -> _Loaded:
    parser = _Loaded()
    parser.feed(file.read_text(encoding="utf-8"))
    return parser


def _elsewhere(loaded: list[str]) -> list[str]:
    return [each for each in loaded if re.match(r"(\w+:)?//", each)]


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not _elsewhere(_read(page).loaded), page
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text()), style


def test_every_block_of_code_is_one(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert "```" not in page.read_text(encoding="utf-8"), page


def test_what_is_loaded_from_elsewhere_is_found() -> None:
    parser = _Loaded()
    parser.feed('<script src="https://x.org/a.js"></script><img src="//x.org/a"><a href="//x.org">')
    parser.feed('<link href="a.css" rel="stylesheet"><link rel="canonical" href="https://x.org">')
    assert _elsewhere(parser.loaded) == ["https://x.org/a.js", "//x.org/a"]


def test_links_lead_to_files_of_the_site(site: Path) -> None:
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # its links begin at the site's root
            continue
        for link in _read(page).links:
            path = link.partition("#")[0]
            if path and not re.match(r"\w+:", path):
                assert (page.parent / path).is_file(), f"{page}: {link}"


def test_every_page_and_schema_is_in_the_navigation(site: Path) -> None:
    links = set(_read(site / "index.html").links)
    pages = [file.relative_to(ROOT / "docs") for file in (ROOT / "docs").rglob("*.md")]
    made = (page.with_name(page.name.replace("README", "index")) for page in pages)
    assert {str(page.with_suffix(".html")) for page in made} <= links
    assert {"contributing.html", "plans.html", *FILES[:2]} <= links


def test_every_page_begins_with_what_it_is_for() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        title, opening, *_ = page.read_text(encoding="utf-8").split("\n\n")
        assert title.startswith("# "), page
        assert opening.startswith(("This page", "pitcheck is for")), page


@pytest.mark.parametrize("name", FILES)
def test_files_are_served_as_they_are(site: Path, name: str) -> None:
    source = ROOT / "docs" / name
    source = source if source.exists() else ROOT / name
    assert (site / name).read_bytes() == source.read_bytes()


WRONG_LINKS = {
    "[a](none.md)": "'none.md'",
    "[a](glossary.md#none)": "'#none'",
    "[a](../plans/none.md)": "plans/none.md",
}
"""Link -> words of the message that refuses it."""


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("docs", "plans"):
        shutil.copytree(ROOT / name, tree / name)
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "pitcheck", "tests"):
        (tree / name).symlink_to(ROOT / name)
    with (tree / "docs" / "index.md").open("a") as page:
        page.write("\n" + "\n".join(WRONG_LINKS) + "\n")
    built = _build(tree, tmp_path / "site")
    assert built.returncode != 0
    for wrong, message in WRONG_LINKS.items():
        assert message in built.stderr, (wrong, built.stderr)


WIDTHS = (360, 1440)
MEASURE = """<body><script>(async () => {
  const wide = [];
  for (const width of %s) for (const page of %s) {
    const frame = document.createElement("iframe");
    Object.assign(frame.style, { width: `${width}px`, height: "800px" });
    frame.src = page;
    await new Promise((done) => { frame.onload = done; document.body.append(frame); });
    if (frame.contentDocument.documentElement.scrollWidth > width) wide.push([page, width]);
    frame.remove();
  }
  document.body.textContent = `wide: ${JSON.stringify(wide)};`;
})();</script></body>
"""


def _browsed(url: str, folder: Path) -> str:
    """Return the text of a page after its scripts have run."""
    return subprocess.run(
        [
            chromium(),
            *(each for each in SWITCHES if "budget" not in each),
            "--virtual-time-budget=200000",
            "--allow-file-access-from-files",
            f"--user-data-dir={folder / 'browser'}",
            "--window-size=1600,1000",
            url,
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout


@pytest.mark.slow
def test_pages_fit_a_phone_and_a_screen(site: Path, tmp_path: Path) -> None:
    (site / "examples" / "wide.html").write_text("<p style='width: 2000px'>x</p>")
    pages = [str(page.relative_to(site)) for page in sorted(site.rglob("*.html"))]
    chosen = [page for page in pages if "causes/" not in page or "104" in page]
    (site / "measure.html").write_text(MEASURE % (json.dumps(WIDTHS), json.dumps(chosen)))
    try:
        text = _browsed((site / "measure.html").as_uri(), tmp_path)
    finally:
        (site / "measure.html").unlink()
        (site / "examples" / "wide.html").unlink()
    found = re.search(r"wide: (.*?);</body>", html.unescape(text))
    assert found is not None
    assert json.loads(found[1]) == [["examples/wide.html", width] for width in WIDTHS]


@pytest.mark.slow
def test_pages_in_a_folder_can_be_searched(site: Path, tmp_path: Path) -> None:
    text = _browsed(f"{(site / 'index.html').as_uri()}?q=all-reduce", tmp_path)
    assert re.search(r"\d+ matching documents", text)
    assert "tutorial.html?h=" in text
