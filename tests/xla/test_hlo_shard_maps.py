"""``shard_map`` before and after the partitioner: right pairs are right, and wrong ones are not.

``shard_map_programs.py`` has made the texts.
"""

from __future__ import annotations

import re

import pytest
from xla.hlo_pairs import WRONG, Case, assert_computes, cases_in, edits, is_right, plans_in

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.xla.lowering.pair import plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.validate import validate

NAMES = (
    "gradients of a product",
    "product scattered and gathered",
    "ring attention in a loop",
    "gradients of experts",
    "pipeline",
)
MISTAKES = (
    *WRONG,
    (r"replica_groups=\{\{0,1\},\{2,3\}\}", "replica_groups={{0,2},{1,3}}"),
    (r"replica_groups=\{\{0,2\},\{1,3\}\}", "replica_groups={{0,1},{2,3}}"),
    (r"(all-to-all.*)replica_groups=\{\{0,1,2,3\}\}", r"\1replica_groups={{0,2,1,3}}"),
    (r"all-to-all\((%[\w.-]+)\).*", r"copy(\1)"),
    (r"\{1,2\},\{2,3\}", "{1,3},{2,2}"),
    (r"collective-permute\((%[\w.-]+)\).*", r"copy(\1)"),
    (r"tanh\(", "negate("),
    (r"exponential\(", "negate("),
    (r"divide\(", "multiply("),
    (r"constant\(0\.5\)", "constant(0.25)"),
    (r"constant\(2\)$", "constant(3)"),
    (r"select\((%[\w.-]+), (%[\w.-]+), (%[\w.-]+)\)", r"select(\1, \3, \2)"),
)


def _cases() -> dict[str, Case]:
    return cases_in("shard_maps.jsonl")


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_computes_what_jax_computes(name: str) -> None:
    case = _cases()[name]
    reference, parallel = plans_in(case)
    assert_computes(case, reference)
    assert not [*validate(reference), *validate(parallel, reference=reference)]
    assert is_right(reference, parallel)


@pytest.mark.parametrize("name", NAMES)
def test_a_partitioned_program_is_proven(name: str) -> None:
    assert check(*plans_in(_cases()[name]), Options(seed=1)).verdict == "equivalent"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["before", "after"])
def test_an_edited_program_is_never_proven(name: str, side: str) -> None:
    """Each edit is refused, computes the same, or is a mismatch."""
    case = _cases()[name]
    counted = 0
    for what, text in edits(case[side], MISTAKES):
        try:
            reference, parallel = plans_in({**case, side: text})
        except (PlanError, UnsupportedError):
            continue
        if [*validate(reference), *validate(parallel, reference=reference)]:
            continue
        if is_right(reference, parallel):
            continue
        counted += 1
        report = check(reference, parallel, Options(seed=1, explain=False))
        assert report.verdict == "mismatch", what
    assert counted >= 2


def _edited(old: str, new: str, name: str = "gradients of a product") -> str:
    case = _cases()[name]
    text = re.sub(old, new, case["before"])
    assert text != case["before"]
    with pytest.raises((UnsupportedError, PlanError)) as error:
        plans_of(parse_hlo(text), parse_hlo(case["after"]))
    return str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            r"(copy\(%args_0_\.0\)), sharding=\{[^}]*\}",
            r"\1, sharding={manual}",
            "a shard_map of an array whose tiles are not stated",
        ),
        (r"(copy\(%args_0_\.0\)), sharding=\{[^}]*\}", r"\1", "whose tiles are not stated"),
        (r"(all-reduce.*), sharding=\{manual\}", r"\1", "all-reduce outside of a shard_map"),
        (r"replica_groups=\S+ use", "replica_groups={{0},{1,2,3}}, use", "differ in size"),
        (r"replica_groups=\S+ use", "replica_groups={{0,1},{2,2}}, use", "an id stands twice"),
        (r"channel_id=\d+, ", "", "all-reduce without channel_id"),
        (
            r'custom_call_target="SPMDShardToFullShape"',
            'custom_call_target="SPMDOther"',
            "the custom call SPMDOther",
        ),
    ],
)
def test_a_region_that_says_too_little_is_refused(old: str, new: str, said: str) -> None:
    assert said in _edited(old, new)
