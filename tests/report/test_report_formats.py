"""Every output format of a report of every verdict, held fast as snapshots; and what no snapshot
shows.
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace
from report.report_samples import SHOWN, samples
from syrupy.assertion import SnapshotAssertion

from pitcheck.errors import PitcheckError
from pitcheck.report.findings.excerpts import excerpt
from pitcheck.report.json import decode, encode, json_schema
from pitcheck.report.report import EXIT_CODES, VOLATILE, Finding, OutputCounts, Report, Seconds
from pitcheck.report.text import render

NAMES = sorted(samples())


def lines(report: Report, **how: bool) -> list[str]:
    return [line.text for line in render(report, **how)]


# --- snapshots


@pytest.mark.parametrize("name", NAMES)
def test_json_is_as_it_was(name: str, snapshot: SnapshotAssertion) -> None:
    assert encode(samples()[name]).decode() == snapshot


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["plain", "quiet", "verbose"])
def test_text_is_as_it_was(name: str, how: str, snapshot: SnapshotAssertion) -> None:
    text = lines(samples()[name], quiet=how == "quiet", verbose=how == "verbose")
    assert "\n".join(text) == snapshot


# --- the model and its JSON


def test_exit_codes_are_those_of_the_verdicts() -> None:
    assert EXIT_CODES == {
        "equivalent": 0,
        "mismatch": 1,
        "invalid": 2,
        "inconclusive": 3,
        "nothing-checked": 5,
    }
    for verdict, code in EXIT_CODES.items():
        assert (
            Report(
                verdict=verdict, exit_code=77, shown=SHOWN if verdict == "mismatch" else None
            ).exit_code
            == code
        )


@pytest.mark.parametrize("bound", [float("inf"), float("-inf"), float("nan"), 0.5])
def test_an_error_bound_is_a_finite_probability(bound: float) -> None:
    with pytest.raises(PitcheckError, match="error_bound_log2"):
        Report(verdict="equivalent", error_bound_log2=bound)


@pytest.mark.parametrize("name", NAMES)
def test_json_round_trips_and_is_plain_json(name: str) -> None:
    report = samples()[name]
    raw = encode(report)
    assert decode(raw) == report
    content = json.loads(raw)
    assert isinstance(content["error_bound_log2"], float)
    assert content["schema"] == "pitcheck.report/1"
    assert content["exit_code"] == (4 if name == "imprecise" else EXIT_CODES[report.verdict])
    assert raw.endswith(b"}\n")


def test_reports_differ_only_in_the_volatile_block() -> None:
    report = samples()["mismatch"]
    other = json.loads(
        encode(
            Report(
                **{
                    **{f: getattr(report, f) for f in report.__struct_fields__},
                    "seconds": Seconds(total=9.0),
                }
            )
        )
    )
    first = json.loads(encode(report))
    assert {key for key in first if first[key] != other[key]} <= set(VOLATILE)
    assert first["volatile"] == list(VOLATILE)


def test_every_field_of_the_documented_object_is_there() -> None:
    content = json.loads(encode(samples()["mismatch"]))
    wanted = {
        "schema",
        "verdict",
        "exit_code",
        "error_bound_log2",
        "seed",
        "primes",
        "trials",
        "backend",
        "mesh",
        "ranks",
        "microbatches",
    }
    wanted |= {
        "operators",
        "outputs",
        "stages",
        "seconds",
        "peak_memory_mb",
        "assumptions",
        "discrete_cases",
        "findings",
    }
    assert wanted <= set(content)
    finding = [
        "code",
        "verdict",
        "title",
        "stage",
        "output",
        "operator",
        "source",
        "ranks",
        "microbatches",
        "element",
    ]
    finding += [
        "reference_value",
        "parallel_value",
        "cause",
        "repair",
        "edits",
        "witness",
        "unsaved",
        "tried",
        "steps",
        "held",
        "known",
        "variants",
    ]
    assert list(content["findings"][0]) == finding
    assert list(content["operators"]) == ["reference", "parallel", "records"]
    assert list(content["outputs"]) == ["total", "proven"]
    assert list(content["stages"]) == [
        "total",
        "distinct",
        "proven",
        "failed",
        "inconclusive",
        "widened",
        "every_size",
    ]
    assert list(content["seconds"]) == [
        "load",
        "validate",
        "lineage",
        "stages",
        "evaluate",
        "explain",
        "total",
    ]


def test_the_published_schema_is_that_of_the_report_and_every_report_obeys_it() -> None:
    published = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())
    assert published == json_schema()
    for report in samples().values():
        jsonschema.Draft202012Validator(published).validate(json.loads(encode(report)))
    wrong = json.loads(encode(samples()["mismatch"]))
    del wrong["findings"][0]["repair"]
    with pytest.raises(jsonschema.ValidationError, match="repair"):
        jsonschema.Draft202012Validator(published).validate(wrong)


def test_undecodable_names_become_escapes() -> None:
    report = Report(
        verdict="invalid",
        findings=(Finding(code="PIT001", verdict="invalid", title="\udcff: no such file"),),
    )
    assert json.loads(encode(report))["findings"][0]["title"] == "\\udcff: no such file"


# --- the text


def test_many_findings_are_counted_not_printed() -> None:
    findings = tuple(
        Finding(code="PIT003", verdict="invalid", title=f"finding {number}")
        for number in range(300)
    )
    report = Report(verdict="invalid", findings=findings)
    assert "and 280 more findings (--verbose shows them)" in "\n".join(lines(report))
    assert "finding 299" in "\n".join(lines(report, verbose=True))


def test_the_verdict_stands_first_with_exceptions_and_then_the_bound() -> None:
    text = lines(samples()["equivalent"])
    assert text[0].startswith("equivalent:")
    assert text[1].startswith("note")
    bound = next(i for i, line in enumerate(text) if line.startswith("error bound"))
    assert "2^-66.2" in text[bound]
    assert any(line.startswith("warning") for line in text[2:bound])
    assert any(line.startswith("not covered") for line in text[bound:])


def test_a_mismatch_says_how_many_outputs_differ_and_how_many_are_proven() -> None:
    report = samples()["repaired"]

    def verdict(**fields: object) -> str:
        return lines(replace(report, **fields), quiet=True)[0]

    assert verdict() == (
        "mismatch: 3 of 12 outputs differ, and an input shows it; 9 of 12 outputs proven"
    )
    assert verdict(outputs=OutputCounts(total=3), differing=("a",)) == (
        "mismatch: 1 of 3 outputs differs, and an input shows it"
    )
    unknown = "mismatch: the parallel plan computes something else, and an input shows it"
    assert verdict(differing=()) == verdict(outputs=OutputCounts()) == unknown


def test_exceptions_that_say_the_same_are_one() -> None:
    exceptions = *(f"grad:{n}: spread over dp" for n in range(579)), "loss: one term per dp"
    text = "\n".join(lines(Report(verdict="equivalent", exceptions=exceptions)))
    assert "579 gradients, grad:0 first: spread over dp" in text
    assert "loss: one term per dp" in text
    assert "grad:1:" not in text


def test_exceptions_that_name_no_output_stand_each_by_itself() -> None:
    text = lines(Report(verdict="equivalent", exceptions=("one is halved", "another is negated")))
    assert [line.strip() for line in text[1:3]] == [
        "note         one is halved",
        "another is negated",
    ]


def test_quiet_says_nothing_but_the_verdict() -> None:
    assert [len(lines(report, quiet=True)) for report in samples().values()] == [1] * len(NAMES)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (("1.0", "0.0"), "1     parallel: 0"),
        (("-0.000e-300", "2.50"), "0     parallel: 2.50"),
        (("1.8839284619203847561e-991", "0"), "1.88392846e-991     parallel: 0"),
        (("1.8839284619203847561e-991", "2.5"), "1.88392846e-991     parallel: 2.5"),
        (("-2.5", "1.8839284619203847561e991"), "-2.5     parallel: 1.88392846e+991"),
        (("4.9406564584124654e-324", "-0.0"), "4.94065646e-324     parallel: 0"),
        (("nan", "-"), "nan     parallel: -"),
    ],
)
def test_values_are_written_shortly_and_whole(given: tuple[str, str], shown: str) -> None:
    finding = Finding(
        code="PIT104",
        verdict="mismatch",
        title="t",
        reference_value=given[0],
        parallel_value=given[1],
    )
    text = "\n".join(lines(Report(verdict="mismatch", shown=SHOWN, findings=(finding,))))
    assert f"reference: {shown}" in text


def test_the_line_of_a_source_file_is_shown_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text("import torch\n\n    y = linear(x)\n")
    Path("elsewhere").symlink_to("/etc")
    assert excerpt("model.py:3") == ["3 | y = linear(x)", "  | ^^^^^^^^^^^^^"]
    assert excerpt(str(tmp_path / "model.py:1")) == ["1 | import torch", "  | ^^^^^^^^^^^^"]
    nothing = ["model.py:2", "model.py:4", "model.py", "none.py:1", "", None]
    outside = ["/etc/hostname:1", "../x.py:1", "elsewhere/hostname:1"]
    assert [excerpt(source) for source in (*nothing, *outside)] == [[]] * 9


@pytest.mark.parametrize(
    ("bound", "text"),
    [(-64.0, "2^-64.0"), (-66.29, "2^-66.2"), (-66.21, "2^-66.2"), (-0.04, "2^0.0")],
)
def test_the_printed_bound_never_claims_more_than_was_computed(bound: float, text: str) -> None:
    assert text in "\n".join(lines(Report(verdict="equivalent", error_bound_log2=bound)))


def test_only_an_equivalent_or_partly_proven_report_claims_a_bound() -> None:
    assert not any("error bound" in line for line in lines(samples()["mismatch"]))
    assert any(
        "what is called proven here is not" in line for line in lines(samples()["inconclusive"])
    )


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (
            ("0.25", "0.761594155955764888119458282604793590412768597257936551596811"),
            "0.25     parallel: 0.761594156",
        ),
        (
            ("1." + "0" * 30 + "1", "1." + "0" * 11 + "1" + "0" * 30),
            "1     parallel: 1.000000000001",
        ),
        (
            ("1." + "0" * 30 + "1", "1." + "0" * 30 + "2"),
            f"1.{'0' * 30}1     parallel: 1.{'0' * 30}2",
        ),
        (("tp=0 holds 4, tp=1 holds 2.5", "6"), "tp=0 holds 4, tp=1 holds 2.5     parallel: 6"),
        ((None, "nan"), "-     parallel: nan"),
    ],
)
def test_values_have_as_many_digits_as_tell_them_apart(
    values: tuple[str | None, str | None], shown: str
) -> None:
    finding = Finding(
        code="PIT100",
        verdict="mismatch",
        title="t",
        reference_value=values[0],
        parallel_value=values[1],
    )
    assert f"reference: {shown}" in " ".join(
        "\n".join(lines(Report(verdict="mismatch", shown=SHOWN, findings=(finding,)))).split("\n")
    )
