"""A program with a loop, before and after it is partitioned over two devices by rows."""

from __future__ import annotations

ROWS = "{devices=[2,1]<=[2]}"
STACKED = "{devices=[1,2,1]<=[2]}"


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
