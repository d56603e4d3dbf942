"""Pairs of small texts, written by hand, and what the check says of them."""

from __future__ import annotations

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.pair import plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo

EQUIVALENT = "equivalent"
OTHERS = "mismatch"
REFUSED = "refused"
UNPROVEN = "inconclusive"


def region(opcode: str, kind: str = "f32") -> str:
    """Return the computation of two numbers that is an operator."""
    return (
        f"%{opcode}.{kind} (a: {kind}[], b: {kind}[]) -> {kind}[] {{\n"
        f"  %a = {kind}[] parameter(0)\n  %b = {kind}[] parameter(1)\n"
        f"  ROOT %c = {kind}[] {opcode}(%a, %b)\n}}\n"
    )


def program(lines: str, regions: str = "", devices: int = 4, more: str = "") -> str:
    """Return a text whose program has some lines, divided by line breaks."""
    body = "\n".join(f"  {line.strip()}" for line in lines.strip().splitlines())
    return f"HloModule m, num_partitions={devices}{more}\n\n{regions}\nENTRY %main {{\n{body}\n}}\n"


def verdict(before: str, after: str) -> str:
    """Return the verdict on two texts; REFUSED for one that is damaged or has no meaning."""
    try:
        reference, parallel = plans_of(parse_hlo(before), parse_hlo(after))
    except (PlanError, UnsupportedError):
        return REFUSED
    return check(reference, parallel, Options(seed=1, jobs=1, explain=False)).verdict
