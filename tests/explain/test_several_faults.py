"""Runs with several faults: all of them stand in the report, equal ones as one, the first first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.explain_plans import Pair, run
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.files import read_plan
from pitcheck.plan.model import Number, Plan
from pitcheck.report.json import encode
from pitcheck.report.report import VOLATILE, Report
from pitcheck.report.text import render

DEMO = Path(__file__).parents[2] / "plans" / "demo"
Fault = Callable[[dict[str, Any]], None]


def dropped(operator: dict[str, Any]) -> None:
    """Make a collective a copy."""
    operator["kind"] = "identity"
    del operator["attributes"], operator["group"]


def averaged(operator: dict[str, Any]) -> None:
    """Make a sum a mean."""
    operator["attributes"]["reduction"] = "avg"


def spoilt(folder: Path, **faults: Fault) -> Report:
    """Return the report on the demo's plan with faults, by the tensors that operators write."""
    content = json.loads((DEMO / "mlp-L4.megatron.plan.json").read_text())
    for result, fault in faults.items():
        fault(next(each for each in content["operators"] if each.get("outputs", [""])[0] == result))
    file = folder / "spoilt.plan.json"
    file.write_text(json.dumps(content))
    reference = read_plan(DEMO / "mlp-L4.reference.plan.json")
    return check(reference, read_plan(file), Options(seed=1))


def multiplied(*factors: int) -> Pair:
    """Return a pair whose output n is multiplied by n + 2, and by a factor in the place of that."""

    def plan(name: str, mesh: dict[str, int] | None, by: tuple[int, ...]) -> Plan:
        b, given = Builder(name, mesh), () if mesh is None else ({},)
        for number, factor in enumerate(by):
            x = b.input(f"x{number}", (4, 3), *given)
            b.output(b.op("mul", x, Number(factor), out=f"y{number}"))
        return b.plan()

    return plan("reference", None, tuple(range(2, 2 + len(factors)))), plan(
        "dp", {"dp": 2}, factors
    )


def names(report: Report) -> list[tuple[str, str]]:
    return [(found.code, (found.operator or "").partition(" ")[0]) for found in report.findings]


def test_three_independent_faults_are_three_findings_the_first_cause_first(tmp_path: Path) -> None:
    report = spoilt(
        tmp_path,
        **{
            "grad:layers.0.weight": averaged,
            "grad:layers.3.weight": dropped,
            "linear_1.1": dropped,
        },
    )
    assert names(report) == [
        ("PIT104", "linear:linear_1"),
        ("PIT104", "accumulate:partial:layers.3.weight"),
        ("PIT111", "all_reduce:grad:layers.0.weight"),
    ]
    assert [[edit.text for edit in found.edits] for found in report.findings] == [
        ["all-reduce(sum) over tp of 'linear_1'"],
        ["all-reduce(sum) over dp of 'partial:layers.3.weight'"],
        [
            "'all_reduce:grad:layers.0.weight' (all_reduce) over dp: avg",
            "'all_reduce:grad:layers.0.weight' (all_reduce) over dp: sum",
        ],
    ]
    text = "\n".join(line.text for line in render(report))
    assert text.count("all fixes together") == 3 and text.count("= values: ") == 3


def test_the_same_fault_in_every_layer_is_one_finding_with_the_lines_of_each(
    tmp_path: Path,
) -> None:
    report = spoilt(tmp_path, **{f"grad:layers.{n}.weight": averaged for n in range(4)})
    (found,) = report.findings
    assert found.code == "PIT111" and len(found.edits) == 8
    assert [edit.sign for edit in found.edits] == ["-", "+"] * 4
    text = "\n".join(line.text for line in render(report))
    assert "4 of 5 outputs differ because of it" in text
    assert "(tested: with it, every output is right)" in text


def test_a_fault_that_makes_others_wrong_is_one_finding(tmp_path: Path) -> None:
    report = spoilt(tmp_path, **{"linear_1.1": dropped})
    (found,) = report.findings
    assert names(report) == [("PIT104", "linear:linear_1")]
    assert found.tried is not None and set(found.tried.right) == set(report.differing)
    assert len(report.differing) == 3


def test_every_sum_of_terms_is_said_with_its_ranks(tmp_path: Path) -> None:
    (found,) = spoilt(tmp_path, **{"linear_1.1": dropped, "linear_3.1": dropped}).findings
    assert found.held is not None and found.held.terms
    terms: dict[str, float] = {}
    for each in found.held.values:
        tp = each.ranks.partition("tp=")[2][0]
        terms[tp] = terms.get(tp, 0.0) + float(each.value)
    sums = {each.ranks.partition("tp=")[2][0]: float(each.value) for each in found.held.sums}
    assert sums.keys() == terms.keys() == {"0", "1"}
    assert all(sums[tp] == pytest.approx(terms[tp]) for tp in sums)


def test_a_right_plan_has_no_finding_no_table_and_no_changed_lines(tmp_path: Path) -> None:
    report = spoilt(tmp_path)
    assert report.verdict == "equivalent" and not report.findings
    text = "\n".join(line.text for line in render(report, verbose=True))
    assert "must be" not in text and "= fix" not in text


def test_no_fault_is_left_out_however_many_there_are() -> None:
    report = run(multiplied(*range(12, 20)))
    assert len(report.findings) == 8, names(report)
    assert [found.edits[-1].text.rpartition(" ")[2] for found in report.findings] == [
        str(number) for number in range(2, 10)
    ]
    assert run(multiplied(*range(2, 10))).verdict == "equivalent"


def renamed(content: Any, names: dict[str, str]) -> Any:
    """Return plain data with other names of tensors and axes."""
    if isinstance(content, dict):
        return {names.get(key, key): renamed(value, names) for key, value in content.items()}
    if isinstance(content, list):
        return [renamed(each, names) for each in content]
    return names.get(content, content) if isinstance(content, str) else content


@pytest.mark.parametrize("width", [40, 100])
def test_names_of_a_plan_that_would_steer_a_terminal_are_escaped(
    width: int, tmp_path: Path
) -> None:
    tensor, axis = "a\x1b[31m\u202eb\nerror[PIT1]: c" + "x" * 300, "t\x1b[2Jp\u2066"
    content = json.loads((DEMO / "mlp-L4.missing-allreduce.plan.json").read_text())
    file = tmp_path / "hostile.plan.json"
    file.write_text(json.dumps(renamed(content, {"linear_1": tensor, "tp": axis})))
    report = check(read_plan(DEMO / "mlp-L4.reference.plan.json"), read_plan(file), Options(seed=1))
    found = report.findings[0]
    assert found.edits[0].text == f"all-reduce(sum) over {axis} of {tensor!r}"
    assert found.held is not None and axis in found.held.values[0].ranks
    lines = [line.text for line in render(report, width=width, verbose=True)]
    assert all(line.isprintable() for line in lines)
    assert sum(line.startswith("error[") for line in lines) == 1
    shown = " ".join(line.strip() for line in lines)
    assert "+ all-reduce(sum) over t\\x1b[2Jp\\u2066 of" in shown


def test_two_runs_with_one_seed_differ_in_nothing_but_what_is_volatile(tmp_path: Path) -> None:
    faults: dict[str, Fault] = {"linear_1.1": dropped, "grad:layers.0.weight": averaged}
    one, other = (json.loads(encode(spoilt(tmp_path, **faults))) for _ in range(2))
    assert {key for key in one if one[key] != other[key]} <= set(VOLATILE)
