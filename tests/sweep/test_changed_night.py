"""Nights during which something changes: files that are checked, and the file of results."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from sweep.test_results import about_of, altered, good, planned_of, report_of, written
from sweep.test_sweep import PAIR, REFERENCE, SAME, WRONG, folder, swept

from pitcheck.errors import UsageError
from pitcheck.sweep import command, results
from pitcheck.sweep.affected import Inputs
from pitcheck.sweep.child.task import Terms
from pitcheck.sweep.engine import LocalEngine
from pitcheck.sweep.exports import FORMATS
from pitcheck.sweep.morning import write_page
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result, of_report, without_report
from pitcheck.sweep.results import Results
from pitcheck.sweep.summary import summary

__all__ = ["folder"]

LATE = "late.plan.json"
TEXT = PAIR.format(REFERENCE, LATE)


def happens(
    monkeypatch: pytest.MonkeyPatch, event: Callable[[], object], *, checks: bool = False
) -> None:
    """Let something happen after the sweep has begun, and before it checks, or finds all good."""

    class Engine(LocalEngine):
        def run(self, planned: Sequence[Planned]) -> Iterator[Planned | Result]:
            event()
            yield from super().run(planned) if checks else map(found_good, planned)

    @contextmanager
    def chosen(*_: object) -> Iterator[Callable[[Terms], Engine]]:
        yield lambda terms: Engine(terms, 1)

    monkeypatch.setattr(command, "chosen", chosen)


def found_good(planned: Planned) -> Result:
    """Return the good result of a configuration, of the files that are there."""
    return msgspec.structs.replace(good(planned), inputs=Inputs().of(planned))


def test_a_file_that_changes_while_the_sweep_runs_is_not_what_it_checks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(WRONG, LATE)
    with monkeypatch.context() as patch:
        happens(patch, lambda: shutil.copy(SAME, LATE), checks=True)
        code, (found,) = swept(TEXT)
    assert (code, found.status, found.report) == (3, "crashed", None)
    assert "its files changed while the sweep ran" in found.said
    with pytest.raises(UsageError, match="files is"):
        swept(TEXT, resume=True)
    shutil.copy(WRONG, LATE)
    code, (found,) = swept(TEXT, resume=True)
    assert (code, found.verdict) == (1, "mismatch")


def test_a_file_that_appears_while_the_sweep_runs_is_not_what_it_checks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happens(monkeypatch, lambda: shutil.copy(SAME, LATE))
    code, (found,) = swept(TEXT)
    assert (code, found.status) == (3, "crashed")


@pytest.mark.parametrize("event", [lambda: Path("p.py").unlink(), lambda: Path("p.py").touch()])
def test_a_program_that_is_gone_is_not_the_failure_that_is_expected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, event: Callable[[], object]
) -> None:
    Path("p.py").write_text("raise ValueError('as expected')\n", encoding="utf-8")
    happens(monkeypatch, event, checks=True)
    code, (found,) = swept('[[program]]\nsource = "p.py:spec"\nexpect = "invalid"\n')
    there = Path("p.py").exists()
    assert (code, found.status) == ((0, "as expected") if there else (3, "crashed"))


@pytest.mark.parametrize("removed", [False, True])
def test_results_that_are_replaced_while_the_sweep_runs_are_not_its_results(
    folder: Path, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    shutil.copy(SAME, LATE)
    with monkeypatch.context() as patch:
        happens(patch, lambda: None)
        assert swept(TEXT, results="good.sqlite", seed=5)[0] == 0
    shutil.copy(WRONG, LATE)
    kept = Path("good.sqlite").read_bytes()

    def replace() -> None:
        Path("r.sqlite").unlink()
        if not removed:
            shutil.copy("good.sqlite", "r.sqlite")

    happens(monkeypatch, replace)
    with pytest.raises(UsageError, match="no such file" if removed else "was replaced"):
        swept(TEXT)
    assert removed or Path("r.sqlite").read_bytes() == kept


def test_results_that_cannot_be_begun_are_not_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk."""
    with monkeypatch.context() as patch:
        patch.setattr(results, "_TABLES", (*results._TABLES, "nonsense"))
        with pytest.raises(UsageError, match=r"r\.sqlite"):
            written(tmp_path / "r.sqlite", planned_of(1), 0)
    assert list(tmp_path.iterdir()) == []
    written(tmp_path / "r.sqlite", planned_of(1), 1)
    assert [each.name for each in tmp_path.iterdir()] == ["r.sqlite"]


def test_a_file_is_a_file_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite keeps a database of this name in memory."""
    monkeypatch.chdir(tmp_path)
    found = written(Path(":memory:"), planned_of(1), 1)
    assert len(found.statuses()) == 1


def test_outputs_of_an_earlier_night_are_not_left_by_one_that_is_broken_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(SAME, LATE)
    output = ["junit:night.xml", "sarif:night.sarif", "text:night.txt"]
    happens(monkeypatch, lambda: None)
    assert swept(TEXT, output=output)[0] == 0
    assert "<error" not in Path("night.xml").read_text("utf-8")

    def breaks() -> None:
        raise KeyboardInterrupt

    happens(monkeypatch, breaks)
    with pytest.raises(KeyboardInterrupt):
        swept(TEXT, output=output, results="s.sqlite")
    assert "it has no result: the sweep was broken off" in Path("night.xml").read_text("utf-8")
    assert len(msgspec.json.decode(Path("night.sarif").read_bytes())["runs"]) == 1
    assert "NOT GOOD: 0 configurations, none done, 1 not run" in Path("night.txt").read_text(
        "utf-8"
    )


@pytest.mark.parametrize("option", ["since", "before"])
def test_outputs_do_not_replace_the_results_that_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    shutil.copy(SAME, LATE)
    happens(monkeypatch, lambda: None)
    swept(TEXT, results="old.sqlite")
    with pytest.raises(UsageError, match="name another file"):
        swept(TEXT, output=["junit:old.sqlite"], **{option: "old.sqlite"})
    assert Results(Path("old.sqlite")).statuses()


LOST = (
    "DELETE FROM planned WHERE name = 'm tp=2'",
    "INSERT INTO planned SELECT 'n', 3, content FROM planned WHERE name = 'm tp=2'",
    "UPDATE planned SET place = -place",
)


@pytest.mark.parametrize("change", LOST)
def test_configurations_that_are_lost_added_or_moved_are_noticed(
    tmp_path: Path, change: str
) -> None:
    found = written(tmp_path / "r.sqlite", planned_of(3), 2)
    with sqlite3.connect(found.path) as database:
        database.execute(change)
    for reads in (found.planned, found.believed, lambda: FORMATS["junit"](found)):
        with pytest.raises(UsageError, match="damaged"):
            reads()
    with pytest.raises(UsageError, match="damaged"):
        write_page(tmp_path / "page", [found.path])


@pytest.mark.parametrize("change", [{"expect": "mismatch"}, {"sources": ["n.toml"]}])
def test_what_was_altered_before_it_was_checked_is_noticed(
    tmp_path: Path, change: dict[str, object]
) -> None:
    found = written(tmp_path / "r.sqlite", planned_of(3), 2)
    altered(found.path, "planned", "m tp=2", **change)
    with pytest.raises(UsageError, match="not those with which the sweep began"):
        found.believed()


def test_results_of_a_version_that_only_counted_are_read(tmp_path: Path) -> None:
    found = written(tmp_path / "r.sqlite", planned_of(2), 1, count=5, shard=2, shards=2)
    with sqlite3.connect(found.path) as database:
        old = msgspec.json.encode(about_of(5, shard=2, shards=2)).decode()
        database.execute("UPDATE about SET value = ?", (old,))
        assert len(found.believed().planned()) == 2
        database.execute("DELETE FROM planned WHERE name = 'm tp=1'")
    with pytest.raises(UsageError, match="its 1 configurations are not those"):
        found.planned()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE result SET content = 7",
        "UPDATE result SET report = 7",
        "UPDATE planned SET content = 7",
        "UPDATE about SET value = X'FF'",
        "UPDATE about SET value = replace(value, '\"started\":1.0', '\"started\":1e300')",
        "UPDATE about SET value = replace(value, '\"started\":1.0', '\"started\":-1e18')",
        "UPDATE about SET value = replace(value, '\"shards\":1', '\"shards\":0')",
    ],
)
def test_values_of_any_type_and_size_are_damage(tmp_path: Path, change: str) -> None:
    found = written(tmp_path / "r.sqlite", planned_of(1), 1)
    with sqlite3.connect(found.path) as database:
        database.execute(change)
    with pytest.raises(UsageError, match=r"r\.sqlite"):
        found.believed()
    with pytest.raises(UsageError, match=r"r\.sqlite"):
        write_page(tmp_path / "page", [found.path])


def is_good(results: Results) -> set[bool]:
    """Return what the exit code and every export say: True for a good night."""
    junit = FORMATS["junit"](results)
    return {
        summary(results.planned(), results.results()).exit_code == 0,
        b"<failure" not in junit and b"<error" not in junit,
        not msgspec.json.decode(FORMATS["sarif"](results))["runs"],
        b"NOT GOOD" not in FORMATS["text"](results),
    }


def test_the_exit_code_and_all_exports_agree(tmp_path: Path) -> None:
    planned, rule = planned_of(1), planned_of(1, impossible="a rule")
    nights = {
        "good": (planned, [good(planned[0])], True),
        "nothing": ([], [], False),
        "skipped": (rule, [without_report(rule[0], 1, "skipped", "a rule")], False),
        "broken off": (planned, [], False),
        "crashed": (planned, [without_report(planned[0], 1, "crashed", "killed")], False),
        "inconclusive": (planned, [checked(planned[0], "inconclusive")], False),
        "wrong": (planned, [checked(planned[0], "mismatch")], False),
    }
    for name, (every, made, expected) in nights.items():
        found = written(tmp_path / f"{name}.sqlite", every, 0)
        found.put(made)
        assert is_good(found) == {expected}, name


def checked(planned: Planned, verdict: str) -> Result:
    """Return the result of a check with a verdict."""
    return of_report(planned, report_of(verdict), "")


def test_a_fault_that_was_caught_before_a_change_counts_as_caught() -> None:
    (probe,) = planned_of(1, probe=True, expect="mismatch")
    then = msgspec.structs.replace(checked(probe, "mismatch"), status="unchanged")
    found = summary([probe], [then])
    assert (found.good, found.caught) == (True, 1)
    assert "1 of 1 planted faults caught" in found.sentence()
