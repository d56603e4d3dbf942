"""Memory that nobody has written to: proven where no output depends on it, and never called
equivalent where one does.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from engine.unwritten_plans import RIGHT, WRONG, first, memory, padded, pair
from msgspec.structs import replace
from support.verdicts import SEEDS, proven, reports, said
from zoo.builder import Builder, lineage, table

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Number
from pitcheck.report.report import Report, Seconds
from pitcheck.witness.replay import replay

LEFT_OPEN = {
    "power of zero": "1 for every number and for NaN",
    "an index of equal rows": "0 for every number",
    "a divisor": "0 for every number but 0, which stops the program",
    "a remainder": "0 for every number",
    "a condition of equal branches": "one number on both ways",
}
"""Plans that no content of the memory changes.

No run shows a difference, yet they are not proven.
"""


@pytest.mark.parametrize("name", RIGHT)
def test_what_no_output_depends_on_is_any_value(name: str) -> None:
    proven(*RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_what_an_output_depends_on_is_not_equivalent(name: str) -> None:
    reference, parallel = WRONG[name]
    assert judge_often(reference, parallel, SEEDS).same == (name in LEFT_OPEN)
    report = check(reference, parallel, Options(seed=7))
    finding = report.findings[0]
    expected = ("inconclusive", "PIT207") if name in LEFT_OPEN else ("mismatch", "PIT118")
    assert (report.verdict, finding.code) == expected, said(report)
    assert finding.source, finding
    assert (finding.operator or "").endswith("uninitialised")


def test_a_micro_batch_alone() -> None:
    """One of two micro-batches reads the rows that nobody has written."""
    found = {}
    for wrong in (False, True):
        b = Builder("parallel", {"dp": 2}, microbatches=2)
        x = b.input("x", (3, 4), lineage("x", {0: ("mb", "dp")}), microbatched=True)
        buffer = b.op("cat", x, memory(b, 1, 4), axis=0)
        begin = table("mb", 0, 1 if wrong else 0)
        rows = b.op("slice", buffer, axis=0, start=begin, stop=table("mb", 3, 4 if wrong else 3))
        b.op("mul", rows, Number(2), out="y")
        b.output("y", "y", lineage("y", {0: ("mb", "dp")}))
        reference = Builder("reference")
        reference.op("mul", reference.input("x", (12, 4)), Number(2), out="y")
        reference.output("y")
        found[wrong] = reports(reference.plan(), b.plan())[0]
    assert found[False].verdict == "equivalent", said(found[False])
    assert (found[True].verdict, found[True].findings[0].code) == ("mismatch", "PIT118"), said(
        found[True]
    )
    assert found[True].findings[0].microbatches == (1,)


def test_only_a_rank_that_depends_on_it_is_named() -> None:
    report = check(*WRONG["on one rank"], Options(seed=1))
    assert report.findings[0].ranks == (1,)


def test_the_witness_replays(tmp_path: Path) -> None:
    for name in ("booleans", "added on both sides"):
        report = check(*WRONG[name], Options(seed=1, witness_directory=tmp_path))
        witness = report.findings[0].witness
        assert witness is not None
        assert replay(Path(witness))[1] == 1


def test_another_cause_is_named_where_no_such_memory_is_read() -> None:
    def thrice(b: Builder, x: str) -> str:
        return first(b, b.op("mul", padded(b, x), Number(3)))

    report = reports(*pair(thrice))[0]
    assert report.verdict == "mismatch"
    assert report.findings[0].code == "PIT102", said(report)


def test_a_report_is_the_same_for_the_same_seed() -> None:
    def lasting(report: Report) -> Report:
        return replace(report, seconds=Seconds(), peak_memory_mb=0.0)

    for plans in (WRONG["mean over the tail"], WRONG["a remainder"], RIGHT["gathered with tails"]):
        one, two = (lasting(check(*plans, Options(seed=5))) for _ in range(2))
        assert one == two
