"""The page: its structure, that it loads nothing, and that no plan can break out of its text."""

from __future__ import annotations

import hashlib
import html as escapes
import re
from base64 import b64encode
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report.pages import HOSTILE, Page, named, on_many_ranks, read_page
from report.report_samples import DRAWN, MISSING, SHOWN, sample, samples
from syrupy.assertion import SnapshotAssertion

from pitcheck.report import html
from pitcheck.report.mesh_picture import AxisRow, Cell, Row, mesh_picture
from pitcheck.report.report import Finding, Report
from pitcheck.report.write import Destination, Form, write_report

PLANS = ("reference.plan.json", "parallel.plan.json")
REPORTS = {**samples(), "many-ranks": on_many_ranks(), "hostile": named(HOSTILE)}


def text_of(report: Report, plans: tuple[str, ...] = PLANS) -> str:
    return html.encode(report, plans).decode("utf-8")


def page_of(report: Report) -> Page:
    return read_page(text_of(report))


@pytest.mark.parametrize("name", ["drawn", "inconclusive"])
def test_the_page_is_as_it_was(name: str, snapshot: SnapshotAssertion) -> None:
    body = text_of(samples()[name]).partition("<body>")[2].partition("<script>")[0]
    assert re.sub(r"\n\s*\n+", "\n", body) == snapshot


# --- structure


@pytest.mark.parametrize("name", REPORTS)
def test_headings_are_in_order_and_landmarks_are_there(name: str) -> None:
    page = page_of(REPORTS[name])
    levels = [int(each.tag[1]) for each in page.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [len(page.all(tag)) for tag in ("header", "main", "footer", "title")] == [1, 1, 1, 1]
    assert page.all("html")[0].attributes["lang"] == "en"


@pytest.mark.parametrize("name", REPORTS)
def test_names_lead_to_elements_and_inputs_have_labels(name: str) -> None:
    page = page_of(REPORTS[name])
    ids = [each.attributes["id"] for each in page.elements if "id" in each.attributes]
    assert len(set(ids)) == len(ids)
    used = [each.attributes.get("aria-labelledby") for each in page.elements]
    used += [(each.attributes["href"] or "").removeprefix("#") for each in page.all("a")]
    assert {each for each in used if each is not None} <= set(ids)
    assert all(each.within("label") for each in page.all("input"))
    assert all(each.attributes.get("scope") for each in page.all("th"))


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_loads_nothing_and_allows_only_what_it_holds(name: str) -> None:
    page = page_of(REPORTS[name])
    loading = {
        "src",
        "srcset",
        "data",
        "action",
        "formaction",
        "background",
        "poster",
        "xlink:href",
    }
    for each in page.elements:
        assert not loading & each.attributes.keys()
        assert not [key for key in each.attributes if key.startswith("on") or key == "style"]
        assert (each.attributes.get("href") or "#").startswith("#")
    assert not page.all("link", "img", "iframe", "object", "embed", "base")
    style, script = page.all("style", "script")
    assert not re.search(r"url\(|@import|fetch|http", style.text + script.text)
    policy = next(
        each.attributes["content"] or ""
        for each in page.all("meta")
        if each.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    for element, rule in ((style, "style-src"), (script, "script-src")):
        digest = b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_the_verdict_comes_first_and_findings_next() -> None:
    report = samples()["several"]
    page = page_of(report)
    assert page.all("h1")[0].text.startswith("mismatch: ")
    assert [each.tag for each in page.all("header", "article", "footer")] == [
        "header",
        *["article"] * 4,
        "footer",
    ]
    assert "8 ranks · 9 of 12 outputs proven · 0.21 s" in page.all("header")[0].text
    assert [each.attributes["data-code"] for each in page.all("article")] == [
        finding.code for finding in report.findings
    ]


def test_a_card_has_all_that_is_known_of_a_finding() -> None:
    finding = DRAWN
    card = page_of(sample("mismatch", finding)).all("article")[0].text
    for text in (finding.title, finding.operator, finding.cause, finding.repair, finding.source):
        assert text is not None
        assert text in card
    assert "layers.3.attention_norm.weight.grad at [3, 5]" in card
    assert "tp=0 holds 4, tp=1 holds 2" in card
    assert "pitcheck replay layers.3.witness.json" in card
    assert "pitcheck explain PIT104" in card
    assert "every rank" in card


def test_a_bare_finding_is_a_card_too() -> None:
    finding = Finding(code="PIT001", verdict="invalid", title="t")
    page = page_of(Report(verdict="invalid", findings=(finding,)))
    assert [each.text for each in page.all("dt")] == ["more", "seed"]
    assert not page.all("table", "details", "form", "svg")


def test_the_line_of_a_source_file_has_a_mark_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("model/norm.py").write_text("\n" * 40 + "  y = a < b\n")
    page = page_of(samples()["mismatch"])
    assert page.all("pre")[0].text == "41 | y = a < b\n   | ^^^^^^^^^\n"
    assert page.all("figcaption")[0].text == "model/norm.py:41"
    Path("model/norm.py").unlink()
    assert not page_of(samples()["mismatch"]).all("pre")


def test_both_sides_are_listed_and_the_difference_is_marked() -> None:
    page = page_of(samples()["drawn"])
    reference, parallel = page.all("ol")
    assert "rms_norm.backward" in reference.text
    marked = [each for each in page.all("li") if each.attributes.get("class") == "differs"]
    assert [each.parent for each in marked] == [reference, parallel]
    assert "expected here" in marked[0].text
    assert "differs here" in marked[1].text
    assert "holds y" in parallel.text
    assert "7 further steps are not listed" in page.all("article")[0].text


def test_values_over_ranks_are_a_table() -> None:
    page = page_of(samples()["drawn"])
    held = next(each for each in page.all("table") if each.attributes.get("class") == "held")
    rows = [each for each in page.all("tr") if each.within("table") and each.parent is not None]
    cells = [
        [cell.text for cell in page.all("td") if cell.parent is row]
        for row in rows
        if row.parent is not None and row.parent.parent is held and row.parent.tag == "tbody"
    ]
    assert cells == [
        ["0.25", "reference", ""],
        ["0.125", "tp=0 of every pp, dp", "every"],
        ["0.25", "tp=1 of every pp, dp", "1"],
    ]
    wrong = [
        each.text for each in page.all("td") if "wrong" in (each.attributes.get("class") or "")
    ]
    assert wrong == ["0.125"]
    assert "2 further values are not listed" in page.all("article")[0].text


def test_terms_have_their_sum_in_the_table() -> None:
    text = page_of(samples()["repaired"]).all("article")[0].text
    assert "sum of the terms on every rank" in text
    assert "sum of the terms" not in page_of(samples()["drawn"]).all("article")[0].text


def test_a_repair_is_lines_that_go_and_come() -> None:
    page = page_of(samples()["repaired"])
    lines = [
        (each.attributes["class"], each.text)
        for each in page.all("li")
        if each.attributes.get("class") in ("goes", "comes")
    ]
    assert lines == [("goes", "- 'mean' (div): 8"), ("comes", "+ 'mean' (div): 4")]
    without = page_of(samples()["mismatch"])
    assert not [each for each in without.all("ul") if each.attributes.get("class") == "edits"]


def test_the_bound_and_what_it_rests_on_are_there() -> None:
    said = page_of(samples()["equivalent"]).all("main")[0].text
    for text in (
        "2^-66.2",
        "accepted scaled by 1/2",
        "exp of dependent terms",
        "assumption number",
    ):
        assert text in said
    assert "Not covered" in said
    assert "error bound" not in page_of(samples()["mismatch"]).all("main")[0].text


def test_times_fill_the_bar() -> None:
    page = page_of(samples()["equivalent"])
    bar = next(each for each in page.all("svg") if each.attributes.get("class") == "bar")
    rects = [each for each in page.all("rect") if each.parent is bar]
    assert len(rects) == 6
    assert sum(float(each.attributes["width"] or 0) for each in rects) == pytest.approx(
        100, abs=0.1
    )
    assert not page_of(Report(verdict="invalid")).all("svg")


def test_filters_are_there_only_where_there_is_a_choice_and_wait_for_the_script() -> None:
    assert not page_of(samples()["mismatch"]).all("form")
    form = page_of(samples()["several"]).all("form")[0]
    assert "hidden" in form.attributes
    assert "PIT104" in form.text


def test_many_findings_are_counted_not_drawn() -> None:
    finding = Finding(code="PIT003", verdict="invalid", title="t")
    page = page_of(Report(verdict="invalid", findings=(finding,) * 300))
    assert len(page.all("article")) == html.MOST_FINDINGS
    assert "100 further findings are in the JSON report" in page.all("main")[0].text


# --- text that is more than text


def structure(page: Page) -> list[tuple[str, list[str]]]:
    return [(each.tag, list(each.attributes)) for each in page.elements]


def test_hostile_names_are_text() -> None:
    page = page_of(named(HOSTILE))
    assert structure(page) == structure(page_of(named("harmless")))
    assert "\\u202e" in page.all("h3")[0].text
    assert page.all("h3")[0].text.startswith("</script></style></iframe><script>window.pwned")
    assert "{{ 7 * 7 }}" in page.all("h3")[0].text


@pytest.mark.parametrize("plan", [HOSTILE, "<b>.plan.json"])
def test_hostile_files_are_text(plan: str) -> None:
    page = read_page(text_of(samples()["mismatch"], (plan, plan)))
    assert structure(page) == structure(page_of(samples()["mismatch"]))


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=60))
def test_any_name_is_text(name: str) -> None:
    text = text_of(named(name))
    assert structure(read_page(text)) == structure(page_of(named("harmless")))
    assert all(character.isprintable() or character == "\n" for character in text)


def test_long_names_are_cut_and_said_to_be() -> None:
    page = page_of(named("n" * 10_000))
    assert "nnn … (9000 more characters)" in page.all("h3")[0].text
    assert len(text_of(named("n" * 10_000))) < 100_000


# --- the mesh


def test_every_rank_of_a_small_mesh_has_a_cell() -> None:
    first, second = replace(MISSING, ranks=(0, 3)), replace(MISSING, ranks=(3,))
    report = replace(
        Report(verdict="mismatch", shown=SHOWN, findings=(first, DRAWN, second)),
        mesh={"dp": 2, "pp": 1, "tp": 2},
    )
    drawn = mesh_picture(replace(report, findings=(first, replace(DRAWN, ranks=()), second)))
    assert drawn.columns == ("tp=0", "tp=1")
    assert drawn.rows == (
        Row("dp=0", (Cell(0, (1,)), Cell(1, ()))),
        Row("dp=1", (Cell(2, ()), Cell(3, (1, 3)))),
    )
    assert not drawn.axes
    assert drawn.marked == ((1, "ranks 0, 3"), (3, "dp=1, tp=1"))


@pytest.mark.parametrize("mesh", [{}, {"tp": 1}, {"a": 2, "b": 2, "c": 2, "d": 2, "e": 2}])
def test_a_mesh_may_have_any_number_of_axes(mesh: dict[str, int]) -> None:
    drawn = mesh_picture(Report(verdict="equivalent", mesh=mesh))
    cells = [cell.rank for row in drawn.rows for cell in row.cells]
    assert cells == list(range(max(1, 2 ** sum(size > 1 for size in mesh.values()))))


def test_a_large_mesh_is_its_axes() -> None:
    drawn = mesh_picture(on_many_ranks())
    assert not drawn.rows
    assert drawn.axes == (
        AxisRow("pp", 16, "every", ((0, 16),)),
        AxisRow("dp", 64, "every", ((0, 64),)),
        AxisRow("tp", 8, "2..3, 5", ((2, 2), (5, 1))),
    )
    assert drawn.marked == ((1, "tp=2..3, 5 of every pp, dp"),)
    assert len(html.encode(on_many_ranks())) < 60_000


def test_one_long_axis_is_no_row_of_cells() -> None:
    drawn = mesh_picture(Report(verdict="equivalent", mesh={"dp": 17}))
    assert drawn.axes == (AxisRow("dp", 17, "", ()),)


# --- where pages go


def test_equal_reports_give_equal_pages(tmp_path: Path) -> None:
    report, file = samples()["drawn"], tmp_path / "report.html"
    write_report(report, [Destination("html", str(file))], Form(plans=PLANS))
    assert file.read_bytes() == html.encode(samples()["drawn"], PLANS)


@pytest.mark.parametrize("name", REPORTS)
def test_a_notebook_gets_one_frame_that_styles_nothing_else(name: str) -> None:
    fragment = read_page(REPORTS[name]._repr_html_())
    (frame,) = fragment.elements
    assert frame.tag == "iframe"
    assert frame.attributes["sandbox"] == "allow-scripts"
    assert frame.attributes["srcdoc"] == text_of(REPORTS[name], ())
    assert escapes.unescape(frame.attributes["title"] or "").startswith("pitcheck report")
