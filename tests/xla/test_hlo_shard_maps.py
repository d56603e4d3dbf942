"""``shard_map`` programs before and after the partitioner: the region that is manual, and mistakes.

``shard_map_programs.py`` has made the texts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from xla.hlo_pairs import Case, assert_computes, cases_in, is_right, plans_in
from xla.shard_map_faults import faults

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.plan.model import Plan
from pitcheck.plan.validate import validate

HERE = Path(__file__).parent
SEEDS = (1, 2)
NAMES = (
    "ring",
    "ring_product",
    "ring_loss",
    "pipeline",
    "experts",
    "gathered",
    "unchecked",
    "branching",
    "partly",
    "nested",
    "normed",
)


def _cases() -> dict[str, Case]:
    return cases_in("shard_maps.jsonl")


def _valid(reference: Plan, parallel: Plan) -> bool:
    return not [*validate(reference), *validate(parallel, reference=reference)]


@pytest.mark.parametrize("name", NAMES)
def test_a_manual_region_computes_on_one_device_what_jax_computes_on_four(name: str) -> None:
    case = _cases()[name]
    assert_computes(case, plans_in(case)[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_partitioned_program_is_proven(name: str) -> None:
    reference, parallel = plans_in(_cases()[name])
    assert _valid(reference, parallel)
    assert is_right(reference, parallel, SEEDS)
    assert check(reference, parallel, Options(seed=1)).verdict == "equivalent"


def _judged(case: dict[str, Any], side: str) -> Iterator[tuple[str, Plan, Plan, bool]]:
    """Yield a line with a mistake, the plans, and True if the executor finds no difference.

    Mistakes after which a text is refused, or its plan is not valid, are left out.
    """
    for mistake, line, text in faults(case[side], side == "before"):
        try:
            reference, parallel = plans_in(case, **{side: text})
        except (PlanError, UnsupportedError):
            continue
        if _valid(reference, parallel):
            right = is_right(reference, parallel, SEEDS)
            yield f"{mistake}, line {line}", reference, parallel, right


@pytest.mark.parametrize("side", ["after", "before"])
@pytest.mark.parametrize("name", NAMES)
def test_ten_mistakes_are_found(name: str, side: str) -> None:
    wrong = (
        (what, check(reference, parallel, Options(seed=1, explain=False)).verdict)
        for what, reference, parallel, right in _judged(_cases()[name], side)
        if not right
    )
    found = list(islice(wrong, 10))
    assert len(found) == 10
    assert not [what for what, verdict in found if verdict != "mismatch"]


@pytest.mark.parametrize("side", ["after", "before"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "ring_loss"])
def test_every_mistake_is_judged_as_the_executor_does(name: str, side: str) -> None:
    for what, reference, parallel, right in _judged(_cases()[name], side):
        verdict = check(reference, parallel, Options(seed=1, explain=False)).verdict
        assert verdict in ({"equivalent", "inconclusive"} if right else {"mismatch"}), what


def test_the_texts_are_those_that_jax_makes_here() -> None:
    """Make the texts anew, where JAX is: they are right, too."""
    pytest.importorskip("jax")
    made = subprocess.run(
        [sys.executable, str(HERE / "shard_map_programs.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    for line in made.stdout.splitlines():
        assert is_right(*plans_in(json.loads(line)), (1,))
