"""Programs of JAX before and after the partitioner: right pairs are right, and wrong ones are not.

``jax_programs.py`` has made the texts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.execution.executor import execute
from pitcheck.execution.judge import judge
from pitcheck.frontends.xla.lowering.pair import plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.model import Plan
from pitcheck.plan.validate import validate

HERE = Path(__file__).parent
NAMES = ("mlp", "words", "layers", "shifts", "attention", "sums")
MORE = (
    "places",
    "orders",
    "pooled",
    "convolved",
    "halos",
    "written",
    "chosen",
    "parts",
    "finite",
)


@cache
def _cases() -> dict[str, dict[str, Any]]:
    lines = (HERE / "texts" / "pairs.jsonl").read_text().splitlines()
    return {case["name"]: case for case in map(json.loads, lines)}


def _plans(case: dict[str, Any], after: str | None = None) -> tuple[Plan, Plan]:
    return plans_of(parse_hlo(case["before"]), parse_hlo(after or case["after"]))


def _right(reference: Plan, parallel: Plan) -> bool:
    found = (judge(reference, parallel, seed) for seed in range(1, 4))
    return not any(each.different or each.missing or each.error for each in found)


@pytest.mark.parametrize("name", NAMES + MORE)
def test_the_reference_computes_what_jax_computes(name: str) -> None:
    case = _cases()[name]
    reference, _ = _plans(case)
    names = [tensor.name for tensor in reference.tensors if tensor.role == "input"]
    initial = {(n, 0, 0): np.array(x) for n, x in zip(names, case["inputs"], strict=True)}
    held = execute(reference, initial)
    for output, expected in zip(reference.outputs, case["outputs"], strict=True):
        np.testing.assert_allclose(held[output.tensor, 0, 0], expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", NAMES + MORE)
def test_a_partitioned_program_is_right(name: str) -> None:
    reference, parallel = _plans(_cases()[name])
    assert not [*validate(reference), *validate(parallel, reference=reference)]
    assert _right(reference, parallel)


@pytest.mark.parametrize("name", NAMES + MORE)
def test_a_partitioned_program_is_proven(name: str) -> None:
    assert check(*_plans(_cases()[name]), Options(seed=1)).verdict == "equivalent"


@pytest.mark.parametrize("name", ["mlp", "layers"])
def test_a_sum_that_is_left_out_is_found(name: str) -> None:
    case = _cases()[name]
    for what, text in _edits(case["after"], _WRONG[:1]):
        report = check(*_plans(case, text), Options(seed=1, explain=False))
        assert report.verdict == "mismatch", what


def _edits(text: str, wrong: Sequence[tuple[str, str]] = ()) -> list[tuple[str, str]]:
    """Return texts that each differ in one thing that matters, with what it is."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        for pattern, replacement in wrong or _WRONG:
            edited = re.sub(pattern, replacement, line)
            if edited != line:
                whole = "\n".join([*lines[:number], edited, *lines[number + 1 :]])
                found.append((f"{number + 1}: {line.strip()}", whole))
    return found


_WRONG = (
    (r"all-reduce\((%[\w.-]+)\).*", r"copy(\1)"),
    (r"source_target_pairs=\{\{(\d),(\d)\},\{(\d),(\d)\}", r"source_target_pairs={{\1,\4},{\3,\2}"),
    (r"(all-gather.*replica_groups=)\S+ ?\S*, use", r"\1[2,2]<=[2,2]T(1,0), use"),
    (r"(all-gather.*replica_groups=)\S+ ?\S*, use", r"\1[2,2]<=[4], use"),
    (r"direction=LT", "direction=LE"),
    (r"direction=EQ", "direction=NE"),
    (r"subtract\((%[\w.-]+), (%[\w.-]+)\)", r"subtract(\2, \1)"),
    (r"(reduce-window.*pad=)(\d)_0", r"\g<1>0_\2"),
)


@pytest.mark.parametrize("name", NAMES)
def test_edited_programs_are_not_right(name: str) -> None:
    """Each edit is refused or computes something else."""
    case = _cases()[name]
    edits = _edits(case["after"])
    assert edits
    for what, text in edits:
        try:
            reference, parallel = _plans(case, text)
        except PlanError:
            continue
        wrong = list(validate(parallel, reference=reference))
        assert wrong or not _right(reference, parallel), what


_OTHER = (
    ("places", r"constant\(\{0, 1, 0, 1\}\)", "constant({0, 0, 0, 0})"),
    ("places", r"constant\(\{0, 0, 1, 1\}\)", "constant({1, 1, 0, 0})"),
    ("orders", "direction=LT, type=TOTALORDER", "direction=GT, type=TOTALORDER"),
    ("orders", "largest=true", "largest=false"),
    ("orders", r"(sort\(%\S+, %\S+\), dimensions=)\{1\}", r"\1{0}"),
    ("pooled", "direction=GE", "direction=LE"),
    ("pooled", "pad=0_0x0_1x0_1x0_0", "pad=0_0x1_0x0_1x0_0"),
    ("convolved", "dim_labels=b01f_01io", "dim_labels=b10f_01io"),
    ("convolved", r"size=3x3 pad=1_1x1_1\}", "size=3x3 pad=1_1x1_1 rhs_reversal=1x0}"),
    ("convolved", "size=4x4 pad=1_1x1_1", "size=4x4 pad=0_2x1_1"),
    ("halos", "pad=0_0x1_1", "pad=0_0x2_0"),
    ("halos", r"source_target_pairs=\{\{0,1\}", "source_target_pairs={{0,2}"),
    ("written", r"maximum\(", "minimum("),
    ("written", r"maximum\(", "multiply("),
    ("written", r"constant\(\{0, 4\}\)", "constant({0, 3})"),
    ("chosen", "direction=GT", "direction=LT"),
    ("chosen", r"\{%(region\S+), %(region\S+)\}$", r"{%\2, %\1}"),
    ("parts", r"constant\(2\)", "constant(1)"),
)
"""A program, what is edited in it once it is partitioned, and the edit."""
_TIES = (
    ("chosen", "direction=GT", "direction=GE"),
    ("finite", r"is-finite\((%\S+)\)", r"compare(\1, \1), direction=EQ"),
)
"""Edits that few numbers tell, or none that are not infinite."""


def _verdicts(name: str, pattern: str, replacement: str) -> Iterator[str]:
    """Yield the verdict of each edit of a program."""
    case = _cases()[name]
    edits = _edits(case["after"], [(pattern, replacement)])
    assert edits
    for _, text in edits:
        try:
            plans = _plans(case, text)
            if not [*validate(plans[1], reference=plans[0])]:
                yield check(*plans, Options(seed=1, explain=False)).verdict
        except (PlanError, UnsupportedError):
            yield "refused"


@pytest.mark.parametrize(("name", "pattern", "replacement"), _OTHER)
def test_another_program_is_a_mismatch(name: str, pattern: str, replacement: str) -> None:
    found = {*_verdicts(name, pattern, replacement)}
    assert "mismatch" in found
    assert found <= {"mismatch", "refused", "inconclusive"}


@pytest.mark.parametrize(("name", "pattern", "replacement"), _TIES)
def test_what_few_numbers_tell_is_not_equivalent(name: str, pattern: str, replacement: str) -> None:
    assert "equivalent" not in {*_verdicts(name, pattern, replacement)}


def _pooled(rows: int, direction: str, sharding: str) -> str:
    """Return a program that adds numbers where pairs select, which select by a comparison."""
    return f"""HloModule m, num_partitions=2
%s (a: f32[], b: f32[]) -> pred[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = pred[] compare(%a, %b), direction={direction}
}}
%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}}
ENTRY %main {{
  %x = f32[{rows},4] parameter(0), sharding={{devices=[2,1]<=[2]}}
  %y = f32[{rows},2] parameter(1), sharding={{devices=[2,1]<=[2]}}
  %z = f32[] constant(0)
  ROOT %r = f32[{rows},4] select-and-scatter(%x, %y, %z), window={{size=1x2 stride=1x2}}, select=%s, scatter=%add{sharding}
}}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("direction", "verdict"), [("GE", "equivalent"), ("GT", "inconclusive"), ("LE", "mismatch")]
)
def test_of_equal_elements_the_first_is_selected(direction: str, verdict: str) -> None:
    whole = parse_hlo(_pooled(4, "GE", ", sharding={devices=[2,1]<=[2]}"))
    plans = plans_of(whole, parse_hlo(_pooled(2, direction, "")))
    assert check(*plans, Options(seed=1, explain=False)).verdict == verdict


def test_the_texts_are_those_that_jax_makes_here() -> None:
    """Make the texts anew, where JAX is: they are right, too."""
    pytest.importorskip("jax")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    made = subprocess.run(
        [sys.executable, str(HERE / "jax_programs.py")],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    for line in made.stdout.splitlines():
        assert _right(*_plans(json.loads(line)))
