"""The order in which context-parallel ranks have the tokens of a sequence: every kind of context
parallelism is right in either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace
from programs.faults import at_place
from programs.near_misses import Change, assert_caught, changed, reading
from programs.program_cases import Case, assert_right, case, gpt, layouts, llama, said
from programs.test_latent import latent, straight
from programs.test_predicted import predicting
from support.by_day import some_by_day

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Operator, Plan, Table
from pitcheck.prove.prover import Prover

FAST = {
    "gather": case(llama(), cp=2, context="allgather", zigzag=True),
    "heads": case(llama(), cp=2, context="ulysses", zigzag=True),
    "ring of consecutive parts": case(llama(), 2, cp=2, zigzag=False),
    "ring, computed again": case(llama(), 2, cp=2, recompute=True),
}

SLOW = {
    "gather, three ranks": case(gpt(), 2, 12, cp=3, context="allgather", zigzag=True),
    "gather, sequence": case(
        llama(), 2, 16, cp=2, tp=2, sequence_parallel=True, context="allgather", zigzag=True, dp=2
    ),
    "gather, computed again": case(
        llama(), cp=2, context="allgather", zigzag=True, recompute=True, pp=2, microbatches=2
    ),
    "gather, latent": case(
        latent(), cp=2, tp=2, context="allgather", zigzag=True, sequence_parallel=True
    ),
    "gather, predicting": case(
        predicting(), cp=2, pp=2, context="allgather", zigzag=True, microbatches=2
    ),
    "heads, gpt": case(gpt(), cp=4, pp=2, context="ulysses", zigzag=True),
    "heads, fewer than ranks": case(
        llama(), cp=2, tp=2, context="ulysses", zigzag=True, recompute=True
    ),
    "heads, latent, parameter shards": case(
        straight(), cp=2, dp=2, zero=3, context="ulysses", zigzag=True
    ),
    "ring of three consecutive parts": case(gpt(), 2, 12, cp=3, zigzag=False),
    "ring of consecutive parts, sequence": case(
        llama(), 4, 16, cp=2, tp=2, sequence_parallel=True, zigzag=False, dp=2
    ),
    "ring of consecutive parts, computed again": case(
        llama(), cp=2, pp=2, zigzag=False, recompute=True, microbatches=2, schedule="zero-bubble"
    ),
    "ring, latent, computed again": case(
        latent(), 4, 16, cp=2, tp=2, recompute=True, sequence_parallel=True
    ),
    "ring, parameter shards, computed again": case(
        llama(), cp=2, dp=2, zero=3, recompute=True, microbatches=2
    ),
    "ring of four, computed again": case(predicting(), 2, 16, cp=4, recompute=True),
}


@pytest.mark.parametrize("found", layouts(FAST, SLOW))
def test_a_layout_is_right(found: Case) -> None:
    assert_right(found)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (
            {"cp": 2, "context": "allgather", "zigzag": True},
            "a sequence of 6 tokens cannot be cut evenly into 2 \\* cp = 4",
        ),
        ({"cp": 2}, "a sequence of 6 tokens cannot be cut evenly into 2 \\* cp = 4"),
        (
            {"cp": 4, "context": "allgather"},
            "a sequence of 6 tokens cannot be cut evenly into cp 4",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(layout: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        case(llama(), 4, 6, **layout).plans()


@pytest.mark.parametrize(
    "layout",
    [
        {"cp": 2, "zigzag": False},
        {"cp": 2, "context": "allgather"},
        {"cp": 2, "context": "ulysses"},
    ],
)
def test_consecutive_parts_need_no_halves(layout: dict[str, Any]) -> None:
    case(llama(), 4, 6, **layout).plans()


def _as_gathered(operator: Operator) -> Operator:
    """The parts stay in the order in which they came."""
    return replace(operator, inputs=tuple(sorted(map(str, operator.inputs))))


def _other(kind: str) -> Change:
    return lambda operator: replace(operator, kind=kind)


MISSES: dict[str, tuple[Case, str, Change]] = {
    "keys are in the order of the ranks": (
        FAST["gather"],
        "layers.0.attention.k.heads.rotated:ordered",
        _as_gathered,
    ),
    "values are in the order of the ranks": (
        FAST["gather"],
        "layers.1.attention.v.heads:ordered",
        _as_gathered,
    ),
    "the columns of the mask are": (FAST["gather"], "visible.0.ordered", _as_gathered),
    "what goes back is in the order of the sequence": (
        FAST["heads"],
        "layers.0.attention.by_rank",
        _as_gathered,
    ),
    "a token does not see itself": (FAST["ring of consecutive parts"], "visible.0.0", _other("gt")),
    "a hop's keys are computed again where others were seen": (
        FAST["ring, computed again"],
        "layers.0.attention.masked.1:again",
        reading(0, "visible.0.0"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(MISSES, 6))
def test_a_near_miss_is_caught(name: str) -> None:
    right, identity, change = MISSES[name]
    reference, parallel = right.plans()
    assert_caught(reference, changed(parallel, identity, change))


LONG = case(llama(1), 2, 4096, cp=2)


def _offset(places: tuple[int, ...]) -> Change:
    def change(operator: Operator) -> Operator:
        table = operator.attributes["offset"]
        assert isinstance(table, Table)
        return replace(
            operator, attributes={**operator.attributes, "offset": Table(table.over, places)}
        )

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("places", "verdict"),
    [((0, 1024), "equivalent"), ((1024, 0), "mismatch"), ((1, 1024), "inconclusive")],
)
def test_places_along_long_sequences_are_not_taken_for_numbers(
    places: tuple[int, ...], verdict: str
) -> None:
    """Places that no part begins at keep sequences at their full length, which is too much for the
    memory given.
    """
    reference, parallel = LONG.plans()
    first = next(o for o in parallel.operators if o.kind == "positions")
    report = check(
        reference, changed(parallel, first.id, _offset(places)), Options(seed=1, max_memory=1 << 28)
    )
    assert report.verdict == verdict, said(report)
    if verdict == "inconclusive":
        assert report.findings[0].code == "PIT203"
        assert "the largest size that cannot be reduced: 4096 whole: " in report.findings[0].title


MANY = case(llama(1), 32, 8, dp=16, cp=2, tp=2, microbatches=2, context="allgather", zigzag=True)


def test_both_ends_of_sequences_are_seen_at_a_few_of_many_ranks() -> None:
    found: list[bool] = []

    def spied(prover: Prover, *arguments: Any) -> Any:
        result = prove_sample(prover, *arguments)
        found.append(result is not None)
        return result

    prove_sample = Prover._prove_sample
    with patch.object(Prover, "_prove_sample", spied):
        report = check(*MANY.plans(), Options(seed=1))
    assert report.verdict == "equivalent", said(report)
    # The loss is divided by a number of tokens that all ranks add up, and stands for itself.
    assert found.count(False) <= 3 < found.count(True)


def _ends_exchanged(plan: Plan, tensor: str) -> Plan:
    """One replica of 16, none of those that are looked at first, is given the late part of its
    sequences before the early one.
    """
    own = next(t for t in plan.tensors if t.name == tensor)
    assert own.lineage is not None
    shards = tuple(
        shard if shard.intervals is None else replace(shard, intervals=_exchanged(shard.intervals))
        for shard in own.lineage.shards
    )
    changed_one = replace(own, lineage=replace(own.lineage, shards=shards))
    return replace(plan, tensors=tuple(changed_one if t is own else t for t in plan.tensors))


def _exchanged(table: Table) -> Table:
    return Table(
        ("dp", *table.over),
        tuple(
            value[::-1] if place == 7 else value
            for place in range(16)
            for value in table.values
            if isinstance(value, tuple)
        ),
    )


ORDERED = "layers.0.attention.k.heads.rotated:ordered"
EXCHANGED: dict[str, Callable[[Plan], Plan]] = {
    "keys of a replica": lambda plan: at_place(plan, ORDERED, {"dp": 7}, _as_gathered),
    "keys of a rank": lambda plan: at_place(plan, ORDERED, {"dp": 7, "tp": 1}, _as_gathered),
    "tokens": lambda plan: _ends_exchanged(plan, "tokens"),
    "labels": lambda plan: _ends_exchanged(plan, "labels"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", some_by_day(EXCHANGED, 4))
def test_one_replica_that_exchanges_both_ends_is_caught(what: str) -> None:
    reference, parallel = MANY.plans()
    report = check(reference, EXCHANGED[what](parallel), Options(seed=1, explain=False))
    assert report.verdict == "mismatch", said(report)


@pytest.mark.slow
def test_one_replica_that_exchanges_both_ends_computes_something_else() -> None:
    reference, right = case(
        llama(1), 8, 8, dp=8, cp=2, tp=2, context="allgather", zigzag=True
    ).plans()
    assert not judge_often(reference, EXCHANGED["keys of a replica"](right), range(2)).same
