"""Scalars that the counter of a loop decides: other numbers in an iteration are a difference.

A scalar that both programs have stands for its numbers over all iterations. Each wrong program has
a right neighbour. The executor follows the loops, and says which one is which.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from xla.hlo_pairs import is_right

from pitcheck.base.options import Options
from pitcheck.commands.checking.attempts import checked_in_turn
from pitcheck.frontends.xla.lowering.pair import attempts_on, plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo

if TYPE_CHECKING:
    from pitcheck.report.report import Report

OPTIONS = Options(seed=1, jobs=1, explain=False)
HALF, ROWS = "{devices=[2]<=[2]}", "{devices=[1,2]<=[2]}"
READS = """  %cut = CUT dynamic-slice(%w, %k, %zero), dynamic_slice_sizes=SIZES
  %flat = F reshape(%cut)
  %more = F add(%x, %x)
  %nx = F add(%more, %flat)
  %ny = G copy(%y)
"""
WRITES = """  %row = CUT reshape(%x)
  %nx = F add(%x, %x)
  %ny = G dynamic-update-slice(%y, %row, %k, %zero)
"""
QUOTIENT = """  %cut = CUT dynamic-slice(%w, %k, %zero), dynamic_slice_sizes=SIZES
  %flat = F reshape(%cut)
  %real = f32[] convert(%k)
  %all = F broadcast(%real), dimensions={}
  %times = F multiply(%x, %all)
  %over = F divide(%times, %all)
  %nx = F add(%over, %flat)
  %ny = G copy(%y)
"""
ADDS = READS.replace("%more = F add(%x, %x)", "%more = F copy(%x)")


def report(before: str, after: str) -> Report:
    return checked_in_turn(partial(attempts_on, parse_hlo(before), parse_hlo(after)), OPTIONS)


def follows(before: str, after: str) -> bool:
    return is_right(*plans_of(parse_hlo(before), parse_hlo(after)))


def assert_proven(before: str, after: str, *, folded: bool = True) -> None:
    """Raise AssertionError unless a right pair is proven, by induction if ``folded``."""
    assert follows(before, after)
    found = report(before, after)
    assert found.verdict == "equivalent"
    assert any("induction" in said for said in found.reductions) == folded


def assert_differs(before: str, after: str) -> None:
    assert not follows(before, after)
    assert report(before, after).verdict == "mismatch"


def looped(
    rows: int,
    scalar: str,
    rest: str = READS,
    *,
    kind: str = "s32",
    start: int = 0,
    limit: int = 5,
) -> str:
    """Return a loop whose lines ``scalar`` make the place ``%k``, that ``rest`` reads or writes."""
    f, g = f"f32[{rows}]", f"f32[8,{rows}]"
    state = f"({kind}[], {f}, {g}, {g})"
    whole = rows == 4
    stated = f", sharding={{{{replicated}}, {HALF}, {ROWS}, {ROWS}}}" if whole else ""
    result = f", sharding={{{HALF}, {ROWS}}}" if whole else ""
    names = {"SIZES": f"{{1,{rows}}}", "CUT": f"f32[1,{rows}]", "F ": f"{f} ", "G ": f"{g} "}
    lines = "".join(f"  {line.strip()}\n" for line in scalar.split(";")) + rest
    for name, meant in (names | {"I ": f"{kind}[] "}).items():
        lines = lines.replace(name, meant)
    return f"""HloModule m, num_partitions=2
%below (q: {state}) -> pred[] {{
  %q = {state} parameter(0)
  %j = {kind}[] get-tuple-element(%q), index=0
  %n = {kind}[] constant({limit})
  ROOT %c = pred[] compare(%j, %n), direction=LT
}}
%body (p: {state}) -> {state} {{
  %p = {state} parameter(0)
  %i = {kind}[] get-tuple-element(%p), index=0
  %x = {f} get-tuple-element(%p), index=1
  %y = {g} get-tuple-element(%p), index=2
  %w = {g} get-tuple-element(%p), index=3
  %zero = {kind}[] constant(0)
  %one = {kind}[] constant(1)
  %next = {kind}[] add(%i, %one)
{lines}  ROOT %t = {state} tuple(%next, %nx, %ny, %w)
}}
ENTRY %main {{
  %x = {f} parameter(0), sharding={HALF}
  %y = {g} parameter(1), sharding={ROWS}
  %w = {g} parameter(2), sharding={ROWS}
  %first = {kind}[] constant({start})
  %state = {state} tuple(%first, %x, %y, %w)
  %loop = {state} while(%state), condition=%below, body=%body{stated}
  %rx = {f} get-tuple-element(%loop), index=1
  %ry = {g} get-tuple-element(%loop), index=2
  ROOT %r = ({f}, {g}) tuple(%rx, %ry){result}
}}
"""


DOWN = "%c = I constant(4); %k = I subtract(%c, %i)"
UP = "%k = I copy(%i)"
FROM_4 = "%c = I constant(4); %k = I add(%i, %c)"


DIVIDED = "%c = I constant({}); %k = I remainder(%i, %c)"
CLAMPED = "%c = I constant(4); %l = I add(%i, %c); %s = I constant({}); %k = I minimum(%l, %s)"


@pytest.mark.parametrize("rest", [READS, WRITES], ids=["reads", "writes"])
@pytest.mark.parametrize(
    ("before", "right", "wrong"),
    [
        (DOWN, "%c = I constant(5); %k = I subtract(%c, %next)", DOWN.replace("4", "5")),
        (UP, DIVIDED.format(5), DIVIDED.format(4)),
        (FROM_4, CLAMPED.format(7), CLAMPED.format(6)),
    ],
    ids=["down", "around", "clamped"],
)
def test_places_that_differ_in_an_iteration(before: str, right: str, wrong: str, rest: str) -> None:
    """XLA clamps 4 + i at the last place, 7."""
    whole = looped(4, before, rest)
    assert_proven(whole, looped(2, right, rest))
    assert_differs(whole, looped(2, wrong, rest))


def test_numbers_that_wrap_around() -> None:
    """An s8 holds 0, 100, -56, 44, -112 of 100 i; a u32 less than 0 is large, and clamped to 7."""
    times = "%h = I constant(100); %k = I multiply(%h, %i)"
    wide = "%h = s32[] constant(100); %l = s32[] convert(%i); %k = s32[] multiply(%h, %l)"
    back = "%h = I constant(100); %l = I negate(%i); %m = I multiply(%h, %l); %k = I negate(%m)"
    small = partial(looped, kind="s8")
    assert_proven(small(4, times), small(2, back), folded=False)
    wider = READS.replace("%zero)", "%wide)").replace(
        "  %cut", "  %wide = s32[] constant(0)\n  %cut", 1
    )
    assert_differs(small(4, times), small(2, wide, wider))
    below = "%c = I constant(3); %k = I subtract(%c, %i)"
    large = partial(looped, kind="u32")
    assert_proven(
        large(4, below),
        large(2, f"%s = I constant(7); {below.replace('%k', '%l')}; %k = I minimum(%l, %s)"),
    )
    assert_differs(
        large(4, below), large(2, f"{below.replace('%k', '%l')}; %k = I minimum(%l, %c)")
    )


def test_counters_at_the_end_of_their_type() -> None:
    less, more = (
        "%c = I constant(250); %k = I subtract(%i, %c)",
        "%c = I constant({}); %k = I add(%i, %c)",
    )
    last = partial(looped, kind="u8", start=250, limit=255)
    assert_proven(last(4, less), last(2, more.format(6)))
    assert_differs(last(4, less), last(2, more.format(7)))


def test_one_number_in_each_iteration_is_that_number() -> None:
    """i / 5 is 0 for five iterations, and not for six."""
    fifth, none = "%c = I constant(5); %k = I divide(%i, %c)", "%k = I copy(%zero)"
    assert_proven(looped(4, fifth), looped(2, none))
    assert_differs(looped(4, fifth, limit=6), looped(2, none, limit=6))
    once = partial(looped, start=1, limit=2)
    assert_proven(once(4, DOWN), once(2, "%c = I constant(2); %k = I add(%i, %c)"))
    assert_differs(once(4, DOWN), once(2, "%c = I constant(1); %k = I add(%i, %c)"))


def test_a_quotient_by_a_scalar_that_may_be_zero() -> None:
    """(x k) / k is x unless k is 0: 5 - i never is, 2 - i is once."""
    for number, proven in ((5, True), (2, False)):
        scalar = DOWN.replace("4", str(number))
        found = report(looped(4, scalar, ADDS), looped(2, scalar, QUOTIENT))
        assert (found.verdict == "equivalent") == proven


def nested(rows: int, scalar: str, name: str) -> str:
    """Return a loop over i with one over j in it, of some name, that reads place ``%k``."""
    f, g = f"f32[{rows}]", f"f32[8,{rows}]"
    state = f"(s32[], {f}, {g}, s32[])"
    whole = rows == 4
    stated = f", sharding={{{{replicated}}, {HALF}, {ROWS}, {{replicated}}}}" if whole else ""
    result = f", sharding={HALF}" if whole else ""
    lines = "".join(f"  {line.strip()}\n" for line in scalar.split(";")).replace("I ", "s32[] ")
    head = f"""  %p = {state} parameter(0)
  %x = {f} get-tuple-element(%p), index=1
  %w = {g} get-tuple-element(%p), index=2
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
"""
    return f"""HloModule m, num_partitions=2
%below (q: {state}) -> pred[] {{
  %q = {state} parameter(0)
  %at = s32[] get-tuple-element(%q), index=0
  %n = s32[] constant(3)
  ROOT %c = pred[] compare(%at, %n), direction=LT
}}
%inner (p: {state}) -> {state} {{
{head}  %j = s32[] get-tuple-element(%p), index=0
  %i = s32[] get-tuple-element(%p), index=3
  %next = s32[] add(%j, %one)
{lines}  %cut = f32[1,{rows}] dynamic-slice(%w, %k, %zero), dynamic_slice_sizes={{1,{rows}}}
  %flat = {f} reshape(%cut)
  %more = {f} add(%x, %x)
  %nx = {f} add(%more, %flat)
  ROOT %t = {state} tuple(%next, %nx, %w, %i)
}}
%body (p: {state}) -> {state} {{
{head}  %i = s32[] get-tuple-element(%p), index=0
  %kept = s32[] get-tuple-element(%p), index=3
  %next = s32[] add(%i, %one)
  %begin = {state} tuple(%zero, %x, %w, %i)
  %{name} = {state} while(%begin), condition=%below, body=%inner{stated}
  %nx = {f} get-tuple-element(%{name}), index=1
  ROOT %t = {state} tuple(%next, %nx, %w, %kept)
}}
ENTRY %main {{
  %x = {f} parameter(0), sharding={HALF}
  %w = {g} parameter(1), sharding={ROWS}
  %zero = s32[] constant(0)
  %state = {state} tuple(%zero, %x, %w, %zero)
  %loop = {state} while(%state), condition=%below, body=%body{stated}
  ROOT %r = {f} get-tuple-element(%loop), index=1{result}
}}
"""


@pytest.mark.parametrize("name", ["run", "loop"])
def test_the_counter_of_a_loop_around_is_another(name: str) -> None:
    """Both count the same; a loop may even have the name of the one around it."""
    outer, inner = "%k = I add(%i, %one)", "%k = I add(%j, %one)"
    both, twice = (
        "%a = I add(%i, %one); %k = I add(%a, %j)",
        "%a = I add(%j, %one); %k = I add(%a, %j)",
    )
    assert_proven(nested(4, outer, name), nested(2, outer, name))
    assert_proven(nested(4, both, name), nested(2, both, name))
    assert_differs(nested(4, outer, name), nested(2, inner, name))
    assert_differs(nested(4, inner, name), nested(2, outer, name))
    assert_differs(nested(4, both, name), nested(2, twice, name))


def mapped(scalar: str, *, whole: bool) -> str:
    """Return a loop of a manual region, in which each device reads place ``%k`` of its columns.

    ``%d`` is the number of the device.
    """

    def border(name: str, way: str, sharding: str) -> str:
        to = f'custom-call({name}), custom_call_target="SPMD{way}", sharding={sharding}'
        return to if whole else f"copy({name})"

    state = "(s32[], f32[2], f32[8,2], s32[])"
    rows = 4 if whole else 2
    lines = "".join(f"  {line.strip()}\n" for line in scalar.split(";")).replace("I ", "s32[] ")
    region = f"""%below (q: {state}) -> pred[] {{
  %q = {state} parameter(0)
  %at = s32[] get-tuple-element(%q), index=0
  %n = s32[] constant(4)
  ROOT %c = pred[] compare(%at, %n), direction=LT
}}
%body (p: {state}) -> {state} {{
  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[2] get-tuple-element(%p), index=1
  %w = f32[8,2] get-tuple-element(%p), index=2
  %d = s32[] get-tuple-element(%p), index=3
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %three = s32[] constant(3)
  %next = s32[] add(%i, %one)
{lines}  %cut = f32[1,2] dynamic-slice(%w, %k, %zero), dynamic_slice_sizes={{1,2}}
  %flat = f32[2] reshape(%cut)
  %more = f32[2] add(%x, %x)
  %nx = f32[2] add(%more, %flat)
  ROOT %t = {state} tuple(%next, %nx, %w, %d)
}}
%region (x: f32[2], w: f32[8,2]) -> f32[2] {{
  %x = f32[2] parameter(0)
  %w = f32[8,2] parameter(1)
  %zero = s32[] constant(0)
  %id = u32[] partition-id()
  %d = s32[] convert(%id)
  %state = {state} tuple(%zero, %x, %w, %d)
  %loop = {state} while(%state), condition=%below, body=%body
  ROOT %r = f32[2] get-tuple-element(%loop), index=1
}}
"""
    if whole:
        told = []
        for line in region.splitlines():
            many = "{" + ", ".join(["{manual}"] * 4) + "}" if f" = {state} " in line else "{manual}"
            told.append(f"{line}, sharding={many}" if " = " in line else line)
        region = "\n".join(told) + "\n"
    manual = ", sharding={manual}" if whole else ""
    return f"""HloModule m, num_partitions=2
{region}ENTRY %main {{
  %x = f32[{rows}] parameter(0), sharding={HALF}
  %w = f32[8,{rows}] parameter(1), sharding={ROWS}
  %a = f32[2] {border("%x", "FullToShardShape", "{manual}")}
  %b = f32[8,2] {border("%w", "FullToShardShape", "{manual}")}
  %c = f32[2] call(%a, %b), to_apply=%region{manual}
  ROOT %r = f32[{rows}] {border("%c", "ShardToFullShape", HALF)}
}}
"""


def test_numbers_of_each_device_in_a_manual_region() -> None:
    """Counting down is the same on each device; what a device adds is made by an operator."""
    down, moved = "%k = I subtract(%three, %i)", "%l = I subtract(%three, %i); %k = I add(%l, %d)"
    ahead, behind = "%k = I add(%i, %d)", "%l = I subtract(%i, %d); %k = I add(%l, %one)"
    for scalar in (down, ahead, behind):
        assert_proven(mapped(scalar, whole=True), mapped(scalar, whole=False))
    for one, other in ((down, moved), (ahead, behind), (ahead, down), (ahead, "%k = I copy(%i)")):
        assert_differs(mapped(one, whole=True), mapped(other, whole=False))
