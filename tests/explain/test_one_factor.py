"""Outputs that are off by one factor, and addends of every rank in sums that are only compared."""

from __future__ import annotations

from support.explain_plans import Pair, first_finding, run, said
from zoo.builder import Builder, lineage

from pitcheck.plan.model import Number


def two_rounds(halved: bool) -> Pair:
    """Two rounds of the gradients of a square, each halved: the 2 and the 1/2 cancel."""
    plans = []
    for ranks, half in ((1, True), (2, halved)):
        b = Builder("rounds", {"pp": ranks} if ranks > 1 else None)
        x, sums = b.input("x", (2, 6, 5)), dict[str, str]()
        for number in range(2):
            rows = b.op("slice", x, axis=0, start=number, stop=number + 1)
            error = b.op("exp", rows)
            slope = b.op("mul", error, Number("2"))
            if half:
                slope = b.op("mul", slope, Number("1/2"))
            for name in ("u", "v"):
                term = b.op("mul", slope, b.op("sin" if name == "u" else "cos", rows))
                out = f"grad_{name}" if number else ""
                sums[name] = b.op("add", sums[name], term, out=out) if number else term
        for total in sums.values():
            b.output(total)
        plans.append(b.plan())
    return plans[0], plans[1]


def test_a_factor_of_all_outputs_comes_before_an_operand_that_has_it_by_chance() -> None:
    found = first_finding(two_rounds(False))
    assert found.code == "PIT101", found
    assert "2 (size of pp: 2) times" in (found.cause or "")
    assert found.tried is not None and len(found.tried.right) == 2


def test_halved_rounds_are_right() -> None:
    report = run(two_rounds(True))
    assert report.verdict == "equivalent", said(report)


def shared(right: bool) -> Pair:
    """x w + b, of which each rank holds a share: the bias belongs to one of them."""
    r = Builder("reference")
    product = r.op("linear", r.input("x", (4, 6)), r.parameter("w", (5, 6)))
    r.output(r.op("add", product, r.parameter("b", (5,)), out="y"))
    b = Builder("tp", {"tp": 3})
    x, w = b.input("x", (4, 2), {1: "tp"}), b.parameter("w", (5, 2), {1: "tp"})
    product, bias = b.op("linear", x, w), b.parameter("b", (5,), {})
    if right:
        bias = b.op("mul", bias, Number("1/3"))
    b.output(b.op("add", product, bias, out="y"), spec=lineage("y", partial=("tp",)))
    return r.plan(), b.plan()


def test_an_addend_of_every_share_counts_once_per_rank() -> None:
    found = first_finding(shared(False))
    assert found.code == "PIT108", found
    assert "'b' on every rank over tp" in (found.cause or "")
    assert "counts 3 times" in (found.cause or "")
    assert found.tried is not None


def test_a_third_of_it_in_every_share_is_right() -> None:
    report = run(shared(True))
    assert report.verdict == "equivalent", said(report)
