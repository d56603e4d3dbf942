"""A ring in which more tensor-parallel ranks than key-value heads go round, on many ranks: the
right one is proven, one that is wrong on one rank is caught.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from programs.faults import at_place, first_operand
from programs.program_cases import Case, case, llama, said
from support.by_day import some_by_day

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Plan, Table

LAYER = "layers.0.attention"


def ring(data: int, context: int) -> Case:
    """Two key-value heads on four tensor-parallel ranks."""
    return case(llama(1), 2 * data, 2 * context, dp=data, cp=context, tp=4)


@pytest.mark.parametrize(
    ("data", "context"),
    [
        (16, 2),
        pytest.param(32, 4, marks=pytest.mark.slow),
        pytest.param(2, 8, marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
def test_ranks_of_a_ring_may_share_heads(data: int, context: int) -> None:
    reference, parallel = ring(data, context).plans()
    report = check(reference, parallel, Options(seed=1))
    assert report.verdict == "equivalent", said(report)
    assert (report.stages.failed, report.stages.widened) == (0, 0)


def _not_rescaled(plan: Plan) -> Plan:
    """One rank takes over what it had before as it was."""
    factor = next(
        o.id for o in plan.operators if o.kind == "mul" and f"{LAYER}.rescale.1" in o.inputs
    )
    return at_place(plan, factor, {"dp": 3, "cp": 1, "tp": 1, "tp_copy": 0}, first_operand)


def _sent_elsewhere(plan: Plan, tag: str, other: Callable[[int, int], int]) -> Plan:
    """Sends and receives of one transfer go to and come from the ``other`` one, among the ranks of
    one replica; given are a rank's own place and its peer's.
    """

    def moved(peers: object) -> Table:
        assert isinstance(peers, Table)
        own = len(peers.values) // next(axis.size for axis in plan.mesh if axis.name == "dp")
        return Table(
            peers.over,
            tuple(
                other(rank, int(str(peer))) if rank // own == 3 else peer
                for rank, peer in enumerate(peers.values)
            ),
        )

    operators = tuple(
        replace(o, attributes={**o.attributes, "peer": moved(o.attributes["peer"])})
        if o.attributes.get("tag") == tag
        else o
        for o in plan.operators
    )
    return replace(plan, operators=operators)


def _other_way_round(plan: Plan) -> Plan:
    """The second hop of keys goes to the rank before."""
    ranks = 16

    def other(rank: int, peer: int) -> int:
        return rank // ranks * ranks + (2 * rank - peer) % ranks

    return _sent_elsewhere(plan, f"{LAYER}.k.round.2", other)


def _head_of_the_neighbour(plan: Plan) -> Plan:
    """The first hop of keys brings those of the other head."""
    return _sent_elsewhere(plan, f"{LAYER}.k.round.1", lambda _, peer: peer ^ 2)


MISSES = {
    "not rescaled": _not_rescaled,
    "the other way round": _other_way_round,
    "the head of the neighbour": _head_of_the_neighbour,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(MISSES, 6))
def test_a_mistake_in_one_replica_is_caught(name: str) -> None:
    reference, parallel = ring(4, 4).plans()
    report = check(reference, MISSES[name](parallel), Options(seed=1))
    assert report.verdict == "mismatch", said(report)
    assert LAYER in str(report.findings[0].operator), said(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_by_day(MISSES, 6))
def test_the_mistakes_are_mistakes(name: str) -> None:
    """By the executor that shares no code with the checker."""
    reference, parallel = ring(4, 4).plans()
    assert judge_often(reference, parallel, range(1)).same
    assert not judge_often(reference, MISSES[name](parallel), range(2)).same
