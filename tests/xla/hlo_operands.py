"""Operands and regions of small programs of one operator, for tests."""

from __future__ import annotations

from xla.hlo_texts import module_text

X = "%x = f32[4] parameter(0)"
N = "%n = s32[4] parameter(0)"
START = "%z = f32[] constant(0)"
SCATTER = ", update_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def region(kind: str, *lines: str) -> str:
    """Return the computation %r of two numbers."""
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"%r (a: {kind}[], b: {kind}[]) -> {kind}[] {{\n"
        f"  %a = {kind}[] parameter(0)\n  %b = {kind}[] parameter(1)\n{body}\n}}\n"
    )


def stated(lines: tuple[str, ...], before: str, head: str = "") -> str:
    """Return a program of some lines; the last has no name, and a type unless it is pred[4]."""
    *above, last = lines
    line = last if last[0] in "(cfpsu" and "[" in last.split(" ")[0] else f"pred[4] {last}"
    return module_text(*above, f"%y = {line}", before=before, head=head)
