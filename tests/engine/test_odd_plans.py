"""No plan ends in an internal error, or takes minutes: sizes of 0 and 1, literals that are hardly
ever written, nothing at all.
"""

from __future__ import annotations

import pytest
from engine.odd_plans import LITERALS, REFUSED, Odd, pairs
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.plan.example import one_operator
from pitcheck.plan.model import Number, Output, Plan
from pitcheck.report.report import Report


def report_on(reference: Plan, parallel: Plan) -> Report:
    """The report as the command line would have it, internal errors among its findings."""
    return checked([lambda: [reference, parallel]], Options(seed=1))


@settings(
    max_examples=120, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(pairs())
def test_no_internal_error(pair: tuple[Plan, Plan]) -> None:
    report = report_on(*pair)
    assert all(finding.code != "PIT900" for finding in report.findings), report.findings


def scaled(literal: object, kind: str = "mul", **attributes: object) -> Plan:
    odd = Odd(1)
    x = odd.give("x", (4, 6))
    y = odd.append(kind, [x, Number(literal)] if not attributes else [x], **attributes)  # type: ignore[arg-type]
    return odd.plan([Output(y or x)])


@pytest.mark.parametrize("literal", LITERALS, ids=range(len(LITERALS)))
def test_odd_literals_are_numbers(literal: int | float | str) -> None:
    report = report_on(scaled(literal), scaled(literal))
    if str(literal).endswith("inf"):
        # A residue does not tell the sign of infinity times a number, nor that the number is 0.
        assert (report.verdict, report.findings[0].code) == ("inconclusive", "PIT202")
    else:
        assert report.verdict == "equivalent", report.findings


@pytest.mark.parametrize("number", [10**309, -(10**309), 10**5000], ids=range(3))
def test_an_attribute_beyond_every_number_is_refused(number: int) -> None:
    """An integer of 5,000 digits cannot be printed, not even in a message about it."""
    shape = (2, 3)
    for plan in (
        one_operator("clamp", [shape], shape, max=number),
        one_operator("permute", [shape], shape, axes=(0, number)),
    ):
        report = report_on(plan, plan)
        assert (report.verdict, report.findings[0].code) == ("invalid", "PIT001")


@pytest.mark.parametrize("literal", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_number_is_refused(literal: int | float | str) -> None:
    report = report_on(scaled(literal), scaled(literal))
    assert (report.verdict, report.findings[0].code != "PIT900") == ("invalid", True)


DIFFERENT = (
    ("1e-400", "1e-399"),
    (2**1023, 2**1023 - 1),
    ("1e308", "-1e308"),
    (f"1/{'9' * 300}", f"1/{'9' * 299}8"),
)


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_odd_literals_that_differ(one: int | str, other: int | str) -> None:
    assert report_on(scaled(one), scaled(other)).verdict in ("mismatch", "inconclusive")


@pytest.mark.parametrize("exponent", [2**31, 10**30, 2**1023, -(2**1023), 10**400], ids=range(5))
def test_huge_exponents(exponent: int) -> None:
    report = report_on(scaled(1, "pow", exponent=exponent), scaled(1, "pow", exponent=exponent))
    assert report.verdict in ("equivalent", "inconclusive", "invalid")
    assert all(finding.code != "PIT900" for finding in report.findings)


@pytest.mark.parametrize(
    "more", [{"outputs": ()}, {"operators": ()}, {"microbatches": 0}, {"tensors": ()}]
)
def test_nothing(more: dict[str, object]) -> None:

    plan = scaled(2)
    for pair in (
        (plan, replace(plan, **more)),
        (replace(plan, **more), plan),
        (replace(plan, **more), replace(plan, **more)),
    ):
        report = report_on(*pair)
        assert report.verdict in ("invalid", "nothing-checked", "inconclusive"), (
            more,
            report.verdict,
        )
        assert all(finding.code != "PIT900" for finding in report.findings)
