"""Near misses of what a text tells: of signs and remainders, and of padding by random numbers."""

from __future__ import annotations

import pytest
from xla.hlo_attacks import EQUIVALENT, OTHERS, REFUSED, program, region, verdict
from xla.test_hlo_keyed_attacks import ALL, BITS, decided

from pitcheck.frontends.xla.lowering.index_ranges import index_ranges
from pitcheck.frontends.xla.text.parser import parse_hlo

ARGUMENTS = """%i = s32[4] parameter(0), sharding={replicated}
%j = s32[4] parameter(1), sharding={replicated}
%a = f32[4] parameter(2), sharding={replicated}
%b = f32[4] parameter(3), sharding={replicated}
"""
NUMBERS = """%zero = s32[] constant(0)
%zeros = s32[4] broadcast(%zero), dimensions={}
%one = s32[] constant(1)
%ones = s32[4] broadcast(%one), dimensions={}
%three = s32[] constant(3)
%threes = s32[4] broadcast(%three), dimensions={}
%natural = s32[4] maximum(%i, %zeros)
"""
LESS = (
    "%less (a: s32[], b: s32[]) -> pred[] {\n  %a = s32[] parameter(0)\n  %b = s32[] parameter(1)\n"
    "  ROOT %c = pred[] compare(%a, %b), direction=LT\n}\n"
)


def _condition(made: str, of_sign: str, of_remainder: str, joined: str = "and") -> str:
    """Return a text that gives b unless a condition holds for ``%y``, then a.

    ``made``: the lines that make ``%y``, and ``%w``, of which the remainder is taken.
    """
    more = "" if "%w = " in made else "%w = s32[4] copy(%y)\n"
    lines = f"""{ARGUMENTS}{NUMBERS}{made}
    {more}%s = s32[4] sign(%y)
    %m = s32[4] remainder(%w, %threes)
    %p = pred[4] compare(%s, %ones), direction={of_sign}
    %q = pred[4] compare(%m, %zeros), direction={of_remainder}
    %c = pred[4] {joined}(%p, %q)
    ROOT %r = f32[4] select(%c, %a, %b), sharding={{replicated}}"""
    return program(lines.replace("\n\n", "\n"), LESS, 2)


NATURAL = "%y = s32[4] copy(%natural)"
CONDITIONS: dict[str, tuple[str, str]] = {
    "of natural numbers": (_condition(NATURAL, "NE", "NE"), EQUIVALENT),
    "of places": (
        _condition(
            "%n = s32[4] iota(), iota_dimension=0\n"
            "%t = (s32[4], s32[4]) sort(%i, %n), dimensions={0}, is_stable=true, to_apply=%by\n"
            "%y = s32[4] get-tuple-element(%t), index=1",
            "NE",
            "GT",
        ).replace(
            LESS,
            LESS + "%by (a: s32[], b: s32[], c: s32[], d: s32[]) -> pred[] {\n"
            "  %a = s32[] parameter(0)\n  %b = s32[] parameter(1)\n  %c = s32[] parameter(2)\n"
            "  %d = s32[] parameter(3)\n  ROOT %e = pred[] compare(%a, %b), direction=LT\n}\n",
        ),
        EQUIVALENT,
    ),
    "of numbers that may be negative": (_condition("%y = s32[4] copy(%i)", "NE", "NE"), OTHERS),
    "of numbers moved below 0": (
        _condition("%y = s32[4] subtract(%natural, %ones)", "NE", "NE"),
        OTHERS,
    ),
    "of numbers at most 3": (_condition("%y = s32[4] minimum(%i, %threes)", "NE", "NE"), OTHERS),
    "of numbers with a negative one beside": (
        _condition(
            "%less1 = s32[] constant(-1)\n%y = s32[4] pad(%natural, %less1), padding=1_-1",
            "NE",
            "NE",
        ),
        OTHERS,
    ),
    "of two arrays": (
        _condition(f"{NATURAL}\n%w = s32[4] maximum(%j, %zeros)", "NE", "NE"),
        OTHERS,
    ),
    "of an array turned around": (
        _condition(f"{NATURAL}\n%w = s32[4] reverse(%natural), dimensions={{0}}", "NE", "NE"),
        OTHERS,
    ),
    "of one of two arrays": (
        _condition(
            "%k = pred[4] compare(%j, %zeros), direction=LT\n%y = s32[4] select(%k, %j, %natural)",
            "NE",
            "NE",
        ),
        OTHERS,
    ),
    "with a sign": (_condition(NATURAL, "EQ", "NE"), OTHERS),
    "with a sign below 1 and no remainder": (_condition(NATURAL, "LT", "EQ"), OTHERS),
    "without a remainder": (_condition(NATURAL, "NE", "EQ"), OTHERS),
    "one or the other": (_condition(NATURAL, "NE", "NE", "or"), OTHERS),
    "one alone": (_condition(NATURAL, "NE", "NE", "xor"), OTHERS),
}
NEVER = program(f"{ARGUMENTS}ROOT %r = f32[4] copy(%b)", "", 2)


@pytest.mark.parametrize("name", CONDITIONS)
def test_only_truths_that_never_both_hold_contradict_each_other(name: str) -> None:
    text, expected = CONDITIONS[name]
    assert verdict(text, NEVER) == expected


GENERATED = """%k = u64[2] parameter(0), sharding={replicated}
%g = (u64[2], u32[16]) rng-bit-generator(%k), algorithm=rng_philox
%b = u32[16] get-tuple-element(%g), index=1
"""
BLOCK = """%t = s32[4] constant({{{starts}}})
%d = u32[] partition-id()
%f = s32[1] dynamic-slice(%t, %d), dynamic_slice_sizes={{1}}
%h = s32[] reshape(%f)
%q = u32[{size}] dynamic-slice(%b, %h), dynamic_slice_sizes={{{size}}}
"""
EACH = "sharding={devices=[4]<=[4]}"


def _product(size: int, starts: str) -> tuple[str, str]:
    """Return texts of x u, filled up to two numbers on each of four devices."""
    first = BITS.format(size=size, bits="%v")
    before = (
        f"%x = f32[{size}] parameter(1), {EACH}\n{GENERATED}"
        f"%v = u32[{size}] slice(%b), slice={{[0:{size}]}}\n"
        f"{first}ROOT %r = f32[{size}] multiply(%x, %u), {EACH}"
    )
    block = BLOCK.format(size=2, starts=starts) + BITS.format(size=2, bits="%q")
    after = f"%x = f32[2] parameter(1), {EACH}\n{GENERATED}{block}ROOT %r = f32[2] multiply(%x, %u)"
    return program(before), program(after)


def _difference(starts: str) -> tuple[str, str]:
    """Return texts of x and y u, in which the difference of two devices' padding is added to x."""
    results = "ROOT %r = (f32[4], f32[{}]) tuple({}, %m){}"
    before = (
        f"%x = f32[4] parameter(1), sharding={{replicated}}\n{GENERATED}"
        "%v = u32[2] slice(%b), slice={[0:2]}\n"
        f"{BITS.format(size=2, bits='%v')}%y = f32[2] parameter(2), {EACH}\n"
        "%m = f32[2] multiply(%y, %u)\n"
        + results.format(2, "%x", ", sharding={{replicated}, {devices=[4]<=[4]}}")
    )
    after = (
        f"%x = f32[4] parameter(1), sharding={{replicated}}\n{GENERATED}"
        f"{BLOCK.format(size=1, starts=starts)}{BITS.format(size=1, bits='%q')}"
        f"""%y = f32[1] parameter(2), {EACH}
        %m = f32[1] multiply(%y, %u)
        %sent = f32[1] collective-permute(%u), channel_id=2, source_target_pairs={{{{3,2}}}}
        %apart = f32[1] subtract(%u, %sent)
        %two = u32[] constant(2)
        %is = pred[] compare(%d, %two), direction=EQ
        %wide = pred[1] broadcast(%is), dimensions={{}}
        %none = f32[] constant(0)
        %nones = f32[1] broadcast(%none), dimensions={{}}
        %mine = f32[1] select(%wide, %apart, %nones)
        %all = f32[1] all-reduce(%mine), to_apply=%add.f32, {ALL}
        %number = f32[] reshape(%all)
        %more = f32[4] broadcast(%number), dimensions={{}}
        %sum = f32[4] add(%x, %more)
        """ + results.format(1, "%sum", "")
    )
    return program(before, region("add")), program(after, region("add"))


PADDED: dict[str, tuple[tuple[str, str], str]] = {
    "by what comes next": (_product(6, "0, 2, 4, 6"), EQUIVALENT),
    "by what comes later": (_product(6, "0, 2, 4, 10"), EQUIVALENT),
    "by numbers that are in use": (_product(6, "0, 2, 4, 0"), EQUIVALENT),
    "in the middle of a block": (_product(5, "0, 2, 4, 6"), EQUIVALENT),
    "from one number too early": (_product(5, "0, 2, 3, 6"), OTHERS),
    "from one number too late": (_product(6, "0, 2, 5, 6"), REFUSED),
    "in place of the first block": (_product(5, "8, 2, 4, 6"), REFUSED),
    "by different numbers, which count": (_difference("0, 1, 2, 3"), OTHERS),
    "by two numbers that are in use": (_difference("0, 1, 0, 1"), OTHERS),
    "by one number that is in use": (_difference("0, 1, 0, 0"), EQUIVALENT),
    # Both devices hold the same number, so nothing is added to x; the plan has two of which
    # nothing is known.
    "by one number on two devices": (_difference("0, 1, 2, 2"), REFUSED),
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_by_random_numbers(name: str) -> None:
    texts, expected = PADDED[name]
    assert decided(*texts) == expected


@pytest.mark.parametrize(("root", "expected"), [("taken", {1: (0, 4)}), ("sum", {})])
def test_what_no_result_needs_bounds_no_integers(
    root: str, expected: dict[int, tuple[int, int]]
) -> None:
    """Rows that nobody reads are no reason to take their indices to lie within a table."""
    shape = "f32[3,2]{1,0}" if root == "taken" else "f32[3]{0}"
    rows = (
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,2}"
    )
    text = f"""HloModule m, num_partitions=1

ENTRY %main (t: f32[4,2], i: s8[3]) -> {shape} {{
  %t = f32[4,2]{{1,0}} parameter(0)
  %i = s8[3]{{0}} parameter(1)
  %taken = f32[3,2]{{1,0}} gather(%t, %i), {rows}
  %sum = f32[3]{{0}} convert(%i)
  ROOT %result = {shape} copy(%{root})
}}
"""
    assert index_ranges(parse_hlo(text)) == expected
