"""Every format for machines, opened by a reader that was not written here."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonlines
import jsonschema
import junitparser
import pytest
import sarif_pydantic
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report.report_samples import MISSING, SHOWN, samples

from pitcheck.report import json as json_format
from pitcheck.report import json_lines, junit, sarif
from pitcheck.report.codes import CODES
from pitcheck.report.lines import printable
from pitcheck.report.report import Finding, Report

NAMES = sorted(samples())
PLANS = ("reference.plan.json", "parallel.plan.json")
SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "report.schema.json").read_text()
)
ANY_TEXT = st.text(st.characters(), min_size=1, max_size=40)
"""Control characters and lone surrogates, too."""


def with_texts(title: str, cause: str, output: str) -> Report:
    """A mismatch with these texts."""
    finding = replace(MISSING, title=title, cause=cause, output=output)
    return Report(verdict="mismatch", shown=replace(SHOWN, output=output), findings=(finding,))


# --- JUnit, by junitparser


def suite_of(report: Report, plans: tuple[str, ...] = PLANS) -> junitparser.TestSuite:
    """The only suite, as the reader counts it."""
    suites = list(junitparser.JUnitXml.fromstring(junit.encode(report, plans)))
    assert len(suites) == 1
    return suites[0]


@pytest.mark.parametrize("name", NAMES)
def test_junit_is_red_exactly_if_the_exit_code_is_not_0(name: str) -> None:
    report = samples()[name]
    suite = suite_of(report)
    cases = list(suite)
    assert any(not case.is_passed for case in cases) == (report.exit_code != 0)
    assert cases[0].is_passed == (report.exit_code == 0)
    stated = (suite.tests, suite.failures, suite.errors, suite.skipped, suite.time)
    counted = [
        sum(isinstance(each, kind) for case in cases for each in case.result)
        for kind in (junitparser.Failure, junitparser.Error)
    ]
    assert stated == (len(report.findings) + 1, *counted, 0, pytest.approx(report.seconds.total))
    assert sum(case.time for case in cases) == pytest.approx(suite.time)


@pytest.mark.parametrize("name", NAMES)
def test_junit_tells_everything_of_a_finding(name: str) -> None:
    report = samples()[name]
    cases = list(suite_of(report))[1:]
    assert len({(case.classname, case.name) for case in cases}) == len(cases)
    for case, finding in zip(cases, report.findings, strict=True):
        assert case.classname == f"pitcheck.{finding.code}"
        text = case.system_out if case.is_passed else case.result[0].text
        assert text is not None
        for known in (finding.code, finding.operator, finding.cause, finding.repair):
            assert printable(known or "") in text
    if name == "mismatch":
        assert "ranks: every rank\n" in text


def test_junit_has_the_properties_of_the_check() -> None:
    known = {each.name: each.value for each in suite_of(samples()["mismatch"]).properties()}
    assert known["seed"] == "7"
    assert known["error_bound_log2"] == "0.0"
    assert known["backend"] == "numpy"
    assert [known[f"mesh.{axis}"] for axis in ("pp", "dp", "tp")] == ["2", "2", "2"]
    assert (known["reference"], known["parallel"]) == PLANS
    pair = {each.name: each.value for each in suite_of(samples()["invalid"], ("a",)).properties()}
    assert pair["plans"] == "a"


def test_junit_of_an_equivalent_report_never_fails_whatever_its_findings() -> None:
    """The exit code decides, as for every other reader of the report."""
    finding = Finding(code="PIT202", verdict="inconclusive", title="t")
    cases = list(suite_of(Report(verdict="equivalent", findings=(finding,))))
    assert all(case.is_passed for case in cases)
    assert "inconclusive[PIT202]: t" in (cases[1].system_out or "")
    cases = list(suite_of(Report(verdict="inconclusive", findings=(finding,))))
    assert [type(case.result[0]) for case in cases] == [junitparser.Error] * 2


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_junit_takes_any_text(title: str, cause: str, output: str) -> None:
    case = list(suite_of(with_texts(title, cause, output), (title,)))[1]
    assert case.name == printable(title)
    assert f"cause: {printable(cause)}" in (case.result[0].text or "").split("\n")


# --- SARIF, by sarif-pydantic


@pytest.mark.parametrize("name", NAMES)
def test_sarif_is_read_with_its_rules_results_and_places(name: str) -> None:
    report = samples()[name]
    log = sarif_pydantic.Sarif.model_validate_json(sarif.encode(report, PLANS))
    (run,) = log.runs
    assert run.tool.driver.information_uri == sarif.PAGE
    assert [rule.id for rule in run.tool.driver.rules or ()] == [code.code for code in CODES]
    assert [result.rule_id for result in run.results or ()] == [
        finding.code for finding in report.findings
    ]
    for result in run.results or ():
        assert result.message.text
        assert result.locations
    (invocation,) = run.invocations or []
    assert invocation.execution_successful == (name != "internal")
    # What the reader has no field for it keeps as it is; a misspelt field would stand there.
    assert not run.tool.driver.model_extra
    assert run.model_extra == {"columnKind": "unicodeCodePoints"}
    assert invocation.model_extra == {
        "exitCode": report.exit_code,
        "exitCodeDescription": report.verdict,
    }


def test_sarif_of_another_shape_is_refused() -> None:
    log = json.loads(sarif.encode(samples()["mismatch"], PLANS))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = "x"
    with pytest.raises(ValueError, match="startLine"):
        sarif_pydantic.Sarif.model_validate(log)


def test_sarif_names_the_page_of_the_package_that_is_installed() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    name = sarif.PAGE.removesuffix("/").rpartition("/")[2]
    assert f'\nname = "{name}"\n' in project


# --- JSON, by jsonschema with the published schema


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_json_obeys_the_published_schema_whatever_the_texts(
    title: str, cause: str, output: str
) -> None:
    content = json.loads(json_format.encode(with_texts(title, cause, output)))
    jsonschema.Draft202012Validator(SCHEMA).validate(content)


# --- JSON lines, by jsonlines


def lines_of(report: Report, plans: tuple[str, ...] = PLANS) -> list[dict[str, Any]]:
    stream = io.TextIOWrapper(io.BytesIO(json_lines.encode(report, plans)), encoding="utf-8")
    return list(jsonlines.Reader(stream).iter(type=dict))


@pytest.mark.parametrize("name", NAMES)
def test_lines_hold_what_the_json_report_holds(name: str) -> None:
    report = samples()[name]
    *findings, verdict = lines_of(report)
    assert [line.pop("type") for line in [*findings, verdict]] == [
        *["finding"] * len(report.findings),
        "verdict",
    ]
    assert all(line.pop("plans") == list(PLANS) for line in [*findings, verdict])
    assert verdict.pop("finding_count") == len(findings)
    whole = json.loads(json_format.encode(report))
    assert {**verdict, "findings": findings} == whole
    jsonschema.Draft202012Validator(SCHEMA).validate({**verdict, "findings": findings})


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_lines_stay_lines_whatever_the_texts(title: str, cause: str, output: str) -> None:
    finding, verdict = lines_of(with_texts(title, cause, output), (title,))
    assert (finding["type"], verdict["type"]) == ("finding", "verdict")
    assert finding["cause"] == cause.encode("utf-8", "backslashreplace").decode()


def test_lines_of_several_checks_can_be_joined() -> None:
    joined = b"".join(
        json_lines.encode(samples()[name], (name,)) for name in ("several", "invalid", "equivalent")
    )
    verdicts = [
        (line["plans"], line["verdict"])
        for line in jsonlines.Reader(joined.decode().split("\n")[:-1]).iter(type=dict)
        if line["type"] == "verdict"
    ]
    assert verdicts == [
        (["several"], "mismatch"),
        (["invalid"], "invalid"),
        (["equivalent"], "equivalent"),
    ]
