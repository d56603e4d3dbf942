"""The pictures of a finding: the steps around the difference, and the values of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from support.explain_plans import Pair, first_finding, linear_reference, row_parallel, run
from zoo.builder import Builder, lineage

from pitcheck.explain.held_values import MOST_VALUES
from pitcheck.explain.steps_around import MOST_AFTER, MOST_BEFORE
from pitcheck.report.json import encode
from pitcheck.report.pictures import HeldValues, StageSteps


def steps_of(pair: Pair) -> StageSteps:
    found = first_finding(pair).steps
    assert found is not None
    return found


def held_of(pair: Pair) -> HeldValues:
    found = first_finding(pair).held
    assert found is not None
    return found


def chain(length: int, wrong: int | None, mesh: dict[str, int] | None = None) -> Pair:
    """``length`` steps one behind the other; the parallel one numbered ``wrong`` is another."""

    def plan(name: str, mesh: dict[str, int] | None, wrong: int | None) -> Builder:
        b = Builder(name, mesh)
        value = b.input("x", (4,), {} if mesh else None)
        for number in range(length):
            out = f"v{number}"
            weight = b.parameter(f"w{number}", (4,), {} if mesh else None)
            value = b.op("sub" if number == wrong else "add", value, weight, out=out)
        b.output(value)
        b.op("neg", "x", out="aside")
        return b

    return plan("chain", None, None).plan(), plan("parallel", mesh or {"tp": 2}, wrong).plan()


def test_both_sides_are_in_order_with_the_first_difference_marked() -> None:
    steps = steps_of(chain(5, 2))
    assert [step.results for step in steps.reference] == [(f"v{n}",) for n in range(5)]
    assert [step.kind for step in steps.parallel] == ["add", "add", "sub", "add", "add"]
    assert [step.reads for step in steps.parallel][:2] == [("x", "w0"), ("v0", "w1")]
    assert [step.results for step in steps.parallel if step.differs] == [("v2",)]
    assert [step.results for step in steps.reference if step.differs] == [("v2",)]
    assert [step.holds for step in steps.parallel] == ["v0", "v1", None, None, None]
    assert {step.ranks for step in steps.parallel} == {"every rank"}
    assert {step.ranks for step in steps.reference} == {""}
    assert (steps.reference_left_out, steps.parallel_left_out) == (0, 0)


@pytest.mark.parametrize("wrong", [0, 1, 60, 78, 79])
def test_of_many_steps_those_around_the_difference_are_listed(wrong: int) -> None:
    steps = steps_of(chain(80, wrong))
    for side, left_out in (
        (steps.reference, steps.reference_left_out),
        (steps.parallel, steps.parallel_left_out),
    ):
        numbers = [int(step.results[0][1:]) for step in side]
        assert numbers == list(range(max(0, wrong - MOST_BEFORE + 1), min(80, wrong + MOST_AFTER)))
        assert [int(step.results[0][1:]) for step in side if step.differs] == [wrong]
        assert left_out == 80 - len(numbers)


def test_a_missing_sum_is_marked_where_the_terms_are_made() -> None:
    steps = steps_of(row_parallel(right=False))
    assert [step.kind for step in steps.reference if step.differs] == ["linear"]
    assert [step.kind for step in steps.parallel if step.differs] == ["linear"]


def test_what_no_rank_needs_to_hold_is_no_difference() -> None:
    def plan(name: str, mesh: dict[str, int] | None, kind: str) -> Builder:
        b = Builder(name, mesh)
        given: dict[int, str] | None = {} if mesh else None
        x, w = b.input("x", (4,), given), b.parameter("w", (4,), given)
        before = x if mesh else b.op("log", b.op("exp", x, out="e"), out="l")
        b.output(b.op(kind, b.op("add", before, w, out="h"), w, out="y"))
        return b

    steps = steps_of((plan("one", None, "mul").plan(), plan("two", {"tp": 2}, "sub").plan()))
    assert [step.results for step in steps.reference] == [("e",), ("l",), ("h",), ("y",)]
    assert [step.results for step in steps.reference if step.differs] == [("y",)]


def test_steps_name_the_ranks_that_run_them() -> None:
    b = Builder("odd", {"tp": 2})
    x = b.input("x", (4,), {})
    b.op("neg", x, out="y", where={"tp": (0,)})
    b.op("exp", x, out="y", where={"tp": (1,)})
    b.output("y")
    reference = Builder("even")
    reference.output(reference.op("neg", reference.input("x", (4,)), out="y"))
    pair = reference.plan(), b.plan()
    ranks = {step.kind: step.ranks for step in steps_of(pair).parallel}
    assert ranks == {"neg": "tp=0", "exp": "tp=1"}
    held = held_of(pair)
    assert [each.ranks for each in held.values] == ["tp=0", "tp=1"]
    assert held.values[0].value == held.reference_value != held.values[1].value
    assert held.output == "y"
    assert not held.terms


def test_replicas_with_equal_values_are_one() -> None:
    held = held_of(chain(3, 1, {"dp": 2, "tp": 4}))
    assert [each.ranks for each in held.values] == ["every rank"]
    assert held.values[0].value != held.reference_value
    assert held.values[0].microbatch is None


def test_terms_of_a_sum_are_listed_for_every_rank_and_microbatch() -> None:
    b = Builder("terms", {"dp": 2})
    x = b.input("x", (2, 3), {0: "dp"})
    y = b.op("sum", b.op("neg", x), out="y", axes=[0, 1])
    b.output(y, "y", lineage("y", partial=("dp",)))
    reference = Builder("whole")
    z = reference.op("sum", reference.input("x", (4, 3)), out="y", axes=[0, 1])
    reference.output(z)
    held = held_of((reference.plan(), b.plan()))
    assert held.terms
    assert [each.ranks for each in held.values] == ["dp=0", "dp=1"]
    total = sum(float(each.value) for each in held.values)
    assert total == pytest.approx(-float(held.reference_value), abs=1e-6)


def test_of_many_values_few_are_listed() -> None:
    size = MOST_VALUES + 6
    b = Builder("many", {"dp": size})
    x = b.input("x", (1, 3), {0: "dp"})
    b.output(b.op("sum", x, out="y", axes=[0]))
    reference = Builder("one")
    reference.output(
        reference.op("sum", reference.input("x", (size, 3)), out="y", axes=[0]),
    )
    held = held_of((reference.plan(), b.plan()))
    assert len(held.values) + held.left_out <= size
    assert len(held.values) <= MOST_VALUES


def test_the_element_is_where_the_finding_says() -> None:
    finding = first_finding(row_parallel(right=False))
    assert finding.held is not None
    assert len(finding.held.element) == 2
    assert np.isfinite(float(finding.held.reference_value))


@pytest.mark.parametrize("pair", [chain(5, 2), row_parallel(right=False)])
def test_one_seed_shows_the_same(pair: Pair) -> None:
    first, second = run(pair), run(pair)
    assert first.findings == second.findings
    assert b'"parallel_left_out"' in encode(first)


def test_a_right_plan_shows_nothing() -> None:
    report = run(row_parallel(right=True))
    assert report.verdict == "equivalent"
    assert not report.findings
    assert linear_reference() == row_parallel(right=True)[0]
