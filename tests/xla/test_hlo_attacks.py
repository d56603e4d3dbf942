"""Partitioned programs that are nearly right: groups, orders, parts, shardings, padding, time.

The first of each pair of edits is none, so that the program around it is seen to be proven.
"""

from __future__ import annotations

import pytest
from xla.hlo_attacks import EQUIVALENT, OTHERS, REFUSED, program, region, verdict

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.pair import attempts_on
from pitcheck.frontends.xla.text.parser import parse_hlo

SUMS = region("add") + region("maximum") + region("minimum")
ALL = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
X = "%x = f32[1] parameter(0), sharding={devices=[4]<=[4]}"
WHOLE = "%x = f32[4] parameter(0), sharding={devices=[4]<=[4]}\n"

PROGRAMS: dict[str, tuple[str, str]] = {
    "gather": (
        WHOLE + "ROOT %r = f32[4] copy(%x), sharding={replicated}",
        f"{X}\nROOT %r = f32[4] all-gather(%x), {ALL}, dimensions={{0}}",
    ),
    "sum": (
        """%x = f32[4,2] parameter(0), sharding={devices=[4,1]<=[4]}
        %z = f32[] constant(0)
        ROOT %r = f32[2] reduce(%x, %z), dimensions={0}, to_apply=%add.f32, """
        "sharding={replicated}",
        f"""%x = f32[1,2] parameter(0), sharding={{devices=[4,1]<=[4]}}
        %z = f32[] constant(0)
        %q = f32[2] reduce(%x, %z), dimensions={{0}}, to_apply=%add.f32
        ROOT %r = f32[2] all-reduce(%q), {ALL}, to_apply=%add.f32""",
    ),
    "scattered sum": (
        """%x = f32[4,8] parameter(0), sharding={devices=[4,1]<=[4]}
        %z = f32[] constant(0)
        ROOT %r = f32[8] reduce(%x, %z), dimensions={0}, to_apply=%add.f32, """
        "sharding={devices=[4]<=[4]}",
        f"""%x = f32[1,8] parameter(0), sharding={{devices=[4,1]<=[4]}}
        %y = f32[8] reshape(%x)
        ROOT %r = f32[2] reduce-scatter(%y), {ALL}, dimensions={{0}}, to_apply=%add.f32""",
    ),
    "shifted": (
        WHOLE + "%z = f32[1] constant({0})\n%b = f32[3] slice(%x), slice={[0:3]}\n"
        "ROOT %r = f32[4] concatenate(%z, %b), dimensions={0}, sharding={devices=[4]<=[4]}",
        f"{X}\nROOT %r = f32[1] collective-permute(%x), channel_id=1, "
        "source_target_pairs={{0,1},{1,2},{2,3}}",
    ),
    "exchanged": (
        "%x = f32[4,4] parameter(0), sharding={devices=[4,1]<=[4]}\n"
        "ROOT %r = f32[4,4] copy(%x), sharding={devices=[1,4]<=[4]}",
        """%x = f32[1,4] parameter(0), sharding={devices=[4,1]<=[4]}
        %y = f32[1,4,1] reshape(%x)
        %z = f32[1,4,1] all-to-all(%y), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={1}
        ROOT %r = f32[4,1] reshape(%z)""",
    ),
    "from one": (
        WHOLE + "%a = f32[1] slice(%x), slice={[2:3]}\n"
        "ROOT %r = f32[1] copy(%a), sharding={replicated}",
        f"{X}\nROOT %r = f32[1] collective-broadcast(%x), channel_id=1, "
        "replica_groups={{2,0,1,3}}",
    ),
    "cut by a table": (
        "%x = f32[8] parameter(0), sharding={replicated}\n"
        "ROOT %r = f32[8] copy(%x), sharding={devices=[4]<=[4]}",
        """%x = f32[8] parameter(0), sharding={replicated}
        %t = s32[4] constant({0, 2, 4, 6})
        %p = u32[] partition-id()
        %s = s32[1] dynamic-slice(%t, %p), dynamic_slice_sizes={1}
        %k = s32[] reshape(%s)
        ROOT %r = f32[2] dynamic-slice(%x, %k), dynamic_slice_sizes={2}""",
    ),
    "several": (
        """%x = f32[4] parameter(0), sharding={devices=[4]<=[4]}
        %y = f32[4] parameter(1), sharding={devices=[4]<=[2,2]T(1,0)}
        ROOT %r = (f32[4], f32[4]) tuple(%x, %y), """
        "sharding={{devices=[4]<=[4]}, {devices=[4]<=[2,2]T(1,0)}}",
        """%x = f32[1] parameter(0), sharding={devices=[4]<=[4]}
        %y = f32[1] parameter(1), sharding={devices=[4]<=[2,2]T(1,0)}
        ROOT %r = (f32[1], f32[1]) tuple(%x, %y)""",
    ),
    "sums of two": (
        WHOLE
        + """%y = f32[4] parameter(1), sharding={devices=[4]<=[4]}
        %z = f32[] constant(0)
        %p = f32[] reduce(%x, %z), dimensions={0}, to_apply=%add.f32
        %q = f32[] reduce(%y, %z), dimensions={0}, to_apply=%add.f32
        ROOT %r = (f32[], f32[]) tuple(%p, %q), sharding={{replicated}, {replicated}}""",
        f"""{X}
        %y = f32[1] parameter(1), sharding={{devices=[4]<=[4]}}
        %p = f32[] reshape(%x)
        %q = f32[] reshape(%y)
        %t = (f32[], f32[]) all-reduce(%p, %q), {ALL}, to_apply=%add.f32
        %a = f32[] get-tuple-element(%t), index=0
        %b = f32[] get-tuple-element(%t), index=1
        ROOT %r = (f32[], f32[]) tuple(%a, %b)""",
    ),
    "padded": (
        """%x = f32[5] parameter(0), sharding={devices=[4]<=[4]}
        %z = f32[] constant(0)
        ROOT %r = f32[] reduce(%x, %z), dimensions={0}, to_apply=%add.f32, """
        "sharding={replicated}",
        f"""%x = f32[2] parameter(0), sharding={{devices=[4]<=[4]}}
        %z = f32[] constant(0)
        %p = u32[] partition-id()
        %two = u32[] constant(2)
        %s = u32[] multiply(%p, %two)
        %w = u32[2] broadcast(%s), dimensions={{}}
        %i = u32[2] iota(), iota_dimension=0
        %g = u32[2] add(%w, %i)
        %n = u32[] constant(5)
        %k = u32[2] broadcast(%n), dimensions={{}}
        %m = pred[2] compare(%g, %k), direction=LT
        %o = f32[2] broadcast(%z), dimensions={{}}
        %c = f32[2] select(%m, %x, %o)
        %q = f32[] reduce(%c, %z), dimensions={{0}}, to_apply=%add.f32
        ROOT %r = f32[] all-reduce(%q), {ALL}, to_apply=%add.f32""",
    ),
    "under way": (
        """%x = f32[4] parameter(0), sharding={devices=[4]<=[4]}
        %y = f32[4] parameter(1), sharding={devices=[4]<=[4]}
        ROOT %r = f32[4] subtract(%x, %y), sharding={replicated}""",
        f"""{X}
        %y = f32[1] parameter(1), sharding={{devices=[4]<=[4]}}
        %s = (f32[1], f32[4]) all-gather-start(%x), {ALL}, dimensions={{0}}
        %t = (f32[1], f32[4]) all-gather-start(%y), {ALL}, dimensions={{0}}
        %v = f32[4] all-gather-done(%t)
        %u = f32[4] all-gather-done(%s)
        ROOT %r = f32[4] subtract(%u, %v)""",
    ),
}
GROUPS = "replica_groups={{0,1,2,3}}, use_global_device_ids=true"
START = "%s = s32[1] dynamic-slice(%t, %p)"
EDITS: list[tuple[str, str, str, str]] = [
    ("gather", "", "", EQUIVALENT),
    ("gather", "{{0,1,2,3}}", "{{0,2,1,3}}", OTHERS),
    ("gather", "{{0,1,2,3}}", "[1,4]<=[4]", EQUIVALENT),
    ("gather", "{{0,1,2,3}}", "[1,4]<=[2,2]T(1,0)", OTHERS),
    ("gather", "{{0,1,2,3}}", "mesh['a'=2,'b'=2] {'a','b'}", EQUIVALENT),
    ("gather", "{{0,1,2,3}}", "mesh['a'=2,'b'=2] {'b','a'}", OTHERS),
    ("gather", "{{0,1,2,3}}", "mesh['a'=4], device_ids=(0,2,1,3) {'a'}", OTHERS),
    ("gather", "{{0,1,2,3}}", "{{0,1,2}}", REFUSED),
    ("gather", "{{0,1,2,3}}", "{}", REFUSED),
    ("gather", GROUPS, "replica_groups={}", EQUIVALENT),
    ("gather", f"channel_id=1, {GROUPS}", "replica_groups={{0}}", REFUSED),
    ("gather", "sharding={devices=[4]<=[4]}", "sharding={devices=[4]<=[2,2]T(1,0)}", REFUSED),
    ("gather", "dimensions={0}", "dimensions={1}", REFUSED),
    ("sum", "", "", EQUIVALENT),
    ("sum", "{{0,1,2,3}}", "{{0,1},{2,3}}", OTHERS),
    ("sum", GROUPS, "replica_groups={{0}}", EQUIVALENT),
    ("sum", "constant(0)", "constant(1)", OTHERS),
    ("sum", "constant(0)", "constant(-0)", EQUIVALENT),
    ("sum", "true, to_apply=%add.f32", "true, to_apply=%maximum.f32", OTHERS),
    ("scattered sum", "", "", EQUIVALENT),
    ("scattered sum", "{{0,1,2,3}}", "{{0,1,3,2}}", OTHERS),
    ("shifted", "", "", EQUIVALENT),
    ("shifted", "{2,3}}", "{2,3},{3,0}}", OTHERS),
    ("shifted", "{2,3}}", "{2,3},{3,3}}", REFUSED),
    ("shifted", "{2,3}}", "{2,3},{3,4}}", REFUSED),
    ("shifted", "{{0,1},{1,2},{2,3}}", "{{1,0},{2,1},{3,2}}", OTHERS),
    ("exchanged", "", "", EQUIVALENT),
    ("exchanged", "{{0,1,2,3}}", "{{1,0,2,3}}", OTHERS),
    ("from one", "", "", EQUIVALENT),
    ("from one", "{{2,0,1,3}}", "{{0,2,1,3}}", OTHERS),
    ("cut by a table", "", "", EQUIVALENT),
    ("cut by a table", "{0, 2, 4, 6}", "{0, 0, 2, 4}", OTHERS),
    ("cut by a table", "{0, 2, 4, 6}", "{-3, 2, 4, 99}", EQUIVALENT),
    (
        "cut by a table",
        START,
        f"%o = u32[] constant(1)\n%q = u32[] subtract(%p, %o)\n{START.replace('%p', '%q')}",
        OTHERS,
    ),
    ("several", "", "", EQUIVALENT),
    ("several", "tuple(%x, %y)", "tuple(%y, %x)", OTHERS),
    (
        "several",
        "tuple(%x, %y)",
        "tuple(%x, %y), sharding={{devices=[4]<=[2,2]T(1,0)}, {devices=[4]<=[4]}}",
        REFUSED,
    ),
    (
        "several",
        "tuple(%x, %y)",
        "tuple(%x, %y), sharding={{devices=[4]0,1,2,3}, {devices=[4]0,2,1,3}}",
        EQUIVALENT,
    ),
    ("sums of two", "", "", EQUIVALENT),
    ("sums of two", "all-reduce(%p, %q)", "all-reduce(%q, %p)", OTHERS),
    ("padded", "", "", EQUIVALENT),
    ("padded", "constant(5)", "constant(6)", OTHERS),
    ("padded", "constant(5)", "constant(4)", OTHERS),
    ("padded", "reduce(%c, %z)", "reduce(%x, %z)", OTHERS),
    ("under way", "", "", EQUIVALENT),
    ("under way", "all-gather-done(%s)", "all-gather-done(%t)", OTHERS),
    ("under way", "all-gather-done(%s)", "get-tuple-element(%s), index=1", REFUSED),
]


@pytest.mark.parametrize(("name", "old", "new", "expected"), EDITS)
def test_a_text_that_is_nearly_right(name: str, old: str, new: str, expected: str) -> None:
    before, after = (program(lines, SUMS) for lines in PROGRAMS[name])
    assert old in after
    assert verdict(before, after.replace(old, new, 1)) == expected


SHARDINGS: list[tuple[str, str, str, str]] = [
    ("{devices=[4]<=[4]}", "{devices=[4]<=[2,2]T(1,0)}", "f32[1]", OTHERS),
    ("{devices=[4]<=[4]}", "{devices=[4]0,2,1,3}", "f32[1]", OTHERS),
    ("{devices=[4]<=[2,2]T(1,0)}", "{devices=[4]0,2,1,3}", "f32[1]", EQUIVALENT),
    ("{mesh['a'=2,'b'=2], [{'a','b'}]}", "{devices=[4]<=[4]}", "f32[1]", EQUIVALENT),
    ("{mesh['a'=2,'b'=2], [{'b','a'}]}", "{devices=[4]<=[4]}", "f32[1]", OTHERS),
    (
        "{devices=[2,2]<=[4] last_tile_dim_replicate}",
        "{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
        "f32[2]",
        OTHERS,
    ),
    (
        "{devices=[2,2]<=[4] last_tile_dim_replicate}",
        "{devices=[2,2]<=[4] last_tile_dims={unreduced}}",
        "f32[2]",
        OTHERS,
    ),
    ("{replicated}", "{unreduced}", "f32[4]", OTHERS),
    ("{unreduced}", "{replicated}", "f32[4]", OTHERS),
    ("{replicated}", "{manual}", "f32[4]", REFUSED),
    ("{replicated}", "{maximal device=0}", "f32[4]", REFUSED),
    ("{replicated}", "{replicated shard_as 1}", "f32[4]", REFUSED),
    ("{devices=[2]<=[2]}", "{devices=[2]<=[2]}", "f32[2]", REFUSED),
]


@pytest.mark.parametrize(("given", "result", "local", "expected"), SHARDINGS)
def test_a_copy_with_two_shardings(given: str, result: str, local: str, expected: str) -> None:
    before = (
        f"%x = f32[4] parameter(0), sharding={given}\nROOT %r = f32[4] copy(%x), sharding={result}"
    )
    after = f"%x = {local} parameter(0), sharding={given}\nROOT %r = {local} copy(%x)"
    assert verdict(program(before), program(after)) == expected


LOOP = """%c (s: (s32[], f32[4])) -> pred[] {
  %s = (s32[], f32[4]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %e = s32[] constant(3)
  ROOT %m = pred[] compare(%n, %e), direction=LT
}
%d (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %s = (s32[], f32[4]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %x = f32[4] get-tuple-element(%s), index=1
  %e = s32[] constant(1)
  %m = s32[] add(%n, %e)
  %y = f32[4] multiply(%x, %x)
  ROOT %t = (s32[], f32[4]) tuple(%m, %y)
}
"""
LOOPS = """%x = f32[4] parameter(0), sharding={replicated}
%z = s32[] constant(0)
%t = (s32[], f32[4]) tuple(%z, %x)
%w = (s32[], f32[4]) while(%t), condition=%c, body=%d
ROOT %r = f32[4] get-tuple-element(%w), index=1"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", EQUIVALENT),
        ("constant(3)", "constant(4)", OTHERS),
        ("direction=LT", "direction=LE", OTHERS),
        ("direction=LT", "direction=NE", EQUIVALENT),
        ("direction=LT", "direction=LT, type=UNSIGNED", REFUSED),
        ("%z = s32[] constant(0)", "%z = s32[] constant(-1)", OTHERS),
        ("body=%d", 'body=%d, backend_config={"known_trip_count":{"n":"3"}}', EQUIVALENT),
        ("body=%d", 'body=%d, backend_config={"known_trip_count":{"n":"2"}}', REFUSED),
        ("body=%d", 'body=%d, backend_config={"known_trip_count":"3"}', REFUSED),
    ],
)
def test_a_loop_of_nearly_as_many_steps(old: str, new: str, expected: str) -> None:
    before = program(LOOPS, LOOP)
    assert old in before
    assert verdict(before, before.replace(old, new, 1)) == expected


@pytest.mark.parametrize(("stated", "folded"), [("3", True), ("2", False)])
def test_a_loop_proven_by_induction_has_the_steps_that_it_states(stated: str, folded: bool) -> None:
    count = f'{{"known_trip_count":{{"n":"{stated}"}}}}'
    state = "sharding={{replicated}, {replicated}}"
    text = program(LOOPS.replace("body=%d", f"body=%d, {state}, backend_config={count}"), LOOP)
    attempts = attempts_on(parse_hlo(text), parse_hlo(text))
    if folded:
        assert next(attempts).reductions
    else:
        with pytest.raises(PlanError, match="states known_trip_count=2"):
            next(attempts)
