"""Programs without a meaning in a plan are refused, never taken for something near to them."""

from __future__ import annotations

import pytest
from xla.hlo_operands import START, N, X, region, stated
from xla.hlo_texts import ADD, module_text
from xla.lowered import outputs, plan_of

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.pair import plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo

FOUR = ", num_partitions=4"


BRANCHES = """%p (a: f32[4]) -> f32[4] {
  ROOT %a = f32[4] parameter(0)
}
%q (a: f32[4]) -> f32[4] {
  %a = f32[4] parameter(0)
  ROOT %b = f32[4] negate(%a)
}
%c (s: (s32[], f32[4])) -> pred[] {
  %s = (s32[], f32[4]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %e = s32[] constant(4)
  ROOT %m = pred[] compare(%n, %e), direction=LT
}
%d (s: (s32[], f32[4])) -> (s32[], f32[4]) {
  %s = (s32[], f32[4]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %x = f32[4] get-tuple-element(%s), index=1
  %e = s32[] constant(1)
  %m = s32[] add(%n, %e)
  ROOT %t = (s32[], f32[4]) tuple(%m, %x)
}
"""
SUMMED = ", lhs_contracting_dims={0}, rhs_contracting_dims={0}"
GATHER = ", collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1"


UNSUPPORTED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "total order": ("total order", (X, "compare(%x, %x), direction=LT, type=TOTALORDER"), ""),
    "sum that wraps": ("wrap", ("%x = s8[4] parameter(0)", "s8[4] add(%x, %x)"), ""),
    "difference that wraps": ("wrap", ("%x = u32[4] parameter(0)", "u32[4] subtract(%x, %x)"), ""),
    "negated lowest": ("wrap", ("%x = s8[4] parameter(0)", "s8[4] negate(%x)"), ""),
    "product that wraps": (
        "wrap",
        (
            N,
            "%m = s32[4] multiply(%n, %n)",
            "%k = s32[4] multiply(%m, %n)",
            "s32[4] multiply(%k, %n)",
        ),
        "",
    ),
    "reduction that wraps": (
        "wrap",
        (
            "%x = u8[4] parameter(0)",
            "%z = u8[] constant(0)",
            "u8[] reduce(%x, %z), dimensions={0}, to_apply=%r",
        ),
        region("u8", "ROOT %c = u8[] add(%a, %b)"),
    ),
    "converted to fewer bits": ("wrap", (N, "s8[4] convert(%n)"), ""),
    "converted to no sign": ("wrap", (N, "u32[4] convert(%n)"), ""),
    "rounded to no sign": ("may not hold", (X, "u32[4] convert(%x)"), ""),
    "rounded to 8 bits": ("may not hold", (X, "s8[4] convert(%x)"), ""),
    "infinity as an integer": (
        "conversion of inf",
        ("%i = f32[] constant(inf)", "s32[] convert(%i)"),
        "",
    ),
    "divided by what may be 0": ("or 0", (N, "s32[4] divide(%n, %n)"), ""),
    "remainder of reals": ("remainder", (X, "f32[4] remainder(%x, %x)"), ""),
    "bits of integers": ("bits", (N, "s32[4] xor(%n, %n)"), ""),
    "shifted integers": ("shift-left", (N, "s32[4] shift-left(%n, %n)"), ""),
    "power of reals": ("power", (X, "f32[4] power(%x, %x)"), ""),
    "clamp to no number": (
        "no number",
        (X, "%l = f32[] constant(nan)", "%h = f32[] constant(1)", "f32[4] clamp(%l, %x, %h)"),
        "",
    ),
    "difference as a reduction": (
        "no sum",
        (X, START, "f32[] reduce(%x, %z), dimensions={0}, to_apply=%r"),
        region("f32", "ROOT %c = f32[] subtract(%a, %b)"),
    ),
    "one argument twice": (
        "no sum",
        (X, START, "f32[] reduce(%x, %z), dimensions={0}, to_apply=%r"),
        region("f32", "ROOT %c = f32[] add(%b, %b)"),
    ),
    "more in a region": (
        "no sum",
        (X, START, "f32[] reduce(%x, %z), dimensions={0}, to_apply=%r"),
        region("f32", "%m = f32[] negate(%a)", "ROOT %c = f32[] add(%a, %b)"),
    ),
    "last argument": (
        "reduction by replace",
        (X, START, "f32[] reduce(%x, %z), dimensions={0}, to_apply=%r"),
        "%r (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
        "  ROOT %b = f32[] parameter(1)\n}\n",
    ),
    "reduction of nothing from 2": (
        "not neutral",
        (X, "%z = f32[] constant(2)", "f32[4] reduce(%x, %z), dimensions={}, to_apply=%add"),
        ADD,
    ),
    "padding that is not known": (
        "not known",
        (X, "%f = f32[] parameter(1)", "f32[6] pad(%x, %f), padding=1_1"),
        "",
    ),
    "product of integers": ("matrices of s32", (N, "s32[] dot(%n, %n)" + SUMMED), ""),
    "count that wraps": ("wraps", ("u8[300] iota(), iota_dimension=0",), ""),
    "complex numbers": ("c64", ("%c = c64[] constant((1, 2))", "c64[] negate(%c)"), ""),
    "no elements": ("without elements", ("%x = f32[0] parameter(0)", "f32[0] negate(%x)"), ""),
    "loop of inputs": (
        "number of iterations",
        (
            X,
            "%k = s32[] parameter(1)",
            "%t = (s32[], f32[4]) tuple(%k, %x)",
            "(s32[], f32[4]) while(%t), condition=%c, body=%d",
        ),
        BRANCHES,
    ),
    "custom call": (
        "SPMDFullToShardShape",
        (X, 'f32[4] custom-call(%x), custom_call_target="SPMDFullToShardShape"'),
        "",
    ),
    "unknown operator": ("cbrt", (X, "f32[4] cbrt(%x)"), ""),
    "replica": ("replica-id", ("u32[] replica-id()",), ""),
    "all-reduce over replicas": (
        "replicas",
        (X, "f32[4] all-reduce(%x), replica_groups={{0}}, to_apply=%add"),
        ADD,
    ),
    "permute over replicas": (
        "replicas",
        (X, "f32[4] collective-permute(%x), source_target_pairs={{0,0}}"),
        "",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_program_without_meaning_is_refused(name: str) -> None:
    words, lines, before = UNSUPPORTED[name]
    with pytest.raises(UnsupportedError, match=words):
        plan_of(parse_hlo(stated(lines, before)))


DAMAGED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "types of a sum": ("types", (X, N.replace("0", "1"), "f32[4] add(%x, %n)"), ""),
    "type of a comparison": ("types", (X, "f32[4] compare(%x, %x), direction=LT"), ""),
    "type of a choice": ("gives no", (X, "f32[4] select(%x, %x, %x)"), ""),
    "sizes of a transpose": (
        "gives no",
        ("%x = f32[2,3] parameter(0)", "f32[2,3] transpose(%x), dimensions={1,0}"),
        "",
    ),
    "element of a broadcast": ("gives no", (X, "s32[4] broadcast(%x), dimensions={0}"), ""),
    "slice that ends outside": (
        "gives no",
        ("%k = s32[4] constant({1, 2, 3, 4})", "s32[6] slice(%k), slice={[0:6]}"),
        "",
    ),
    "slice that is too large": (
        "does not fit",
        (X, "%k = s32[] parameter(1)", "f32[5] dynamic-slice(%x, %k), dynamic_slice_sizes={5}"),
        "",
    ),
    "dimension numbers": (
        "gives no",
        (
            X,
            "%i = s32[2,2] parameter(1)",
            "f32[2] gather(%x, %i), offset_dims={}, slice_sizes={1}" + GATHER,
        ),
        "",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_program_that_contradicts_itself_is_invalid(name: str) -> None:
    words, lines, before = DAMAGED[name]
    with pytest.raises(PlanError, match=words):
        plan_of(parse_hlo(stated(lines, before)))


GLOBAL = "use_global_device_ids=true, to_apply=%add"


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (f"all-reduce(%x), channel_id=1, replica_groups={{{{0,1}}}}, {GLOBAL}", PlanError, "once"),
        (f"all-reduce(%x), channel_id=1, replica_groups={{}}, {GLOBAL}", PlanError, "needs"),
        (
            "all-reduce(%x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%add",
            PlanError,
            "once",
        ),
        (
            f"all-reduce(%x), channel_id=1, replica_groups={{{{0,1,2}},{{3}}}}, {GLOBAL}",
            UnsupportedError,
            "size",
        ),
        (
            "all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3}}, "
            "use_global_device_ids=true, to_apply=%r",
            UnsupportedError,
            "no sum",
        ),
        (
            "collective-permute(%x), channel_id=1, source_target_pairs={{0,4}}",
            PlanError,
            "partition 4 of 4",
        ),
    ],
)
def test_a_collective_of_other_groups_is_refused(
    line: str, error: type[Exception], words: str
) -> None:
    before = ADD + region("f32", "ROOT %c = f32[] subtract(%a, %b)")
    text = module_text(X, f"%y = f32[4] {line}", before=before, head=FOUR)
    with pytest.raises(error, match=words):
        plan_of(parse_hlo(text))


def _ran(line: str, given: list[list[float]], before: str = "") -> list[list[float]]:
    """Return the output of an instruction on x of each of 4 devices."""
    text = module_text(
        "%x = f32[2] parameter(0)", f"ROOT %y = f32[2] {line}", before=before, head=FOUR, root=False
    )
    return [found[0] for found in outputs(text, [[each] for each in given])]


GIVEN = [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0], [1000.0, 2000.0]]


@pytest.mark.parametrize(
    "line",
    [
        f"f32[2] all-reduce(%x), channel_id=1, replica_groups={{{{0}}}}, {GLOBAL}",
        "f32[2] collective-permute(%x), channel_id=1, source_target_pairs={{0,0}}",
        "u32[] partition-id()",
    ],
)
def test_a_program_that_is_not_partitioned_has_no_partitions(line: str) -> None:
    """One device stands for all there: it is not partition 0, and no group is of it alone."""
    text = module_text(
        "%x = f32[2] parameter(0)", f"ROOT %y = {line}", before=ADD, head=FOUR, root=False
    )
    with pytest.raises(UnsupportedError, match="not partitioned yet"):
        plans_of(parse_hlo(text), parse_hlo(text))


def test_ids_that_are_replicas_mean_all_partitions() -> None:
    """Without global ids a group lists replicas, of which there is one: all partitions meet."""
    line = "all-reduce(%x), channel_id=1, replica_groups={{0}}, to_apply=%add"
    assert _ran(line, GIVEN, ADD) == [[1111, 2222]] * 4
    line = "all-reduce(%x), channel_id=1, replica_groups={}, to_apply=%add"
    assert _ran(line, GIVEN, ADD) == [[1111, 2222]] * 4


def test_the_first_of_each_group_broadcasts() -> None:
    line = "collective-broadcast(%x), channel_id=1, replica_groups={{2,1},{0,3}}"
    assert _ran(line, GIVEN) == [GIVEN[0], GIVEN[2], GIVEN[2], GIVEN[0]]


def test_groups_of_one_change_nothing() -> None:
    where = "channel_id=1, replica_groups={{0},{3},{2},{1}}"
    assert _ran(f"all-reduce(%x), {where}, {GLOBAL}", GIVEN, ADD) == GIVEN
    assert _ran(f"all-gather(%x), {where}, dimensions={{0}}, {GLOBAL[:26]}", GIVEN) == GIVEN
    assert _ran(f"all-to-all(%x), {where}, dimensions={{0}}", GIVEN) == GIVEN


def test_truths_are_reduced_by_or_and_and() -> None:
    """They have no sum: XLA's add of truths is or, which no program means."""
    text = module_text(
        "%x = pred[2] parameter(0)",
        f"%y = pred[2] all-reduce(%x), channel_id=1, replica_groups={{{{0,1,2,3}}}}, {GLOBAL}",
        before=region("pred", "ROOT %c = pred[] add(%a, %b)").replace("%r", "%add"),
        head=FOUR,
    )
    with pytest.raises(UnsupportedError, match="pred by add"):
        plan_of(parse_hlo(text))


def _pair(before: str, after: str, line: str = "ROOT %y = f32[{}] negate(%x)") -> None:
    head = ", num_partitions=2"
    whole = module_text(
        f"%x = f32[4] parameter(0), sharding={before}", line.format(4), head=head, root=False
    )
    part = module_text(
        f"%x = f32[2] parameter(0), sharding={after}", line.format(2), head=head, root=False
    )
    plans_of(parse_hlo(whole), parse_hlo(part))


@pytest.mark.parametrize(
    ("before", "after", "error", "words"),
    [
        ("{devices=[2]<=[2]}", "{devices=[2]1,0}", PlanError, "another sharding"),
        ("{replicated}", "{replicated}", PlanError, "sharding makes it"),
        ("{devices=[2]<=[2]}", "{devices=[2]<=[2]}", UnsupportedError, "does not say"),
        ("{maximal device=0}", "{maximal device=0}", UnsupportedError, "one device alone"),
        ("{manual}", "{manual}", UnsupportedError, "manual"),
    ],
)
def test_shardings_that_differ_or_say_too_little_are_refused(
    before: str, after: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        _pair(before, after)


def test_sums_that_are_not_made_are_no_copies() -> None:
    """A parameter that is a term of a sum before cannot be a copy of it after."""
    head = ", num_partitions=2"
    line = "ROOT %y = f32[4] negate(%x), sharding={replicated}"
    texts = [
        module_text(f"%x = f32[4] parameter(0), sharding={s}", line, head=head, root=False)
        for s in ("{unreduced}", "{replicated}")
    ]
    with pytest.raises(PlanError, match="another sharding"):
        plans_of(*map(parse_hlo, texts))


def test_a_mask_of_labels_is_not_decided_by_what_indices_are() -> None:
    """Labels index, so they lie within; one that they are compared with is a case of its own."""
    lines = (
        "%x = f32[4] parameter(0)",
        "%l = s32[2] parameter(1)",
        "%m = s32[] constant(-1)",
        "%w = s32[2] broadcast(%m), dimensions={}",
        "%k = pred[2] compare(%l, %w), direction=NE",
        "%i = s32[2,1] reshape(%l)",
        "%f = f32[2] gather(%x, %i), offset_dims={}, slice_sizes={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1",
        "%r = f32[2] convert(%k)",
        "ROOT %y = f32[2] multiply(%f, %r)",
    )
    text = module_text(*lines, root=False)
    reference, parallel = plans_of(parse_hlo(text), parse_hlo(text))
    assert any(operator.kind == "ne" for operator in reference.operators)
    assert {t.bounds for t in reference.tensors if t.role == "input"} == {None, (-1, 4)}
    assert "the integers in l lie in [-1, 4), as they index" in parallel.assumptions


def test_integers_that_do_not_index_may_be_negative() -> None:
    text = module_text(
        "%n = s32[2] parameter(0)",
        "%z = s32[2] constant({0, 0})",
        "ROOT %y = pred[2] compare(%n, %z), direction=LT",
        root=False,
    )
    _, parallel = plans_of(parse_hlo(text), parse_hlo(text))
    assert parallel.operators[0].kind == "lt"
    assert parallel.assumptions[1:] == ("the integers in n lie in [-1024, 1024)",)
