"""Norms of heads, windows, chunks, sinks and experts with biases: all layouts compute
what the single device computes, and one near mistake in each is a mismatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from programs.faults import at_place
from programs.near_misses import (
    Change,
    changed,
    dropped,
    first_only,
    reading,
    with_attributes,
)
from programs.program_cases import SLOWLY, Case, assert_right, case, layouts, llama, said

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.errors import PlanError
from pitcheck.execution.judge import judge_often
from pitcheck.models.config import Attention, Experts, Model
from pitcheck.models.presets import preset
from pitcheck.plan.model import Number, Operator, Plan, Table

NORMED = llama(attention=Attention(4, 2, 4, qk_norm="rms"))
WINDOW = llama(attention=Attention(4, 2, 4, window=3, global_every=2))
CHUNK = llama(
    attention=Attention(4, 2, 4, qk_norm="l2", chunk=4, global_every=2, global_rotary=False)
)
SINKS = llama(attention=Attention(4, 2, 4, sinks=True))
CLAMPED = llama(1, activation="clamped-swiglu", gate_limit="1/3")


def _mixture(layers: int = 1, **changes: Any) -> Model:
    base = preset("mixtral-8x7b-tiny")
    assert isinstance(base.experts, Experts)
    plain = replace(base.experts, routed=4, auxiliary="0", z="0")
    return replace(base, layers=layers, experts=replace(plain, **changes))


BIASED = _mixture(bias=True, router_bias=True)
SCALED = replace(
    _mixture(2, scaled_input=True, score="sigmoid", chosen=1, shared=1, normalized=False),
    experts_every=2,
)

FAST = {
    "head norms, tensor": case(NORMED, tp=2),
    "windows, gathered": case(WINDOW, 2, cp=2, context="allgather"),
    "sinks, tensor": case(SINKS, tp=2),
    "clamped, tensor": case(CLAMPED, tp=2),
}
SLOW = {
    "head norms, shared heads": case(NORMED, tp=4, sequence_parallel=True),
    "head norms, ring": case(NORMED, 2, cp=2, tp=2),
    "head norms, parameter shards": case(NORMED, dp=2, zero=3, recompute=True),
    "windows, ring": case(WINDOW, 2, cp=2),
    "windows, ring without halves": case(WINDOW, 2, cp=2, zigzag=False, recompute=True),
    "windows, pipeline": case(WINDOW, tp=2, pp=2, microbatches=2),
    "windows, heads": case(WINDOW, 2, cp=2, context="ulysses"),
    "chunks, ring": case(CHUNK, 2, cp=2, tp=2),
    "chunks, gathered": case(CHUNK, 2, cp=2, context="allgather", zigzag=True),
    "sinks, ring": case(SINKS, 4, cp=2, tp=2, microbatches=2),
    "sinks, heads": case(SINKS, 4, cp=2, tp=2, context="ulysses", microbatches=2),
    "sinks, microbatches, shards": case(SINKS, 8, dp=2, zero=2, microbatches=2, bucket=300),
    "biases, expert tensor": case(BIASED, tp=2, sequence_parallel=True, ep=2, dp=2, etp=2),
    "biases, same tokens": case(BIASED, tp=2, etp=2, dp=2),
    "scaled inputs": case(SCALED, tp=2, sequence_parallel=True, ep=2),
}


@pytest.mark.parametrize("found", layouts(FAST, SLOW))
def test_a_layout_is_right(found: Case) -> None:
    assert_right(found)


# --- mistakes

Wrong = Callable[[Plan], Plan]


def _at(identity: str, change: Change, **place: int) -> Wrong:
    """The change at one place alone, everywhere if none is named."""
    return lambda plan: (
        at_place(plan, identity, place, change) if place else changed(plan, identity, change)
    )


def _of_kind(kind: str) -> Change:
    return lambda operator: replace(operator, kind=kind)


def _unclamped(operator: Operator) -> Operator:
    return replace(operator, kind="identity", attributes={})


TENSOR, GATHER = {"tp": 2}, {"cp": 2, "context": "allgather"}
EXPERTS: dict[str, Any] = {"tp": 2, "sequence_parallel": True, "etp": 2}
MISTAKES: dict[str, tuple[Case, Wrong]] = {
    "the gradient of a head norm is of one rank's heads": (
        case(NORMED, **TENSOR),
        _at("grad:layers.1.attention.q_norm.weight", dropped),
    ),
    "queries have the weight of keys": (
        case(NORMED, **TENSOR),
        _at("layers.0.attention.q_norm", reading(1, "layers.0.attention.k_norm.weight")),
    ),
    "a head norm has another eps on one rank": (
        case(NORMED, **TENSOR),
        _at("layers.1.attention.k_norm", with_attributes(eps="1/10"), tp=1),
    ),
    "a window is one wider on one rank": (
        case(WINDOW, 2, **GATHER),
        _at("visible.0.local.near", _of_kind("le"), cp=1),
    ),
    "the window belongs to the other layer": (
        case(WINDOW, 2, **GATHER),
        _at("layers.1.attention.masked", reading(0, "visible.0.local")),
    ),
    "a window is counted within the rank's part": (
        case(WINDOW, 2, **GATHER),
        _at("visible.0.local.ahead", with_attributes(offset=Table(("cp",), (3, 3)))),
    ),
    "chunks are counted within the rank's part": (
        case(CHUNK, 2, 12, **GATHER),
        _at("visible.0.local.places", with_attributes(offset=Table(("cp",), (0, 0)))),
    ),
    "a chunk has no end": (
        case(CHUNK, 2, **GATHER),
        _at("layers.0.attention.masked", reading(0, "visible.0")),
    ),
    "a chunk is forgotten on one rank": (
        case(CHUNK, 2, **GATHER),
        _at("visible.0.local.near", _of_kind("ne"), cp=1),
    ),
    "the first score is left out, not the sink": (
        case(SINKS, **TENSOR),
        _at("layers.1.attention.weights", with_attributes(start=1, stop=9)),
    ),
    "sinks of the other rank's heads": (
        case(SINKS, 2, cp=2, context="ulysses"),
        _at("layers.0.attention.sinks:part", with_attributes(position=Table(("cp",), (1, 0)))),
    ),
    "a ring forgets the sinks on one rank": (
        case(SINKS, 2, cp=2),
        _at("layers.1.attention.total:sinks", first_only, cp=1),
    ),
    "one rank does not clamp its gate": (
        case(CLAMPED, **TENSOR),
        _at("layers.0.mlp.gate.clamped", _unclamped, tp=1),
    ),
    "one rank has another limit": (
        case(CLAMPED, **TENSOR),
        _at("layers.0.mlp.up.clamped", with_attributes(max="1/2"), tp=0),
    ),
    "up is not clamped from below": (
        case(CLAMPED, **TENSOR),
        _at("layers.0.mlp.up.clamped", lambda o: replace(o, attributes={"max": "1/3"})),
    ),
    "the bias of experts is added once per rank": (
        case(BIASED, **EXPERTS),
        _at("layers.0.mlp.experts.down.bias:term", reading(1, Number(1))),
    ),
    "its gradient is of one rank's tokens": (
        case(BIASED, **EXPERTS),
        _at("grad:layers.0.mlp.experts.down.bias", dropped),
    ),
    "the gradient of the router's bias is of one rank's tokens": (
        case(BIASED, **EXPERTS),
        _at("grad:layers.0.mlp.router.bias", dropped),
    ),
}
QUICK = (
    "the gradient of a head norm is of one rank's heads",
    "a window is one wider on one rank",
    "one rank does not clamp its gate",
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else SLOWLY[place % 6 > 0])
        for place, name in enumerate(MISTAKES)
    ],
)
def test_a_near_mistake_is_a_mismatch(name: str) -> None:
    right, wrong = MISTAKES[name]
    reference, parallel = right.plans()
    plan = wrong(parallel)
    assert not judge_often(reference, plan, range(6)).same
    report = check(reference, plan, Options(seed=1, explain=False))
    assert report.verdict == "mismatch", said(report)


# --- rules


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (llama(attention=Attention(4, 2, 4, window=3, chunk=4)), "not both"),
        (llama(attention=Attention(4, 2, 4, window=-1)), r"window: must be at least 0, not -1"),
        (llama(attention=Attention(4, 2, 4, global_every=2)), "global_every: must be 0"),
        (llama(attention=Attention(4, 2, 4, window=3, global_every=1)), "not 1"),
        (llama(attention=Attention(4, 2, 4, global_rotary=False)), "global_rotary: leaves out"),
        (llama(attention=Attention(4, 2, 4, rotary=False, qk_norm="l2")), "qk_norm: l2 is a norm"),
        (llama(gate_limit="1"), "gate_limit: 1 needs the activation clamped-swiglu"),
        (llama(activation="clamped-swiglu", gate_limit="0"), "must be above 0, not 0"),
        (llama(dense_layers=1), "dense_layers: 1 layers without experts"),
        (llama(predicted_weight="1/2"), "predicted_weight: 1/2 weighs the loss"),
        (_mixture(group_score="top2"), "group_score: top2 ranks groups, and all 1"),
        (_mixture(groups=2, kept=2, group_score="top2"), "group_score: top2 ranks groups"),
        (llama(norm_eps="small"), "norm_eps: must be a rational"),
        (llama(activation="gelu", fused_gate=True), "gelu has no gate"),
        (llama(experts_every=2), "1 without experts, not 2"),
        (replace(BIASED, activation="gelu"), "experts have a gate"),
        (_mixture(bias=True, scaled_input=True), "scaled_input: an expert with biases"),
    ],
)
def test_a_combination_without_meaning_is_refused(model: Model, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        case(model).plans()


@pytest.mark.parametrize(
    "model",
    [
        llama(gate_alpha="1.702", gate_limit="7.0"),
        llama(predicted_weight="0.3"),
        llama(attention=Attention(4, 2, 4, query_scale="0.1")),
    ],
    ids=["clamped activation", "weight of predictions", "scale of queries"],
)
def test_a_default_that_is_spelled_otherwise_is_the_default(model: Model) -> None:
    assert case(model, tp=2).plans()[1] == case(llama(), tp=2).plans()[1]
