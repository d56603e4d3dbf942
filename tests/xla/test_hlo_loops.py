"""Loops are proven by induction on one iteration, and wrong ones never are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from xla.hlo_loops import SUM, copied, looped, nested, paired, summed

from pitcheck.base.options import Options
from pitcheck.commands.checking import attempts as in_turn
from pitcheck.commands.checking.attempts import checked_in_turn
from pitcheck.engine.check import check
from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.lowering import program
from pitcheck.frontends.xla.lowering.loops.common import common_loops
from pitcheck.frontends.xla.lowering.pair import attempts_on
from pitcheck.frontends.xla.text.parser import parse_hlo

if TYPE_CHECKING:
    from pitcheck.frontends.protocol import Attempt
    from pitcheck.report.report import Report

OPTIONS = Options(seed=1, jobs=1, explain=False)
BEFORE, AFTER = looped(4), looped(2, sharded=False)


def attempts(before: str, after: str) -> Iterator[Attempt]:
    return attempts_on(parse_hlo(before), parse_hlo(after))


def report(before: str, after: str) -> Report:
    return checked_in_turn(partial(attempts, before, after), OPTIONS)


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize("limit", [4, 20_000])
def test_a_loop_is_proven_however_many_iterations_it_has(limit: int) -> None:
    """Twenty thousand iterations are more than are followed one by one."""
    found = report(looped(4, limit=limit), looped(2, limit=limit, sharded=False))
    assert (found.verdict, found.heuristic, found.outputs.total) == ("equivalent", (), 7)
    assert found.reductions[0] == (
        f"loop loop ends when its counter is {limit}; it is proven by induction on one iteration "
        f"in any state"
    )


def downwards(rows: int, limit: int, less: int = 1, *, sharded: bool = True) -> str:
    """Return the program with the matrices taken, and the rows stacked, from the last place on."""
    places = f"""  %n = s32[] constant({limit})
  %left = s32[] subtract(%n, %i)
  %less = s32[] constant({less})
  %down = s32[] subtract(%left, %less)
"""
    text = edited(looped(rows, limit=limit, sharded=sharded), "  %cut = ", f"{places}  %cut = ")
    text = edited(text, "dynamic-slice(%w, %i,", "dynamic-slice(%w, %down,")
    return edited(text, "%row, %i, %zero", "%row, %down, %zero")


@pytest.mark.parametrize("limit", [4, 1_000_000])
def test_a_loop_that_counts_down_is_proven_however_many_iterations_it_has(limit: int) -> None:
    """The place of an iteration is an input, and the matrices are as few as any dimension."""
    found = report(downwards(4, limit), downwards(2, limit, sharded=False))
    assert (found.verdict, found.heuristic, found.outputs.total) == ("equivalent", (), 7)
    given = {"down, loop (counted)": (0, limit), "loop[0]": (0, limit)}
    folded = next(attempts(downwards(4, limit), downwards(2, limit, sharded=False)))
    for plan in folded.plans:
        bounds = {tensor.name: tensor.bounds for tensor in plan.tensors if tensor.bounds}
        assert bounds == given


@pytest.mark.parametrize("less", [0, 2])
def test_a_loop_that_counts_down_to_another_place_is_never_proven(less: int) -> None:
    """One iteration of four is clamped to the same place, the others differ."""
    assert report(downwards(4, 4), downwards(2, 4, less, sharded=False)).verdict == "mismatch"


def twice_counted(rows: int, start: int = 3, step: int = -1, *, sharded: bool = True) -> str:
    """Return the program with an integer beside the counter, which says what matrix is taken."""
    text = looped(rows, sharded=sharded)
    text = edited(text, "f32[4,4,4])", "f32[4,4,4], s32[])")
    text = edited(text, "%w = f32[4,4,4] get-tuple-element(%p), index=3", TAKEN.format(step=step))
    text = edited(text, "tuple(%next, %y, %stacked, %w)", "tuple(%next, %y, %stacked, %w, %k)")
    text = edited(text, "dynamic-slice(%w, %i,", "dynamic-slice(%w, %j,")
    text = edited(text, "%state = ", f"%start = s32[] constant({start})\n  %state = ")
    text = edited(text, "tuple(%zero, %x, %ys, %w)", "tuple(%zero, %x, %ys, %w, %start)")
    text = edited(text, "get-tuple-element(%loop), index=0", "get-tuple-element(%loop), index=4")
    return text.replace("{replicated}}\n", "{replicated}, {replicated}}\n", 1)


TAKEN = """%w = f32[4,4,4] get-tuple-element(%p), index=3
  %j = s32[] get-tuple-element(%p), index=4
  %by = s32[] constant({step})
  %k = s32[] add(%by, %j)"""


@pytest.mark.parametrize(("start", "step"), [(3, -1), (0, 1), (0, 0), (2, 5), (-1, 2)])
def test_integers_that_count_beside_the_counter_are_decided_by_it(start: int, step: int) -> None:
    """Indices outside are clamped, and the integer behind the loop is known."""
    pair = (twice_counted(4, start, step), twice_counted(2, start, step, sharded=False))
    folded, followed = attempts(*pair)
    for attempt in (folded, followed):
        assert check(*attempt.plans, OPTIONS).verdict == "equivalent"
    assert not any("[4]" in output.tensor for output in folded.plans[0].outputs)


@pytest.mark.parametrize(("start", "step"), [(2, -1), (3, 1), (3, -2), (4, -1), (7, -1)])
def test_integers_that_count_otherwise_are_never_proven(start: int, step: int) -> None:
    """From 4 on down, the first place is clamped to the last, and all others are one further."""
    found = report(twice_counted(4), twice_counted(2, start, step, sharded=False))
    assert found.verdict == "mismatch"


def test_the_counter_is_not_the_other_integer() -> None:
    for old, new in (("(%w, %j,", "(%w, %i,"), ("%stacked, %w, %k)", "%stacked, %w, %next)")):
        wrong = edited(twice_counted(2, 1, 1, sharded=False), old, new)
        assert report(twice_counted(4, 1, 1), wrong).verdict == "mismatch"


def test_what_is_shown_of_a_loop_is_named() -> None:
    folded, followed = attempts(BEFORE, AFTER)
    assert (folded.decides, followed.decides) == (False, True)
    names = [output.tensor for output in folded.plans[0].outputs]
    assert names[3:] == [
        "loop[1] at first",
        "loop[1] after an iteration",
        "loop[2] at first",
        "loop[2] after an iteration",
    ]
    counter = next(tensor for tensor in folded.plans[1].tensors if tensor.name == "loop[0]")
    assert counter.bounds == (0, 4)
    assert len(followed.plans[1].outputs) == 3


ADD_ONE = "%next = s32[] add(%i, %one)"
DOT = "dot(%x, %matrix), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
WRONG = (
    ("one iteration less", "%n = s32[] constant(4)", "%n = s32[] constant(3)"),
    ("also at the limit", "direction=LT", "direction=LE"),
    ("two at a time", "%one = s32[] constant(1)", "%one = s32[] constant(2)"),
    ("from another row", "tuple(%zero, %x, %ys, %w)", "tuple(%b, %x, %ys, %w)"),
    ("a matrix transposed", DOT, f"{DOT[:-3]}{{1}}"),
    ("the first matrix each time", "dynamic-slice(%w, %i,", "dynamic-slice(%w, %zero,"),
    ("the matrix after", "dynamic-slice(%w, %i,", "dynamic-slice(%w, %one,"),
    ("one place in the stack", "%row, %i, %zero, %zero", "%row, %one, %zero, %zero"),
    ("the rows before", "%row = f32[1,2,4] reshape(%y)", "%row = f32[1,2,4] reshape(%x)"),
    ("the rows of the start", "tuple(%next, %y, %stacked, %w)", "tuple(%next, %x, %stacked, %w)"),
    ("what is kept, doubled", "%stacked, %w)", "%stacked, %double)"),
    ("a stack of the start", "get-tuple-element(%loop), index=2", "get-tuple-element(%state), index=2"),  # noqa: E501
    ("the counter before", "get-tuple-element(%loop), index=0", "get-tuple-element(%state), index=0"),  # noqa: E501
    ("wrong in the first iteration", "tuple(%next, %y,", "tuple(%next, %first,"),
    ("wrong in the last iteration", "tuple(%next, %y,", "tuple(%next, %last,"),
)  # fmt: skip
HELD = """  %double = f32[4,4,4] add(%w, %w)
  %three = s32[] constant(3)
  %begins = pred[] compare(%i, %zero), direction=EQ
  %ends = pred[] compare(%i, %three), direction=EQ
  %begin = pred[2,4] broadcast(%begins), dimensions={}
  %end = pred[2,4] broadcast(%ends), dimensions={}
  %first = f32[2,4] select(%begin, %x, %y)
  %last = f32[2,4] select(%end, %x, %y)
"""


LONGER = edited(AFTER, ADD_ONE, HELD + "  " + ADD_ONE).replace(
    "  %fill =", "  %b = s32[] constant(1)\n  %fill ="
)


def test_what_no_result_depends_on_is_no_difference() -> None:
    assert report(BEFORE, LONGER).verdict == "equivalent"


@pytest.mark.parametrize(("old", "new"), [each[1:] for each in WRONG], ids=[w[0] for w in WRONG])
def test_another_loop_is_a_mismatch(old: str, new: str) -> None:
    assert report(BEFORE, edited(LONGER, old, new)).verdict == "mismatch"


def test_a_cause_within_a_loop_is_tried_on_one_iteration() -> None:
    """One repair makes an iteration right in any state; what differs is an output all the same."""
    before, after = summed(4), summed(2)
    assert report(before, after).verdict == "equivalent"
    wrong = edited(after, SUM, "copy(%y)")
    options = replace(OPTIONS, explain=True)
    found = checked_in_turn(partial(attempts, before, wrong), options)
    assert (found.verdict, found.differing) == ("mismatch", ("result",))
    (finding,) = found.findings
    assert (finding.code, finding.output) == ("PIT104", "result")
    assert finding.tried is not None
    assert finding.tried.said.startswith(
        "tested on one iteration in any state: with it, every output"
    )
    assert finding.reference_value != finding.parallel_value


def test_both_programs_may_have_another_counter() -> None:
    """The same change of both programs is no difference."""
    one, two = (f"%one = s32[] constant({step})" for step in (1, 2))
    (only,) = attempts(*(edited(text, one, two) for text in (BEFORE, AFTER)))
    assert check(*only.plans, OPTIONS).verdict == "equivalent"


def test_what_a_relation_between_arrays_decides_is_followed() -> None:
    """Both arrays are the same in each iteration, which no placement says."""
    one, other = (paired(rows) for rows in (4, 2))
    folded, followed = attempts(one, other.replace("add(%x, %x)", "add(%x, %z)"))
    assert check(*folded.plans, OPTIONS).verdict != "equivalent"
    assert check(*followed.plans, OPTIONS).verdict == "equivalent"
    found = report(one, other.replace("add(%x, %x)", "add(%x, %z)"))
    assert found.verdict == "equivalent"
    assert OPTIONS.error_bound_log2 - 1 < found.error_bound_log2 < OPTIONS.error_bound_log2


def test_each_copy_of_the_state_must_be_right() -> None:
    """The second device goes wrong alone."""
    whole, part = (copied(rows) for rows in (4, 2))
    assert report(whole, part).verdict == "equivalent"
    wrong = edited(part, "%y = f32[4] add(%x, %x)", "%y = f32[4] add(%x, %other)")
    for attempt in attempts(whole, wrong):
        assert check(*attempt.plans, OPTIONS).verdict == "mismatch"


def test_states_that_nothing_was_said_of_are_not_taken_for_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proof of the folded pair alone is none of the loop."""
    monkeypatch.setattr(in_turn, "_note_refusal", lambda *_: None)
    found = report(BEFORE, AFTER)
    assert (found.verdict, found.outputs.total) == ("equivalent", 3)


def test_integers_that_iterations_change_are_followed() -> None:
    """Nothing bounds them: an induction would have to say which integers they may be."""
    one, other = (paired(rows).replace("f32", "s32") for rows in (4, 2))
    (only,) = attempts(one, other)
    assert only.decides


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (", {devices=[1,2,1]<=[2]}, {replicated}}\n", ", {manual}, {replicated}}\n"),
        (", {devices=[1,2,1]<=[2]}, {replicated}}\n", ", {unreduced}, {replicated}}\n"),
        ("%c = pred[] compare(%i, %n), direction=LT", "%c = pred[] compare(%n, %i), direction=GT"),
        ("%n = s32[] constant(4)", "%n = s32[] add(%i, %i)"),
        ("add(%i, %one)", "multiply(%i, %one)"),
        ("%next = s32[] add(%i, %one)", "%next = s32[] add(%zero, %one)"),
        ("%one = s32[] constant(1)", "%one = s32[] constant(3)"),
    ],
)
def test_loops_that_say_too_little_are_not_folded(old: str, new: str) -> None:
    before = edited(BEFORE, old, new)
    assert common_loops(parse_hlo(BEFORE), parse_hlo(AFTER)) != ({}, {})
    assert common_loops(parse_hlo(before), parse_hlo(AFTER)) == ({}, {})


def test_a_counter_that_stands_still_is_refused() -> None:
    found = report(BEFORE, edited(AFTER, ADD_ONE, "%next = s32[] add(%i, %i)"))
    assert found.verdict == "inconclusive"
    assert "more than 4096 iterations" in found.findings[0].title


def test_a_wrong_loop_that_is_too_long_to_be_followed_is_not_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "MOST_ITERATIONS", 64)
    whole, part = looped(4, limit=100), looped(2, limit=100, sharded=False)
    found = report(whole, edited(part, "dynamic-slice(%w, %i,", "dynamic-slice(%w, %zero,"))
    assert found.verdict == "inconclusive"
    titles = [finding.title for finding in found.findings]
    assert "more than 64 iterations" in titles[0]
    assert titles[1].startswith("by induction over loops it is not proven either: 'loop[1] after")


def test_what_every_iteration_overwrites_may_differ_at_first() -> None:
    """The induction does not know that; the loop is followed."""
    after = edited(AFTER, "%fill = f32[] constant(0)", "%fill = f32[] constant(1)")
    folded, _ = attempts(BEFORE, after)
    assert check(*folded.plans, OPTIONS).verdict != "equivalent"
    assert report(BEFORE, after).verdict == "equivalent"


def test_loops_within_loops_are_folded() -> None:
    texts = [nested(rows) for rows in (4, 2)]
    folded, followed = attempts(*texts)
    assert len(folded.plans[1].outputs) == 1 + 2 + 2
    for attempt in (folded, followed):
        assert check(*attempt.plans, OPTIONS).verdict == "equivalent"
    wrong = edited(texts[1], "%y = f32[2] add(%x, %a)", "%y = f32[2] add(%x, %x)")
    assert report(texts[0], wrong).verdict == "mismatch"


def test_findings_on_each_pair_that_decides_nothing_are_kept() -> None:
    wrong = edited(AFTER, "dynamic-slice(%w, %i,", "dynamic-slice(%w, %zero,")

    def tried() -> Iterator[Attempt]:
        for attempt in attempts(BEFORE, wrong):
            yield replace(attempt, decides=False)
        raise UnsupportedError("nothing decides")

    found = checked_in_turn(tried, OPTIONS)
    first, folded, *_, followed = (finding.title for finding in found.findings)
    assert (found.verdict, first) == ("inconclusive", "nothing decides")
    assert folded.startswith("by induction over loops it is not proven either: 'loop[1] after")
    assert followed.startswith("for any random numbers and constants it is not proven either: ")
