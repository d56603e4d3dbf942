"""Results whose size says how many members a collective has.

A few coordinates do not stand for all then.
"""

from __future__ import annotations

import pytest
from zoo.builder import Builder

from pitcheck.graph.lowering import lower
from pitcheck.plan.schedule.matching import match
from pitcheck.stage.batch import Batch, Step
from pitcheck.stage.sample_conditions import Sampling

RANKS = 4


def _resized(kind: str, along: str, **attributes: object) -> bool:
    """Return True if a sample along the axis ``along`` resizes a result.

    The plan has one collective over ``dp``.
    """
    b = Builder("plan", {"dp": RANKS, "tp": 2})
    b.output(b.op(kind, b.op("exp", b.input("x", (RANKS, 3))), out="y", group="dp", **attributes))
    plan = b.plan()
    matching, violations = match(plan)
    assert matching is not None, violations
    graph = lower(plan, matching)
    steps = [
        Step(number, node.kind, node.attributes, (), node.outputs, 1)
        for number, node in enumerate(graph.nodes)
    ]
    batch = Batch(graph, steps=steps)
    return Sampling({("dp", "tp").index(along): (2, RANKS)}).resized(batch)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("all_gather", {"axis": 0}),
        ("gather_to", {"axis": 0, "root": 0}),
        ("reduce_scatter", {"axis": 0}),
        ("scatter_from", {"axis": 0, "root": 0}),
        ("all_to_all", {"split_axis": 0, "concat_axis": 1}),
    ],
)
def test_what_joins_or_cuts_for_members_is_resized(
    kind: str, attributes: dict[str, object]
) -> None:
    assert _resized(kind, "dp", **attributes)
    assert not _resized(kind, "tp", **attributes)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("all_reduce", {}), ("reduce", {"root": 0}), ("broadcast", {"root": 0})],
)
def test_what_has_the_sizes_of_a_member_is_not(kind: str, attributes: dict[str, object]) -> None:
    assert not _resized(kind, "dp", **attributes)
