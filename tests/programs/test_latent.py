"""Latent attention on a rank: every kind of parallelism computes what the single device computes,
and one typical mistake in it is caught.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from programs.near_misses import Change, assert_caught, changed, dropped, reading, with_attributes
from programs.program_cases import SLOWLY, Case, assert_right, case, layouts

from pitcheck.errors import PlanError
from pitcheck.models.config import LatentAttention, Model
from pitcheck.models.presets import preset
from pitcheck.plan.model import Lineage, Number, Operator, Plan, Shard, Table


def latent(layers: int = 2, rope: int = 2) -> Model:
    """Latent queries, keys and values, a dense feed-forward part."""
    model = preset("deepseek-v2-236b-tiny")
    assert isinstance(model.attention, LatentAttention)
    return replace(
        model,
        layers=layers,
        experts=None,
        dense_layers=0,
        attention=replace(model.attention, rope=rope),
    )


def straight(layers: int = 2) -> Model:
    """Queries straight from the hidden state."""
    return replace(preset("deepseek-v2-lite-16b-tiny"), layers=layers, experts=None, dense_layers=0)


FAST = {
    "tensor": case(latent(), tp=2, dp=2),
    "sequence": case(latent(), tp=2, sequence_parallel=True),
    "sequence, queries straight": case(straight(), tp=2, sequence_parallel=True),
    "ring": case(straight(), 2, cp=2),
}

SLOW = {
    "one rank": case(latent()),
    "more rotary pairs": case(latent(rope=6), tp=2, sequence_parallel=True),
    "data, microbatches": case(latent(), 8, dp=2, microbatches=2),
    "tensor, queries straight": case(straight(), tp=2, dp=2, microbatches=2),
    "one head on a rank": case(latent(), tp=4, sequence_parallel=True),
    "pipeline": case(latent(3), pp=2, microbatches=2, tp=2, sequence_parallel=True),
    "everything fills and drains": case(straight(3), pp=2, microbatches=4, schedule="gpipe"),
    "interleaved": case(
        latent(4), 8, pp=2, virtual=2, microbatches=4, schedule="interleaved", tp=2
    ),
    "zero bubbles": case(
        latent(), pp=2, microbatches=2, schedule="zero-bubble", tp=2, sequence_parallel=True
    ),
    "computed again": case(latent(), tp=2, recompute=True, sequence_parallel=True),
    "computed again, queries straight": case(straight(), tp=2, recompute=True),
    "optimizer shards": case(latent(), dp=2, zero=1, tp=2, sequence_parallel=True, bucket=300),
    "gradient shards": case(
        latent(), 6, dp=3, microbatches=2, zero=2, tp=2, sequence_parallel=True, bucket=200
    ),
    "parameter shards": case(latent(), dp=2, zero=3, tp=2, sequence_parallel=True),
    "parameter shards, computed again": case(straight(), dp=2, zero=3, recompute=True, tp=2),
    "replicas of shards": case(latent(), dp=4, zero=3, replicas=2),
    "gather": case(latent(), cp=2, tp=2, sequence_parallel=True, context="allgather"),
    "gather, computed again": case(straight(), cp=2, tp=2, context="allgather", recompute=True),
    "heads": case(latent(), cp=2, context="ulysses"),
    "heads over both": case(straight(), cp=2, tp=2, context="ulysses", sequence_parallel=True),
    "ring over heads": case(latent(), 2, cp=2, tp=2, sequence_parallel=True),
    "ring of three": case(latent(), 2, 12, cp=3, dp=2),
    "ring, pipeline": case(latent(), 4, 16, cp=2, tp=2, pp=2, microbatches=2),
}


@pytest.mark.parametrize("found", layouts(FAST, SLOW))
def test_a_layout_is_right(found: Case) -> None:
    assert_right(found)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"tp": 8}, "4 attention heads cannot be cut evenly over tp 8"),
        (
            {"tp": 2, "cp": 4, "context": "ulysses"},
            "2 attention heads of a rank cannot be cut evenly over cp 4, as ulysses does",
        ),
        (
            {"tp": 2, "cp": 8, "sequence_parallel": True, "context": "allgather"},
            "1 tokens of a sequence on a rank cannot be cut evenly over tp 2",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(layout: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        case(latent(), **layout).plans()


# --- near misses

TENSOR = case(latent(), tp=2)
PAIRS = case(latent(rope=6), tp=2)
SEQUENCE = case(latent(), tp=2, sequence_parallel=True)


def _own_part(operator: Operator) -> Operator:
    """A rank's part of its own term, not of the sum."""
    attributes = {
        "axis": operator.attributes["axis"],
        "count": 2,
        "position": Table(("tp",), (0, 1)),
    }
    return replace(operator, kind="chunk", attributes=attributes, group=None)


def _own_twice(operator: Operator) -> Operator:
    """A rank's own part in the place of the other one's, too."""
    return replace(operator, kind="cat", inputs=operator.inputs * 2, group=None)


def _from_the_front(operator: Operator) -> Operator:
    """The second output is the first part of the input."""
    sizes = operator.attributes["sizes"]
    assert isinstance(sizes, tuple)
    return replace(
        operator,
        outputs=operator.outputs[::-1],
        attributes={**operator.attributes, "sizes": sizes[::-1]},
    )


def _unscaled(operator: Operator) -> Operator:
    """Scaled by 1 / sqrt(4), the size of the part that is not rotary."""
    return replace(operator, kind="mul", inputs=(*operator.inputs, Number("1/2")), attributes={})


MISSES: dict[str, tuple[Case, str, Change]] = {
    "the gradient of the way down misses the sequence": (
        SEQUENCE,
        "grad:layers.1.attention.kv_a.weight",
        dropped,
    ),
    "that of the queries' does": (SEQUENCE, "grad:layers.0.attention.q_a.weight", dropped),
    "that of the norm of the latent vector does": (
        SEQUENCE,
        "grad:layers.0.attention.kv_norm.weight",
        dropped,
    ),
    "the gradient of the latent vector is of one rank's heads": (
        TENSOR,
        "grad:layers.1.attention.kv_norm",
        dropped,
    ),
    "the gradient of the rotary part is of one rank's heads": (
        TENSOR,
        "grad:layers.0.attention.shared",
        dropped,
    ),
    "or so with parts of the sequence": (SEQUENCE, "grad:layers.0.attention.shared", _own_part),
    "the rotary part is of one rank's tokens": (
        SEQUENCE,
        "layers.0.attention.shared:entered",
        _own_twice,
    ),
    "the latent vector is of one rank's tokens": (
        SEQUENCE,
        "layers.0.attention.kv_norm:entered",
        _own_twice,
    ),
    "the rotary part is not shared": (
        TENSOR,
        "layers.1.attention.k",
        reading(1, "layers.1.attention.q.rotated"),
    ),
    "the rotary part is that of the layer before": (
        TENSOR,
        "layers.1.attention.shared:entered",
        reading(0, "layers.0.attention.shared"),
    ),
    "the latent vector is not normed": (
        TENSOR,
        "layers.0.attention.kv_norm:entered",
        reading(0, "layers.0.attention.latent"),
    ),
    "the rotary part of queries comes first": (TENSOR, "layers.0.attention.q.own", _from_the_front),
    "queries are turned by halves": (
        PAIRS,
        "layers.0.attention.q.rotated",
        with_attributes(convention="half"),
    ),
    "scores are scaled without the rotary part": (TENSOR, "layers.0.attention.q.scaled", _unscaled),
}

QUICK = ("the gradient of the way down misses the sequence", "the rotary part is not shared")


@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(
            pytest.param(name, marks=SLOWLY[place % 8 > 0])
            for place, name in enumerate(MISSES)
            if name not in QUICK
        ),
    ],
)
def test_a_near_miss_is_caught(name: str) -> None:
    right, identity, change = MISSES[name]
    reference, parallel = right.plans()
    assert_caught(reference, changed(parallel, identity, change))


def _with_other_heads(plan: Plan, parameter: str) -> Plan:
    """The two ranks have each other's rows of a parameter, its gradient and its state."""

    def moved(lineage: Lineage | None, rows: int) -> Lineage | None:
        if (
            lineage is None
            or parameter not in lineage.reference
            or lineage.shards != (Shard(0, by=("tp",)),)
        ):
            return lineage
        return replace(
            lineage,
            shards=(Shard(0, intervals=Table(("tp",), (((rows, 2 * rows),), ((0, rows),)))),),
        )

    tensors = tuple(
        replace(t, lineage=moved(t.lineage, t.shape[0])) if t.shape else t for t in plan.tensors
    )
    assert tensors != plan.tensors
    return replace(plan, tensors=tensors)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["q_b", "kv_b"])
def test_the_wrong_heads_are_caught(part: str) -> None:
    reference, parallel = TENSOR.plans()
    assert_caught(reference, _with_other_heads(parallel, f"layers.0.attention.{part}.weight"))
