"""Plans that pass the rules on time and memory give the values of single assignment.

They do under every timing, and legal plans pass.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from plan.interleavings import HangError, Interleaving, anyhow, eager, lazy, single_assignment
from plan.memory_plans import mistakes, right_plan

from pitcheck.execution.executor import Array, Instance
from pitcheck.execution.places import ExecutionError, rank_coordinates
from pitcheck.plan.model import Plan
from pitcheck.plan.validate import validate

POLICIES = (lazy, eager, *(anyhow,) * 6)


def beginning(plan: Plan) -> dict[Instance, Array]:
    """Random values of what comes from outside, others on every rank."""
    generator = np.random.default_rng(7)
    ranks = range(len(rank_coordinates(plan)))
    given = [tensor for tensor in plan.tensors if tensor.role in ("input", "parameter")]
    return {
        (tensor.name, rank, 0): generator.normal(size=tensor.shape)
        for tensor in given
        for rank in ranks
    }


def judged(plan: Plan) -> str:
    """Return "same", or how some timing differs from single assignment."""
    initial = beginning(plan)
    try:
        expected = single_assignment(plan, initial)
    except (HangError, ExecutionError) as error:
        return f"single assignment: {error!r}"
    for number, policy in enumerate(POLICIES):
        try:
            found = Interleaving(plan, initial, policy, number).run()
        except (HangError, ExecutionError) as error:
            return f"{policy.__name__}: {error!r}"
        for key, value in found.items():
            if not np.array_equal(value, expected[key]):
                return f"{policy.__name__}: {key}"
    return "same"


def errors(plan: Plan) -> list[str]:
    return [str(violation) for violation in validate(plan) if violation.severity == "error"]


@pytest.mark.parametrize("part", range(5))
def test_unusual_use_of_memory_that_is_right_passes(part: int) -> None:
    for seed in range(part * 100, part * 100 + 100):
        plan = right_plan(seed)
        assert errors(plan) == [], seed
        if seed % 25 == 0:
            assert judged(plan) == "same", seed


def campaign(seeds: range, each: int) -> Counter[str]:
    """Put mistakes into the plans of some seeds; return how many there were of each kind.

    Fail on one that passes although some timing shows it.
    """
    counts: Counter[str] = Counter()
    for seed in seeds:
        choose = random.Random(seed)
        for kind, plan in mistakes(right_plan(seed), choose, each):
            found, said = errors(plan), judged(plan)
            assert found or said == "same", (seed, kind, said)
            counts["wrong" if said != "same" else "right" if not found else "refused"] += 1
            counts[f"{kind}: {'wrong' if said != 'same' else 'right'}"] += 1
    return counts


@pytest.mark.parametrize("part", range(2))
def test_no_mistake_of_time_and_memory_passes(part: int) -> None:
    counts = campaign(range(1000 + part * 20, 1000 + part * 20 + 20), 8)
    assert counts["wrong"] > 40, counts


@pytest.mark.slow
@pytest.mark.nightly
def test_no_mistake_of_time_and_memory_passes_of_many() -> None:
    counts = campaign(range(2000, 2400), 10)
    assert counts["wrong"] > 1000, counts
