"""The pages of the codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import Call

from pitcheck.report.codes import CODES

PAGES = Path(__file__).parents[2] / "docs" / "causes"


@pytest.mark.parametrize("each", CODES, ids=lambda each: each.code)
def test_every_code_has_a_whole_page(call: Call, each: object) -> None:
    code = each.code  # type: ignore[attr-defined]
    result = call("explain", code.lower())
    assert result.code == 0
    assert result.err == ""
    assert result.out == (PAGES / f"{code}.md").read_text()
    assert result.out.startswith(f"# {code}: ")
    headings = re.findall(r"^## (.*)$", result.out, re.M)
    assert headings == ["What it means", "Example", "How it is found", "How to repair"]
    verdict = each.verdict.replace("nothing-checked", "nothing-checked")  # type: ignore[attr-defined]
    assert verdict in result.out.splitlines()[2].lower()


def test_no_page_without_a_code_and_no_code_twice() -> None:
    codes = [each.code for each in CODES]
    assert codes == sorted(set(codes))
    assert sorted(page.stem for page in PAGES.glob("*.md")) == codes


def test_without_a_code_all_are_listed(call: Call) -> None:
    result = call("explain")
    assert [line.split()[0] for line in result.out.splitlines()] == [each.code for each in CODES]


def test_the_package_raises_no_code_without_a_page() -> None:
    known = {each.code for each in CODES}
    for source in (Path(__file__).parents[2] / "pitcheck").rglob("*.py"):
        used = set(re.findall(r"\bPIT\d{3}\b", source.read_text()))
        assert used <= known, source
