"""What a change can affect runs again; what is left out is named, and never what is not known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from sweep.test_sweep import PAIR, REFERENCE, folder, pairs, swept

from pitcheck.errors import UsageError
from pitcheck.sweep.affected import Inputs, unaffected
from pitcheck.sweep.matrix import Planned, read_sweep
from pitcheck.sweep.result import Result

__all__ = ["folder"]


def left_out(results: list[Result]) -> list[str]:
    return [each.name for each in results if each.status == "unchanged"]


def git(*arguments: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run(["git", *name, *arguments], check=True, capture_output=True)


def at(revision: str) -> list[str]:
    """Return what is left out since a revision, without running anything."""
    sweep = Path("sweep.toml")
    planned, inputs = read_sweep(sweep).planned, Inputs()
    known = {each.name: inputs.of(each) for each in planned}
    return [each.sources[0] for each in planned if each.name in _names(planned, revision, known)]


def _names(planned: tuple[Planned, ...], revision: str, known: dict[str, str]) -> set[str]:
    return {each.name for each in unaffected(planned, revision, known, Path("sweep.toml"))}


@pytest.fixture
def repository(folder: Path) -> Path:
    """Return a repository with the sweep of three pairs, one of them with a program's file."""
    text = pairs(3) + '[[program]]\nsource = "p.py:spec"\n'
    Path("sweep.toml").write_text(text, encoding="utf-8")
    Path("p.py").write_text("import q\n", encoding="utf-8")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")
    return folder


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
    text = PAIR.format(REFERENCE, REFERENCE) + 'expect = "mismatch"\n'
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


def test_files_that_git_knows_are_unchanged_are_left_out(repository: Path) -> None:
    assert at("HEAD") == ["0.plan.json", "1.plan.json", "2.plan.json"], "no program"
    Path("1.plan.json").write_text("{}", encoding="utf-8")
    assert at("HEAD") == ["0.plan.json", "2.plan.json"]
    git("add", "-A")
    git("commit", "-qm", "one")
    assert at("HEAD") == ["0.plan.json", "1.plan.json", "2.plan.json"]
    assert at("HEAD~1") == ["0.plan.json", "2.plan.json"]


def test_a_changed_sweep_runs_whole(repository: Path) -> None:
    sweep = Path("sweep.toml")
    sweep.write_text(sweep.read_text("utf-8") + "\n# changed\n", encoding="utf-8")
    assert at("HEAD") == []


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_files_that_git_was_told_to_skip_are_run(repository: Path, flag: str) -> None:
    git("update-index", flag, "1.plan.json")
    Path("1.plan.json").write_text("{}", encoding="utf-8")
    assert at("HEAD") == ["0.plan.json", "2.plan.json"]


def test_files_that_git_does_not_know_are_run(repository: Path) -> None:
    git("rm", "-q", "--cached", "1.plan.json")
    Path(".gitignore").write_text("1.plan.json\n", encoding="utf-8")
    git("add", ".gitignore")
    git("commit", "-qm", "ignored")
    assert at("HEAD") == ["0.plan.json", "2.plan.json"]


@pytest.mark.parametrize("since", ["none.sqlite", "--output=x", "HEAD~99", "'; rm -rf /'"])
def test_what_names_nothing_is_refused(repository: Path, since: str) -> None:
    with pytest.raises(UsageError, match="neither a file of results nor a revision"):
        at(since)
    assert not Path("x").exists()
