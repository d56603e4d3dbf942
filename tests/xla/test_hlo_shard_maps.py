"""``shard_map`` programs before and after the partitioner: the region that is manual, and mistakes.

``shard_map_programs.py`` has made the texts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xla.shard_map_faults import faults

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


@cache
def _cases() -> dict[str, dict[str, Any]]:
    lines = (HERE / "texts" / "shard_maps.jsonl").read_text().splitlines()
    return {case["name"]: case for case in map(json.loads, lines)}


def _plans(case: dict[str, Any], **texts: str) -> tuple[Plan, Plan]:
    stated = case | texts
    return plans_of(parse_hlo(stated["before"]), parse_hlo(stated["after"]))


def _right(reference: Plan, parallel: Plan, *seeds: int) -> bool:
    found = (judge(reference, parallel, seed) for seed in seeds)
    return not any(each.different or each.missing or each.error for each in found)


def _valid(reference: Plan, parallel: Plan) -> bool:
    return not [*validate(reference), *validate(parallel, reference=reference)]


@pytest.mark.parametrize("name", NAMES)
def test_a_manual_region_computes_on_one_device_what_jax_computes_on_four(name: str) -> None:
    case = _cases()[name]
    reference, _ = _plans(case)
    names = [tensor.name for tensor in reference.tensors if tensor.role == "input"]
    initial = {(n, 0, 0): np.array(x) for n, x in zip(names, case["inputs"], strict=True)}
    held = execute(reference, initial)
    for output, expected in zip(reference.outputs, case["outputs"], strict=True):
        np.testing.assert_allclose(held[output.tensor, 0, 0], expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_partitioned_program_is_proven(name: str) -> None:
    reference, parallel = _plans(_cases()[name])
    assert _valid(reference, parallel)
    assert _right(reference, parallel, 1, 2)
    assert check(reference, parallel, Options(seed=1)).verdict == "equivalent"


def _judged(case: dict[str, Any], side: str) -> Iterator[tuple[str, Plan, Plan, bool]]:
    """Yield a line with a mistake, the plans, and True if the executor finds no difference.

    Mistakes after which a text is refused, or its plan is not valid, are left out.
    """
    for mistake, line, text in faults(case[side], side == "before"):
        try:
            reference, parallel = _plans(case, **{side: text})
        except (PlanError, UnsupportedError):
            continue
        if _valid(reference, parallel):
            right = _right(reference, parallel, 1, 2)
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
        assert _right(*_plans(json.loads(line)), 1)
