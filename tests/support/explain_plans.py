"""Pairs of plans that the tests of explanations share, and shortcuts to a check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Plan
from pitcheck.report.report import Finding, Report

Pair = tuple[Plan, Plan]


def run(pair: Pair, witnesses: Path | None = None, seed: int = 1, **more: Any) -> Report:
    return check(*pair, Options(seed=seed, witness_directory=witnesses, **more))


def said(report: Report) -> str:
    lines = [
        f"{f.code} {f.title} | {f.operator} | {f.ranks} {f.microbatches} | {f.cause} | {f.repair} "
        f"| {f.witness}"
        for f in report.findings
    ]
    return "\n".join([report.verdict, *lines])


def first_finding(pair: Pair) -> Finding:
    report = run(pair)
    assert report.verdict == "mismatch", said(report)
    assert report.exit_code == 1
    return report.findings[0]


def linear_reference(rows: int = 4, inner: int = 6, outer: int = 5) -> Plan:
    b = Builder("linear")
    b.output(b.op("linear", b.input("x", (rows, inner)), b.parameter("w", (outer, inner)), out="y"))
    return b.plan()


def row_parallel(right: bool) -> Pair:
    """Every rank computes a term; wrong: the terms are not summed."""
    b = Builder("row", {"tp": 2})
    x = b.input("x", (4, 3), {1: "tp"})
    w = b.parameter("w", (5, 3), {1: "tp"})
    if right:
        b.output(b.op("all_reduce", b.op("linear", x, w), out="y", group="tp"))
    else:
        b.output(b.op("linear", x, w, out="y"))
    return linear_reference(), b.plan()
