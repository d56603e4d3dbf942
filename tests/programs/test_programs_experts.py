"""Mixtures of experts over ranks: tokens that are sent where they belong, experts' gradients,
balance losses, the bias that the load moves.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from programs.program_cases import Case, assert_right, layouts, llama, said

from pitcheck.base.options import Options
from pitcheck.claims.hints import hinted_cuts
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import specify
from pitcheck.engine.check import check
from pitcheck.errors import PlanError
from pitcheck.execution.executor import execute
from pitcheck.execution.judge import initial_values, judge, reference_inputs
from pitcheck.graph.lowering import lower
from pitcheck.models.config import Batch, Model
from pitcheck.models.presets import preset
from pitcheck.plan.model import Group, Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.programs.layout import Layout, check_layout


def mixtral(layers: int = 1, **changes: Any) -> Model:
    """Softmax scores, weights that sum to 1, balance loss over groups, z loss."""
    return replace(preset("mixtral-8x7b-tiny"), layers=layers, **changes)


def deepseek(name: str = "deepseek-v3-671b", layers: int = 2, **changes: Any) -> Model:
    """Groups of experts, a shared expert, one dense layer first, balance loss over sequences; plain
    attention, nothing predicted beyond the next token.
    """
    return replace(
        preset(f"{name}-tiny"),
        layers=layers,
        dense_layers=1,
        attention=mixtral().attention,
        predicted=0,
        **changes,
    )


def spread(
    model: Model, sequences: int = 4, length: int = 8, groups: int = 0, **layout: Any
) -> Case:
    """A case whose balance loss is taken on every rank and micro-batch where nothing else
    is said.
    """
    how = Layout(**layout)
    return Case(model, Batch(sequences, length, groups or how.dp * how.microbatches), how)


V2, LITE = "deepseek-v2-236b", "deepseek-v2-lite-16b"
SEQUENCE = {"tp": 2, "sequence_parallel": True}

FAST = {
    "experts over data": spread(mixtral(), dp=2, ep=2),
    "experts over data and tensor": spread(deepseek(), 8, dp=4, ep=4, **SEQUENCE),
    "all experts on every rank": spread(mixtral(), tp=2),
}

SLOW = {
    "one rank": spread(mixtral()),
    "experts cut, same tokens": spread(mixtral(), tp=2, etp=2),
    "experts cut": spread(mixtral(), dp=2, ep=2, etp=2, **SEQUENCE),
    "experts cut over data": spread(deepseek(), dp=4, ep=2, etp=2),
    "experts within tensor": spread(mixtral(), dp=2, ep=2, **SEQUENCE),
    "experts within a part of tensor": spread(deepseek(), dp=2, ep=2, tp=4, sequence_parallel=True),
    "experts over context": spread(mixtral(), dp=2, cp=2, ep=2),
    "experts over context and tensor": spread(deepseek(), 4, 16, cp=2, ep=4, **SEQUENCE),
    "experts over all of it": spread(mixtral(), 4, 16, dp=2, cp=2, ep=8, **SEQUENCE),
    "microbatches": spread(mixtral(), 8, dp=2, ep=2, microbatches=2),
    "two groups of sequences a microbatch": spread(
        mixtral(), 8, groups=8, dp=2, ep=2, microbatches=2
    ),
    "pipeline": spread(deepseek(layers=4), 8, dp=2, pp=2, microbatches=2, ep=2),
    "zero bubbles": spread(mixtral(2), 8, dp=2, pp=2, microbatches=2, ep=2, schedule="zero-bubble"),
    "pipeline, experts on the last stage only": spread(
        deepseek(), 8, dp=2, pp=2, microbatches=2, ep=2
    ),
    "interleaved": spread(
        mixtral(4), 8, dp=2, pp=2, virtual=2, microbatches=2, ep=2, schedule="interleaved"
    ),
    "softmax scores in groups": spread(deepseek(V2), 8, dp=2, ep=2, microbatches=2),
    "two shared experts": spread(deepseek(LITE), 8, dp=2, ep=4, **SEQUENCE),
    "shared experts with all experts on every rank": spread(deepseek(), tp=2, etp=2),
    "optimizer shards, every expert once": spread(mixtral(), dp=2, ep=2, zero=1, bucket=300),
    "optimizer shards": spread(deepseek(), 8, dp=4, ep=2, zero=1, bucket=300),
    "gradient shards": spread(deepseek(), 8, dp=4, ep=2, zero=2, bucket=300, microbatches=2),
    "parameter shards": spread(deepseek(), 8, dp=4, ep=2, zero=3, microbatches=2),
    "parameter shards, every expert once": spread(mixtral(), dp=2, ep=2, zero=3),
    "replicas of shards": spread(mixtral(), 8, dp=8, ep=2, zero=3, replicas=2),
    "computed again": spread(deepseek(), dp=2, ep=2, recompute=True),
    "latent attention, one token more": spread(
        preset("deepseek-v3-671b-tiny"), 8, dp=2, ep=4, pp=2, microbatches=2, **SEQUENCE
    ),
    "latent attention, experts cut": spread(
        preset(f"{LITE}-tiny"), 8, dp=2, ep=2, etp=2, **SEQUENCE
    ),
}


@pytest.mark.parametrize("found", layouts(FAST, SLOW))
def test_a_layout_is_right(found: Case) -> None:
    assert_right(found)


@pytest.mark.parametrize("seed", range(3))
def test_uneven_loads_and_empty_experts(seed: int) -> None:
    case = spread(mixtral(), 2, 2, dp=2, ep=2)
    reference, parallel = case.plans()
    inputs = reference_inputs(reference, seed)
    loads = execute(reference, inputs)["layers.0.mlp.router.hits", 0, 0].sum(axis=(0, 1))
    assert loads.min() == 0
    assert loads.max() > loads.mean()
    assert judge(reference, parallel, seed).same


def test_what_a_rank_sends_is_what_its_tokens_chose() -> None:
    """The buffers of two ranks against a plain loop: every token once per receiver, in order, with
    its number; what lies behind is empty.
    """
    reference, parallel = spread(mixtral(), 2, 4, dp=2, ep=2).plans()
    inputs = reference_inputs(reference, 5)
    whole = execute(reference, inputs)
    here = execute(parallel, initial_values(inputs, parallel, 5))
    x, hits = whole["layers.0.mlp_norm", 0, 0], whole["layers.0.mlp.router.hits", 0, 0]
    for sender in range(2):
        for receiver in range(2):
            mine = hits[sender, :, receiver * 4 : receiver * 4 + 4]
            sent = [token for token in range(4) if mine[token].any()]
            packed = here["layers.0.mlp.packed", sender, 0][receiver, 0]
            assert here["layers.0.mlp.counts", sender, 0][0, receiver] == len(sent)
            assert packed[: len(sent)] == pytest.approx(x[sender, sent])
            assert (packed[len(sent) :] == 0).all()
            assert (
                here["layers.0.mlp.own", receiver, 0][sender, 0, : len(sent)] == mine[sent]
            ).all()


def test_the_gradient_of_a_balance_loss_is_cut_off() -> None:
    """It is the derivative of a view of scores that are cut themselves, and no view of them."""
    reference, parallel = FAST["experts over data and tensor"].plans()
    graphs = lower(reference, match(reference)[0]), lower(parallel, match(parallel)[0])
    cuts = hinted_cuts(Problem(*graphs, specify(reference, parallel, *graphs)))
    named = {graphs[1].values[value].name for value in cuts}
    assert {
        "layers.1.mlp.router.shares",
        "grad:layers.1.mlp.router.shares",
        "grad:layers.1.mlp.router.scores",
    } <= named


def _groups(plan: Plan) -> dict[str, Group | None]:
    return {operator.id: operator.group for operator in plan.operators}


def test_groups_are_products_of_axes() -> None:
    """Experts over half of the data-parallel and all tensor-parallel ranks: experts are summed over
    the other half, what is dense over all.
    """
    plan = spread(deepseek(), 8, dp=4, ep=4, **SEQUENCE).plans()[1]
    groups = _groups(plan)
    assert {axis.name: axis.size for axis in plan.mesh} == {"dp": 2, "dp_inner": 2, "tp": 2}
    assert groups["layers.1.mlp.packed:there"] == Group(axes=("dp_inner", "tp"))
    assert groups["grad:layers.1.mlp.experts.up.weight"] == Group(axes=("dp",))
    assert groups["reduced0:layers.1.mlp.router.weight"] == Group(axes=("dp", "dp_inner"))
    assert groups["grad:layers.1.mlp.router.weight"] == Group(axes=("tp",))


@pytest.mark.parametrize(
    ("model", "layout", "place", "said"),
    [
        (llama(), {"ep": 2, "dp": 2}, "layout.ep", "has no experts"),
        (llama(), {"etp": 2, "dp": 2}, "layout.etp", "has no experts"),
        (mixtral(), {"ep": 3, "dp": 3}, "layout.ep", "8 experts cannot be spread evenly over ep 3"),
        (mixtral(), {"etp": 5, "dp": 5}, "layout.etp", "width 12 cannot be cut evenly over etp 5"),
        (mixtral(), {"ep": 4, "dp": 2}, "layout.ep", "does not divide the 2 ranks of a stage"),
        (
            mixtral(),
            {"ep": 2, "dp": 2, "tp": 2},
            "layout.ep",
            "have the same tokens without sequence_parallel",
        ),
        (mixtral(), {"etp": 4, "dp": 2, "tp": 2}, "layout.etp", "etp 4 must divide tp 2"),
        (mixtral(), {"ep": 4, "dp": 4, "cp": 3}, "layout.ep", "end within"),
        (mixtral(), {"ep": 0}, "layout.ep", "must be at least 1"),
    ],
)
def test_what_is_refused(model: Model, layout: dict[str, Any], place: str, said: str) -> None:
    how = Layout(**layout)
    with pytest.raises(PlanError, match=said) as caught:
        check_layout(model, Batch(60, 12, 60), how)
    assert caught.value.place == place


def test_groups_of_a_balance_loss_lie_within_a_rank() -> None:
    with pytest.raises(PlanError, match="taken over 2 groups of sequences") as caught:
        check_layout(mixtral(), Batch(8, 8, 2), Layout(dp=2, microbatches=2))
    assert caught.value.place == "layout.microbatches"


@pytest.mark.slow
@pytest.mark.nightly
def test_a_dimension_may_be_reduced_twice() -> None:
    """Two of 16 senders are kept for each class with the second set of sizes.

    These are few enough classes to be reduced once more.
    """
    found = spread(
        mixtral(), 16, 16, dp=4, tp=4, ep=4, etp=2, microbatches=4, sequence_parallel=True
    )
    report = check(*found.plans(), Options(seed=1))
    assert report.verdict == "equivalent", said(report)
