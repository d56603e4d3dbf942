"""A program with a loop, before and after it is partitioned over two devices by rows."""

from __future__ import annotations

from xla.hlo_texts import ADD

ROWS = "{devices=[2,1]<=[2]}"
STACKED = "{devices=[1,2,1]<=[2]}"
HALVES = "{devices=[2]<=[2]}"
SUM = (
    "all-reduce(%y), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, "
    "to_apply=%add"
)
START = """  %id = u32[] partition-id()
  %device = s32[] convert(%id)
  %two = s32[] constant(2)
  %start = s32[] multiply(%device, %two)
"""


def looped(rows: int, *, limit: int = 4, sharded: bool = True) -> str:
    """Return a program that multiplies rows by a matrix in each iteration, and stacks them.

    Its results are the rows, all rows of each iteration, and the counter.
    """
    state = f"(s32[], f32[{rows},4], f32[{limit},{rows},4], f32[{limit},4,4])"
    at = "{{replicated}, " + ROWS + ", " + STACKED + ", {replicated}}"
    of_state = f", sharding={at}" if sharded else ""
    of_results = ", sharding={" + ROWS + ", " + STACKED + ", {replicated}}" if sharded else ""
    return f"""HloModule m, num_partitions=2
%below (p: {state}) -> pred[] {{
  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant({limit})
  ROOT %c = pred[] compare(%i, %n), direction=LT
}}
%body (p: {state}) -> {state} {{
  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[{rows},4] get-tuple-element(%p), index=1
  %ys = f32[{limit},{rows},4] get-tuple-element(%p), index=2
  %w = f32[{limit},4,4] get-tuple-element(%p), index=3
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %cut = f32[1,4,4] dynamic-slice(%w, %i, %zero, %zero), dynamic_slice_sizes={{1,4,4}}
  %matrix = f32[4,4] reshape(%cut)
  %y = f32[{rows},4] dot(%x, %matrix), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  %row = f32[1,{rows},4] reshape(%y)
  %stacked = f32[{limit},{rows},4] dynamic-update-slice(%ys, %row, %i, %zero, %zero)
  %next = s32[] add(%i, %one)
  ROOT %t = {state} tuple(%next, %y, %stacked, %w)
}}
ENTRY %main {{
  %x = f32[{rows},4] parameter(0), sharding={ROWS}
  %w = f32[{limit},4,4] parameter(1), sharding={{replicated}}
  %zero = s32[] constant(0)
  %fill = f32[] constant(0)
  %ys = f32[{limit},{rows},4] broadcast(%fill), dimensions={{}}
  %state = {state} tuple(%zero, %x, %ys, %w)
  %loop = {state} while(%state), condition=%below, body=%body{of_state}
  %count = s32[] get-tuple-element(%loop), index=0
  %rows = f32[{rows},4] get-tuple-element(%loop), index=1
  %all = f32[{limit},{rows},4] get-tuple-element(%loop), index=2
  ROOT %r = (f32[{rows},4], f32[{limit},{rows},4], s32[]) tuple(%rows, %all, %count){of_results}
}}
"""


def _counted(state: str, body: str, entry: str, before: str = "") -> str:
    """Return a program with a loop of three iterations.

    ``body`` are the lines of an iteration, which has its state ``%p`` and its counter ``%i``,
    ``entry`` those of the program, and ``before`` further computations.
    """
    return f"""HloModule m, num_partitions=2
{before}%below (p: {state}) -> pred[] {{
  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(3)
  ROOT %c = pred[] compare(%i, %n), direction=LT
}}
%body {_iteration(state, body)}ENTRY %main {{
{entry}}}
"""


def _iteration(state: str, lines: str) -> str:
    """Return a computation of an iteration, which adds 1 to its counter."""
    return f"""(p: {state}) -> {state} {{
  %p = {state} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %zero = s32[] constant(0)
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
{lines}}}
"""


def paired(rows: int) -> str:
    """Return a loop whose state has one array twice; whole for 4 rows, else what a device runs."""
    state = f"(s32[], f32[{rows}], f32[{rows}])"
    stated, result = _stated(rows, HALVES, HALVES), _result(rows, HALVES)
    body = f"""  %x = f32[{rows}] get-tuple-element(%p), index=1
  %z = f32[{rows}] get-tuple-element(%p), index=2
  %y = f32[{rows}] add(%x, %x)
  ROOT %t = {state} tuple(%next, %y, %y)
"""
    entry = f"""  %x = f32[{rows}] parameter(0), sharding={HALVES}
  %zero = s32[] constant(0)
  %state = {state} tuple(%zero, %x, %x)
  %loop = {state} while(%state), condition=%below, body=%body{stated}
  ROOT %r = f32[{rows}] get-tuple-element(%loop), index=1{result}
"""
    return _counted(state, body, entry)


def nested(rows: int) -> str:
    """Return a loop that runs another one in each iteration; whole for 4 rows."""
    state = f"(s32[], f32[{rows}], f32[{rows}])"
    stated, result = _stated(rows, HALVES, HALVES), _result(rows, HALVES)
    given = f"""  %x = f32[{rows}] get-tuple-element(%p), index=1
  %a = f32[{rows}] get-tuple-element(%p), index=2
"""
    inner = f"""{given}  %y = f32[{rows}] add(%x, %a)
  ROOT %t = {state} tuple(%next, %y, %a)
"""
    outer = f"""{given}  %y = f32[{rows}] multiply(%x, %x)
  %again = {state} tuple(%zero, %y, %a)
  %run = {state} while(%again), condition=%below, body=%inner{stated}
  %z = f32[{rows}] get-tuple-element(%run), index=1
  ROOT %t = {state} tuple(%next, %z, %a)
"""
    entry = f"""  %x = f32[{rows}] parameter(0), sharding={HALVES}
  %a = f32[{rows}] parameter(1), sharding={HALVES}
  %zero = s32[] constant(0)
  %state = {state} tuple(%zero, %x, %a)
  %loop = {state} while(%state), condition=%below, body=%body{stated}
  ROOT %r = f32[{rows}] get-tuple-element(%loop), index=1{result}
"""
    return _counted(state, outer, entry, f"%inner {_iteration(state, inner)}")


def copied(rows: int) -> str:
    """Return a loop whose state both devices have, and of which each gives half as a result."""
    state = "(s32[], f32[4])"
    part = rows < 4
    other = """  %at = u32[] partition-id()
  %none = u32[] constant(0)
  %second = pred[] compare(%at, %none), direction=NE
  %seconds = pred[4] broadcast(%second), dimensions={}
  %twice = f32[4] add(%x, %x)
  %other = f32[4] select(%seconds, %twice, %x)
"""
    body = f"""  %x = f32[4] get-tuple-element(%p), index=1
{other if part else ""}  %y = f32[4] add(%x, %x)
  ROOT %t = {state} tuple(%next, %y)
"""
    entry = f"""  %x = f32[4] parameter(0), sharding={{replicated}}
  %zero = s32[] constant(0)
{START if part else ""}  %state = {state} tuple(%zero, %x)
  %loop = {state} while(%state), condition=%below, body=%body{_stated(rows, "{replicated}")}
  %all = f32[4] get-tuple-element(%loop), index=1
  ROOT %r = f32[{rows}] dynamic-slice(%all, {"%start" if part else "%zero"}), dynamic_slice_sizes={{{rows}}}{_result(rows, HALVES)}
"""  # noqa: E501
    return _counted(state, body, entry)


def summed(rows: int) -> str:
    """Return a loop that multiplies by a matrix, of which each device has some rows."""
    state = f"(s32[], f32[4], f32[{rows},4])"
    part = rows < 4
    cut = "dynamic-slice(%x, %start), dynamic_slice_sizes={2}" if part else "copy(%x)"
    body = f"""  %x = f32[4] get-tuple-element(%p), index=1
  %w = f32[{rows},4] get-tuple-element(%p), index=2
{START if part else ""}  %part = f32[{rows}] {cut}
  %y = f32[4] dot(%part, %w), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  %z = f32[4] {SUM if part else "copy(%y)"}
  ROOT %t = {state} tuple(%next, %z, %w)
"""
    entry = f"""  %x = f32[4] parameter(0), sharding={{replicated}}
  %w = f32[{rows},4] parameter(1), sharding={ROWS}
  %zero = s32[] constant(0)
  %state = {state} tuple(%zero, %x, %w)
  %loop = {state} while(%state), condition=%below, body=%body{_stated(rows, "{replicated}", ROWS)}
  ROOT %r = f32[4] get-tuple-element(%loop), index=1{_result(rows, "{replicated}")}
"""
    return _counted(state, body, entry, ADD)


def _stated(rows: int, *shardings: str) -> str:
    """Return the sharding of a state before the program is partitioned, which is of 4 rows."""
    return f", sharding={{{{replicated}}, {', '.join(shardings)}}}" if rows == 4 else ""


def _result(rows: int, sharding: str) -> str:
    return f", sharding={sharding}" if rows == 4 else ""
