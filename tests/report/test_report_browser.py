"""Pages in a browser: who cannot see them can use them, they fit a phone, and no name runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from report.browser import ask, axe
from report.pages import HOSTILE, named, on_many_ranks
from report.report_samples import sample, samples

from pitcheck.report import html
from pitcheck.report.report import Report

pytestmark = pytest.mark.slow

REPORTS = {
    **{name: samples()[name] for name in ("equivalent", "drawn", "several", "invalid")},
    "no-findings": sample("equivalent", bound=-66.0),
    "many-ranks": on_many_ranks(),
    "hostile": named(HOSTILE),
}
VIEWS = [
    *((name, width, dark) for name in REPORTS for width, dark in ((360, False), (1440, True))),
    ("drawn", 360, True),
    ("drawn", 1440, False),
]
"""Pages, widths in pixels, and whether colours are dark."""
LOOK = """
return {
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  width: window.innerWidth,
  pwned: window.pwned ?? null,
  loaded: performance.getEntriesByType("resource").map((each) => each.name),
};
"""


def page_of(report: Report) -> str:
    return html.encode(report, ("reference.plan.json", "parallel.plan.json")).decode()


@pytest.mark.parametrize(("name", "width", "dark"), VIEWS)
def test_axe_finds_nothing(name: str, width: int, dark: bool, tmp_path: Path) -> None:
    rules = "{ resultTypes: ['violations'] }"
    script = (
        f"{axe()};\nconst result = await axe.run(document, {rules});"
        "return result.violations.map((each) => "
        "[each.impact, each.id, each.nodes.map((node) => node.html).slice(0, 3)]);"
    )
    # An inline script ends where its text says so.
    script = script.replace("</script", "<\\/script")
    assert ask(page_of(REPORTS[name]), script, tmp_path, width, dark=dark) == []


def test_axe_finds_what_is_wrong(tmp_path: Path) -> None:
    page = page_of(samples()["drawn"]).replace('<html lang="en">', "<html>")
    script = f"{axe()};\nreturn (await axe.run()).violations.map((each) => each.id);"
    assert ask(page, script.replace("</script", "<\\/script"), tmp_path, 360) == ["html-has-lang"]


@pytest.mark.parametrize(("name", "width", "dark"), VIEWS)
def test_a_page_fits_its_window_and_runs_no_name(
    name: str, width: int, dark: bool, tmp_path: Path
) -> None:
    seen = ask(page_of(REPORTS[name]), LOOK, tmp_path, width, dark=dark)
    assert seen == {"wide": 0, "dark": dark, "width": width, "pwned": None, "loaded": []}


def test_filters_hide_what_is_not_chosen(tmp_path: Path) -> None:
    script = """
    const shown = () =>
      [...document.querySelectorAll("article")].filter((each) => !each.hidden).length;
    const form = document.getElementById("filter"), said = document.getElementById("shown");
    const seen = [form.hidden, shown()];
    form.querySelector("input[value=PIT104]").click();
    seen.push(shown(), said.textContent);
    form.querySelector("input[value=warning]").click();
    seen.push(shown());
    form.querySelector("input[value=PIT104]").click();
    seen.push(shown());
    return seen;
    """
    seen = ask(page_of(samples()["several"]), script, tmp_path, 360)
    assert seen == [False, 4, 2, "2 of 4 shown", 1, 3]
