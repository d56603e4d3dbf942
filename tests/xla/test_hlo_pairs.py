"""Programs of JAX before and after the partitioner: right pairs are right, and wrong ones are not.

``jax_programs.py`` has made the texts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from xla.hlo_pairs import WRONG, Case, assert_computes, cases_in, edits, is_right, plans_in

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
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
    "strided",
    "routed",
)


def _cases() -> dict[str, Case]:
    return cases_in("pairs.jsonl")


@pytest.mark.parametrize("name", NAMES + MORE)
def test_the_reference_computes_what_jax_computes(name: str) -> None:
    case = _cases()[name]
    assert_computes(case, plans_in(case)[0])


@pytest.mark.parametrize("name", NAMES + MORE)
def test_a_partitioned_program_is_right(name: str) -> None:
    reference, parallel = plans_in(_cases()[name])
    assert not [*validate(reference), *validate(parallel, reference=reference)]
    assert is_right(reference, parallel)


@pytest.mark.parametrize("name", NAMES + MORE)
def test_a_partitioned_program_is_proven(name: str) -> None:
    assert check(*plans_in(_cases()[name]), Options(seed=1)).verdict == "equivalent"


@pytest.mark.parametrize("name", ["mlp", "layers"])
def test_a_sum_that_is_left_out_is_found(name: str) -> None:
    case = _cases()[name]
    for what, text in edits(case["after"], WRONG[:1]):
        report = check(*plans_in(case, after=text), Options(seed=1, explain=False))
        assert report.verdict == "mismatch", what


@pytest.mark.parametrize("name", NAMES)
def test_edited_programs_are_not_right(name: str) -> None:
    """Each edit is refused or computes something else."""
    case = _cases()[name]
    found = edits(case["after"])
    assert found
    for what, text in found:
        try:
            reference, parallel = plans_in(case, after=text)
        except PlanError:
            continue
        wrong = list(validate(parallel, reference=reference))
        assert wrong or not is_right(reference, parallel), what


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
    ("strided", "pad=0_1x1_1", "pad=1_0x1_1"),
    ("strided", "pad=2_1x1_1 lhs", "pad=1_2x1_1 lhs"),
    ("strided", r"(reverse\(%\S+\), dimensions=)\{0,1\}", r"\1{0}"),
    ("strided", r"all-reduce\((%\S+)\).*", r"copy(\1)"),
    ("routed", r"(%lt_to.* compare.*) direction=LT", r"\1 direction=GT"),
    ("routed", r"(%sort\S+ = \(s32.*)sort\((%get\S+), (%\S+)\)", r"\1sort(\3, \2)"),
    ("routed", r"divide\((%get\S+), (%\S+)\)", r"remainder(\1, \2)"),
    ("routed", r"(compare\(\S+, %iota\S+), direction=LE", r"\1, direction=LT"),
    ("routed", r"(all-gather\(%copy\).*T)\(1,0\)", r"\1(0,1)"),
    ("routed", r"all-reduce\((%(?:select|scatter)\S+|%dot.2)\).*", r"copy(\1)"),
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
    edited = edits(case["after"], [(pattern, replacement)])
    assert edited
    for _, text in edited:
        try:
            plans = plans_in(case, after=text)
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
        assert is_right(*plans_in(json.loads(line)))


CUT = "sharding={devices=[4]<=[4]}"


def _against(plain: str, result: str) -> tuple[Plan, Plan]:
    """Return the plans of a program of 8 elements, and of one on 4 devices that copies them."""
    reference, stated, after = (
        f"HloModule m, num_partitions=4\n\nENTRY %{name} (x: {given}) -> {made} {{\n"
        f"  %x = {given} parameter(0){at}\n  ROOT %r = {made} {root}\n}}\n"
        for name, given, made, at, root in (
            ("main", "f32[8]", result, "", plain),
            ("main", "f32[8]", "f32[8]", f", {CUT}", f"copy(%x), {CUT}"),
            ("main_spmd", "f32[2]", "f32[2]", f", {CUT}", "copy(%x)"),
        )
    )
    return plans_of(parse_hlo(reference), parse_hlo(after), parse_hlo(stated))


def test_another_program_may_be_the_reference() -> None:
    for plain, verdict in (("copy(%x)", "equivalent"), ("negate(%x)", "mismatch")):
        assert check(*_against(plain, "f32[8]"), Options(seed=1)).verdict == verdict


@pytest.mark.parametrize(
    ("plain", "result", "text"),
    [
        ("slice(%x), slice={[0:7]}", "f32[7]", r"is f32\[8\], and f32\[7\] of the plain one"),
        ("convert(%x)", "bf16[8]", r"is f32\[8\], and bf16\[8\] of the plain one"),
        ("tuple(%x, %x)", "(f32[8], f32[8])", "has 1 results, the plain one 2"),
    ],
)
def test_programs_of_other_results_are_refused(plain: str, result: str, text: str) -> None:
    """A device holds two elements of 7 as it does of 8."""
    with pytest.raises(PlanError, match=text):
        _against(plain, result)


def test_a_part_of_a_program_is_no_reference() -> None:
    for root, made in (
        ('custom-call(%x), custom_call_target="SPMDFullToShardShape", sharding={manual}', "f32[2]"),
        ("partition-id()", "u32[]"),
    ):
        with pytest.raises(UnsupportedError, match="the plain program has a shard_map"):
            _against(root, made)
