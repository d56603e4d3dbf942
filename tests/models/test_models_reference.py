"""Reference plans against PyTorch, and against what is known of the models."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from models.torch_models import train
from msgspec.structs import replace

from pitcheck.errors import PlanError, UsageError
from pitcheck.execution.executor import Array, Instance, execute
from pitcheck.execution.judge import reference_inputs
from pitcheck.models.config import Attention, Batch, Experts, Model, Optimizer
from pitcheck.models.presets import PRESETS, preset
from pitcheck.models.reference import parameter_count, reference_plan
from pitcheck.plan.model import Plan
from pitcheck.plan.validate import validate

BATCH = Batch(4, 6, groups=2)


@dataclass(frozen=True)
class _Case:
    model: Model
    batch: Batch = BATCH
    optimizer: Optimizer = field(default_factory=Optimizer)
    seed: int = 0


def _small(name: str) -> Model:
    return replace(preset(f"{name}-tiny"), layers=3)


def _with_experts(name: str, **changes: object) -> Model:
    model = _small(name)
    assert isinstance(model.experts, Experts)
    return replace(model, experts=replace(model.experts, **changes))


CASES = {
    "llama": _Case(preset("llama3-8b-tiny")),
    "gpt": _Case(_small("gpt3-175b"), seed=1),
    "gpt padded": _Case(_small("gpt3-175b").padded(16), seed=1),
    "mixtral": _Case(_small("mixtral-8x7b")),
    "v2 lite": _Case(_small("deepseek-v2-lite-16b"), seed=1),
    "v2": _Case(_small("deepseek-v2-236b"), seed=3),
    "v3": _Case(_small("deepseek-v3-671b")),
    "one group": _Case(_small("mixtral-8x7b"), Batch(4, 6, groups=1)),
    "softmax over groups": _Case(
        _with_experts("deepseek-v2-236b", auxiliary_over="group", z="1/7")
    ),
    "fused with grouped heads": _Case(
        replace(_small("llama3-8b"), attention=Attention(4, 2, 4, fused=True), fused_gate=True)
    ),
    "qwen3": _Case(_small("qwen3-8b")),
    "qwen3 moe": _Case(_small("qwen3-30b-a3b")),
    "gpt-oss": _Case(_small("gpt-oss-20b")),
    "gpt-oss, clamped often": _Case(replace(_small("gpt-oss-20b"), gate_limit="1/3"), seed=3),
    "chunks without rotary between": _Case(
        replace(
            _small("llama3-8b"),
            attention=Attention(
                4, 2, 4, qk_norm="l2", chunk=4, global_every=2, global_rotary=False
            ),
        )
    ),
    "llama 4 scout": _Case(preset("llama4-scout-tiny")),
    "llama 4 maverick": _Case(preset("llama4-maverick-tiny"), Batch(4, 7, groups=2), seed=1),
    "queries grow in all layers": _Case(
        replace(
            _small("llama3-8b"),
            attention=Attention(4, 2, 4, rotary=False, query_floor=2, query_scale="3/4"),
        )
    ),
    "windows in all layers": _Case(
        replace(_small("llama3-8b"), attention=Attention(4, 2, 4, window=2))
    ),
    "scaled inputs of every second layer": _Case(
        replace(
            _with_experts(
                "mixtral-8x7b",
                scaled_input=True,
                score="sigmoid",
                chosen=1,
                shared=1,
                normalized=False,
            ),
            experts_every=2,
        )
    ),
    "norm is not clipped": _Case(
        _small("llama3-8b"), optimizer=Optimizer(max_norm="100000"), seed=1
    ),
    "other settings": _Case(
        _small("llama3-8b"), optimizer=Optimizer("4/5", "99/100", "1/1000", "1/4", "1/3", 7), seed=4
    ),
}


def _inputs(plan: Plan, seed: int) -> dict[Instance, Array]:
    values = reference_inputs(plan, seed)
    values["learning_rate", 0, 0] = np.abs(values["learning_rate", 0, 0]) / 100
    return values


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_step_is_that_of_pytorch(case: _Case) -> None:
    plan = reference_plan(case.model, case.batch, case.optimizer)
    assert [str(violation) for violation in validate(plan)] == []
    inputs = _inputs(plan, case.seed)
    found = execute(plan, inputs)
    parameters = [tensor.name for tensor in plan.tensors if tensor.role == "parameter"]
    given = {name: torch.from_numpy(np.array(value)) for (name, _, _), value in inputs.items()}
    expected = train(case.model, case.batch, case.optimizer, given, parameters)
    assert {output.tensor for output in plan.outputs} == expected.keys()
    for name, value in expected.items():
        scale = float(value.abs().max()) or 1.0
        np.testing.assert_allclose(
            found[name, 0, 0], value, rtol=1e-9, atol=1e-9 * scale, err_msg=name
        )


@pytest.mark.parametrize("name", PRESETS)
def test_every_tiny_model_is_valid(name: str) -> None:
    plan = reference_plan(preset(f"{name}-tiny"), BATCH)
    assert [str(violation) for violation in validate(plan)] == []


PUBLISHED = {
    "llama3-8b": 8.03,
    "llama3-70b": 70.6,
    "llama3-405b": 405.9,
    "gpt3-175b": 175.0,
    "mixtral-8x7b": 46.7,
    "deepseek-v2-lite-16b": 15.7,
    "deepseek-v2-236b": 236.0,
    "deepseek-v3-671b": 671.0,
    "qwen3-8b": 8.19,
    "qwen3-30b-a3b": 30.5,
    "gpt-oss-20b": 20.9,
    # Both without the encoder of images.
    "llama4-scout": 107.8,
    "llama4-maverick": 400.7,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_are_those_published_and_building_is_fast(name: str) -> None:
    begun = time.process_time()
    plan = reference_plan(preset(name), Batch(1024, 2048, 16))
    assert time.process_time() - begun < 5, (
        "a machine that is busy has room; it takes less than a second"
    )
    assert abs(parameter_count(plan) / 1e9 / PUBLISHED[name] - 1) < 0.01
    assert name in PRESETS and len(PRESETS) == len(PUBLISHED)


def test_every_parameter_has_a_gradient_and_new_values() -> None:
    plan = reference_plan(preset("deepseek-v3-671b-tiny"), BATCH)
    outputs = {output.tensor for output in plan.outputs}
    for tensor in plan.tensors:
        if tensor.role == "parameter":
            assert {
                f"grad:{tensor.name}",
                f"new:{tensor.name}",
                f"new:first:{tensor.name}",
                f"new:second:{tensor.name}",
            } <= outputs
        if tensor.role == "optimizer_state":
            assert f"new:{tensor.name}" in outputs


def test_sizes_that_do_not_fit_are_refused() -> None:
    model = preset("deepseek-v3-671b-tiny")
    with pytest.raises(PlanError, match=r"batch\.groups: 4 sequences cannot form 3"):
        reference_plan(model, Batch(4, 6, 3))
    with pytest.raises(PlanError, match=r"model\.experts\.chosen: 5 experts are chosen of 4"):
        reference_plan(_with_experts("deepseek-v3-671b", chosen=5), BATCH)
    with pytest.raises(PlanError, match=r"model\.attention\.kv_heads"):
        reference_plan(replace(preset("llama3-8b-tiny"), attention=Attention(4, 3, 4)), BATCH)
    with pytest.raises(PlanError, match=r"batch\.length: 17 tokens, but 16"):
        reference_plan(preset("gpt3-175b-tiny"), Batch(1, 17))
    with pytest.raises(UsageError, match="no model is called"):
        preset("llama4")
