"""The file of results: nothing lost, nothing twice, nothing believed that is not of this sweep."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pitcheck.errors import UsageError
from pitcheck.report.report import Finding, Report, Shown
from pitcheck.sweep.exports import FORMATS
from pitcheck.sweep.morning import write_page
from pitcheck.sweep.order import ordered
from pitcheck.sweep.planned import Planned
from pitcheck.sweep.result import Result, of_report, without_report
from pitcheck.sweep.results import About, Results
from pitcheck.sweep.shards import merge, parse_shard, part
from pitcheck.sweep.summary import summary


def planned_of(count: int, **changes: object) -> list[Planned]:
    return [
        msgspec.structs.replace(
            Planned(name=f"m tp={n}", sources=("m.toml",), row="m", column=f"tp={n}"), **changes
        )
        for n in range(count)
    ]


def about_of(count: int, **changes: object) -> About:
    about = About(
        version="1", code="c", sweep="s", files="f", seed=7, fixed=True, count=count, started=1.0
    )
    return msgspec.structs.replace(about, **changes)


def report_of(verdict: Any) -> Report:
    shown = Shown("loss", (), "1", "2", "the rationals") if verdict == "mismatch" else None
    return Report(verdict=verdict, seed=3, shown=shown)


def good(planned: Planned) -> Result:
    return of_report(planned, Report(verdict="equivalent", seed=5), "")


def written(path: Path, planned: Sequence[Planned], done: int, **changes: object) -> Results:
    found = Results.new(path, about_of(**{"count": len(planned), **changes}), planned)
    found.put([good(each) for each in planned[:done]])
    return found


def test_results_come_back_in_the_order_of_their_configurations(tmp_path: Path) -> None:
    planned = planned_of(5)
    found = Results.new(tmp_path / "r.sqlite", about_of(5), planned)
    for each in reversed(planned):
        found.put([good(each)])
    assert found.planned() == planned
    assert [each.name for each in found.results()] == [each.name for each in planned]
    assert all(each.report is None for each in found.results())
    assert [each.report for each in found.results(reports=True)] == [
        Report(verdict="equivalent", seed=5)
    ] * 5


def test_the_first_result_of_a_configuration_counts(tmp_path: Path) -> None:
    planned = planned_of(1)
    found = written(tmp_path / "r.sqlite", planned, 1)
    found.put([without_report(planned[0], 5, "crashed", "later")])
    assert [each.status for each in found.results()] == ["as expected"]


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    written(tmp_path / "r.sqlite", planned_of(1), 1)
    with pytest.raises(UsageError, match="is there already"):
        written(tmp_path / "r.sqlite", planned_of(2), 0)
    assert len(Results(tmp_path / "r.sqlite").planned()) == 1


@pytest.mark.parametrize("content", [b"", b"nothing", b"SQLite format 3\0" + bytes(200)])
def test_a_foreign_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"r\.sqlite"):
        list(Results(path).results())


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE result (name TEXT, content BLOB, report BLOB)")
    with pytest.raises(UsageError, match="no results of a sweep"):
        Results(path).about()


def test_a_verdict_that_is_not_expected_is_not_good() -> None:
    (planned,) = planned_of(1)
    (probe,) = planned_of(1, probe=True, expect="mismatch")
    for verdict in ("mismatch", "invalid", "inconclusive", "nothing-checked"):
        report = report_of(verdict)
        assert not of_report(planned, report, "").good
        assert of_report(probe, report, "").good == (verdict in ("mismatch", "invalid"))
    assert not of_report(probe, report_of("equivalent"), "").good


def test_a_night_without_its_faults_is_not_good() -> None:
    planned = planned_of(2, probe=True)
    results = [without_report(each, 1, "not probed", "no PyTorch") for each in planned]
    found = summary(planned, results)
    assert (found.good, found.exit_code, found.caught) == (False, 3, 0)
    assert "0 of 2 planted faults caught" in found.sentence()


def test_what_failed_last_comes_first_and_then_what_takes_long() -> None:
    planned = planned_of(4)
    before = {
        "m tp=0": ("as expected", 1.0),
        "m tp=1": ("as expected", 9.0),
        "m tp=2": ("crashed", 2.0),
    }
    order = [each.name for each in ordered(planned, before)]
    assert order == ["m tp=2", "m tp=3", "m tp=1", "m tp=0"]


# --- parts


@given(count=st.integers(1, 40), shards=st.integers(1, 9))
@settings(max_examples=40)
def test_parts_have_every_configuration_once(count: int, shards: int) -> None:
    planned = planned_of(count)
    parts = [part(planned, n + 1, shards) for n in range(shards)]
    assert sorted(each.name for own in parts for each in own) == sorted(p.name for p in planned)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_merged_parts_are_the_sweep(tmp_path: Path, shards: int) -> None:
    planned = planned_of(11)
    files = []
    for n in range(1, shards + 1):
        file = tmp_path / f"{n}.sqlite"
        own = part(planned, n, shards)
        found = Results.new(file, about_of(11, shard=n, shards=shards), own)
        found.put(map(good, own))
        files.append(file)
    merged = merge(tmp_path / "all.sqlite", files[::-1])
    whole = written(tmp_path / "whole.sqlite", planned, 11)
    assert list(merged.results(reports=True)) == list(whole.results(reports=True))
    assert merged.planned() == planned
    assert not merged.about().differs(whole.about())


@pytest.mark.parametrize(
    ("second", "done", "said"),
    [
        ({"shard": 1}, 2, "are both part 1 of 2"),
        ({"seed": 8}, 2, "seed is 7 in one and 8 in the other"),
        ({"files": "g"}, 2, "files is f in one and g in the other"),
        ({"code": "d"}, 2, "code is c in one and d in the other"),
        ({"sweep": "t"}, 2, "sweep is s in one and t in the other"),
        ({"shards": 3}, 2, "shards is 2 in one and 3 in the other"),
        ({"count": 5}, 2, "count is 4 in one and 5 in the other"),
        ({}, 1, "1 of 2 configurations have no result yet"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, second: dict[str, object], done: int, said: str
) -> None:
    planned = planned_of(4)
    written(tmp_path / "1.sqlite", planned[::2], 2, count=4, shard=1, shards=2)
    written(
        tmp_path / "2.sqlite",
        planned[1::2],
        done,
        **{"count": 4, "shard": 2, "shards": 2, **second},
    )
    with pytest.raises(UsageError, match=said):
        merge(tmp_path / "all.sqlite", [tmp_path / "1.sqlite", tmp_path / "2.sqlite"])
    assert not (tmp_path / "all.sqlite").exists()


def test_a_missing_part_and_a_part_with_the_configurations_of_another_are_refused(
    tmp_path: Path,
) -> None:
    planned = planned_of(4)
    written(tmp_path / "1.sqlite", planned[::2], 2, count=4, shard=1, shards=2)
    with pytest.raises(UsageError, match="part 2 of 2 is missing"):
        merge(tmp_path / "all.sqlite", [tmp_path / "1.sqlite"])
    written(tmp_path / "2.sqlite", planned[::2], 2, count=4, shard=2, shards=2)
    with pytest.raises(UsageError, match="2 different configurations in 4"):
        merge(tmp_path / "all.sqlite", [tmp_path / "1.sqlite", tmp_path / "2.sqlite"])


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1 / 2"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no part of a sweep"):
        parse_shard(text)


# --- files that were altered


def altered(path: Path, table: str, name: str, /, **changes: object) -> None:
    """Change fields of a row, as by hand; ``key`` changes its name in the table."""
    with sqlite3.connect(path) as database:
        key = changes.pop("key", name)
        report = changes.pop("report", None)
        (content,) = database.execute(
            f"SELECT content FROM {table} WHERE name = ?", (name,)
        ).fetchone()
        told = {**msgspec.json.decode(content), **changes}
        database.execute(
            f"UPDATE {table} SET content = ?, name = ? WHERE name = ?",
            (msgspec.json.encode(told), key, name),
        )
        if report is not None:
            database.execute(f"UPDATE result SET report = {report} WHERE name = ?", (key,))


@pytest.mark.parametrize(
    ("table", "name", "changes", "said"),
    [
        ("result", "m tp=1", {"status": "as expected"}, "its verdict 'mismatch'"),
        ("result", "m tp=0", {"status": "unexpected"}, "by its report 'as expected'"),
        ("result", "m tp=1", {"status": "skipped"}, "its verdict 'mismatch'"),
        (
            "result",
            "m tp=1",
            {"status": "as expected", "verdict": "equivalent"},
            "that of its report 'mismatch'",
        ),
        ("result", "m tp=1", {"expect": "mismatch"}, "it expects 'mismatch'"),
        ("result", "m tp=0", {"seed": 9}, "of seed 9, and that of its report"),
        ("result", "m tp=0", {"name": "m tp=1"}, "its content is about 'm tp=1'"),
        ("result", "m tp=0", {"key": "x"}, "the sweep has no such configuration"),
        ("result", "m tp=0", {"report": "NULL"}, "without a report"),
        ("result", "m tp=1", {"report": "X'00'"}, "the report of 'm tp=1'"),
        ("result", "m tp=2", {"status": "as expected"}, "without a report"),
        ("result", "m tp=2", {"status": "unchanged"}, "without a report"),
        ("result", "m tp=2", {"status": "unchanged", "verdict": "mismatch"}, "without a report"),
        ("result", "m tp=2", {"status": "skipped"}, "its configuration can run"),
        ("result", "m tp=0", {"status": "fine"}, "is damaged"),
        ("planned", "m tp=1", {"options": {"precision": "off"}}, "another one than was checked"),
        ("planned", "m tp=1", {"expect": "mismatch"}, "another one than was checked"),
        ("planned", "m tp=1", {"sources": ["n.toml"]}, "another one than was checked"),
        ("planned", "m tp=1", {"name": "m tp=0"}, "its content is about 'm tp=0'"),
    ],
)
def test_what_was_altered_is_not_believed(
    tmp_path: Path, table: str, name: str, changes: dict[str, object], said: str
) -> None:
    planned, path = planned_of(3), tmp_path / "r.sqlite"
    found = written(path, planned, 1)
    found.put([of_report(planned[1], report_of("mismatch"), "")])
    found.put([without_report(planned[2], 4, "crashed", "killed")])
    assert found.believed() is found
    altered(path, table, name, **changes)
    with pytest.raises(UsageError, match=said) as raised:
        found.believed()
    assert "r.sqlite" in str(raised.value)
    with pytest.raises(UsageError, match=said):
        merge(tmp_path / "all.sqlite", [path])
    with pytest.raises(UsageError, match=said):
        write_page(tmp_path / "page", [path])


def test_results_of_a_version_that_did_not_say_what_was_checked_are_read(tmp_path: Path) -> None:
    planned = planned_of(1)
    found = written(tmp_path / "r.sqlite", planned, 1)
    altered(found.path, "result", "m tp=0", configuration="")
    assert [each.status for each in found.believed().results()] == ["as expected"]


@pytest.mark.parametrize("status", ["unchanged", "out of memory", "crashed"])
def test_what_a_sweep_writes_is_believed(tmp_path: Path, status: Any) -> None:
    (planned,) = planned_of(1)
    failed = Report(
        verdict="invalid",
        findings=(Finding(code="PIT900", verdict="invalid", title="internal error"),),
    )
    result = {
        "unchanged": msgspec.structs.replace(good(planned), status="unchanged"),
        "out of memory": of_report(planned, report_of("inconclusive"), "", out_of_memory=True),
        "crashed": of_report(planned, failed, ""),
    }[status]
    found = written(tmp_path / "r.sqlite", [planned], 0)
    found.put([result])
    assert [each.status for each in found.believed().results()] == [status]


# --- exports


def test_configurations_of_one_printed_name_are_two_cases(tmp_path: Path) -> None:
    from junitparser import JUnitXml  # noqa: PLC0415

    names = ["a\x1b", "a\\x1b", "a\\x1b (2)", "b"]
    planned = [msgspec.structs.replace(planned_of(1)[0], name=name) for name in names]
    (suite,) = JUnitXml.fromstring(
        FORMATS["junit"](written(tmp_path / "r.sqlite", planned, 4)).decode()
    )
    assert [case.name for case in suite] == ["a\\x1b", "a\\x1b (3)", "a\\x1b (2)", "b"]


def test_what_has_no_result_is_an_error_of_the_exports(tmp_path: Path) -> None:
    from junitparser import Error, JUnitXml  # noqa: PLC0415

    found = written(tmp_path / "r.sqlite", planned_of(3), 2)
    xml = JUnitXml.fromstring(FORMATS["junit"](found).decode())
    (suite,) = xml
    assert (suite.tests, suite.errors, suite.failures) == (3, 1, 0)
    (broken,) = [case for case in suite if case.result]
    assert isinstance(broken.result[0], Error)
    assert broken.name == "m tp=2"


def test_every_format_is_read_by_others(tmp_path: Path) -> None:
    import jsonlines  # noqa: PLC0415
    from sarif_pydantic import Sarif  # noqa: PLC0415

    planned = [*planned_of(2), msgspec.structs.replace(planned_of(3)[2], impossible="a rule")]
    found = written(tmp_path / "r.sqlite", planned, 1)
    found.put([of_report(planned[1], report_of("mismatch"), "")])
    found.put([without_report(planned[2], 4, "skipped", "a rule")])
    log = Sarif.model_validate_json(FORMATS["sarif"](found))
    assert [run.automation_details.id for run in log.runs] == ["pitcheck sweep/m tp=1"]
    assert log.runs[0].invocations[0].execution_successful is False
    (tmp_path / "r.jsonl").write_bytes(FORMATS["jsonl"](found))
    with jsonlines.open(tmp_path / "r.jsonl") as lines:
        head, *rest = lines
    assert head["seed"] == 7
    assert [each["status"] for each in rest] == ["as expected", "unexpected", "skipped"]
    assert rest[1]["command"] == "pitcheck check m.toml --seed 3"
    text = FORMATS["text"](found).decode()
    assert text.endswith("NOT GOOD: 3 configurations, 1 as expected, 1 unexpected, 1 skipped\n")
    assert "again: pitcheck check m.toml --seed 3" in text


def test_what_has_no_result_is_a_failed_run_of_the_sarif_log(tmp_path: Path) -> None:
    log = msgspec.json.decode(FORMATS["sarif"](written(tmp_path / "r.sqlite", planned_of(2), 1)))
    (run,) = log["runs"]
    assert run["automationDetails"]["id"] == "pitcheck sweep/m tp=1"
    assert run["invocations"][0]["executionSuccessful"] is False


def test_a_sweep_that_was_broken_off_or_checked_nothing_is_not_good() -> None:
    planned = planned_of(2)
    broken = summary(planned, [good(planned[0])])
    assert (broken.good, broken.exit_code) == (False, 3)
    assert "1 not run" in broken.sentence()
    skipped = summary(planned, [without_report(each, 1, "skipped", "") for each in planned])
    assert (skipped.good, skipped.exit_code) == (False, 3)
    assert "nothing was checked" in skipped.sentence()
    assert summary([], []).exit_code == 3


def test_a_sweep_without_faults_has_a_sarif_log_without_runs(tmp_path: Path) -> None:
    log = msgspec.json.decode(FORMATS["sarif"](written(tmp_path / "r.sqlite", planned_of(1), 1)))
    assert log["runs"] == []
    assert log["version"] == "2.1.0"
