"""The badge of a night: its words and colours, and where it is written."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from sweep.test_results import about_of, good, planned_of, report_of, written

from pitcheck.sweep.badge import AMBER, BADGE, GREEN, RED, badge
from pitcheck.sweep.morning import write_page
from pitcheck.sweep.result import Result, of_report, without_report
from pitcheck.sweep.summary import summary

PLANNED = planned_of(4)
CRASHED = without_report(PLANNED[3], 1, "crashed", "killed")
WRONG = of_report(PLANNED[3], report_of("mismatch"), "")
SKIPPED = without_report(PLANNED[3], 1, "skipped", "a rule")
NIGHT = 1_785_290_400.0


@pytest.mark.parametrize(
    ("results", "said", "colour"),
    [
        ([good(each) for each in PLANNED], "good: 4", GREEN),
        ([*map(good, PLANNED[:3]), SKIPPED], "good: 3", GREEN),
        ([*map(good, PLANNED[:3]), WRONG], "not good: 1 of 4", RED),
        ([*map(good, PLANNED[:2]), WRONG], "not good: 2 of 4", RED),
        ([*map(good, PLANNED[:3]), CRASHED], "not known: 1 of 4", AMBER),
        ([*map(good, PLANNED[:2])], "not known: 2 of 4", AMBER),
        ([], "not known: 4 of 4", AMBER),
        (
            [msgspec.structs.replace(SKIPPED, name=each.name) for each in PLANNED],
            "nothing was checked",
            AMBER,
        ),
    ],
)
def test_a_badge_says_what_became_of_the_night(
    results: list[Result], said: str, colour: str
) -> None:
    picture = badge(about_of(4, started=NIGHT), summary(PLANNED, results))
    words = [each.text for each in ElementTree.fromstring(picture).iter() if each.text]
    assert words == [f"pitcheck 2026-07-29: {said}", "pitcheck 2026-07-29", said]
    assert [each for each in (GREEN, RED, AMBER) if each in picture] == [colour]
    assert "href" not in picture


def test_a_part_of_a_night_says_so() -> None:
    about = about_of(4, started=NIGHT, shard=2, shards=3)
    assert "2026-07-29 part 2/3<" in badge(about, summary(PLANNED, map(good, PLANNED)))


def contrast(colour: str) -> float:
    """Return the contrast of white letters on a colour, by the rule of WCAG."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 1.05 / (sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear, strict=True)) + 0.05)


@pytest.mark.parametrize("colour", [GREEN, RED, AMBER])
def test_letters_can_be_read(colour: str) -> None:
    assert contrast(colour) > 4.5


def test_a_badge_is_among_the_files_of_the_page(tmp_path: Path) -> None:
    for done, said in ((3, "good: 3"), (1, "not known: 2 of 3")):
        file = tmp_path / f"{done}.sqlite"
        written(file, planned_of(3), done)
        write_page(tmp_path / "page", [file])
        assert said in (tmp_path / "page" / BADGE).read_text(encoding="utf-8")


def test_workers_that_died_are_said_on_the_page(tmp_path: Path) -> None:
    found = written(tmp_path / "r.sqlite", planned_of(2), 1)
    found.put([msgspec.structs.replace(good(planned_of(2)[1]), lost=("NodeDiedError: gone",))])
    write_page(tmp_path / "page", [found.path])
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert page.count("1 worker died with it: NodeDiedError: gone") == 1
