"""What a change can affect runs again; what is left out is named, and never what is not known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sweep.test_sweep import PAIR, REFERENCE, SAME, WRONG, folder, pairs, swept

from pitcheck.errors import UsageError
from pitcheck.sweep.affected import Inputs
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result

__all__ = ["folder"]


def left_out(results: list[Result]) -> list[str]:
    return [each.name for each in results if each.status == "unchanged"]


def test_good_results_of_the_same_files_are_not_made_again(folder: Path) -> None:
    text = pairs(3)
    _, whole = swept(text)
    Path("0.plan.json").write_text(Path(REFERENCE).read_text("utf-8") + "\n", encoding="utf-8")
    code, results = swept(text, results="s.sqlite", since="r.sqlite")
    assert code == 0
    assert left_out(results) == [whole[1].name, whole[2].name]
    assert [each.verdict for each in results] == ["equivalent", "mismatch", "equivalent"]
    code, again = swept(text, results="t.sqlite", since="s.sqlite")
    assert (code, len(left_out(again))) == (0, 3)


def test_what_was_not_good_runs_again(folder: Path) -> None:
    text = PAIR.format(REFERENCE, SAME) + 'expect = "mismatch"\n'
    swept(text)
    code, results = swept(text, results="s.sqlite", since="r.sqlite")
    assert (code, left_out(results)) == (1, [])


def test_other_options_are_another_configuration(folder: Path) -> None:
    (one, two) = (
        Planned(name="a", sources=(REFERENCE, REFERENCE), options=options, row="a", column="a")
        for options in ({}, {"precision": "off"})
    )
    assert Inputs().of(one) != Inputs().of(two)
    assert Inputs().of(one) == Inputs().of(one)


def test_a_program_is_never_left_out(folder: Path) -> None:
    Path("p.py").write_text("import q\n", encoding="utf-8")
    planned = Planned(name="a", sources=("p.py:spec",), row="a", column="a")
    assert Inputs().of(planned) == ""


def test_a_missing_file_is_never_left_out(folder: Path) -> None:
    planned = Planned(name="a", sources=("none.plan.json",), row="a", column="a")
    assert Inputs().of(planned) == ""


def test_another_seed_is_another_draw(folder: Path) -> None:
    text = PAIR.format(REFERENCE, SAME)
    swept(text, seed=5)
    _, results = swept(text, results="s.sqlite", since="r.sqlite", seed=6)
    assert left_out(results) == []
    _, results = swept(text, results="t.sqlite", since="r.sqlite", seed=5)
    assert len(left_out(results)) == 1


def test_what_is_no_file_is_not_read(folder: Path) -> None:
    os.mkfifo("f.plan.json")
    planned = Planned(name="a", sources=("f.plan.json",), row="a", column="a")
    assert Inputs().of(planned) == ""


def test_since_names_results_that_were_there_before(folder: Path) -> None:
    """A wrong name leaves nothing behind, and is not that of the results that are begun."""
    text = PAIR.format(REFERENCE, SAME)
    for since in ("none.sqlite", "sweep.toml", "r.sqlite"):
        with pytest.raises(UsageError, match=since):
            swept(text, since=since)
        assert not Path("r.sqlite").exists()


def test_since_names_results(folder: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        swept(PAIR.format(REFERENCE, WRONG), since="none.sqlite")
