"""A check that goes on after a mismatch, as it does beside a baseline: what does not differ is
proven, and what is not proven is named.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from explain.message_plans import unwritten
from msgspec.structs import replace
from support.explain_plans import said
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.engine.check import check
from pitcheck.errors import BudgetError, ExplanationWarning, PitcheckError
from pitcheck.plan.model import Number, Plan
from pitcheck.programs.configuration import read_configuration
from pitcheck.prove.prover import Prover
from pitcheck.report.baseline import Accepted, encode, held_against
from pitcheck.report.report import Report

OUTPUTS = ("a", "b", "c")
PLANS = Path(__file__).parents[2] / "plans"


def three(*, a: int = 2, b: int = 3, c: str = "abs", ranks: bool = False) -> Plan:
    """Three outputs that have nothing to do with each other, on one device or on two."""
    made = Builder("three", {"dp": 2} if ranks else None)
    given = ({},) if ranks else ()
    x, y, z = (made.input(name, (4, 6), *given) for name in ("x", "y", "z"))
    made.output(made.op("mul", x, Number(a), out="a"))
    made.output(made.op("mul", y, Number(b), out="b"))
    made.output(_third(made, z, c, ranks))
    return made.plan()


def _third(made: Builder, z: str, how: str, ranks: bool) -> str:
    """An absolute value, as it is or as a root, or a tower of exponentials with a law on ranks."""
    if how == "abs":
        return made.op("abs", z, out="c")
    if how == "sqrt":
        return made.op("sqrt", made.op("square", z), out="c")
    for _ in range(10):
        z = made.op("exp", z)
    if ranks:
        return made.op("exp", made.op("add", z, z), out="c")
    return made.op("mul", made.op("exp", z), made.op("exp", z), out="c")


def report_of(parallel: Plan, *, rest: bool = True, seed: int = 1) -> Report:
    return check(three(), parallel, Options(seed=seed, prove_rest=rest))


def wrong(**changes: object) -> Plan:
    return three(ranks=True, **changes)  # type: ignore[arg-type]


def accepted(report: Report) -> Accepted:
    return msgspec.json.decode(encode(report), type=Accepted)


def test_what_does_not_differ_is_proven() -> None:
    report = report_of(wrong(a=5))
    assert report.verdict == "mismatch"
    assert (report.differing, report.unproven) == (("a",), ("a",))
    assert (report.outputs.proven, report.outputs.total) == (2, 3)
    assert [finding.code for finding in report.findings] == ["PIT102"], said(report)


def test_without_being_asked_nothing_is_proven_after_a_mismatch() -> None:
    report = report_of(wrong(a=5), rest=False)
    assert (report.verdict, report.differing, report.unproven) == ("mismatch", ("a",), ())
    assert report.outputs.proven == 0


def test_a_right_plan_leaves_nothing_open() -> None:
    report = report_of(wrong())
    assert (report.verdict, report.differing, report.unproven) == ("equivalent", (), ())


def test_an_output_that_is_wrong_modulo_primes_alone_differs() -> None:
    report = report_of(wrong(a=5, c="sqrt"))
    assert report.verdict == "mismatch"
    assert (report.differing, report.unproven) == (("a", "c"), ("a", "c"))
    assert [finding.code for finding in report.findings] == ["PIT102"]
    assert report_of(wrong(a=5, c="sqrt"), rest=False).differing == ("a",)


def test_an_output_that_is_open_is_a_finding() -> None:
    pair = three(c="tower"), three(a=5, c="tower", ranks=True)
    report = check(*pair, Options(seed=1, prove_rest=True))
    assert report.verdict == "mismatch"
    assert (report.differing, report.unproven) == (("a",), ("a", "c"))
    assert [(f.code, f.output) for f in report.findings] == [("PIT102", "a"), ("PIT205", "c")]


@pytest.mark.parametrize(
    "changes", [{"b": 7}, {"c": "sqrt"}, {"a": 9}], ids=["differs", "is open", "other factor"]
)
def test_a_baseline_does_not_hide_what_is_new(changes: dict[str, object]) -> None:
    known = accepted(report_of(wrong(a=5)))
    assert held_against(report_of(wrong(a=5), seed=2), known, "f").exit_code == 0
    report = held_against(report_of(wrong(**{"a": 5, **changes})), known, "f")
    assert (report.verdict, report.exit_code, report.all_known) == ("mismatch", 1, False)


def test_a_mended_mistake_leaves_an_entry_and_the_verdict_is_equivalent() -> None:
    report = held_against(report_of(wrong()), accepted(report_of(wrong(a=5))), "f")
    assert (report.verdict, report.exit_code) == ("equivalent", 0)
    assert report.baseline is not None
    assert len(report.baseline.gone) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(BudgetError("too much"), "PIT203"), (PitcheckError("odd"), "PIT201")],
)
def test_what_stops_the_proofs_is_a_finding_and_never_known(
    error: PitcheckError, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = accepted(report_of(wrong(a=5)))

    def stops(*_: object) -> None:
        raise error

    monkeypatch.setattr(Prover, "run", stops)
    monkeypatch.setattr(Prover, "hope", lambda *_: None)
    report = held_against(report_of(wrong(a=5)), known, "f")
    assert [finding.code for finding in report.findings] == ["PIT102", code]
    assert (report.verdict, report.exit_code) == ("mismatch", 1)
    assert report.unproven == OUTPUTS


def test_a_fault_of_the_proofs_does_not_hide_the_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(Prover, "run", broken)
    monkeypatch.setattr(Prover, "hope", lambda *_: None)
    with pytest.warns(ExplanationWarning):
        report = report_of(wrong(a=5))
    assert [finding.code for finding in report.findings] == ["PIT102", "PIT900"]
    assert report.exit_code == 1


def test_proofs_that_err_too_often_together_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pitcheck.prove.error_budget.ErrorBudget.holds", False)
    report = report_of(wrong(a=5))
    assert [finding.code for finding in report.findings] == ["PIT102", "PIT203"], said(report)
    assert "--error-bound" in report.findings[1].title


def test_memory_that_nobody_has_written_to_is_not_hidden_by_another_cause() -> None:
    reference, parallel = unwritten(chosen=False)
    report = check(reference, parallel, Options(seed=1, prove_rest=True))
    assert report.verdict == "mismatch"
    assert {"PIT118", "PIT207"} == {finding.code for finding in report.findings}
    alone = check(reference, parallel, Options(seed=1))
    assert [finding.code for finding in alone.findings] == ["PIT118"]


def test_no_finding_is_left_out() -> None:
    both = wrong(a=5, b=7)
    assert len(report_of(both, rest=False).findings) == 2
    assert len(report_of(both).findings) == 2, said(report_of(both))


def test_no_stage_of_a_large_plan_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pitcheck.engine.state.MOST_NODES", 0)
    monkeypatch.setattr("pitcheck.explain.failed_stages.MOST_EXPLAINED", 1)
    settings = "layers=1 pp=1 tp=1 sequence_parallel=false dp=2 sequences=4 length=4"
    configuration = read_configuration(PLANS / "llama3-tiny.toml", settings.split())
    reference, parallel = configuration.reference(), configuration.parallel()
    spoilt = {
        "grad:norm.weight": {"attributes": {"reduction": "min"}},
        "new:norm.weight": {"kind": "add"},
    }

    def made(*names: str, rest: bool = True) -> Report:
        operators = (replace(o, **spoilt[o.id]) if o.id in names else o for o in parallel.operators)
        plans = reference, replace(parallel, operators=tuple(operators))
        return check(*plans, Options(seed=1, prove_rest=rest))

    assert len(made(*spoilt, rest=False).findings) == 1
    both, one = made(*spoilt), made("new:norm.weight")
    assert {finding.code for finding in both.findings} == {"PIT102", "PIT111"}, said(both)
    assert set(one.unproven) == set(one.differing) < {o.tensor for o in reference.outputs}
    known = accepted(one)
    assert held_against(one, known, "f").exit_code == 0
    assert held_against(both, known, "f").exit_code == 1


def test_a_check_that_stops_says_that_no_output_is_proven() -> None:
    def broken() -> list[Plan]:
        raise KeyError("x")

    report = checked([broken], Options(seed=1, prove_rest=True))
    assert (report.verdict, report.unproven) == ("invalid", ())
    assert held_against(report, Accepted(), "f").exit_code == 2
