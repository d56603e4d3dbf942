"""The playground in a browser: checks, links, errors and cancelling, for every size and reader."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playground.chromium import Browser, Page, running
from playground.served_site import WHEELS, built, lacking, node_modules, served

from pitcheck.report.report import VOLATILE

pytestmark = pytest.mark.slow

VIEWS = [(width, dark) for width in (360, 1440) for dark in (False, True)]
IDLE = "!document.getElementById('check').disabled"
BUSY = "document.getElementById('check').disabled"
BOOT = 120
"""Seconds in which Python starts, on a machine that does other things, too."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("playground"))


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    with served(site) as url:
        yield url


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    yield chromium
    chromium.close_pages()


@pytest.fixture
def page(browser: Browser, address: str) -> Page:
    return Page(browser, address)


def text_of(page: Page, element: str) -> str:
    return str(page.ask(f"document.getElementById({element!r}).textContent"))


def value_of(page: Page, element: str) -> str:
    return str(page.ask(f"document.getElementById({element!r}).value"))


def fill(page: Page, element: str, text: str) -> None:
    page.ask(
        f"{{ const field = document.getElementById({element!r}); field.value = {json.dumps(text)};"
        f"field.dispatchEvent(new Event('input', {{ bubbles: true }})); }}"
    )


def click(page: Page, element: str) -> None:
    page.ask(f"document.getElementById({element!r}).click()")


def choose(page: Page, number: int) -> None:
    page.ask(
        f"{{ const list = document.getElementById('example'); list.value = '{number}';"
        f"list.dispatchEvent(new Event('change', {{ bubbles: true }})); }}"
    )


def check(page: Page) -> None:
    click(page, "check")
    page.wait(IDLE, BOOT)


def in_frame(page: Page, script: str) -> Any:
    """Return what an expression gives in the frame of the report, once it is loaded.

    The frame has an origin of its kind alone, and so a process.
    """
    frame = page.frame("about:srcdoc", 20)
    return page.browser.command("Runtime.evaluate", frame, expression=script)["result"]["value"]


def by_command(site: Path, number: int, folder: Path) -> dict[str, Any]:
    """Return the report of the command line on the texts of an example."""
    texts = json.loads((site / "examples.json").read_text())[number]["texts"]
    for name, text in texts.items():
        (folder / name).write_text(text)
    options = ["--seed", "1", "--jobs", "1", "--no-cache", "--output", "json:report.json"]
    command = [sys.executable, "-m", "pitcheck", "check", *texts, *options]
    subprocess.run(command, check=False, cwd=folder, timeout=120)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.parametrize("number", range(6))
def test_a_pair_gets_the_report_of_the_command_line(
    number: int, site: Path, browser: Browser, address: str, tmp_path: Path
) -> None:
    if missing := lacking(site):
        pytest.skip(
            f"there is no wheel for Pyodide of {', '.join(missing)}: its publisher is not reached, "
            f"and PyPI has none; name a folder of wheels in {WHEELS}"
        )
    page = Page(browser, address, lax=True)
    choose(page, number)
    check(page)
    shown = json.loads(
        page.ask("fetch(document.getElementById('save-json').href).then(r => r.text())")
    )
    expected = by_command(site, number, tmp_path)
    assert {k: v for k, v in shown.items() if k not in VOLATILE} == {
        k: v for k, v in expected.items() if k not in VOLATILE
    }
    assert text_of(page, "verdict").startswith(expected["verdict"])
    assert in_frame(page, "document.title") == f"{expected['verdict']} – pitcheck report"
    witnesses = [each["witness"] for each in expected["findings"] if each["witness"]]
    assert page.ask("document.getElementById('save-witness').download") in (
        [Path(each).name for each in witnesses] or [""]
    )


def test_a_syntax_error_is_shown_at_its_place(page: Page) -> None:
    fill(page, "reference", value_of(page, "reference").replace('"tensors"', "tensors"))
    check(page)
    assert "JSON is malformed" in text_of(page, "messages")
    assert text_of(page, "verdict") == "invalid: a plan is malformed or cannot run"
    assert in_frame(page, "document.title") == "invalid – pitcheck report"
    page.ask("document.querySelector('#messages button').click()")
    assert page.ask("document.activeElement.id") == "reference"
    selected = "document.activeElement.value.slice(document.activeElement.selectionStart, "
    assert page.ask(f"{selected}document.activeElement.selectionEnd)") == "tensors: ["


def test_the_report_keeps_its_style_and_script_in_the_frame(page: Page) -> None:
    fill(page, "reference", "{")
    check(page)
    assert in_frame(page, "getComputedStyle(document.body).maxWidth") == "1408px"
    policy = page.ask("document.querySelector('meta[http-equiv]').content")
    assert "'unsafe-inline'" not in policy and "https:" not in policy
    report = page.ask("document.getElementById('report').srcdoc")
    style, script = re.findall(r"sha256-[\w+/=]+", report)[:2]
    assert style in policy and script in policy
    assert page.ask("document.getElementById('report').sandbox.value") == "allow-scripts"


def test_what_a_name_holds_does_not_run(page: Page) -> None:
    fill(page, "reference", '{"format": "<img src=x onerror=parent.pwned=1>"}')
    check(page)
    assert "<img src=x onerror=parent.pwned=1>" in text_of(page, "messages")
    assert page.ask("document.querySelectorAll('img').length + Number(window.pwned ?? 0)") == 0


@pytest.mark.parametrize(("field", "value"), [("seed", "one"), ("bound", "2")])
def test_a_wrong_field_is_said(field: str, value: str, page: Page) -> None:
    fill(page, field, value)
    check(page)
    assert repr(value) in text_of(page, "messages")
    assert page.ask("document.getElementById('result').hidden")


def test_a_check_is_cancelled_and_the_next_one_runs(page: Page) -> None:
    fill(page, "reference", "[")
    click(page, "check")
    assert page.ask(BUSY) and not page.ask("document.getElementById('cancel').disabled")
    click(page, "cancel")
    assert (page.ask(BUSY), text_of(page, "progress")) == (False, "cancelled")
    assert page.ask("document.getElementById('result').hidden")
    check(page)
    assert text_of(page, "verdict").startswith("invalid")


def test_files_that_were_changed_are_not_run(site: Path, browser: Browser, tmp_path: Path) -> None:
    for name, old, new in (
        ("pyodide/pyodide.mjs", b"\n", b"\n\n"),
        ("pyodide/pyodide.asm.mjs", b"\n", b"\n\n"),
    ):
        copy = tmp_path / Path(name).stem
        shutil.copytree(site, copy)
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content.replace(old, new, 1))
        with served(copy) as address:
            page = Page(browser, address)
            check(page)
            assert text_of(page, "messages").startswith("Python could not be loaded")


def test_a_link_carries_the_texts(page: Page, browser: Browser, address: str) -> None:
    choose(page, 5)
    fill(page, "parallel", value_of(page, "parallel") + " é😀\n")
    fill(page, "seed", "77")
    fill(page, "bound", "1e-20")
    link = link_of(page)
    other = Page(browser, link)
    for field in ("reference", "parallel", "seed", "bound"):
        assert value_of(other, field) == value_of(page, field)
    assert len(link) < 10_000 and text_of(other, "messages") == ""


def test_a_link_carries_a_configuration(page: Page, browser: Browser) -> None:
    choose(page, 6)
    other = Page(browser, link_of(page))
    assert value_of(other, "toml") == value_of(page, "toml")
    assert page.ask("document.getElementById('plans').hidden")


def link_of(page: Page) -> str:
    before = page.ask("location.href")
    click(page, "link")
    page.wait(f"location.href !== {json.dumps(before)}", 10)
    return str(page.ask("location.href"))


def fragment(content: bytes) -> str:
    return "#1." + urlsafe_b64encode(zlib.compress(content, 9)).decode().rstrip("=")


PAIR = json.dumps({"r": "1", "p": "2", "s": "3", "b": "4"}).encode()


def damaged(of: str) -> list[tuple[str, str]]:
    return [
        ("#2" + of[2:], "does not begin"),
        (of[:-3], "missing or changed"),
        (of[:20] + ("A" if of[20] != "A" else "B") + of[21:], "missing or changed"),
        (of + "!", "missing or changed"),
        (fragment(b"[]"), "does not hold"),
        (fragment(b"null"), "does not hold"),
        (fragment(b'{"r": "1", "p": 2, "s": "3", "b": "4"}'), "does not hold"),
        (fragment(b'{"r": "1", "s": "3", "b": "4"}'), "does not hold"),
        (fragment(b'{"r": "1", "p": "2", "x": "3", "s": "3", "b": "4"}'), "does not hold"),
        (fragment(b"\xff"), "missing or changed"),
        (fragment(b" " * 50_000_000), "unfolds to more than 2000000 bytes"),
        ("#1." + "A" * 100_001, "at most 100000 are read"),
    ]


@pytest.mark.parametrize(("link", "message"), damaged(fragment(PAIR)))
def test_a_damaged_link_is_said(link: str, message: str, browser: Browser, address: str) -> None:
    page = Page(browser, address + link)
    said = text_of(page, "messages")
    assert said.startswith("This link cannot be read: ") and message in said
    assert said.endswith(". Ask for it again, whole.")


def test_a_whole_link_is_read(browser: Browser, address: str) -> None:
    page = Page(browser, address + fragment(PAIR))
    fields = "reference", "parallel", "seed", "bound"
    assert [value_of(page, field) for field in fields] == ["1", "2", "3", "4"]


def test_texts_too_large_for_a_link_are_said(page: Page) -> None:
    fill(page, "reference", "x" * 2_000_001)
    click(page, "link")
    page.wait("document.getElementById('messages').textContent !== ''", 10)
    assert "a link holds at most 2000000" in text_of(page, "messages")


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_the_page_fits_and_axe_finds_nothing(
    width: int, dark: bool, browser: Browser, address: str
) -> None:
    axe = (node_modules() / "axe-core/axe.min.js").read_text(encoding="utf-8")
    page = Page(browser, address, width, dark=dark)
    for configuration in (False, True):
        if configuration:
            page.ask("document.querySelector('[value=configuration]').click()")
        fill(page, "toml", "=")
        fill(page, "reference", "{")
        if not page.ask("document.getElementById('result').hidden") or not configuration:
            check(page)
        assert page.ask("matchMedia('(prefers-color-scheme: dark)').matches") == dark
        assert (
            page.ask("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            == 0
        )
        page.ask(f"{axe}; 0")
        found = page.ask(
            "axe.run(document, { resultTypes: ['violations'], iframes: false }).then((result) =>"
            "result.violations.map((each) => [each.id, each.nodes.map((node) => node.html)]))"
        )
        assert found == []


def test_keys_alone_do_everything(page: Page) -> None:
    order = []
    page.ask("document.getElementById('example').focus()")
    for _ in range(8):
        order.append(page.ask("document.activeElement.id || document.activeElement.value"))
        page.press("Tab")
    assert order[:7] == ["example", "plans", "seed", "bound", "reference", "parallel", "check"]
    fill(page, "reference", "{")
    page.ask("document.getElementById('seed').focus()")
    page.press("Enter")
    page.wait("!document.getElementById('result').hidden", BOOT)
    assert page.ask("document.querySelector('#messages button') !== null")


def test_line_numbers_follow_the_text(page: Page) -> None:
    numbers = "document.querySelector('#reference').previousElementSibling.textContent"
    fill(page, "reference", "a\nb\nc")
    assert page.ask(numbers) == "1\n2\n3"
    fill(page, "reference", "")
    assert page.ask(numbers) == "1"
