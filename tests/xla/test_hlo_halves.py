"""Operators in two halves compute what they do in one; branches in which devices meet are refused.

XLA's text of halves cannot be run as it is: the text in one piece, whose outputs are compared with
XLA's elsewhere, is the oracle.
"""

from __future__ import annotations

import pytest
from xla.hlo_texts import ADD, module_text
from xla.lowered import outputs, plan_of

from pitcheck.errors import BudgetError, PlanError, UnsupportedError
from pitcheck.frontends.xla.text.parser import parse_hlo

FOUR = ", num_partitions=4"
GIVEN = [[[1.0, 2.0]], [[10.0, 20.0]], [[100.0, 200.0]], [[1000.0, 2000.0]]]
X = "%x = f32[2] parameter(0)"
GROUPS = "channel_id=1, replica_groups={{0,1},{3,2}}, use_global_device_ids=true"
PAIRS = "channel_id=1, source_target_pairs={{0,1},{1,3}}"
WRAPPED = """%wrapped (a: f32[2]) -> f32[2] {
  %a = f32[2] parameter(0)
  ROOT %b = f32[2] negate(%a)
}
%other (a: f32[2]) -> f32[2] {
  ROOT %a = f32[2] parameter(0)
}
"""


def _ran(*lines: str) -> list[list[list[float]]]:
    text = module_text(X, *lines, before=ADD + WRAPPED, head=FOUR, root=False)
    return outputs(text, GIVEN)


@pytest.mark.parametrize(
    ("one", "start", "end"),
    [
        (
            f"ROOT %y = f32[2] all-reduce(%x), {GROUPS}, to_apply=%add",
            f"%s = f32[2] all-reduce-start(%x), {GROUPS}, to_apply=%add",
            "ROOT %y = f32[2] all-reduce-done(%s)",
        ),
        (
            f"ROOT %y = f32[4] all-gather(%x), {GROUPS}, dimensions={{0}}",
            f"%s = (f32[2], f32[4]) all-gather-start(%x), {GROUPS}, dimensions={{0}}",
            "ROOT %y = f32[4] all-gather-done(%s)",
        ),
        (
            f"ROOT %y = f32[2] collective-permute(%x), {PAIRS}",
            f"%s = (f32[2], f32[2], u32[], u32[]) collective-permute-start(%x), {PAIRS}",
            "ROOT %y = f32[2] collective-permute-done(%s)",
        ),
        (
            "ROOT %y = f32[2] negate(%x)",
            "%s = ((f32[2]), f32[2], s32[]) async-start(%x), calls=%wrapped",
            "ROOT %y = f32[2] async-done(%s), calls=%wrapped",
        ),
        (
            "ROOT %y = f32[2] negate(%x)",
            "%s = ((f32[2]), f32[2], s32[]) async-start(%x), calls=%wrapped\n"
            "  %t = ((f32[2]), f32[2], s32[]) async-update(%s)",
            "ROOT %y = f32[2] async-done(%t)",
        ),
        (
            "ROOT %y = f32[2] copy(%x)",
            "%s = (f32[2], f32[2], u32[]) copy-start(%x)",
            "ROOT %y = f32[2] copy-done(%s)",
        ),
    ],
)
def test_two_halves_are_one_operator(one: str, start: str, end: str) -> None:
    assert _ran(start, end) == _ran(one)


@pytest.mark.parametrize(
    ("lines", "error", "words"),
    [
        (
            (
                "%t = (f32[2], f32[2]) tuple(%x, %x)",
                "ROOT %y = f32[2] collective-permute-done(%t)",
            ),
            PlanError,
            "no start of it",
        ),
        (
            (
                "%s = ((f32[2]), f32[2], s32[]) async-start(%x), calls=%wrapped",
                "ROOT %y = f32[2] async-done(%s), calls=%other",
            ),
            PlanError,
            "no start of it",
        ),
        (
            (
                f"%s = (f32[2], f32[2], u32[], u32[]) collective-permute-start(%x), {PAIRS}",
                "%n = u32[] get-tuple-element(%s), index=2",
                "ROOT %y = f32[] convert(%n)",
            ),
            PlanError,
            "before it is done",
        ),
        (
            (
                f"%s = (f32[2], f32[2]) all-gather-start(%x), {GROUPS}, dimensions={{0}}",
                "ROOT %y = f32[2] all-gather-done(%s)",
            ),
            PlanError,
            "by its operands",
        ),
        (
            (f"ROOT %s = (f32[2], f32[2]) all-reduce-start(%x, %x), {GROUPS}, to_apply=%add",),
            UnsupportedError,
            "several arrays",
        ),
    ],
)
def test_halves_that_do_not_fit_are_refused(
    lines: tuple[str, ...], error: type[Exception], words: str
) -> None:
    text = module_text(X, *lines, before=ADD + WRAPPED, head=FOUR, root=False)
    with pytest.raises(error, match=words):
        plan_of(parse_hlo(text))


MEETING = (
    ADD
    + f"""%sum (a: f32[2]) -> f32[2] {{
  %a = f32[2] parameter(0)
  ROOT %b = f32[2] all-reduce(%a), {GROUPS}, to_apply=%add
}}
%around (a: f32[2]) -> f32[2] {{
  %a = f32[2] parameter(0)
  ROOT %b = f32[2] call(%a), to_apply=%sum
}}
%nothing (a: f32[2]) -> f32[2] {{
  ROOT %a = f32[2] parameter(0)
}}
"""
)


@pytest.mark.parametrize("branches", ["%sum, %nothing", "%nothing, %around"])
def test_devices_do_not_meet_in_branches_of_inputs(branches: str) -> None:
    line = "ROOT %y = f32[2] conditional(%n, %x, %x), branch_computations={" + branches + "}"
    text = module_text(X, "%n = s32[] parameter(1)", line, before=MEETING, head=FOUR, root=False)
    with pytest.raises(UnsupportedError, match="depends on inputs, with b "):
        plan_of(parse_hlo(text))


def test_branches_within_branches_are_refused_at_once() -> None:
    """Each of 60 levels chooses between two of the one below: 2 to the power 60 of the lowest."""
    levels = "".join(
        f"%c{n} (s: (pred[], f32[2])) -> (pred[], f32[2]) {{\n"
        "  %s = (pred[], f32[2]) parameter(0)\n  %p = pred[] get-tuple-element(%s), index=0\n"
        "  ROOT %r = (pred[], f32[2]) conditional(%p, %s, %s), "
        f"true_computation=%c{n - 1}, false_computation=%c{n - 1}\n}}\n"
        for n in range(1, 61)
    )
    lowest = "%c0 (s: (pred[], f32[2])) -> (pred[], f32[2]) {\n"
    lowest += "  ROOT %s = (pred[], f32[2]) parameter(0)\n}\n"
    lines = (
        X,
        "%q = pred[] parameter(1)",
        "%t = (pred[], f32[2]) tuple(%q, %x)",
        "ROOT %y = (pred[], f32[2]) call(%t), to_apply=%c60",
    )
    text = module_text(*lines, before=lowest + levels, root=False)
    with pytest.raises(BudgetError, match="more than 4096 ways"):
        plan_of(parse_hlo(text))


def test_devices_meet_in_a_branch_that_is_known() -> None:
    line = "ROOT %y = f32[2] conditional(%n, %x, %x), branch_computations={%sum, %nothing}"
    text = module_text(X, "%n = s32[] constant(0)", line, before=MEETING, head=FOUR, root=False)
    assert outputs(text, GIVEN)[0] == [[11.0, 22.0]]


def test_calls_within_calls_are_refused_at_once() -> None:
    """Each of 60 levels calls the one below twice."""
    regions = "%c0 (a: f32[2]) -> f32[2] {\n  %a = f32[2] parameter(0)\n"
    regions += "  ROOT %b = f32[2] negate(%a)\n}\n"
    regions += "".join(
        f"%c{n} (a: f32[2]) -> f32[2] {{\n  %a = f32[2] parameter(0)\n"
        f"  %b = f32[2] call(%a), to_apply=%c{n - 1}\n"
        f"  ROOT %c = f32[2] call(%b), to_apply=%c{n - 1}\n}}\n"
        for n in range(1, 60)
    )
    line = "ROOT %y = f32[2] call(%x), to_apply=%c59"
    with pytest.raises(BudgetError, match="each time"):
        plan_of(parse_hlo(module_text(X, line, before=regions, root=False)))


def _counting(level: int, inner: str) -> str:
    """Return the condition and the body of a loop of 4,000 iterations."""
    state = "(s32[], f32[2])"
    return f"""%c{level} (s: {state}) -> pred[] {{
  %s = {state} parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %e = s32[] constant(4000)
  ROOT %m = pred[] compare(%n, %e), direction=LT
}}
%d{level} (s: {state}) -> {state} {{
  %s = {state} parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %v = f32[2] get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %m = s32[] add(%n, %one)
{inner}
  ROOT %t = {state} tuple(%m, %w)
}}
"""


def _loop(level: int, given: str) -> str:
    state = "(s32[], f32[2])"
    return f"""  %zero = s32[] constant(0)
  %begin = {state} tuple(%zero, {given})
  %l = {state} while(%begin), condition=%c{level}, body=%d{level}
  %w = f32[2] get-tuple-element(%l), index=1"""


def test_loops_within_loops_are_refused_after_one_iteration() -> None:
    """Three loops of 4,000 iterations each make 64 billion."""
    regions = _counting(0, "  %w = f32[2] negate(%v)")
    regions += _counting(1, _loop(0, "%v")) + _counting(2, _loop(1, "%v"))
    text = module_text(
        X, *_loop(2, "%x").splitlines(), "ROOT %y = f32[2] negate(%w)", before=regions, root=False
    )
    with pytest.raises(BudgetError, match="each time"):
        plan_of(parse_hlo(text))
