"""Decoders in flax and ``shard_map`` programs on eight devices: proven, and mistakes in them found.

``flax_programs.py`` and ``mesh_programs.py`` have made the texts, and ``judge_faults.py`` has had
XLA run each mistake.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from xla.hlo_pairs import Case, assert_computes, cases_in, plans_in
from xla.mesh_faults import Fault, faults, groups_of, lines_around

from pitcheck.base.options import Options
from pitcheck.commands.checking.attempts import checked_in_turn
from pitcheck.engine.check import check
from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.pair import attempts_on, plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.model import Plan
from pitcheck.plan.validate import validate

TEXTS = Path(__file__).parent / "texts"
DECODERS = ("dense", "experts", "slots", "ragged")
MESHES = (
    "exchanged_heads",
    "ring",
    "exchanged_tokens",
    "pipeline",
    "unrolled_pipeline",
    "circular_pipeline",
    "sharded_step",
)
FOLDED = ("rolled_pipeline",)
"""Programs that are proven by induction alone; with loops unrolled they are not decided yet."""
LEAST = 8
"""The mistakes of each program that are looked for by day."""
LOCATED = (
    "other groups",
    "groups in another order",
    "no sum",
    "a constant halved",
    "the other operand",
)
"""Kinds of mistakes whose lines are named."""


def _case(name: str) -> Case:
    return cases_in("decoders.jsonl.gz" if name in DECODERS else "meshes.jsonl.gz")[name]


@cache
def _judged() -> dict[tuple[str, str, int], bool | None]:
    """Return True for each mistake after which XLA computes something else."""
    lines = map(json.loads, (TEXTS / "judged.jsonl").read_text().splitlines())
    return {(each["program"], each["kind"], each["line"]): each["wrong"] for each in lines}


def _mistakes(name: str, wrong: bool) -> list[Fault]:
    """Return the mistakes in a program that XLA finds to be wrong, or to change nothing."""
    return [
        fault
        for fault in faults(_case(name)["after"])
        if _judged()[name, fault.kind, fault.line] is wrong
    ]


def _plans(name: str, fault: Fault) -> tuple[Plan, Plan] | None:
    """Return the plans with a mistake; None if it is refused as the text is read."""
    try:
        reference, parallel = plans_in(_case(name), after=fault.text)
    except PlanError:
        return None
    return None if list(validate(parallel, reference=reference)) else (reference, parallel)


@pytest.mark.parametrize("name", [*DECODERS, *MESHES, *FOLDED])
def test_the_reference_computes_what_jax_computes(name: str) -> None:
    assert_computes(_case(name), plans_in(_case(name))[0])


@pytest.mark.parametrize("name", [*DECODERS, *MESHES, *FOLDED])
def test_a_partitioned_program_is_proven(name: str) -> None:
    before, after = (parse_hlo(_case(name)[side]) for side in ("before", "after"))
    report = checked_in_turn(lambda: attempts_on(before, after), Options(seed=1))
    assert report.verdict == "equivalent"


@pytest.mark.parametrize("name", MESHES)
def test_a_region_is_proven_to_be_the_plain_function(name: str) -> None:
    plain, before, after = (parse_hlo(_case(name)[side]) for side in ("plain", "before", "after"))
    plans = plans_of(plain, after, before)
    assert check(*plans, Options(seed=1)).verdict == "equivalent"


def _verdicts(name: str, wrong: bool) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of a program with the verdicts; ``refused`` without one."""
    for fault in _mistakes(name, wrong):
        plans = _plans(name, fault)
        options = Options(seed=1, explain=False)
        verdict = check(*plans, options).verdict if plans else "refused"
        yield f"{fault.kind}, line {fault.line}", verdict


def _unfound(verdicts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [each for each in verdicts if each[1] not in {"mismatch", "refused"}]


@pytest.mark.parametrize("name", [*MESHES, *DECODERS, *FOLDED])
def test_eight_mistakes_are_found(name: str) -> None:
    found = list(islice(_verdicts(name, True), LEAST))
    assert len(found) == LEAST
    assert not _unfound(found)


@pytest.mark.parametrize("name", [*MESHES, *DECODERS, *FOLDED])
def test_all_mistakes_that_xla_sees_are_found(name: str) -> None:
    assert not _unfound(_verdicts(name, True))


@pytest.mark.parametrize("name", [*MESHES, *DECODERS, *FOLDED])
def test_what_changes_nothing_is_no_mistake(name: str) -> None:
    assert "mismatch" not in dict(_verdicts(name, False)).values()


@pytest.mark.parametrize("kind", LOCATED)
def test_a_mistake_is_found_at_its_line(kind: str) -> None:
    fault = next(fault for fault in _mistakes("exchanged_heads", True) if fault.kind == kind)
    plans = _plans("exchanged_heads", fault)
    assert plans is not None
    first = check(*plans, Options(seed=1)).findings[0].source
    around = lines_around(_case("exchanged_heads")["after"], fault.line)
    assert first in {f"HLO text:{line}" for line in around}


@pytest.mark.parametrize("name", [*MESHES, *DECODERS, *FOLDED])
def test_each_program_has_mistakes_of_many_kinds(name: str) -> None:
    assert len({fault.kind for fault in _mistakes(name, True)}) >= LEAST - 1


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,2},{1,3}}", [[0, 2], [1, 3]]),
        ("[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("[4,2]<=[2,4]T(1,0)", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=2,'b'=2,'c'=2] {'b'}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (
            "mesh['a'=2,'b'=4], device_ids=([2,4]T(1,0)) {'a'}",
            [[0, 2], [4, 6], [1, 3], [5, 7]],
        ),
    ],
)
def test_groups_are_written_out_for_mistakes(text: str, groups: Any) -> None:
    assert groups_of(text) == groups
