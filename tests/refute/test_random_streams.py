"""Random draws: the same numbers on both sides are compared; other numbers are no mismatch, and
never equivalent.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.explain_plans import Pair, run, said
from zoo.builder import Builder, table

from pitcheck.plan.model import Plan

P = "1/4"


def reference(stream: str = "s") -> Plan:
    b = Builder("dropout")
    x = b.input("x", (4, 3))
    b.output(
        b.op(
            "dropout",
            x,
            b.op("dropout_mask", x, stream=stream, probability=P),
            probability=P,
            out="y",
        )
    )
    return b.plan()


def over_shards(**draws: Any) -> Pair:
    b = Builder("dropout-dp", {"dp": 2})
    x = b.input("x", (2, 3), {0: "dp"})
    mask = b.op("dropout_mask", x, probability=P, **draws)
    own = b.op("dropout", x, mask, probability=P)
    b.output(b.op("all_gather", own, out="y", group="dp", axis=0))
    return reference(), b.plan()


def on_replicas(**draws: Any) -> Pair:
    b = Builder("dropout-tp", {"tp": 2})
    x = b.input("x", (4, 3), {})
    b.output(
        b.op("dropout", x, b.op("dropout_mask", x, probability=P, **draws), probability=P, out="y")
    )
    return reference(), b.plan()


def recomputed(**again: Any) -> Pair:
    """y = dropout(x), and the gradient through it; the parallel plan draws its mask again for the
    backward pass.
    """
    plans = []
    for second in (None, again):
        b = Builder("recomputed")
        x, g = b.input("x", (4, 3)), b.input("g", (4, 3))
        mask = b.op("dropout_mask", x, stream="s", probability=P)
        y = b.op("dropout", x, mask, probability=P, out="y")
        used = (
            mask
            if second is None
            else b.op("dropout_mask", x, **{"stream": "s", "probability": P, **second})
        )
        b.back("dropout", [x, used], y, g, ["dx", ""], probability=P)
        b.output(y)
        b.output("dx")
        plans.append(b.plan())
    return plans[0], plans[1]


RIGHT = {
    "shards at their places": over_shards(
        stream="s", whole=(4, 3), start=table("dp", (0, 0), (2, 0))
    ),
    "shards at their offsets": over_shards(stream="s", offset=table("dp", 0, 6)),
    "replicas alike": on_replicas(stream="s"),
    "recomputed alike": recomputed(),
}
WRONG = {
    "shards draw each other's": over_shards(stream="s", offset=table("dp", 6, 0)),
    "both shards draw the first's": over_shards(stream="s"),
    "replicas draw other numbers": on_replicas(stream="s", offset=table("tp", 0, 12)),
    "recomputed at another offset": recomputed(offset=12),
}
UNKNOWN = {
    "another name over shards": over_shards(
        stream="t", whole=(4, 3), start=table("dp", (0, 0), (2, 0))
    ),
    "another name on replicas": on_replicas(stream="t"),
    "a name per rank": on_replicas(stream=table("tp", "s", "t")),
    "recomputed from another stream": recomputed(stream="t"),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_same_numbers_are_equivalent(name: str, seed: int) -> None:
    report = run(RIGHT[name], seed=seed)
    assert report.verdict == "equivalent", said(report)


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_numbers_are_not_equivalent(name: str, seed: int) -> None:
    report = run(WRONG[name], seed=seed)
    assert report.verdict in {"mismatch", "inconclusive"}, said(report)
    assert report.findings


def test_swapped_numbers_are_a_mismatch() -> None:
    """Both plans take draws 0 to 11 of the same stream, each for another element."""
    report = run(WRONG["shards draw each other's"])
    assert report.verdict == "mismatch", said(report)


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_streams_are_inconclusive(name: str, seed: int) -> None:
    report = run(UNKNOWN[name], seed=seed)
    assert report.verdict == "inconclusive", said(report)
    assert [f.code for f in report.findings] == ["PIT206"], said(report)
    assert "'s'" in report.findings[0].title
    assert "'t'" in report.findings[0].title


def test_replicas_that_draw_other_numbers_than_each_other_are_a_mismatch() -> None:
    """Whatever the reference draws, both cannot have its output; where both draw the same other
    numbers, nothing is known.
    """
    report = run(WRONG["replicas draw other numbers"])
    assert report.verdict == "mismatch", said(report)
    assert run(on_replicas(stream="s", offset=12)).verdict == "inconclusive"


def test_where_nothing_is_dropped_no_draw_matters() -> None:
    plans = []
    for probability, draws in (("0", {"stream": "s"}), ("0", {"stream": "t", "offset": 7})):
        b = Builder("nothing")
        x = b.input("x", (4, 3))
        b.output(
            b.op(
                "dropout",
                x,
                b.op("dropout_mask", x, probability=probability, **draws),
                probability=probability,
                out="y",
            )
        )
        plans.append(b.plan())
    assert run((plans[0], plans[1])).verdict == "equivalent"


def test_fewer_numbers_are_a_mismatch() -> None:
    """Twelve elements of which two and two share a number are another function of the draws."""
    report = run(WRONG["both shards draw the first's"])
    assert report.verdict == "mismatch", said(report)


def test_numbers_are_named() -> None:
    title = run(WRONG["recomputed at another offset"]).findings[0].title
    assert "draws 0 to 11" in title
    assert "draws 0 to 23" in title


def test_a_real_difference_beside_other_streams_is_a_mismatch() -> None:
    """An output that no draw enters is compared all the same."""
    plans = []
    for stream, kind in (("s", "neg"), ("t", "exp")):
        b = Builder("beside")
        x = b.input("x", (4, 3))
        b.output(
            b.op(
                "dropout",
                x,
                b.op("dropout_mask", x, stream=stream, probability=P),
                probability=P,
                out="y",
            )
        )
        b.output(b.op(kind, x, out="z"))
        plans.append(b.plan())
    report = run((plans[0], plans[1]))
    assert report.verdict == "mismatch", said(report)
    assert report.findings[0].output == "z"
