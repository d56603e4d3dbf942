"""A difference that was shown stays one, whatever becomes of the search for its cause; and such a
fault fails every other test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine import check as run
from pitcheck.errors import ExplanationWarning
from pitcheck.explain import difference
from pitcheck.plan.model import Number, Plan


def doubled(times: int) -> Plan:
    b = Builder("doubled")
    b.output(b.op("mul", b.input("x", (2, 3)), Number(times), out="y"))
    return b.plan()


@pytest.mark.parametrize(
    "error",
    [
        IndexError("index 12 is out of bounds"),
        AttributeError("shape"),
        MemoryError(),
        RecursionError("deep"),
    ],
)
def test_a_fault_in_looking_for_the_cause_takes_no_verdict_away(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(difference, "explain_difference", failing)
    with pytest.warns(ExplanationWarning, match=type(error).__name__):
        report = run.check(doubled(2), doubled(3), Options(seed=1, jobs=1))
    assert (report.verdict, report.exit_code) == ("mismatch", 1)
    [finding] = report.findings
    assert (finding.code, finding.output) == ("PIT100", "y")
    assert finding.reference_value != finding.parallel_value
    assert type(error).__name__ in str(finding.cause)


def test_a_search_that_is_stopped_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(difference, "explain_difference", stopped)
    with pytest.raises(KeyboardInterrupt):
        run.check(doubled(2), doubled(3), Options(seed=1, jobs=1))


def test_a_difference_need_not_be_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The verdict, the output and its values are the same; no cause is looked for."""
    explained = run.check(doubled(2), doubled(3), Options(seed=1, jobs=1))
    monkeypatch.setattr(difference, "explain_difference", lambda *_: pytest.fail("was looked for"))
    options = Options(seed=1, jobs=1, explain=False, witness_directory=tmp_path)
    report = run.check(doubled(2), doubled(3), options)
    assert (report.verdict, report.exit_code) == ("mismatch", 1)
    [finding] = report.findings
    assert (finding.code, finding.output, finding.witness) == ("PIT100", "y", None)
    assert "--no-explain" in str(finding.cause)
    assert report.shown == explained.shown
    assert list(tmp_path.iterdir()) == []
    assert explained.findings[0].code != "PIT100"


def test_what_is_equal_is_proven_without_explanations() -> None:
    report = run.check(doubled(2), doubled(2), Options(seed=1, jobs=1, explain=False))
    assert (report.verdict, report.findings) == ("equivalent", ())
