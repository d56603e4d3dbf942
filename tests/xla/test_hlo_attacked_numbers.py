"""Programs that differ in little: integers, comparisons, rounding, orders, promises of indices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from xla.hlo_attacks import EQUIVALENT, OTHERS, REFUSED, UNPROVEN, program, region, verdict

from pitcheck.frontends.xla.text.rounded_literals import meant
from pitcheck.frontends.xla.text.shapes import ElementType

SECOND = "%second (a: f32[], b: f32[]) -> f32[] {\n  ROOT %b = f32[] parameter(1)\n"
SECOND += "  %a = f32[] parameter(0)\n}\n"
REGIONS = region("add") + region("maximum") + region("subtract") + SECOND


def _compared(name: str, direction: str, kind: str = "s32", more: str = "") -> str:
    return (
        f"%{name} (a: {kind}[], b: {kind}[]) -> pred[] {{\n  %a = {kind}[] parameter(0)\n"
        f"  %b = {kind}[] parameter(1)\n"
        f"  ROOT %c = pred[] compare(%a, %b), direction={direction}{more}\n}}\n"
    )


REGIONS += _compared("lt", "LT") + _compared("gt", "GT") + _compared("le", "LE")
REGIONS += _compared("ge.f", "GE", "f32") + _compared("gt.f", "GT", "f32")
REGIONS += """%pairs (a: s32[], b: s32[], c: s32[], d: s32[]) -> pred[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  %c = s32[] parameter(2)
  %d = s32[] parameter(3)
  ROOT %e = pred[] compare(%a, %b), direction=LT
}
"""


def _filled(name: str, kind: str, number: str) -> str:
    """Return an array of 4 equal numbers."""
    return f"%{name} = {kind}[4] constant({{{number}, {number}, {number}, {number}}})\n"


def _rounded(opcode: str) -> str:
    return f"ROOT %r = f32[4] {opcode}(%x)"


CHOSEN = "ROOT %r = f32[4] select(%c, %x, %z)"
ZERO = _filled("z", "f32", "0")
SORTED = "ROOT %r = s32[4] sort(%x), dimensions={0}, to_apply=%"
ORDER = """%i = s32[4] iota(), iota_dimension=0
%t = (s32[4], s32[4]) sort(%x, %i), dimensions={0}, to_apply=%pairs, is_stable=true
ROOT %r = s32[4] get-tuple-element(%t), index=1"""
POOLED = _filled("s", "f32", "1") + (
    "%u = f32[2] slice(%s), slice={[0:2]}\n%n = f32[] constant(0)\n"
    "ROOT %r = f32[4] select-and-scatter(%x, %u, %n), window={size=2 stride=2}, select=%ge.f, "
    "scatter=%add.f32"
)
SUM = "%n = f32[] constant(0)\nROOT %r = f32[] reduce(%x, %n), dimensions={0}, to_apply=%add.f32"

PAIRS: dict[str, tuple[str, str, str, str]] = {
    "quotient and product": (
        "s32",
        _filled("t", "s32", "2") + "%d = s32[4] divide(%x, %t)\nROOT %r = s32[4] multiply(%d, %t)",
        "ROOT %r = s32[4] copy(%x)",
        OTHERS,
    ),
    "remainder by a quotient": (
        "s32",
        _filled("t", "s32", "3") + "%d = s32[4] divide(%x, %t)\n%m = s32[4] multiply(%d, %t)\n"
        "ROOT %r = s32[4] subtract(%x, %m)",
        _filled("t", "s32", "3") + "ROOT %r = s32[4] remainder(%x, %t)",
        EQUIVALENT,
    ),
    "remainder of the other sign": (
        "s32",
        _filled("t", "s32", "3") + "%d = s32[4] remainder(%x, %t)\n%e = s32[4] add(%d, %t)\n"
        "ROOT %r = s32[4] remainder(%e, %t)",
        _filled("t", "s32", "3") + "ROOT %r = s32[4] remainder(%x, %t)",
        OTHERS,
    ),
    "constants that wrap": (
        "s8",
        _filled("t", "s8", "100") + "%u = s8[4] add(%t, %t)\nROOT %r = s8[4] maximum(%x, %u)",
        _filled("u", "s8", "-56") + "ROOT %r = s8[4] maximum(%x, %u)",
        EQUIVALENT,
    ),
    "constants that are cut": (
        "u8",
        _filled("t", "s32", "300") + "%u = u8[4] convert(%t)\nROOT %r = u8[4] maximum(%x, %u)",
        _filled("u", "u8", "44") + "ROOT %r = u8[4] maximum(%x, %u)",
        EQUIVALENT,
    ),
    "shifted by too many bits": (
        "u32",
        _filled("t", "u32", "1")
        + _filled("m", "u32", "33")
        + "%u = u32[4] shift-left(%t, %m)\nROOT %r = u32[4] maximum(%x, %u)",
        "ROOT %r = u32[4] copy(%x)",
        REFUSED,
    ),
    "compared as unsigned": (
        "s32",
        _filled("t", "s32", "1") + "ROOT %r = pred[4] compare(%x, %t), direction=LT",
        _filled("t", "s32", "1") + "ROOT %r = pred[4] compare(%x, %t), direction=LT, type=UNSIGNED",
        REFUSED,
    ),
    "compared as a real number": (
        "s32",
        _filled("t", "s32", "1") + "ROOT %r = pred[4] compare(%x, %t), direction=LT",
        _filled("t", "s32", "1") + "ROOT %r = pred[4] compare(%x, %t), direction=LT, type=FLOAT",
        REFUSED,
    ),
    "compared as signed": (
        "u32",
        _filled("t", "u32", "1") + "ROOT %r = pred[4] compare(%x, %t), direction=LT",
        _filled("t", "u32", "1") + "ROOT %r = pred[4] compare(%x, %t), direction=LT, type=SIGNED",
        REFUSED,
    ),
    "truths by LT and LE": (
        "pred",
        "%t = pred[4] constant({0, 0, 1, 1})\n"
        "ROOT %r = pred[4] compare(%x, %t), direction=LT, type=UNSIGNED",
        "%t = pred[4] constant({0, 0, 1, 1})\nROOT %r = pred[4] compare(%x, %t), direction=LE",
        OTHERS,
    ),
    "at 0": (
        "f32",
        ZERO + "%c = pred[4] compare(%x, %z), direction=GE\n%o = f32[4] exponential(%x)\n"
        "ROOT %r = f32[4] select(%c, %o, %z)",
        ZERO + "%c = pred[4] compare(%x, %z), direction=GT\n%o = f32[4] exponential(%x)\n"
        "ROOT %r = f32[4] select(%c, %o, %z)",
        UNPROVEN,
    ),
    "turned around": (
        "f32",
        ZERO + f"%c = pred[4] compare(%x, %z), direction=GE\n{CHOSEN}",
        ZERO + "%c = pred[4] compare(%x, %z), direction=LT\nROOT %r = f32[4] select(%c, %z, %x)",
        EQUIVALENT,
    ),
    "is finite": (
        "f32",
        ZERO + f"%c = pred[4] is-finite(%x)\n{CHOSEN}",
        "ROOT %r = f32[4] copy(%x)",
        UNPROVEN,
    ),
    "at least infinity": (
        "f32",
        _filled("n", "f32", "inf") + "ROOT %r = f32[4] maximum(%x, %n)",
        "ROOT %r = f32[4] copy(%x)",
        OTHERS,
    ),
    "at least minus infinity": (
        "f32",
        _filled("n", "f32", "-inf") + "ROOT %r = f32[4] maximum(%x, %n)",
        "ROOT %r = f32[4] copy(%x)",
        EQUIVALENT,
    ),
    "at least no number": (
        "f32",
        _filled("n", "f32", "nan") + "ROOT %r = f32[4] maximum(%x, %n)",
        "ROOT %r = f32[4] copy(%x)",
        OTHERS,
    ),
    "infinity less infinity": (
        "f32",
        _filled("n", "f32", "inf") + "%m = f32[4] subtract(%n, %n)\nROOT %r = f32[4] add(%x, %m)",
        "ROOT %r = f32[4] copy(%x)",
        OTHERS,
    ),
    "divided by 0 and by -0": (
        "f32",
        _filled("o", "f32", "1")
        + ZERO
        + "%q = f32[4] divide(%o, %z)\nROOT %r = f32[4] minimum(%x, %q)",
        _filled("o", "f32", "1")
        + _filled("z", "f32", "-0")
        + "%q = f32[4] divide(%o, %z)\nROOT %r = f32[4] minimum(%x, %q)",
        REFUSED,
    ),
    "no bits": (
        "f32",
        "ROOT %r = f32[4] copy(%x)",
        "ROOT %r = f32[4] reduce-precision(%x), exponent_bits=8, mantissa_bits=7",
        REFUSED,
    ),
    "halves": ("f32", _rounded("round-nearest-even"), _rounded("round-nearest-afz"), UNPROVEN),
    "cut off": (
        "f32",
        _rounded("floor"),
        "%i = s32[4] convert(%x)\nROOT %r = f32[4] convert(%i)",
        OTHERS,
    ),
    "cut off to a truth": (
        "f32",
        "%t = pred[4] convert(%x)\nROOT %r = f32[4] convert(%t)",
        "%i = s32[4] convert(%x)\n%t = pred[4] convert(%i)\nROOT %r = f32[4] convert(%t)",
        OTHERS,
    ),
    "a digit": (
        "f32",
        _filled("k", "f32", "0.1") + "ROOT %r = f32[4] multiply(%x, %k)",
        _filled("k", "f32", "0.1000002") + "ROOT %r = f32[4] multiply(%x, %k)",
        OTHERS,
    ),
    "an index behind the end": (
        "f32",
        "%i = s32[] constant(9)\nROOT %r = f32[2] dynamic-slice(%x, %i), dynamic_slice_sizes={2}",
        "ROOT %r = f32[2] slice(%x), slice={[2:4]}",
        EQUIVALENT,
    ),
    "cropped and spread": (
        "f32",
        "%z = f32[] constant(5)\nROOT %r = f32[4] pad(%x, %z), padding=-1_-2_1",
        "%z = f32[1] constant({5})\n%s = f32[1] slice(%x), slice={[1:2]}\n"
        "%t = f32[1] slice(%x), slice={[2:3]}\n"
        "ROOT %r = f32[4] concatenate(%z, %s, %z, %t), dimensions={0}",
        EQUIVALENT,
    ),
    "sorted": (
        "s32",
        SORTED + "lt",
        "%q = s32[4] sort(%x), dimensions={0}, to_apply=%gt\n"
        "ROOT %r = s32[4] reverse(%q), dimensions={0}",
        EQUIVALENT,
    ),
    "sorted downwards": ("s32", SORTED + "lt", SORTED + "gt", OTHERS),
    "sorted by no order": ("s32", SORTED + "lt", SORTED + "le", REFUSED),
    "an order that is not stable": ("s32", ORDER, ORDER.replace(", is_stable=true", ""), REFUSED),
    "an order turned around": (
        "s32",
        ORDER,
        ORDER.replace("ROOT %r", "%g") + "\nROOT %r = s32[4] reverse(%g), dimensions={0}",
        OTHERS,
    ),
    "the last of equal elements": ("f32", POOLED, POOLED.replace("%ge.f", "%gt.f"), UNPROVEN),
    "a sum from a number": ("f32", SUM, SUM.replace("constant(0)", "constant(1)"), OTHERS),
    "a difference": ("f32", SUM, SUM.replace("add", "subtract"), REFUSED),
    "the last": ("f32", SUM, SUM.replace("add.f32", "second"), REFUSED),
    "random numbers": (
        "f32",
        "ROOT %r = f32[4] copy(%x)",
        "%a = f32[] constant(0)\n%b = f32[] constant(1)\n"
        "%n = f32[4] rng(%a, %b), distribution=rng_uniform\nROOT %r = f32[4] add(%x, %n)",
        REFUSED,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_programs_that_differ_in_little(name: str) -> None:
    kind, before, after, expected = PAIRS[name]
    given = f"%x = {kind}[4] parameter(0), sharding={{replicated}}\n"
    texts = (program(given + lines, REGIONS, devices=2) for lines in (before, after))
    assert verdict(*texts) == expected


INDEXED = """%x = f32[8] parameter(0), sharding={replicated}
%i = s32[3,1] parameter(1), sharding={replicated}
%u = f32[3] constant({1, 2, 3})
"""
SCATTERED = (
    "ROOT %r = f32[8] scatter(%x, %i, %u), update_window_dims={}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add.f32"
)
GATHERED = (
    "ROOT %r = f32[3] gather(%x, %i), offset_dims={}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
)
ORIGIN = ', metadata={op_name="here"}'


@pytest.mark.parametrize(
    ("root", "promise"),
    [
        (SCATTERED, "unique_indices"),
        (SCATTERED, "indices_are_sorted"),
        (GATHERED, "indices_are_sorted"),
    ],
)
def test_the_partitioner_makes_no_promises(root: str, promise: str) -> None:
    """XLA may keep either of two updates at one index if it is promised that there are not two."""
    plain = program(INDEXED + root, REGIONS, devices=2)
    promised = program(f"{INDEXED}{root}, {promise}=true", REGIONS, devices=2)
    elsewhere = program(f"{INDEXED}{root}, {promise}=true{ORIGIN}", REGIONS, devices=2)
    assert verdict(plain, plain) == EQUIVALENT
    assert verdict(promised, promised) == EQUIVALENT
    assert verdict(promised, plain) == EQUIVALENT
    assert verdict(plain, promised) == REFUSED
    assert verdict(promised, elsewhere) == REFUSED


PLACES = "%x = f32[8,2] parameter(0), sharding={replicated}\n"
PLACES += "%u = f32[3] parameter(1), sharding={replicated}\n"
FREE = "%j = s32[3,1] parameter(2), sharding={replicated}\n"
ONES = "%v = f32[3] constant({1, 1, 1})\n"
GIVEN = "%v = f32[3] copy(%u)\n"
TURNED = "%v = f32[3] negate(%u)\n"
ROWS = "%k = s32[3,1] constant({ ROWS })\n"


def _put(rows: str, window: int = 1, region: str = "second", more: str = "") -> str:
    """Return a scatter of three numbers at rows, and at free columns."""
    columns, index = ("", "%k") if rows == "free" else (FREE, "%i")
    held = FREE.replace("%j", "%k") if rows == "free" else ROWS.replace("ROWS", rows)
    joined = "" if rows == "free" else "%i = s32[3,2] concatenate(%k, %j), dimensions={1}\n"
    mapped = "{0}" if rows == "free" else "{0,1}"
    shape = "[3,1,2]" if rows == "free" else f"[3,{window},1]"
    wide = f"%w = f32{shape} broadcast(%v), dimensions={{0}}\n"
    return (
        f"{columns}{held}{joined}{wide}ROOT %r = f32[8,2] scatter(%x, {index}, %w), "
        f"update_window_dims={{1,2}}, inserted_window_dims={{}}, "
        f"scatter_dims_to_operand_dims={mapped}, index_vector_dim=1, to_apply=%{region}{more}"
    )


@pytest.mark.parametrize(
    ("numbers", "scatter", "expected"),
    [
        (GIVEN, _put("free"), REFUSED),
        (GIVEN, _put("free", more=", unique_indices=true"), EQUIVALENT),
        (ONES, _put("free"), EQUIVALENT),
        (GIVEN, _put("{5}, {0}, {7}"), EQUIVALENT),
        (GIVEN, _put("{5}, {0}, {5}"), REFUSED),
        (ONES, _put("{5}, {0}, {5}"), EQUIVALENT),
        (GIVEN, _put("{9}, {0}, {9}"), EQUIVALENT),  # both are dropped
        (GIVEN, _put("{5}, {0}, {6}", window=2), REFUSED),  # rows 5 to 6, and 6 to 7
    ],
    ids=["free", "promised", "equal", "known", "twice", "equal twice", "outside", "windows"],
)
def test_what_replaces_must_not_meet_or_be_equal(numbers: str, scatter: str, expected: str) -> None:
    other = numbers.replace("1", "2") if numbers == ONES else TURNED
    text, turned = (program(PLACES + each + scatter, REGIONS) for each in (numbers, other))
    assert verdict(text, text) == expected
    if expected == EQUIVALENT:
        assert verdict(text, turned) == OTHERS


def test_a_number_that_is_put_twice_is_not_added_twice() -> None:
    """Zeros that are set to 1 at one place twice are 1 there."""
    zeros = PLACES.replace("%x", "%y") + "%zero = f32[] constant(0)\n"
    zeros += "%x = f32[8,2] broadcast(%zero), dimensions={}\n" + ONES
    texts = [program(zeros + _put("free", region=each), REGIONS) for each in ("second", "add.f32")]
    assert verdict(*texts) == OTHERS


START = "%x = f32[8] parameter(0), sharding={replicated}\n"
START += "%s = KIND[] parameter(1), sharding={replicated}\n"
SLICED = "ROOT %r = f32[2] dynamic-slice(%x, START), dynamic_slice_sizes={2}"
UPDATED = """%one = f32[] constant(1)
%u = f32[2] broadcast(%one), dimensions={}
ROOT %r = f32[8] dynamic-update-slice(%x, %u, START)"""
CLAMPED = "%z = KIND[] constant(0)\n%m = KIND[] constant(6)\n%k = KIND[] clamp(%z, %s, %m)\n"
WRAPPED = "%n = KIND[] constant(8)\n%k = KIND[] remainder(%s, %n)\n"


@pytest.mark.parametrize("kind", ["s32", "u8"])
@pytest.mark.parametrize("operator", [SLICED, UPDATED], ids=["read", "written"])
@pytest.mark.parametrize(
    ("start", "expected"), [(CLAMPED, EQUIVALENT), (WRAPPED, OTHERS)], ids=["clamped", "wrapped"]
)
def test_starts_of_slices_lie_beyond_the_end_too(
    kind: str, operator: str, start: str, expected: str
) -> None:
    """A start that wraps around is the same for all places of the dimension that fit."""
    before, after = (
        (START + more + operator.replace("START", name)).replace("KIND", kind)
        for more, name in (("", "%s"), (start, "%k"))
    )
    assert verdict(program(before + ", sharding={replicated}"), program(after)) == expected


FROM_END = """%z = s32[] constant(0)
%n = s32[] constant(8)
%b = pred[] compare(%s, %z), direction=LT
%a = s32[] add(%s, %n)
%k = s32[] select(%b, %a, %s)
"""
OF_INNER = """%h = f32[4] dynamic-slice(%x, %k), dynamic_slice_sizes={4}
%i = s32[] constant(2)
ROOT %r = f32[2] dynamic-slice(%h, %i), dynamic_slice_sizes={2}"""
MERGED = """%i = s32[] constant(2)
%t = s32[] add(%k, %i)
ROOT %r = f32[2] dynamic-slice(%x, %t), dynamic_slice_sizes={2}"""
AT_MOST = "%m = s32[] constant(4)\n%k = s32[] clamp(%z, %l, %m)\n"
AT_LEAST = "%z = s32[] constant(0)\n%k = s32[] maximum(%s, %z)\n"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (SLICED.replace("START", "%s"), AT_LEAST + SLICED.replace("START", "%k"), EQUIVALENT),
        (SLICED.replace("START", "%s"), FROM_END + SLICED.replace("START", "%k"), OTHERS),
        # The start of a slice of a slice is clamped twice.
        (FROM_END + OF_INNER, FROM_END + MERGED, OTHERS),
        (
            FROM_END.replace("%k", "%l") + AT_MOST + OF_INNER,
            FROM_END.replace("%k", "%l") + AT_MOST + MERGED,
            EQUIVALENT,
        ),
    ],
    ids=["clamped", "from the end", "merged", "merged and bounded"],
)
def test_starts_of_slices_lie_before_the_begin_too(first: str, second: str, expected: str) -> None:
    texts = [program(START.replace("KIND", "s32") + lines) for lines in (first, second)]
    assert verdict(*texts) == expected


@pytest.mark.parametrize(
    ("kind", "number", "expected"),
    [
        ("f32", "0.0069444445", EQUIVALENT),
        ("f32", "-0.0069444445", OTHERS),
        ("f32", "0.00699300691", OTHERS),  # 1/143
        ("f32", "0.006944444", UNPROVEN),  # the float32 below the one nearest to 1/144
        ("f32", "0.00694444", OTHERS),  # 1e-6 of it away
        ("f64", "0.0069444445", OTHERS),
        ("f64", "0.0069444444444444441", EQUIVALENT),
        ("bf16", "0.006958", EQUIVALENT),
    ],
)
def test_a_literal_stands_for_the_fraction_that_rounds_to_it(
    kind: str, number: str, expected: str
) -> None:
    given = f"%x = {kind}[4] parameter(0), sharding={{replicated}}\n"
    quotient, product = (
        f"{given}%c = {kind}[] constant({c})\n%d = {kind}[4] broadcast(%c), dimensions={{}}\n"
        f"ROOT %r = {kind}[4] {operator}(%x, %d)"
        for operator, c in (("divide", "144"), ("multiply", number))
    )
    before, after = program(quotient + ", sharding={replicated}"), program(product)
    assert verdict(before, after) == expected


SCALED = "%x = f32[4] parameter(0), sharding={replicated}\n"


def scaled(*factors: str) -> str:
    """Return a program that multiplies by numbers, those with a slash before them divide."""
    lines, last = SCALED, "x"
    for place, factor in enumerate(factors):
        opcode = "divide" if factor[0] == "/" else "multiply"
        lines += _filled(f"k{place}", "f32", factor.lstrip("/"))
        lines += f"%y{place} = f32[4] {opcode}(%{last}, %k{place})\n"
        last = f"y{place}"
    return program(f"{lines}ROOT %r = f32[4] copy(%{last})")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["/5.65685415"], ["0.176776692"], EQUIVALENT),  # sqrt(32)
        (["/5.65685415"], ["0.1767766"], OTHERS),
        (["0.797884583"], ["0.564189613", "1.41421354"], EQUIVALENT),  # 1/sqrt(pi)
        (["/2097152"], ["4.76837158e-07"], EQUIVALENT),  # 2^-21
        (["/2097152"], ["4.7683761e-07"], OTHERS),  # 1/2097150
        (["1e-06"], ["9.99999997e-07"], EQUIVALENT),  # one float32, written twice
        (["1e-06"], ["1e-05"], OTHERS),
        (["3", "3.14159274"], ["9.42477798"], UNPROVEN),
        (["3", "3.14159274"], ["9.42478"], UNPROVEN),  # within four such steps
        (["3", "3.14159274"], ["9.4249"], OTHERS),
        # A literal of both is no excuse: it moves both, and not their difference.
        (["3.14159274"], ["3.14159274", "1.00001"], OTHERS),
        (["3.14159274", "0.1"], ["3.14159274", "0.11"], OTHERS),
    ],
)
def test_literals_are_known_to_their_rounding(
    first: list[str], second: list[str], expected: str
) -> None:
    assert verdict(scaled(*first), scaled(*second)) == expected


def test_each_float32_stands_for_a_number_that_rounds_to_it_alone() -> None:
    rng = np.random.default_rng(1)
    floats = (rng.integers(1, 4000, 2000) / rng.integers(1, 4000, 2000)).astype(np.float32)
    for number in {float(x) for x in (*floats, *(np.float32(2) ** np.arange(-140, 20)))}:
        found = meant(Fraction(repr(np.float32(number).item())), ElementType.F32)
        assert np.float32(float(found)) == np.float32(number)
