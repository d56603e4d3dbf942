"""One report on several variants of a specification."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from report.report_samples import MISSING, UNKNOWN, sample

from pitcheck.engine.variants import WORST, over_variants
from pitcheck.report.report import Report, Verdict
from pitcheck.report.text import render

RIGHT = sample("equivalent", bound=-70.0)
WRONG = sample("mismatch", MISSING)
OPEN = sample("inconclusive", UNKNOWN, proven=7)


def both(*parts: Report) -> Report:
    return over_variants(
        [(f"variant {n}", part) for n, part in enumerate(parts)], ["other variants"]
    )


def test_bounds_add_up() -> None:
    """A wrong answer about either of two variants makes the whole one wrong."""
    found = both(RIGHT, RIGHT)
    assert found.verdict == "equivalent"
    assert found.error_bound_log2 == pytest.approx(-69.0)
    assert found.outputs.proven == found.outputs.total == 2 * RIGHT.outputs.total
    assert found.not_covered[0] == "other variants"


@pytest.mark.parametrize(
    ("parts", "verdict", "code"),
    [
        ((RIGHT, WRONG), "mismatch", 1),
        ((WRONG, OPEN), "mismatch", 1),
        ((OPEN, RIGHT), "inconclusive", 3),
        ((sample("invalid"), RIGHT, OPEN), "invalid", 2),
    ],
)
def test_the_worst_verdict(parts: tuple[Report, ...], verdict: Verdict, code: int) -> None:
    for order in (parts, parts[::-1]):
        found = both(*order)
        assert (found.verdict, found.exit_code, found.error_bound_log2) == (verdict, code, 0.0)
        assert not found.not_covered
    assert [each.verdict for each in both(*parts).variants] == [part.verdict for part in parts]


def test_every_verdict_has_its_place() -> None:
    assert set(WORST) == {"mismatch", "invalid", "inconclusive", "nothing-checked", "equivalent"}


def test_one_fault_is_told_once() -> None:
    """With the variants that show it; another cause at the same line is another fault, which a
    baseline that accepts the first must not hide.
    """
    other = sample("mismatch", replace(MISSING, cause="another one"))
    first, second = both(WRONG, other, RIGHT, WRONG).findings
    assert first.variants == ("variant 0", "variant 3")
    assert second.variants == ("variant 1",)


def test_findings_of_the_worst_verdict_come_first() -> None:
    assert [finding.code for finding in both(OPEN, WRONG).findings] == [MISSING.code, UNKNOWN.code]


def test_sentences_name_their_variants() -> None:
    """Unless all of them have it."""
    one = replace(RIGHT, assumptions=("shared", "its own"))
    other = replace(RIGHT, assumptions=("shared",))
    assert both(one, other).assumptions == ("shared", "variant 0: its own")


def test_text() -> None:
    text = "\n".join(line.text for line in render(both(RIGHT, WRONG)))
    assert "variants     variant 0: equivalent\n             variant 1: mismatch" in text
    assert "= variants: variant 1" in text
