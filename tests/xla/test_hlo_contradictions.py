"""Texts that contradict themselves as XLA never lets one do are refused with their line.

A plan would repeat an array of one place, or pass over a dimension that is not there.
"""

from __future__ import annotations

import pytest
from xla.hlo_attacks import program, region
from xla.hlo_texts import ADD, module_text
from xla.lowered import plan_of

from pitcheck.errors import BudgetError, PlanError, UnsupportedError
from pitcheck.frontends.xla.text.parser import parse_hlo

GIVEN = (
    "%x = f32[2,3] parameter(0)",
    "%c = pred[3] parameter(1)",
    "%n = f32[3] parameter(2)",
    "%o = f32[1] parameter(3)",
    "%i = s32[2] parameter(4)",
    "%z = f32[] constant(0)",
    "%p = u32[] partition-id()",
)
BOTH = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true"
GATHER = "slice_sizes={1,3}, start_index_map={0}, "
COLLAPSED = "collapsed_slice_dims={0}, index_vector_dim="

WRONG: dict[str, tuple[str, str]] = {
    "choices by fewer truths": ("select(%c, %x, %x)", "f32[2,3]"),
    "limits of other sizes": ("clamp(%n, %x, %n)", "f32[2,3]"),
    "repeated without a new dimension": ("broadcast(%o), dimensions={0}", "f32[4]"),
    "repeated along none": ("broadcast(%n), dimensions={2}", "f32[2,3]"),
    "repeated along two": ("broadcast(%n), dimensions={0,1}", "f32[2,3]"),
    "repeated along one twice": ("broadcast(%x), dimensions={1,1}", "f32[2,3]"),
    "transposed twice": ("transpose(%x), dimensions={0,0}", "f32[2,2]"),
    "transposed elsewhere": ("transpose(%x), dimensions={0,5}", "f32[2,3]"),
    "transposed by more": ("transpose(%x), dimensions={1,0,2}", "f32[3,2]"),
    "turned around elsewhere": ("reverse(%x), dimensions={6}", "f32[2,3]"),
    "turned around twice": ("reverse(%x), dimensions={0,0}", "f32[2,3]"),
    "joined along none": ("concatenate(%x, %x), dimensions={}", "f32[4,3]"),
    "joined elsewhere": ("concatenate(%x, %x), dimensions={3}", "f32[4,3]"),
    "joined with another rank": ("concatenate(%x, %n), dimensions={0}", "f32[3,3]"),
    "counted elsewhere": ("iota(), iota_dimension=2", "f32[2,3]"),
    "cut to more": ("slice(%n), slice={[0:4]}", "f32[4]"),
    "cut along more": ("slice(%n), slice={[0:3], [0:1]}", "f32[3]"),
    "shown as fewer": ("reshape(%x)", "f32[5]"),
    "summed elsewhere": ("reduce(%x, %z), dimensions={2}, to_apply=%add", "f32[2]"),
    "summed twice": ("reduce(%x, %z), dimensions={0,0}, to_apply=%add", "f32[3]"),
    "product along none": (
        "dot(%x, %n), lhs_contracting_dims={7}, rhs_contracting_dims={0}",
        "f32[2,3]",
    ),
    "product of one and three": (
        "dot(%o, %n), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
        "f32[]",
    ),
    "product along one twice": (
        "dot(%x, %x), lhs_contracting_dims={1,1}, rhs_contracting_dims={1,1}",
        "f32[2,2]",
    ),
    "gathered elsewhere": (f"all-gather(%x), dimensions={{2}}, {BOTH}", "f32[4,3]"),
    "exchanged elsewhere": (
        "all-to-all(%x), dimensions={2}, channel_id=1, replica_groups={{0,1}}",
        "f32[2,3]",
    ),
    "index vectors elsewhere": (
        f"gather(%x, %i), {GATHER}offset_dims={{1}}, {COLLAPSED}7",
        "f32[2,3]",
    ),
    "slices elsewhere": (
        f"gather(%x, %i), {GATHER}offset_dims={{4}}, {COLLAPSED}1",
        "f32[2,3]",
    ),
    "slices without a dimension twice": (
        f"gather(%x, %i), {GATHER}offset_dims={{1}}, collapsed_slice_dims={{0,0}}, "
        "index_vector_dim=1",
        "f32[2,3]",
    ),
    "slices of other sizes": (
        f"gather(%x, %i), {GATHER}offset_dims={{1}}, {COLLAPSED}1",
        "f32[2,2]",
    ),
    "indices that are no integers": (
        f"gather(%x, %n), {GATHER}offset_dims={{1}}, {COLLAPSED}1",
        "f32[3,3]",
    ),
    "compared as another type": ("compare(%i, %i), direction=LT, type=UNSIGNED", "pred[2]"),
    "sum of other elements": ("reduce(%x, %z), dimensions={0}, to_apply=%add.s32", "f32[3]"),
    "sum of arrays": ("reduce(%x, %z), dimensions={0}, to_apply=%wide", "f32[3]"),
    "sum that gives a truth": ("reduce(%x, %z), dimensions={0}, to_apply=%truth", "f32[3]"),
    "sum of devices of other elements": (f"all-reduce(%x), {BOTH}, to_apply=%add.s32", "f32[2,3]"),
    "order that is no truth": ("sort(%n), dimensions={0}, to_apply=%add", "f32[3]"),
    "start of another computation": ("async-start(%n), calls=%add", "((f32[3]), f32[3])"),
    "start of other arrays": ("async-start(%n), calls=%one", "((f32[3]), f32[2,3])"),
    "start of other operands": ("async-start(%n), calls=%one", "((f32[2,3]), f32[2,3])"),
    "start that says no result": ("async-start(%x), calls=%one", "f32[2,3]"),
}
REGIONS = (
    ADD
    + region("add", "s32")
    + """%wide (a: f32[3], b: f32[3]) -> f32[3] {
  %a = f32[3] parameter(0)
  %b = f32[3] parameter(1)
  ROOT %c = f32[3] add(%a, %b)
}
%truth (a: f32[], b: f32[]) -> pred[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction=LT
}
%one (a: f32[2,3]) -> f32[2,3] {
  ROOT %a = f32[2,3] parameter(0)
}
"""
)


@pytest.mark.parametrize("name", WRONG)
def test_what_xla_does_not_let_a_text_say(name: str) -> None:
    line, shape = WRONG[name]
    text = module_text(*GIVEN, f"%r = {shape} {line}", before=REGIONS, head=", num_partitions=2")
    with pytest.raises(PlanError, match=r"HLO text:\d+"):
        plan_of(parse_hlo(text))


PAIR = "channel_id=1, source_target_pairs={{0,1},{1,0}}"


@pytest.mark.parametrize(
    "lines",
    [
        (
            "%s = (f32[2,3], f32[2,3], u32[]) copy-start(%x)",
            "%r = f32[2,3] get-tuple-element(%s), index=0",
        ),
        (
            f"%s = (f32[2,3], f32[2,3]) collective-permute-start(%x), {PAIR}",
            "%r = f32[2,3] get-tuple-element(%s), index=1",
        ),
        (f"%r = f32[2,3] all-reduce-start(%x), {BOTH}, to_apply=%add",),
        (
            "%s = ((f32[2,3]), f32[2,3]) async-start(%x), calls=%one",
            "%r = f32[2,3] get-tuple-element(%s), index=1",
        ),
    ],
)
def test_what_is_under_way_is_not_read(lines: tuple[str, ...]) -> None:
    body = "\n".join((*GIVEN, *lines, "ROOT %y = f32[2,3] negate(%r)"))
    with pytest.raises(PlanError, match="before it is done"):
        plan_of(parse_hlo(program(body, REGIONS, devices=2)))


@pytest.mark.parametrize("given", ["%x, %x", "%x, %x, %i, %i"])
def test_parts_that_are_written_into_an_array_are_refused(given: str) -> None:
    line = f"ROOT %r = f32[2,3] collective-permute({given}), {PAIR}"
    with pytest.raises(UnsupportedError, match="gives one array"):
        plan_of(parse_hlo(program("\n".join((*GIVEN, line)), devices=2)))


def test_what_is_under_way_is_no_result() -> None:
    line = f"ROOT %r = (f32[2,3], f32[2,3]) collective-permute-start(%x), {PAIR}"
    with pytest.raises(PlanError, match="before it is done"):
        plan_of(parse_hlo(program("\n".join((*GIVEN, line)), devices=2)))


def test_arrays_of_wide_tuples_count_among_what_is_followed() -> None:
    """A loop that hands a wide tuple on would else be followed for hours."""
    wide = f"({', '.join(['f32[]'] * 2000)})"
    state = f"({wide}, s32[])"
    regions = f"""%c (s: {state}) -> pred[] {{
  %s = {state} parameter(0)
  %n = s32[] get-tuple-element(%s), index=1
  %e = s32[] constant(4000)
  ROOT %m = pred[] compare(%n, %e), direction=LT
}}
%d (s: {state}) -> {state} {{
  %s = {state} parameter(0)
  %w = {wide} get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=1
  %e = s32[] constant(1)
  %m = s32[] add(%n, %e)
  ROOT %t = {state} tuple(%w, %m)
}}
"""
    lines = f"""%x = f32[] parameter(0)
    %n = s32[] constant(0)
    %w = {wide} tuple({", ".join(["%x"] * 2000)})
    %s = {state} tuple(%w, %n)
    %l = {state} while(%s), condition=%c, body=%d
    ROOT %r = s32[] get-tuple-element(%l), index=1"""
    with pytest.raises(BudgetError, match="each array of a tuple"):
        plan_of(parse_hlo(program(lines, regions)))
