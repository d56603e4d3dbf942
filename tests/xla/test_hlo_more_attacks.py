"""More programs of random numbers that are nearly the same, and texts that no compiler writes.

Each program is that of ``test_hlo_keyed_attacks`` with another end, in which BITS are the bits
and N is the number of elements. The cases that are marked are known to be judged wrongly.
"""

from __future__ import annotations

import pytest
from xla.hlo_attacks import EQUIVALENT, OTHERS, REFUSED, program, region
from xla.test_hlo_keyed_attacks import AFTER, BEFORE, SHARDED, decided

from pitcheck.errors import BudgetError, UnsupportedError
from pitcheck.frontends.xla.lowering import building
from pitcheck.frontends.xla.lowering.pair import plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo

ANY_VERDICT_BUT_EQUIVALENT = (OTHERS, REFUSED, "inconclusive")


def whole(end: str, start: str = BEFORE, regions: str = "") -> str:
    """Return the program before the partitioner, its last line replaced by others."""
    lines = start.rsplit("ROOT", 1)[0] + end.replace("BITS", "%b").replace("[N]", "[8]")
    return program(f"{lines}, {SHARDED}", regions)


def parted(end: str, start: str = AFTER, regions: str = "") -> str:
    """Return the program after the partitioner, its last line replaced by others."""
    lines = start.rsplit("ROOT", 1)[0] + end.replace("BITS", "%q").replace("[N]", "[2]")
    return program(lines, regions)


def filled(name: str, kind: str, number: str) -> str:
    """Return an array of one number."""
    return (
        f"%{name}0 = {kind}[] constant({number})\n"
        f"%{name} = {kind}[N] broadcast(%{name}0), dimensions={{}}\n"
    )


X = "ROOT %r = f32[N] copy(%x)"
AROUND = "%more = f32[N] add(%y, %x)\nROOT %r = f32[N] subtract(%more, %y)"
"""``(y + x) - y``, which is x unless y is an infinity or no number."""
NOT_FINITE = {
    "a product with infinity": filled("i", "f32", "inf") + "%y = f32[N] multiply(%u, %i)\n",
    "a sum with no number": filled("i", "f32", "nan") + "%y = f32[N] add(%u, %i)\n",
    "the maximum with no number": filled("i", "f32", "nan") + "%y = f32[N] maximum(%u, %i)\n",
    "a quotient by 0": filled("i", "f32", "0") + "%y = f32[N] divide(%u, %i)\n",
    "a quotient by a difference of 0": "%i = f32[N] subtract(%u, %u)\n%y = f32[N] divide(%u, %i)\n",
    "the logarithm of 0": "%i = f32[N] subtract(%u, %u)\n%y = f32[N] log(%i)\n",
    "the logarithm of what may be negative": filled("i", "f32", "1.5")
    + "%n = f32[N] subtract(%u, %i)\n%y = f32[N] log(%n)\n",
    "the root of what may be negative": filled("i", "f32", "1.9")
    + "%n = f32[N] subtract(%i, %u)\n%y = f32[N] sqrt(%n)\n",
}


@pytest.mark.parametrize("name", NOT_FINITE)
def test_random_numbers_that_may_not_be_finite_are_not_taken_as_any(name: str) -> None:
    """The first program gives no number where y is none; the second gives x."""
    found = decided(whole(NOT_FINITE[name] + AROUND), parted(X))
    assert found in ANY_VERDICT_BUT_EQUIVALENT


ADDED = "%g1 = f32[N] convert(%g0)\nROOT %r = f32[N] add(%x, %g1)"
ALWAYS_ZERO = {
    "a difference with itself": "%g0 = u32[N] subtract(BITS, BITS)\n",
    "an exclusive disjunction with itself": "%g0 = u32[N] xor(BITS, BITS)\n",
    "the lowest bit of what is doubled": filled("one", "u32", "1")
    + "%double = u32[N] add(BITS, BITS)\n%g0 = u32[N] and(%double, %one)\n",
}


@pytest.mark.parametrize("name", ALWAYS_ZERO)
def test_what_random_bits_always_give_is_no_mismatch(name: str) -> None:
    assert decided(whole(ALWAYS_ZERO[name] + ADDED), parted(X)) != OTHERS


BIT = (
    filled("last", "u32", "31")
    + filled("half", "u32", "2147483648")
    + "%g0 = u32[N] shift-right-logical(BITS, %last)\n%g1 = f32[N] convert(%g0)\n"
    "%h0 = pred[N] compare(BITS, %half), direction=GE\n%h1 = f32[N] convert(%h0)\n"
    "%y = f32[N] multiply(%x, %h1)\n"
)


@pytest.mark.xfail(strict=True, reason="two numbers made of one bit are taken as independent")
def test_one_bit_in_two_forms_is_no_mismatch() -> None:
    before, after = "ROOT %r = f32[N] multiply(%y, %g1)", "ROOT %r = f32[N] copy(%y)"
    assert decided(whole(BIT + before), parted(BIT + after)) != OTHERS


# --- what is told apart
MASKED = filled("five", "u32", "5")
TAKEN = "%n0 = u32[N] and({}, %five)\n%n1 = f32[N] convert(%n0)\nROOT %r = f32[N] multiply(%x, %n1)"
SPACED = "%zero = u32[] constant(0)\n%wide = u32[3] pad(%q, %zero), padding=0_0_1\n"
MOVES = {
    "spaced, and taken together": (
        EQUIVALENT,
        f"{SPACED}%y = u32[2] slice(%wide), slice={{[0:3:2]}}\n",
    ),
    "spaced, and taken with what lies between": (
        REFUSED,
        f"{SPACED}%y = u32[2] slice(%wide), slice={{[0:2]}}\n",
    ),
    "written where it was": (
        EQUIVALENT,
        "%one = s32[] constant(1)\n%part = u32[1] slice(%q), slice={[1:2]}\n"
        "%y = u32[2] dynamic-update-slice(%q, %part, %one)\n",
    ),
    "written elsewhere": (
        REFUSED,
        "%one = s32[] constant(0)\n%part = u32[1] slice(%q), slice={[1:2]}\n"
        "%y = u32[2] dynamic-update-slice(%q, %part, %one)\n",
    ),
    "sent to all devices but the last": (
        REFUSED,
        "%y = u32[2] collective-permute(%q), channel_id=1, "
        "source_target_pairs={{0,0},{1,1},{2,2}}\n",
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_random_bits_that_move(name: str) -> None:
    expected, moved = MOVES[name]
    before = whole(MASKED + TAKEN.format("BITS"))
    assert decided(before, parted(MASKED + moved + TAKEN.format("%y"))) == expected


DOMAIN = filled("seven", "u32", "7")
INDEX = "%i0 = u32[N] and(BITS, %seven)\n%i = s32[N] convert(%i0)\n"
LOOKED_UP = """%t = f32[5] parameter(2), sharding={{replicated}}
{more}%v = f32[N] gather(%t, {index}), offset_dims={{}}, collapsed_slice_dims={{0}}, \
start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1}}
ROOT %r = f32[N] multiply(%x, %v)"""


@pytest.mark.parametrize(
    ("operator", "number", "expected"),
    [("minimum", 4, EQUIVALENT), ("minimum", 3, OTHERS), ("remainder", 5, OTHERS)],
)
def test_a_random_index_that_lies_outside_is_the_last_place(
    operator: str, number: int, expected: str
) -> None:
    limit = filled("most", "s32", str(number)) + f"%j = s32[N] {operator}(%i, %most)\n"
    before, after = (
        DOMAIN + INDEX + LOOKED_UP.replace("%t", "%tab").format(index=index, more=more)
        for index, more in (("%i", ""), ("%j", limit))
    )
    assert decided(whole(before.replace("%i", "%at")), parted(after.replace("%i", "%at"))) == (
        expected
    )


BRANCHES = """%same (a: f32[N]) -> f32[N] {
  ROOT %a = f32[N] parameter(0)
}
%other (a: f32[N]) -> f32[N] {
  %a = f32[N] parameter(0)
  ROOT %b = f32[N] negate(%a)
}
"""
CHOICE = """%one = u32[1] slice({bits}), slice={{[{place}]}}
%single = u32[] reshape(%one)
%half = u32[] constant(2147483648)
%truth = pred[] compare(%single, %half), direction=LT
ROOT %r = f32[N] conditional(%truth, %x, %x), true_computation={names[0]}, \
false_computation={names[1]}"""
NAMES = ("%same", "%other")


@pytest.mark.parametrize(
    ("bits", "place", "names", "expected"),
    [
        ("%b", "0:1", NAMES, EQUIVALENT),
        ("%b", "0:1", NAMES[::-1], OTHERS),
        ("%b", "1:2", NAMES, REFUSED),
        ("%q", "0:1", NAMES, REFUSED),
    ],
)
def test_a_branch_that_a_random_bit_chooses(
    bits: str, place: str, names: tuple[str, str], expected: str
) -> None:
    before = whole(
        CHOICE.format(bits="%b", place="0:1", names=NAMES), regions=BRANCHES.replace("[N]", "[8]")
    )
    after = CHOICE.format(bits=bits, place=place, names=names)
    assert decided(before, parted(after, regions=BRANCHES.replace("[N]", "[2]"))) == expected


SIX = BEFORE.replace("[8]", "[6]")
FILLED = (
    AFTER.replace("u32[8]", "u32[6]")
    .replace(
        "%t = ", "%seven = u32[] constant(7)\n%long = u32[8] pad(%b, %seven), padding=0_2\n%t = "
    )
    .replace("dynamic-slice(%b, %a)", "dynamic-slice(%long, %a)")
)
TWICE = AFTER.replace("u32[8]", "u32[6]").replace("0, 2, 4, 6", "0, 2, 4, 4")
SENT = (
    "%y = f32[2] collective-permute(%y0), channel_id=2, source_target_pairs={{0,0},{1,1},{2,2}}\n"
)
SUM = (
    "%zero = f32[] constant(0)\n%sum = f32[] reduce(%y, %zero), dimensions={0}, to_apply=%add.f32\n"
)
ALL = (
    "ROOT %r = f32[] all-reduce(%sum), channel_id=1, replica_groups={{0,1,2,3}}, "
    "use_global_device_ids=true, to_apply=%add.f32"
)


@pytest.mark.parametrize(
    ("start", "sent", "expected"),
    [
        (TWICE, SENT, EQUIVALENT),
        (FILLED, SENT, EQUIVALENT),
        (FILLED, "", OTHERS),
        (TWICE, "", OTHERS),
    ],
)
def test_a_sum_of_random_numbers_over_devices_that_fill_up(
    start: str, sent: str, expected: str
) -> None:
    """Elements held twice, or behind the end, count unless zeros take their place."""
    add = region("add")
    tangent = "%{} = f32[{}] tanh(%u)\n"
    lines = SIX.rsplit("ROOT", 1)[0] + tangent.format("y", 6) + SUM
    before = program(f"{lines}ROOT %r = f32[] copy(%sum), sharding={{replicated}}", add)
    after = parted(tangent.format("y0" if sent else "y", 2) + sent + SUM + ALL, start, add)
    assert decided(before, after) == expected


# --- texts that no compiler writes
EMPTY = {
    "a generator of an empty state": "%k = u64[0] parameter(0), sharding={replicated}\n"
    "%g = (u64[0], u32[8]) rng-bit-generator(%k), algorithm=rng_philox\n"
    "ROOT %r = u32[8] get-tuple-element(%g), index=1",
    "bits of no elements": "%c = u32[0] constant({})\nROOT %r = f32[0] bitcast-convert(%c)",
}


@pytest.mark.parametrize("name", EMPTY)
def test_arrays_without_elements_are_refused(name: str) -> None:
    before, after = (program(EMPTY[name] + end) for end in (", sharding={replicated}", ""))
    with pytest.raises(UnsupportedError, match="without elements"):
        plans_of(parse_hlo(before), parse_hlo(after))


def test_a_long_chain_of_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes the longer the more there are, so their number is limited."""
    monkeypatch.setattr(building, "MOST_DRAWN", 100)
    lines = ["%a0 = u32[2] parameter(0), sharding={replicated}"]
    lines += [f"%a{n + 1} = u32[2] xor(%a{n}, %a0)" for n in range(101)]
    lines.append("ROOT %r = u32[2] copy(%a101), sharding={replicated}")
    chain = parse_hlo(program("\n".join(lines)))
    with pytest.raises(BudgetError, match="more than 100 operators"):
        plans_of(chain, chain)
