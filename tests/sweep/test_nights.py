"""The order of sweeps in time: a clock that was set back does not make an old night the newest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sweep.test_results import about_of, planned_of, written
from sweep.test_sweep import PAIR, REFERENCE, SAME, WRONG, folder, swept

from pitcheck.errors import UsageError
from pitcheck.sweep import nights
from pitcheck.sweep.morning import write_page
from pitcheck.sweep.results import Results

__all__ = ["folder"]
FUTURE = 4e9
"""A time in the year 2096."""


def kept(path: Path, started: float) -> Path:
    Results.new(path, about_of(1, started=started), planned_of(1))
    return path


def test_a_sweep_is_later_than_those_that_it_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = kept(tmp_path / "late.sqlite", FUTURE)
    early = kept(tmp_path / "early.sqlite", 1.0)
    (tmp_path / "broken.sqlite").write_text("nothing")
    now = nights.begun([early, tmp_path / "broken.sqlite"])
    assert 1e9 < now < FUTURE
    assert capsys.readouterr().err == ""
    assert nights.begun([late, early]) == FUTURE + nights.STEP
    assert "late.sqlite is of 2096-10-02 07:06:40; this sweep counts as the later one" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("named", [True, False])
def test_the_page_shows_the_later_sweep_whatever_the_clock_said(folder: Path, named: bool) -> None:
    """The earlier results are beside the new ones, or named."""
    place = folder if not named else folder / "elsewhere"
    place.mkdir(exist_ok=True)
    before = written(place / "before.sqlite", planned_of(1), 1, started=FUTURE).path
    options: dict[str, object] = {"before": str(before)} if named else {}
    swept(PAIR.format(REFERENCE, WRONG), results="now.sqlite", **options)
    write_page(folder / "page", [Path("now.sqlite"), before])
    page = (folder / "page" / "index.html").read_text(encoding="utf-8")
    assert page.index("NOT GOOD") < page.index("New since")


def test_resume_goes_on_with_the_sweep_that_began_last(folder: Path) -> None:
    """Times of files change when they are copied, and when an older sweep is gone on with."""
    text = PAIR.format(REFERENCE, SAME)
    swept(text, results=None)
    (first,) = nights.files_in(nights.SWEEPS)
    swept(text, results=None, seed=2)
    (second,) = {*nights.files_in(nights.SWEEPS)} - {first}
    os.utime(first, (FUTURE, FUTURE))
    code, _ = swept(text, results=None, seed=None, resume=True)
    assert (code, nights.newest(nights.files_in(nights.SWEEPS))) == (0, second)
    second.write_text("nothing")
    with pytest.raises(UsageError, match=second.name):
        swept(text, results=None, seed=None, resume=True)
