"""Reports for code scanners and CI: SARIF 2.1.0, JUnit XML, JSON lines, and the workflow commands
of GitHub Actions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report.report_samples import MISSING, NOWHERE, ODD, SHOWN, samples
from report.sarif_schema import LOG
from syrupy.assertion import SnapshotAssertion

from pitcheck.report import fingerprint, github, json_lines, junit, sarif
from pitcheck.report.codes import CODES
from pitcheck.report.destinations import Destination
from pitcheck.report.report import Finding, Report, Seconds
from pitcheck.report.sources import Source, source_line
from pitcheck.report.write import Form, write_report

NAMES = sorted(samples())
PLANS = ("reference.plan.json", "parallel.plan.json")


def run_of(report: Report, plans: tuple[str, ...] = PLANS) -> dict[str, Any]:
    log = json.loads(sarif.encode(report, plans))
    jsonschema.Draft202012Validator(LOG).validate(log)
    run: dict[str, Any] = log["runs"][0]
    return run


def fault(finding: Finding) -> str:
    report = Report(verdict="mismatch", shown=SHOWN, findings=(finding,))
    found: str = run_of(report)["results"][0]["partialFingerprints"][fingerprint.NAME]
    return found


# --- SARIF


@pytest.mark.parametrize("name", NAMES)
def test_sarif_is_as_it_was_and_obeys_the_standard(name: str, snapshot: SnapshotAssertion) -> None:
    run = run_of(samples()[name])
    rules = [rule["id"] for rule in run["tool"]["driver"].pop("rules")]
    assert rules == [code.code for code in CODES]
    assert all(rules[result.pop("ruleIndex")] == result["ruleId"] for result in run["results"])
    assert json.dumps(run, indent=2, ensure_ascii=False) == snapshot


def test_the_schema_of_the_test_refuses_what_the_standard_refuses() -> None:
    for spoil in (
        lambda run: run.pop("tool"),
        lambda run: run["results"][0].pop("message"),
        lambda run: run["results"][0].update(level="fatal"),
        lambda run: run["results"][0]["locations"][0]["physicalLocation"]["region"].update(
            startLine=0
        ),
        lambda run: run["results"][0].update(partialfingerprints={}),
    ):
        run = run_of(samples()["mismatch"])
        spoil(run)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(LOG).validate({"version": "2.1.0", "runs": [run]})


def test_rules_are_the_codes_with_their_pages() -> None:
    for rule, code in zip(
        run_of(samples()["invalid"])["tool"]["driver"]["rules"], CODES, strict=True
    ):
        assert (rule["id"], rule["shortDescription"]["text"], rule["help"]["text"]) == (
            code.code,
            code.title,
            code.page(),
        )
        # Where code scanning cuts descriptions off.
        assert len(code.title) < len(rule["fullDescription"]["text"]) <= 1024
        assert "#" not in rule["fullDescription"]["text"]


def test_a_result_stands_at_its_source_line_or_else_in_the_plan_it_is_about() -> None:
    def place(name: str, plans: tuple[str, ...] = PLANS) -> Any:
        return run_of(samples()[name], plans)["results"][0]["locations"][0]

    assert place("mismatch")["physicalLocation"] == {
        "artifactLocation": {"uri": "model/norm.py"},
        "region": {"startLine": 41},
    }
    assert place("mismatch-without-source")["physicalLocation"] == {
        "artifactLocation": {"uri": PLANS[1]}
    }
    assert place("mismatch-without-source")["logicalLocations"] == [
        {
            "name": NOWHERE.operator,
            "fullyQualifiedName": f"parallel plan/{NOWHERE.operator}",
            "kind": "operator",
        },
        {"name": "parallel plan", "kind": "plan"},
    ]
    assert place("invalid-in-reference")["physicalLocation"] == {
        "artifactLocation": {"uri": PLANS[0]}
    }
    assert place("invalid", ("other.plan.json", "parallel.plan.json"))["physicalLocation"] == {
        "artifactLocation": {"uri": "parallel.plan.json"}
    }
    assert "physicalLocation" not in place("mismatch-without-source", ())


def test_the_message_says_what_to_do_and_the_witness_is_related() -> None:
    result = run_of(samples()["mismatch"])["results"][0]
    assert f"help: {MISSING.repair}" in result["message"]["text"]
    assert result["relatedLocations"][1]["physicalLocation"] == {
        "artifactLocation": {"uri": MISSING.witness}
    }


def test_results_have_the_fingerprints_of_the_report() -> None:
    report = samples()["several"]
    found = [each["partialFingerprints"] for each in run_of(report)["results"]]
    assert [each[fingerprint.NAME] for each in found] == fingerprint.fingerprints(report)
    assert len(set(map(str, found))) == len(found)
    assert fault(MISSING) != fault(NOWHERE)


@pytest.mark.parametrize("encode", [sarif.encode, github.encode])
def test_what_varies_between_runs_of_one_seed_is_left_out(encode: Any) -> None:
    report = samples()["mismatch"]
    assert encode(report, PLANS) == encode(
        replace(report, seconds=Seconds(total=9.0), peak_memory_mb=1.0, backend="cupy"), PLANS
    )


# --- GitHub Actions


@pytest.mark.parametrize("name", NAMES)
def test_workflow_commands_are_as_they_were(name: str, snapshot: SnapshotAssertion) -> None:
    assert github.encode(samples()[name], PLANS).decode() == snapshot


COMMAND = re.compile(r"::(error|warning|notice)(?: ([a-z]+=[^,:]*(?:,[a-z]+=[^,:]*)*))?::(.*)")


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """A command as the runner reads it."""
    found = COMMAND.fullmatch(line)
    assert found is not None, line
    properties = dict(each.split("=", 1) for each in (found.group(2) or "").split(",") if each)
    return (
        found.group(1),
        {key: unquote(value) for key, value in properties.items()},
        unquote(found.group(3)),
    )


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=30), st.integers(1, 10**6))
def test_no_text_of_a_plan_makes_another_command(
    title: str, cause: str, file: str, line: int
) -> None:
    finding = Finding(
        code="PIT100",
        verdict="mismatch",
        title=title,
        cause=cause,
        operator="o",
        source=f"{file}:{line}",
    )
    lines = (
        github.encode(Report(verdict="mismatch", shown=SHOWN, findings=(finding,)))
        .decode()
        .splitlines()
    )
    assert len(lines) == 1
    command, properties, _ = parsed(lines[0])
    assert command == "error"
    assert set(properties) == ({"file", "line", "title"} if file else {"title"})
    assert properties.get("line", str(line)) == str(line)


def test_characters_with_a_meaning_are_escaped() -> None:
    line = github.encode(Report(verdict="mismatch", shown=SHOWN, findings=(ODD,))).decode()
    assert "file=модель dir/a%2Cb%3Ac%25.py,line=12,title=PIT102%3A 'größe\\n%3A%3Aerror" in line
    _, properties, message = parsed(line.rstrip("\n"))
    assert properties["file"] == "модель dir/a,b:c%.py"
    assert "cause: attribute 'x' is \"5%\"" in message.split("\n")


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_always_said(name: str) -> None:
    report = samples()[name]
    lines = [parsed(line) for line in github.encode(report, PLANS).decode().splitlines()]
    notices = [message for command, _, message in lines if command == "notice"]
    assert len(notices) == (report.verdict == "equivalent")
    for notice in notices:
        assert "12 of 12 outputs proven" in notice
        assert "2^-66.2" in notice
    bare = github.encode(Report(verdict=report.verdict, shown=report.shown)).decode()
    assert parsed(bare.rstrip("\n"))[0] == {"equivalent": "notice", "inconclusive": "warning"}.get(
        report.verdict, "error"
    )


# --- JUnit and JSON lines, whose readers are in test_report_readers.py


@pytest.mark.parametrize("name", NAMES)
def test_junit_is_as_it_was(name: str, snapshot: SnapshotAssertion) -> None:
    assert junit.encode(samples()[name], PLANS).decode() == snapshot


@pytest.mark.parametrize("name", NAMES)
def test_json_lines_are_as_they_were(name: str, snapshot: SnapshotAssertion) -> None:
    assert json_lines.encode(samples()[name], PLANS).decode() == snapshot


VARIED: dict[str, Any] = {
    "remembered": 2,
    "seconds": Seconds(total=9.0),
    "peak_memory_mb": 1.0,
    "backend": "cupy",
}


def test_times_and_the_backend_are_all_that_varies_in_junit() -> None:
    def fixed(report: Report) -> str:
        text = re.sub(' time="[0-9.]+"', "", junit.encode(report, PLANS).decode())
        return re.sub('name="backend" value="[a-z]+"', "", text)

    report = samples()["several"]
    other = replace(report, **VARIED)
    assert junit.encode(report, PLANS) != junit.encode(other, PLANS)
    assert fixed(report) == fixed(other)


def test_the_volatile_fields_of_the_verdict_are_all_that_varies_in_json_lines() -> None:
    report = samples()["several"]
    first, other = (
        json_lines.encode(each, PLANS).splitlines() for each in (report, replace(report, **VARIED))
    )
    assert first[:-1] == other[:-1]
    verdicts = json.loads(first[-1]), json.loads(other[-1])
    assert {key for key in verdicts[0] if verdicts[0][key] != verdicts[1][key]} == set(
        verdicts[0]["volatile"]
    )


# --- all


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a/b.py:3", Source("a/b.py", 3)),
        ("a:b.py:3", Source("a:b.py", 3)),
        ("module.layers.0", None),
        ("a.py:0", None),
        ("a.py:-1", None),
        ("a.py:³", None),
        (f"a.py:{'9' * 5000}", None),
        (":3", None),
        ("", None),
        (None, None),
    ],
)
def test_source_lines(text: str | None, wanted: Source | None) -> None:
    assert source_line(text) == wanted


def test_files_below_the_working_directory_are_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert source_line(f"{tmp_path}/a/b.py:3") == Source("a/b.py", 3)
    assert source_line("/elsewhere/b.py:3") == Source("/elsewhere/b.py", 3)
    assert Source("/elsewhere/a b.py").uri == "file:///elsewhere/a%20b.py"
    assert Source("a:b/\udcff#?ü.py").uri == "a%3Ab/%5Cudcff%23%3F%C3%BC.py"


def test_all_formats_of_one_run_are_written(tmp_path: Path) -> None:
    destinations = [Destination(name, str(tmp_path / name)) for name in ("sarif", "github", "text")]
    write_report(samples()["mismatch-without-source"], destinations, Form(plans=PLANS))
    assert json.loads((tmp_path / "sarif").read_bytes())["runs"][0]["results"][0]["locations"][0][
        "physicalLocation"
    ]
    assert (
        (tmp_path / "github")
        .read_text()
        .startswith("::error file=parallel.plan.json,title=PIT108%3A")
    )
