"""Attempts to have loops proven by induction that differ; each was judged by the executor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from xla.hlo_pairs import is_right

from pitcheck.base.options import Options
from pitcheck.commands.checking.attempts import checked_in_turn
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.lowering.pair import attempts_on, plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.prove.domains import claims_in_turn

if TYPE_CHECKING:
    from pitcheck.report.report import Report

OPTIONS = Options(seed=1, jobs=1, explain=False)
ROW = "{devices=[2]<=[2]}"


def report(before: str, after: str) -> Report:
    read = partial(attempts_on, parse_hlo(before), parse_hlo(after))
    return checked_in_turn(read, OPTIONS)


def right(before: str, after: str) -> bool:
    """Return True if the executor sees no difference; False for a division by 0, too."""
    try:
        return is_right(*plans_of(parse_hlo(before), parse_hlo(after)))
    except UnsupportedError:
        return False


def looped(
    rows: int, body: str, *, begin: str = "%a", last: int = 2, start: int = 0, limit: int = 4
) -> str:
    """Return a loop over u and v, which begins with ``begin`` and the parameter b.

    ``body`` gives ``%nu`` and ``%nv``; the result is array ``last`` of the state.
    """
    f, sharded = f"f32[{rows}]", rows == 4
    state = f"(s32[], {f}, {f})"
    stated = f", sharding={{{{replicated}}, {ROW}, {ROW}}}" if sharded else ""
    result = f", sharding={ROW}" if sharded else ""
    lines = body.replace("F ", f"{f} ").replace("P ", f"pred[{rows}] ")
    return f"""HloModule m, num_partitions=2
%below (q: {state}) -> pred[] {{
  %q = {state} parameter(0)
  %j = s32[] get-tuple-element(%q), index=0
  %n = s32[] constant({limit})
  ROOT %c = pred[] compare(%j, %n), direction=LT
}}
%body (p: {state}) -> {state} {{
  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %u = {f} get-tuple-element(%p), index=1
  %v = {f} get-tuple-element(%p), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %none = f32[] constant(0)
  %zeros = {f} broadcast(%none), dimensions={{}}
{lines}
  ROOT %t = {state} tuple(%next, %nu, %nv)
}}
ENTRY %main {{
  %a = {f} parameter(0), sharding={ROW}
  %b = {f} parameter(1), sharding={ROW}
  %zero = s32[] constant({start})
  %number = f32[] constant({begin if begin[0] != "%" else 0})
  %filled = {f} broadcast(%number), dimensions={{}}
  %state = {state} tuple(%zero, {begin if begin[0] == "%" else "%filled"}, %b)
  %loop = {state} while(%state), condition=%below, body=%body{stated}
  ROOT %r = {f} get-tuple-element(%loop), index={last}{result}
}}
"""


DOUBLED = "  %nu = F add(%u, %u)\n"
KEPT = "  %nv = F copy(%v)"
THERE_AND_BACK = """  %more = F add(%v, %u)
  %nv = F subtract(%more, %u)"""
BY_AND_OVER = """  %times = F multiply(%v, %u)
  %nv = F divide(%times, %u)"""
INFINITE = """  %much = f32[] constant(-inf)
  %nu = F broadcast(%much), dimensions={}
"""


@pytest.mark.parametrize(
    ("begin", "before", "after"),
    [
        ("-inf", DOUBLED + KEPT, DOUBLED + THERE_AND_BACK),
        ("inf", DOUBLED + KEPT, DOUBLED + THERE_AND_BACK),
        ("nan", DOUBLED + KEPT, DOUBLED + THERE_AND_BACK),
        ("-inf", DOUBLED + THERE_AND_BACK, DOUBLED + KEPT),
        ("%a", INFINITE + KEPT, INFINITE + THERE_AND_BACK),
        ("0", DOUBLED + KEPT, DOUBLED + BY_AND_OVER),
    ],
)
def test_a_state_that_is_no_number_is_not_taken_for_one(
    begin: str, before: str, after: str
) -> None:
    texts = looped(4, before, begin=begin), looped(2, after, begin=begin)
    assert not right(*texts)
    assert report(*texts).verdict != "equivalent"


def compared(direction: str) -> str:
    return f"""{DOUBLED}  %which = P compare(%u, %zeros), direction={direction}
  %twice = F add(%v, %v)
  %nv = F select(%which, %twice, %v)"""


@pytest.mark.parametrize(
    ("one", "other"), [("GT", "GE"), ("LT", "LE"), ("EQ", "GE"), ("NE", "GT"), ("EQ", "EQ")]
)
def test_ties_of_a_state_that_is_zero(one: str, other: str) -> None:
    """All that is compared is 0, in every iteration."""
    texts = looped(4, compared(one), begin="0"), looped(2, compared(other), begin="0")
    assert report(*texts).verdict == ("equivalent" if right(*texts) else "mismatch")


def at_a_count(direction: str, number: int, *, step: str = "%i") -> str:
    return f"""  %number = s32[] constant({number})
  %rest = s32[] remainder(%next, %number)
  %is = pred[] compare({step}, %number), direction={direction}
  %are = P broadcast(%is), dimensions={{}}
  %other = F negate(%u)
  %nu = F select(%are, %other, %u)
{KEPT}"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (at_a_count("EQ", 3), at_a_count("EQ", 3)),
        (at_a_count("EQ", 3), at_a_count("EQ", 2)),
        (at_a_count("EQ", 0 + 9), at_a_count("GE", 9)),
        (at_a_count("EQ", 7), at_a_count("GE", 7)),
        (at_a_count("EQ", 8), at_a_count("EQ", 9)),
        (at_a_count("LT", 1), at_a_count("LE", 1)),
    ],
)
def test_an_iteration_that_is_another(one: str, other: str) -> None:
    texts = looped(4, one, last=1, limit=8), looped(2, other, last=1, limit=8)
    assert report(*texts).verdict == ("equivalent" if right(*texts) else "mismatch")


def over_the_counter() -> str:
    return f"""  %real = f32[] convert(%i)
  %all = F broadcast(%real), dimensions={{}}
  %times = F multiply(%u, %all)
  %nu = F divide(%times, %all)
{KEPT}"""


@pytest.mark.parametrize("start", [-2, 0, 1])
def test_a_quotient_by_the_counter(start: int) -> None:
    plain = f"  %nu = F copy(%u)\n{KEPT}"
    texts = (
        looped(4, plain + "\n", last=1, start=start),
        looped(2, over_the_counter(), last=1, start=start),
    )
    assert right(*texts) == (start == 1)
    assert (report(*texts).verdict == "equivalent") == (start == 1)


def two_loops(rows: int, *, nested: bool) -> str:
    """Return two loops, one within the other or behind it, that give the same in another order."""
    f, sharded = f"f32[{rows}]", rows == 4
    state = f"(s32[], {f}, {f}, {f}, {f})"
    stated = f", sharding={{{{replicated}}, {ROW}, {ROW}, {ROW}, {ROW}}}" if sharded else ""
    result = f", sharding={ROW}" if sharded else ""
    run = f"""  %begin = {state} tuple(%zero, %x, %x, %a, %b)
  %inner = {state} while(%begin), condition=%below, body=%second{stated}
"""
    head = f"""  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = {f} get-tuple-element(%p), index=2
  %a = {f} get-tuple-element(%p), index=3
  %b = {f} get-tuple-element(%p), index=4
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
"""
    gives = ("%b", "%a") if nested else ("%a", "%b")
    return f"""HloModule m, num_partitions=2
%below (p: {state}) -> pred[] {{
  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(3)
  ROOT %c = pred[] compare(%i, %n), direction=LT
}}
%second (p: {state}) -> {state} {{
{head}  ROOT %t = {state} tuple(%next, {gives[1]}, %x, %a, %b)
}}
%first (p: {state}) -> {state} {{
{head}{run if nested else ""}  ROOT %t = {state} tuple(%next, {gives[0]}, %x, %a, %b)
}}
ENTRY %main {{
  %x = {f} parameter(0), sharding={ROW}
  %a = {f} parameter(1), sharding={ROW}
  %b = {f} parameter(2), sharding={ROW}
  %zero = s32[] constant(0)
  %state = {state} tuple(%zero, %x, %x, %a, %b)
  %loop = {state} while(%state), condition=%below, body=%first{stated}
{"" if nested else run}  ROOT %r = {f} get-tuple-element(%loop), index=1{result}
}}
"""


@pytest.mark.parametrize("nested", [True, False])
def test_loops_within_each_other_are_not_those_behind_each_other(nested: bool) -> None:
    """Claims on the inner loop of one would stand beside those on the outer loop of the other."""
    texts = two_loops(4, nested=nested), two_loops(2, nested=not nested)
    assert not right(*texts)
    assert report(*texts).verdict == "mismatch"


ALWAYS_NEGATIVE = """  %square = F multiply(%u, %u)
  %minus = F negate(%square)
  %nu = F log(%minus)
"""
MASKED = """  %much = f32[] constant(-inf)
  %low = F broadcast(%much), dimensions={}
  %which = P compare(%v, %zeros), direction=GT
  %nu = F select(%which, %u, %low)
"""


@pytest.mark.parametrize("changed", [ALWAYS_NEGATIVE, MASKED])
def test_what_iterations_leave_without_a_value_is_not_read(changed: str) -> None:
    """Only the partitioned program reads it: v + u - u is v unless u is NaN or infinite."""
    texts = looped(4, changed + KEPT), looped(2, changed + THERE_AND_BACK)
    assert not right(*texts)
    assert report(*texts).verdict != "equivalent"


@pytest.mark.parametrize("result", [KEPT, THERE_AND_BACK])
def test_several_processes_follow_what_states_lack_as_one_does(
    result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims_in_turn, "FEW", 0)
    texts = looped(4, MASKED + KEPT), looped(2, MASKED + result)
    read = partial(attempts_on, *map(parse_hlo, texts))
    found = checked_in_turn(read, Options(seed=1, jobs=2, explain=False))
    assert found.verdict == report(*texts).verdict
    assert (found.verdict == "equivalent") == (result == KEPT)


@pytest.mark.parametrize(
    ("begin", "changed"),
    [
        ("-inf", DOUBLED),
        ("%a", INFINITE),
        ("%a", ALWAYS_NEGATIVE),
        ("%a", MASKED),
        ("0", DOUBLED),
    ],
)
def test_right_loops_of_such_states_are_proven(begin: str, changed: str) -> None:
    """Some by induction, others followed."""
    texts = looped(4, changed + KEPT, begin=begin), looped(2, changed + KEPT, begin=begin)
    assert report(*texts).verdict == "equivalent"
