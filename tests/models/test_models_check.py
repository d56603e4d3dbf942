"""A reference plan is equivalent to itself, whatever is drawn, and one wrong coefficient in it is
caught.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.models.config import Batch, Experts, Model, Optimizer
from pitcheck.models.presets import PRESETS, preset
from pitcheck.models.reference import reference_plan
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report

BATCH = Batch(4, 8, groups=2)


def _two_layers(name: str) -> Model:
    model = preset(f"{name}-tiny")
    return replace(model, layers=2, dense_layers=min(model.dense_layers, 1))


def _equivalent(report: Report, plan: Plan) -> None:
    assert report.verdict == "equivalent", [finding.title for finding in report.findings][:3]
    assert report.outputs.proven == len(plan.outputs)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b"])
def test_a_model_is_itself(name: str) -> None:
    plan = reference_plan(_two_layers(name), BATCH)
    _equivalent(check(plan, plan, Options(seed=1)), plan)


SEEDS = range(2, 5)


def _with_seeds() -> list[Any]:
    """Return every model with every seed; CI has one of them for each model, in turn."""
    return [
        pytest.param(name, seed, marks=[pytest.mark.nightly] if (place - seed) % len(SEEDS) else [])
        for place, name in enumerate(PRESETS)
        for seed in SEEDS
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), _with_seeds())
def test_every_model_is_itself_with_every_seed(name: str, seed: int) -> None:
    plan = reference_plan(preset(f"{name}-tiny"), BATCH)
    _equivalent(check(plan, plan, Options(seed=seed)), plan)


def _other(model: Model, **changes: str) -> Model:
    assert isinstance(model.experts, Experts)
    return replace(model, experts=replace(model.experts, **changes))


V3 = _two_layers("deepseek-v3-671b")


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(reference_plan(_other(V3, scale="2"), BATCH), marks=pytest.mark.nightly),
        pytest.param(
            reference_plan(_other(V3, group_score="max"), BATCH), marks=pytest.mark.nightly
        ),
        pytest.param(
            reference_plan(_other(V3, auxiliary_over="group"), BATCH), marks=pytest.mark.nightly
        ),
        reference_plan(_other(V3, bias_rate="1/999"), BATCH),
        pytest.param(
            reference_plan(replace(V3, predicted_weight="1/10"), BATCH), marks=pytest.mark.nightly
        ),
        pytest.param(
            reference_plan(replace(V3, norm_eps="1/100000"), BATCH), marks=pytest.mark.nightly
        ),
        reference_plan(V3, BATCH, Optimizer(weight_decay="1/9")),
        reference_plan(V3, BATCH, Optimizer(step=4)),
        reference_plan(V3, BATCH, Optimizer(max_norm="2")),
    ],
    ids=[
        "scale",
        "group score",
        "auxiliary",
        "bias rate",
        "predicted",
        "eps",
        "decay",
        "step",
        "clip",
    ],
)
def test_another_number_is_another_model(wrong: Plan) -> None:
    assert check(reference_plan(V3, BATCH), wrong, Options(seed=1)).verdict == "mismatch"
