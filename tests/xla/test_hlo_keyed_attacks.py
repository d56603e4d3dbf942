"""Random numbers in programs that are nearly the same: of another key, place, type or algorithm.

Each program is an edit of both texts of one that is proven. A text that is refused is never a
mismatch: nothing is known of numbers that the other program has not.
"""

from __future__ import annotations

import pytest
from xla.hlo_attacks import EQUIVALENT, OTHERS, REFUSED, program

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.pair import attempts_on
from pitcheck.frontends.xla.text.parser import parse_hlo

BITS = """%c = u32[] constant(9)
%n = u32[{size}] broadcast(%c), dimensions={{}}
%s = u32[{size}] shift-right-logical({bits}, %n)
%o = u32[] constant(1065353216)
%e = u32[{size}] broadcast(%o), dimensions={{}}
%p = u32[{size}] or(%s, %e)
%u = f32[{size}] bitcast-convert(%p)
"""
GENERATED = """%k = u64[2] parameter(0), sharding={replicated}
%g = (u64[2], u32[8]) rng-bit-generator(%k), algorithm=rng_philox
%b = u32[8] get-tuple-element(%g), index=1
"""
BEFORE = (
    "%x = f32[8] parameter(1), sharding={devices=[4]<=[4]}\n"
    + GENERATED
    + BITS.format(size=8, bits="%b")
    + "ROOT %r = f32[8] multiply(%x, %u), sharding={devices=[4]<=[4]}"
)
AFTER = (
    "%x = f32[2] parameter(1), sharding={devices=[4]<=[4]}\n"
    + GENERATED
    + """%t = s32[4] constant({0, 2, 4, 6})
    %d = u32[] partition-id()
    %f = s32[1] dynamic-slice(%t, %d), dynamic_slice_sizes={1}
    %a = s32[] reshape(%f)
    %q = u32[2] dynamic-slice(%b, %a), dynamic_slice_sizes={2}
    """
    + BITS.format(size=2, bits="%q")
    + "ROOT %r = f32[2] multiply(%x, %u)"
)
ALL = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
Edits = tuple[tuple[str, str], ...]


def decided(before: str, after: str) -> str:
    """Return the verdict on two texts as the command gives it."""
    verdict = REFUSED
    try:
        for attempt in attempts_on(parse_hlo(before), parse_hlo(after)):
            found = check(*attempt.plans, Options(seed=1, jobs=1, explain=False)).verdict
            if found == EQUIVALENT or attempt.decides:
                verdict = found
            if found == EQUIVALENT:
                break
    except (PlanError, UnsupportedError):
        return REFUSED
    return verdict


def edited(text: str, edits: Edits) -> str:
    """Return a text with each edit made where it is, once at least."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def both(*edits: tuple[str, str]) -> tuple[Edits, Edits]:
    """Return the same edits of both texts."""
    return edits, edits


def _sent(pairs: str) -> str:
    moved = "%q = u32[2] collective-permute(%q0), channel_id=1, source_target_pairs={"
    return f"{moved}{pairs}}}\n%c = "


GENERATOR = "rng-bit-generator(%k)"

CASES: dict[str, tuple[str, Edits, Edits]] = {
    "the same": (EQUIVALENT, (), ()),
    "a part that is not needed": (
        EQUIVALENT,
        (
            ("multiply(%x, %u)", "multiply(%x, %w)"),
            (
                "ROOT",
                "%v = f32[2] slice(%u), slice={[2:4]}\n"
                "%w = f32[8] concatenate(%v, %v, %v, %v), dimensions={0}\nROOT",
            ),
        ),
        (("0, 2, 4, 6", "2, 2, 2, 2"),),
    ),
    "another part": (
        OTHERS,
        (
            ("multiply(%x, %u)", "multiply(%x, %w)"),
            (
                "ROOT",
                "%v = f32[2] slice(%u), slice={[2:4]}\n"
                "%w = f32[8] concatenate(%v, %v, %v, %v), dimensions={0}\nROOT",
            ),
        ),
        (("0, 2, 4, 6", "2, 2, 4, 2"),),
    ),
    "the first block everywhere": (OTHERS, (), (("0, 2, 4, 6", "0, 0, 0, 0"),)),
    "two blocks swapped": (OTHERS, (), (("0, 2, 4, 6", "2, 0, 4, 6"),)),
    "a block one further": (OTHERS, (), (("0, 2, 4, 6", "0, 2, 3, 6"),)),
    "no random numbers": (OTHERS, (), (("multiply(%x, %u)", "copy(%x)"),)),
    "their square": (OTHERS, (), (("multiply(%x, %u)", "multiply(%u, %u)"),)),
    "generated anew in the shape of a part": (
        REFUSED,
        (),
        (
            ("u32[8]) rng", "u32[2]) rng"),
            ("%b = u32[8]", "%b = u32[2]"),
            ("%q = u32[2] dynamic-slice(%b, %a), dynamic_slice_sizes={2}", "%q = u32[2] copy(%b)"),
        ),
    ),
    "another algorithm": (REFUSED, (), (("rng_philox", "rng_three_fry"),)),
    "the algorithm of the platform": (REFUSED, (), (("rng_philox", "rng_default"),)),
    "words of the key swapped": (
        REFUSED,
        (),
        (
            ("%g = ", "%k2 = u64[2] reverse(%k), dimensions={0}\n%g = "),
            (GENERATOR, "rng-bit-generator(%k2)"),
        ),
    ),
    "the new state": (
        REFUSED,
        (),
        (
            ("%g = ", f"%g0 = (u64[2], u32[8]) {GENERATOR}, algorithm=rng_philox\n%g = "),
            (
                f"%g = (u64[2], u32[8]) {GENERATOR}",
                "%k2 = u64[2] get-tuple-element(%g0), index=0\n"
                "%g = (u64[2], u32[8]) rng-bit-generator(%k2)",
            ),
        ),
    ),
    "a key of each device": (
        REFUSED,
        (),
        (
            (
                "%g = ",
                "%i = u32[] partition-id()\n%j = u64[] convert(%i)\n"
                "%w = u64[2] broadcast(%j), dimensions={}\n%k2 = u64[2] add(%k, %w)\n%g = ",
            ),
            (GENERATOR, "rng-bit-generator(%k2)"),
        ),
    ),
    "0 added to the key": (
        REFUSED,
        (),
        (
            (
                "%g = ",
                "%j = u64[] constant(0)\n%w = u64[2] broadcast(%j), dimensions={}\n"
                "%k2 = u64[2] add(%k, %w)\n%g = ",
            ),
            (GENERATOR, "rng-bit-generator(%k2)"),
        ),
    ),
    "more bits at once": (
        REFUSED,
        (),
        (("u32[8]) rng", "u32[16]) rng"), ("%b = u32[8]", "%b = u32[16]")),
    ),
    "bits of two dimensions": (
        REFUSED,
        (),
        (
            ("u32[8]) rng", "u32[2,4]) rng"),
            ("%b = u32[8] get-tuple-element(%g)", "%h = u32[2,4] get-tuple-element(%g)"),
            ("%t = ", "%b = u32[8] reshape(%h)\n%t = "),
        ),
    ),
    "wider bits": (
        REFUSED,
        (),
        (
            ("u32[8]) rng", "u64[8]) rng"),
            ("%b = u32[8] get-tuple-element(%g)", "%h = u64[8] get-tuple-element(%g)"),
            ("%t = ", "%b = u32[8] convert(%h)\n%t = "),
        ),
    ),
    "shifted by one less": (REFUSED, (), (("constant(9)", "constant(8)"),)),
    "shifted with the sign": (
        REFUSED,
        (),
        (("shift-right-logical", "shift-right-arithmetic"),),
    ),
    "another exponent": (REFUSED, (), (("1065353216", "1056964608"),)),
    "an exclusive disjunction": (REFUSED, (), (("or(", "xor("),)),
    "a conjunction": (REFUSED, (), (("or(", "and("),)),
    "operands in the other order": (EQUIVALENT, (), (("or(%s, %e)", "or(%e, %s)"),)),
    "a shift in the other order": (
        REFUSED,
        (),
        (("shift-right-logical(%q, %n)", "shift-right-logical(%n, %q)"),),
    ),
    "a constant of another type that is converted": (
        EQUIVALENT,
        (),
        (("%c = u32[] constant(9)", "%c0 = s64[] constant(9)\n%c = u32[] convert(%c0)"),),
    ),
    "bits that are converted and back": (
        REFUSED,
        (),
        (
            ("%s = ", "%q1 = s32[2] convert(%q)\n%q2 = u32[2] convert(%q1)\n%s = "),
            ("logical(%q,", "logical(%q2,"),
        ),
    ),
    "fewer bits that are converted back": (
        REFUSED,
        (),
        (
            ("%s = ", "%q1 = u16[2] convert(%q)\n%q2 = u32[2] convert(%q1)\n%s = "),
            ("logical(%q,", "logical(%q2,"),
        ),
    ),
    "bits that may be no number": (REFUSED, *both(("or(%s, %e)", "copy(%s)"), ("t(9)", "t(0)"))),
    "bits that may be infinite": (REFUSED, *both(("1065353216", "2139095040"))),
    "bits that may be negative": (REFUSED, *both(("1065353216", "3212836864"))),
    "bits of which a shift may leave the sign": (
        REFUSED,
        *both(("shift-right-logical", "shift-right-arithmetic"), ("1065353216", "0")),
    ),
    "bits below infinity": (EQUIVALENT, *both(("t(9)", "t(2)"), ("1065353216", "0"))),
    "one number for all": (
        REFUSED,
        (
            ("%s = ", "%b1 = u32[1] slice(%b), slice={[0:1]}\n%b2 = u32[] reshape(%b1)\n%b3 = "),
            ("%b3 = u32[8] shift", "%b3 = u32[8] broadcast(%b2), dimensions={}\n%s = u32[8] shift"),
            ("logical(%b,", "logical(%b3,"),
        ),
        (),
    ),
    "the first block, and again": (
        REFUSED,
        (),
        (
            (
                "%q = u32[2] dynamic-slice(%b, %a), dynamic_slice_sizes={2}",
                "%b1 = u32[1] slice(%b), slice={[0:1]}\n%b2 = u32[] reshape(%b1)\n"
                "%q = u32[2] broadcast(%b2), dimensions={}",
            ),
        ),
    ),
    "turned around": (
        REFUSED,
        (),
        (
            ("%q = ", "%q0 = "),
            ("%c = ", "%q = u32[2] reverse(%q0), dimensions={0}\n%c = "),
        ),
    ),
    "sent around and back": (
        EQUIVALENT,
        (),
        (
            ("0, 2, 4, 6", "2, 4, 6, 0"),
            ("%q = ", "%q0 = "),
            ("%c = ", _sent("{0,1},{1,2},{2,3},{3,0}")),
        ),
    ),
    "sent around the other way": (
        OTHERS,
        (),
        (
            ("0, 2, 4, 6", "2, 4, 6, 0"),
            ("%q = ", "%q0 = "),
            ("%c = ", _sent("{0,3},{1,0},{2,1},{3,2}")),
        ),
    ),
    "sent to all but one": (
        REFUSED,
        (),
        (
            ("0, 2, 4, 6", "2, 4, 6, 0"),
            ("%q = ", "%q0 = "),
            ("%c = ", _sent("{0,1},{1,2},{2,3}")),
        ),
    ),
    "gathered and cut": (
        EQUIVALENT,
        (),
        (
            ("%q = ", "%q0 = "),
            (
                "%c = ",
                f"%q1 = u32[8] all-gather(%q0), {ALL}, dimensions={{0}}\n"
                "%q = u32[2] dynamic-slice(%q1, %a), dynamic_slice_sizes={2}\n%c = ",
            ),
        ),
    ),
    "gathered in another order and cut": (
        REFUSED,
        (),
        (
            ("%q = ", "%q0 = "),
            (
                "%c = ",
                f"%q1 = u32[8] all-gather(%q0), {ALL.replace('0,1,2,3', '1,0,2,3')}, "
                "dimensions={0}\n"
                "%q2 = u32[8] reverse(%q1), dimensions={0}\n"
                "%q = u32[2] dynamic-slice(%q2, %a), dynamic_slice_sizes={2}\n%c = ",
            ),
        ),
    ),
    "exchanged and cut": (
        EQUIVALENT,
        (),
        (
            ("%q = ", "%q0 = "),
            (
                "%c = ",
                "%q1 = u32[8] concatenate(%q0, %q0, %q0, %q0), dimensions={0}\n"
                "%q2 = u32[8] all-to-all(%q1), channel_id=2, replica_groups={{0,1,2,3}}, "
                "dimensions={0}\n"
                "%q = u32[2] dynamic-slice(%q2, %a), dynamic_slice_sizes={2}\n%c = ",
            ),
        ),
    ),
    "each device's part four times": (
        OTHERS,
        (),
        (
            ("0, 2, 4, 6", "0, 0, 0, 0"),
            ("%q = ", "%q0 = "),
            (
                "%c = ",
                f"%q1 = u32[8] all-gather(%q0), {ALL}, dimensions={{0}}\n"
                "%q = u32[2] dynamic-slice(%q1, %a), dynamic_slice_sizes={2}\n%c = ",
            ),
        ),
    ),
    "chosen by a mask that is known": (
        EQUIVALENT,
        (),
        (
            ("%q = ", "%q0 = "),
            (
                "%c = ",
                "%m0 = s32[] constant(4)\n%m1 = pred[] compare(%a, %m0), direction=LT\n"
                "%m = pred[2] broadcast(%m1), dimensions={}\n"
                "%y = u32[2] select(%m, %q0, %n0)\n"
                "%q = u32[2] select(%m, %y, %q0)\n%c = ",
            ),
            (
                "%m0 = ",
                "%l0 = u32[] constant(3)\n%n0 = u32[2] broadcast(%l0), dimensions={}\n%m0 = ",
            ),
        ),
    ),
    "chosen by the wrong mask": (
        REFUSED,
        (),
        (
            ("%q = ", "%q0 = "),
            (
                "%c = ",
                "%l0 = u32[] constant(3)\n%n0 = u32[2] broadcast(%l0), dimensions={}\n"
                "%m0 = s32[] constant(4)\n%m1 = pred[] compare(%a, %m0), direction=LT\n"
                "%m = pred[2] broadcast(%m1), dimensions={}\n"
                "%q = u32[2] select(%m, %q0, %n0)\n%c = ",
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_random_numbers_are_told_apart(name: str) -> None:
    expected, first, second = CASES[name]
    before, after = edited(BEFORE, first), edited(AFTER, second)
    assert decided(program(before), program(after)) == expected


N = "%{name} = u32[{size}] parameter({number}), sharding={{devices=[4]<=[4]}}\n"
WHOLE = "".join(N.format(name=n, size=8, number=i) for i, n in enumerate("abc"))
PART = "".join(N.format(name=n, size=2, number=i) for i, n in enumerate("abc"))
SHARDED = "sharding={devices=[4]<=[4]}"
INTEGERS: dict[str, tuple[str, str, str]] = {
    "a sum that wraps": (
        EQUIVALENT,
        "ROOT %r = u32[8] add(%a, %b)",
        "ROOT %r = u32[2] add(%b, %a)",
    ),
    "sums in another order": (
        REFUSED,
        "%s = u32[8] add(%a, %b)\nROOT %r = u32[8] add(%s, %c)",
        "%s = u32[2] add(%b, %c)\nROOT %r = u32[2] add(%a, %s)",
    ),
    "a difference the other way round": (
        REFUSED,
        "ROOT %r = u32[8] subtract(%a, %b)",
        "ROOT %r = u32[2] subtract(%b, %a)",
    ),
    "of another parameter": (
        REFUSED,
        "ROOT %r = u32[8] xor(%a, %b)",
        "ROOT %r = u32[2] xor(%a, %c)",
    ),
    "0 in another way": (
        REFUSED,
        "ROOT %r = u32[8] xor(%a, %a)",
        "ROOT %r = u32[2] subtract(%a, %a)",
    ),
    "compared with and without sign": (
        REFUSED,
        "%s = u32[8] add(%a, %b)\nROOT %r = pred[8] compare(%s, %c), direction=LT",
        "%s = u32[2] add(%a, %b)\n%t = s32[2] bitcast-convert(%s)\n"
        "%d = s32[2] bitcast-convert(%c)\nROOT %r = pred[2] compare(%t, %d), direction=LT",
    ),
    "compared": (
        EQUIVALENT,
        "%s = u32[8] add(%a, %b)\nROOT %r = pred[8] compare(%s, %c), direction=LT",
        "%s = u32[2] add(%a, %b)\nROOT %r = pred[2] compare(%s, %c), direction=LT",
    ),
    "compared the other way round": (
        REFUSED,
        "%s = u32[8] add(%a, %b)\nROOT %r = pred[8] compare(%s, %c), direction=LT",
        "%s = u32[2] add(%a, %b)\nROOT %r = pred[2] compare(%c, %s), direction=LT",
    ),
    "ones counted": (
        EQUIVALENT,
        "%s = u32[8] xor(%a, %b)\nROOT %r = u32[8] popcnt(%s)",
        "%s = u32[2] xor(%a, %b)\nROOT %r = u32[2] popcnt(%s)",
    ),
    "zeros counted": (
        REFUSED,
        "%s = u32[8] xor(%a, %b)\nROOT %r = u32[8] popcnt(%s)",
        "%s = u32[2] xor(%a, %b)\nROOT %r = u32[2] count-leading-zeros(%s)",
    ),
    "divided by what may be 0": (
        REFUSED,
        "%s = u32[8] divide(%a, %b)\n%t = u32[8] multiply(%s, %b)\n"
        "%v = u32[8] remainder(%a, %b)\nROOT %r = u32[8] add(%t, %v)",
        "ROOT %r = u32[2] copy(%a)",
    ),
    "a part of the whole": (
        REFUSED,
        "%s = u32[8] xor(%a, %b)\n%t = u32[8] reverse(%s), dimensions={0}\n"
        "ROOT %r = u32[8] xor(%t, %c)",
        "%s = u32[2] xor(%a, %b)\n%t = u32[2] reverse(%s), dimensions={0}\n"
        "ROOT %r = u32[2] xor(%t, %c)",
    ),
    "halves of wide integers": (
        EQUIVALENT,
        "%s = u32[4,2] reshape(%a)\n%t = u64[4] bitcast-convert(%s)\n%v = u64[4] add(%t, %t)\n"
        "%w = u32[4,2] bitcast-convert(%v)\nROOT %r = u32[8] reshape(%w)",
        "%s = u32[1,2] reshape(%a)\n%t = u64[1] bitcast-convert(%s)\n%v = u64[1] add(%t, %t)\n"
        "%w = u32[1,2] bitcast-convert(%v)\nROOT %r = u32[2] reshape(%w)",
    ),
    "halves swapped": (
        REFUSED,
        "%s = u32[4,2] reshape(%a)\n%t = u64[4] bitcast-convert(%s)\n%v = u64[4] add(%t, %t)\n"
        "%w = u32[4,2] bitcast-convert(%v)\nROOT %r = u32[8] reshape(%w)",
        "%s0 = u32[1,2] reshape(%a)\n%s = u32[1,2] reverse(%s0), dimensions={1}\n"
        "%t = u64[1] bitcast-convert(%s)\n%v = u64[1] add(%t, %t)\n"
        "%w = u32[1,2] bitcast-convert(%v)\nROOT %r = u32[2] reshape(%w)",
    ),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_wrap_are_equal_or_nothing_is_said(name: str) -> None:
    """Bits that no generator has mixed are no mismatch: they may be the same in another way."""
    expected, before, after = INTEGERS[name]
    first = program(f"{WHOLE}{before}, {SHARDED}")
    assert decided(first, program(PART + after)) == expected


KEYS = """%k = u32[6] parameter(0), sharding={{devices=[4]<=[4]}}
{gathered}%w = u32[4] slice({whole}), slice={{[{start}:{stop}]}}
%g = (u32[4], u32[8]) rng-bit-generator(%w), algorithm=rng_philox
%b = u32[8] get-tuple-element(%g), index=1
ROOT %r = u32[8] copy(%b){sharding}"""


@pytest.mark.parametrize(
    ("start", "expected"), [(0, EQUIVALENT), (2, REFUSED), (1, REFUSED), (4, REFUSED)]
)
def test_a_key_that_is_filled_up(start: int, expected: str) -> None:
    before = KEYS.format(
        gathered="", whole="%k", start=0, stop=4, sharding=", sharding={replicated}"
    )
    gathered = f"%l = u32[8] all-gather(%k), {ALL}, dimensions={{0}}\n"
    after = KEYS.format(
        gathered=gathered, whole="%l", start=start, stop=start + 4, sharding=""
    ).replace("%k = u32[6]", "%k = u32[2]")
    assert decided(program(before), program(after)) == expected


LOOP = """%cond (s: (s32[], u64[2], f32[{n}])) -> pred[] {{
  %s = (s32[], u64[2], f32[{n}]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %m = s32[] constant({steps})
  ROOT %l = pred[] compare(%i, %m), direction=LT
}}
%body (s: (s32[], u64[2], f32[{n}])) -> (s32[], u64[2], f32[{n}]) {{
  %s = (s32[], u64[2], f32[{n}]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %k = u64[2] get-tuple-element(%s), index=1
  %x = f32[{n}] get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  %g = (u64[2], u32[8]) rng-bit-generator(%k), algorithm=rng_philox
  %k2 = u64[2] get-tuple-element(%g), index=0
  %b = u32[8] get-tuple-element(%g), index=1
  {cut}
  %c = u32[] constant(9)
  %h = u32[{n}] broadcast(%c), dimensions={{}}
  %v = u32[{n}] shift-right-logical(%q, %h)
  %o = u32[] constant(1065353216)
  %e = u32[{n}] broadcast(%o), dimensions={{}}
  %p = u32[{n}] or(%v, %e)
  %u = f32[{n}] bitcast-convert(%p)
  %y = f32[{n}] multiply(%x, %u)
  ROOT %r = (s32[], u64[2], f32[{n}]) tuple(%j, {key}, %y)
}}
"""
CUT = """%t = s32[4] constant({0, 2, 4, 6})
%d = u32[] partition-id()
%f = s32[1] dynamic-slice(%t, %d), dynamic_slice_sizes={1}
%a = s32[] reshape(%f)
%q = u32[2] dynamic-slice(%b, %a), dynamic_slice_sizes={2}"""
STATE = "sharding={{replicated}, {replicated}, {devices=[4]<=[4]}}"
ENTRY = """%k = u64[2] parameter(0), sharding={{replicated}}
%x = f32[{n}] parameter(1), sharding={{devices=[4]<=[4]}}
%z = s32[] constant(0)
%s = (s32[], u64[2], f32[{n}]) tuple(%z, %k, %x)
%w = (s32[], u64[2], f32[{n}]) while(%s), condition=%cond, body=%body{state}
ROOT %r = f32[{n}] get-tuple-element(%w), index=2{sharding}"""


@pytest.mark.parametrize(
    ("keys", "steps", "expected"),
    [
        (("%k2", "%k2"), (3, 3), EQUIVALENT),
        (("%k", "%k"), (3, 3), EQUIVALENT),
        (("%k", "%k"), (300, 300), EQUIVALENT),
        (("%k2", "%k"), (3, 3), OTHERS),
        (("%k", "%k2"), (3, 3), REFUSED),
        (("%k2", "%k2"), (3, 2), OTHERS),
        (("%k2", "%k2"), (2, 3), REFUSED),
    ],
)
def test_a_key_that_a_loop_carries(
    keys: tuple[str, str], steps: tuple[int, int], expected: str
) -> None:
    first = LOOP.format(n=8, steps=steps[0], key=keys[0], cut="%q = u32[8] copy(%b)")
    second = LOOP.format(n=2, steps=steps[1], key=keys[1], cut=CUT)
    sharding = ", sharding={devices=[4]<=[4]}"
    before = program(ENTRY.format(n=8, state=f", {STATE}", sharding=sharding), first)
    after = program(ENTRY.format(n=2, state="", sharding=""), second)
    assert decided(before, after) == expected
