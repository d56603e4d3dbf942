"""HLO texts for tests: programs that XLA dumped, and small ones around a few lines."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from pitcheck.frontends.xla.text.module import Computation, Instruction, Module
from pitcheck.frontends.xla.text.parser import parse_hlo, read_hlo

DUMPS = Path(__file__).parents[2] / ".." / "shared" / "xla"
"""Programs that XLA dumped, beside the repository; not everybody has them."""
NAMES = ("llama-scan.before.hlo.txt", "llama-scan.after.hlo.txt")

ADD = """%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
"""

SMALL = f"""HloModule small, entry_computation_layout={{(f32[4,2]{{1,0}})->(f32[2]{{0}}, f32[])}}, num_partitions=2, input_output_alias={{ {{0}}: (0, {{}}, may-alias) }}, frontend_attributes={{a.b="c"}}

FileNames
1 "lib/site-packages/jax.py"
2 "model.py"

FunctionNames
1 "call"
2 "loss"

FileLocations
1 {{file_name_id=2 function_name_id=2 line=7 end_line=7 column=1 end_column=9}}
2 {{file_name_id=1 function_name_id=1 line=99 end_line=99 column=1 end_column=9}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=2}}


{ADD}
ENTRY %main (x: f32[4,2]) -> (f32[2], f32[]) {{
  %x = f32[4,2]{{1,0}} parameter(0), sharding={{devices=[2,1]<=[2]}}, metadata={{op_name="x[\\'a\\']"}}
  %zero = f32[] constant(0)
  %rows = f32[2]{{0}} reduce(%x, %zero), dimensions={{0}}, to_apply=%add, metadata={{op_name="sum" stack_frame_id=2}}
  %pair = (f32[2]{{0}}, f32[]) tuple(%rows, %zero), metadata={{profile_type={{1}} kind=x}}
  %all = f32[2]{{0}} all-reduce(%rows), channel_id=1, replica_groups=[1,2]<=[2], use_global_device_ids=true, to_apply=%add
  %again = f32[] get-tuple-element((f32[2]{{0}}, f32[]) %pair), index=1
  ROOT %both = (f32[2]{{0}}, f32[]) tuple(%all, %zero), sharding={{{{replicated}}, {{maximal device=1}}}}
}}, execution_thread="main"
"""  # noqa: E501
"""A module with some of everything."""


@cache
def dump(name: str) -> str:
    """Return the text of a dump. Skips the test if it is not here."""
    path = DUMPS / name
    if not path.is_file():
        pytest.skip(f"{name} is not beside the repository")
    return path.read_text(encoding="utf-8")


@cache
def dumped(name: str) -> Module:
    """Return the module of a dump."""
    dump(name)
    return read_hlo(DUMPS / name)


def module_text(*lines: str, before: str = "", head: str = "", root: bool = True) -> str:
    """Return a module whose program has these lines, with a ROOT behind them."""
    body = [f"  {line}" for line in lines]
    if root:
        body.append("  ROOT %end = () tuple()")
    return "\n".join(["HloModule m" + head, "", before, "ENTRY %main {", *body, "}", ""])


def main(*lines: str, before: str = "", head: str = "", root: bool = True) -> Computation:
    """Return the program of :func:`module_text`."""
    module = parse_hlo(module_text(*lines, before=before, head=head, root=root))
    return module.computations[module.entry]


def one(line: str, *above: str, before: str = "", head: str = "") -> Instruction:
    """Return the instruction of a line that has others above it."""
    program = main(*above, line, before=before, head=head)
    return list(program.instructions.values())[len(above)]
