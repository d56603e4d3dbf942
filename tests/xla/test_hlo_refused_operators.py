"""Operators of which only some forms have a meaning: the others are refused, with the reason."""

from __future__ import annotations

import pytest
from xla.hlo_operands import SCATTER, START, N, X, region, stated
from xla.hlo_texts import ADD
from xla.lowered import plan_of

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.text.opcodes import OPCODES
from pitcheck.frontends.xla.text.parser import parse_hlo

LAST = (
    "%r (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
    "  ROOT %b = f32[] parameter(1)\n}\n"
)
SELECT = (
    "%s (a: f32[], b: f32[]) -> pred[] {{\n  %a = f32[] parameter(0)\n"
    "  %b = f32[] parameter(1)\n  ROOT %c = pred[] {}\n}}\n"
)
PLACES = """%t (x: f32[], i: s32[], y: f32[], j: s32[]) -> (f32[], s32[]) {{
  %x = f32[] parameter(0)
  %i = s32[] parameter(1)
  %y = f32[] parameter(2)
  %j = s32[] parameter(3)
  %g = pred[] compare(%x, %y), direction={first}
  %s = f32[] select(%g, %x, %y)
  %e = pred[] compare(%x, %y), direction=EQ
  %l = pred[] compare(%i, %j), direction={last}
  %a = pred[] and(%e, %l)
  %c = pred[] or(%g, %a)
  %p = s32[] select(%c, %i, %j)
  ROOT %r = (f32[], s32[]) tuple(%s, %p)
}}
"""
PLACED = (
    X,
    "%n = s32[4] iota(), iota_dimension=0",
    "%z = f32[] constant(-inf)",
    "%m = s32[] constant(0)",
    "(f32[], s32[]) reduce(%x, %n, %z, %m), dimensions={0}, to_apply=%t",
)


def _order(result: str, *kinds: str) -> str:
    """Return the computation of a sort."""
    names = "abcd"[: 2 * len(kinds)]
    lines = [f"  %{n} = {kinds[k // 2]}[] parameter({k})\n" for k, n in enumerate(names)]
    stated = ", ".join(f"{n}: {kinds[k // 2]}[]" for k, n in enumerate(names))
    return f"%o ({stated}) -> pred[] {{\n{''.join(lines)}  ROOT %r = pred[] {result}\n}}\n"


UNSUPPORTED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "random bits": (
        "rng-bit-generator",
        (
            "%x = u32[3] parameter(0)",
            "(u32[3], u32[4]) rng-bit-generator(%x), algorithm=rng_philox",
        ),
        "",
    ),
    "rounded integers": ("types|floor of s32", (N, "s32[4] floor(%n)"), ""),
    "product of truths": (
        "multiply of pred",
        (
            "%x = pred[4] parameter(0)",
            "%z = pred[] constant(true)",
            "pred[] reduce(%x, %z), dimensions={0}, to_apply=%r",
        ),
        region("pred", "ROOT %c = pred[] multiply(%a, %b)"),
    ),
    "product of integers that wraps": (
        "multiply of s32",
        (N, "%z = s32[] constant(1)", "s32[] reduce(%n, %z), dimensions={0}, to_apply=%r"),
        region("s32", "ROOT %c = s32[] multiply(%a, %b)"),
    ),
    "padded window from 1": (
        "window with padding",
        (
            X,
            "%z = f32[] constant(1)",
            "f32[4] reduce-window(%x, %z), window={size=2 pad=0_1}, to_apply=%add",
        ),
        ADD,
    ),
    "window that replaces": (
        "reduction by replace",
        (X, START, "f32[3] reduce-window(%x, %z), window={size=2}, to_apply=%r"),
        LAST,
    ),
    "selection with padding": (
        "select-and-scatter with padding",
        (
            X,
            "%v = f32[4] parameter(1)",
            START,
            "f32[4] select-and-scatter(%x, %v, %z), window={size=2 pad=0_1}, select=%s, "
            "scatter=%add",
        ),
        ADD + SELECT.format("compare(%a, %b), direction=GE"),
    ),
    "selection of unequal elements": (
        "selection by s",
        (
            X,
            "%v = f32[3] parameter(1)",
            START,
            "f32[4] select-and-scatter(%x, %v, %z), window={size=2}, select=%s, scatter=%add",
        ),
        ADD + SELECT.format("compare(%a, %b), direction=NE"),
    ),
    "scatter of selected elements that multiplies": (
        "does not add from 0",
        (
            X,
            "%v = f32[3] parameter(1)",
            START,
            "f32[4] select-and-scatter(%x, %v, %z), window={size=2}, select=%s, scatter=%r",
        ),
        region("f32", "ROOT %c = f32[] multiply(%a, %b)")
        + SELECT.format("compare(%a, %b), direction=GE"),
    ),
    "convolution of integers": (
        "convolution of s32",
        (
            "%x = s32[1,1,4] parameter(0)",
            "%k = s32[1,1,2] parameter(1)",
            "s32[1,1,3] convolution(%x, %k), window={size=2}, dim_labels=bf0_io0->bf0",
        ),
        "",
    ),
    "convolution of a kind": (
        "of a stated kind",
        (
            "%x = f32[1,1,4] parameter(0)",
            "%k = f32[1,1,2] parameter(1)",
            "f32[1,1,3] convolution(%x, %k), window={size=2}, dim_labels=bf0_io0->bf0, "
            "conv_kind=other",
        ),
        "",
    ),
    "sort that is not stable": (
        "not stable",
        (X, N.replace("0", "1"), "(f32[4], s32[4]) sort(%x, %n), dimensions={0}, to_apply=%o"),
        _order("compare(%a, %b), direction=LT", "f32", "s32"),
    ),
    "sort by what may be equal": (
        "no order",
        (X, "f32[4] sort(%x), dimensions={0}, is_stable=true, to_apply=%o"),
        _order("compare(%a, %b), direction=LE", "f32"),
    ),
    "sort in total order as it is": (
        "no order",
        (X, "f32[4] sort(%x), dimensions={0}, is_stable=true, to_apply=%o"),
        _order("compare(%a, %b), direction=LT, type=TOTALORDER", "f32"),
    ),
    "sort by different operands": (
        "no order",
        (
            X,
            "%w = f32[4] parameter(1)",
            "(f32[4], f32[4]) sort(%x, %w), dimensions={0}, is_stable=true, to_apply=%o",
        ),
        _order("compare(%a, %d), direction=LT", "f32", "f32"),
    ),
    "scatter that replaces": (
        "two may be one",
        (
            X,
            "%i = s32[2,1] parameter(1)",
            "%u = f32[2] parameter(2)",
            "f32[4] scatter(%x, %i, %u), inserted_window_dims={0}, to_apply=%r" + SCATTER,
        ),
        LAST,
    ),
    "scatter that replaces twice": (
        "two may be one",
        (
            X,
            "%i = s32[2,1] constant({{3}, {3}})",
            "%u = f32[2] parameter(1)",
            "f32[4] scatter(%x, %i, %u), inserted_window_dims={0}, to_apply=%r" + SCATTER,
        ),
        LAST,
    ),
    "greatest of the places": (
        "no extremum",
        PLACED,
        PLACES.format(first="GT", last="GT"),
    ),
    "place of one that is not strictly greater": (
        "no extremum",
        PLACED,
        PLACES.format(first="GE", last="LT"),
    ),
    "place of an extremum from 0": (
        "not neutral",
        tuple(line.replace("-inf", "0") for line in PLACED),
        PLACES.format(first="GT", last="LT"),
    ),
    "place of a minimum from minus infinity": (
        "not neutral",
        PLACED,
        PLACES.format(first="LT", last="LT"),
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_operator_without_meaning_is_refused(name: str) -> None:
    words, lines, before = UNSUPPORTED[name]
    with pytest.raises(UnsupportedError, match=words):
        plan_of(parse_hlo(stated(lines, before)))


def test_devices_meet_in_each_operator_with_a_channel() -> None:
    """They are refused in branches that some devices may not take."""
    channels = {name for name, each in OPCODES.items() if "channel_id" in each.optional}
    meets = {name for name, each in OPCODES.items() if each.meets}
    assert channels < meets
    assert meets - channels == {
        "all-gather-done",
        "all-reduce-done",
        "collective-permute-done",
        "custom-call",
        "infeed",
        "outfeed",
    }
