"""Multi-token prediction on a rank: every kind of parallelism computes what the single device
computes, and one typical mistake in it is caught.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from programs.near_misses import Change, assert_caught, changed, dropped, reading
from programs.program_cases import SLOWLY, Case, assert_right, case, gpt, layouts, llama

from pitcheck.errors import PlanError
from pitcheck.models.config import Model
from pitcheck.models.presets import preset
from pitcheck.plan.model import Group, Number, Operator, Plan


def predicting(layers: int = 2, **changes: Any) -> Model:
    """One more prediction per token from a module with a dense layer."""
    return replace(
        preset("deepseek-v3-671b-tiny"), layers=layers, experts=None, dense_layers=0, **changes
    )


def mixing(layers: int = 2) -> Model:
    """With experts, in the module, too."""
    return replace(preset("deepseek-v3-671b-tiny"), layers=layers, dense_layers=1)


def tied(layers: int = 2) -> Model:
    """With one weight as embedding and output projection, which the last stage uses three times."""
    return replace(gpt(layers), predicted=1)


FAST = {
    "one rank": case(predicting()),
    "tensor": case(predicting(), tp=2, dp=2),
    "pipeline": case(predicting(), pp=2, microbatches=2),
}

SLOW = {
    "data, microbatches": case(predicting(), 8, dp=2, microbatches=2),
    "heads, not latent": case(llama(predicted=1), 8, dp=2, tp=4, microbatches=2),
    "sequence": case(predicting(), tp=2, sequence_parallel=True),
    "sequence, pipeline": case(
        predicting(3), 8, pp=2, tp=2, dp=2, microbatches=2, sequence_parallel=True
    ),
    "tied": case(tied(), tp=2),
    "tied ends": case(tied(), pp=2, tp=2, microbatches=2),
    "tied ends, gradient shards": case(tied(), pp=2, dp=2, zero=2, microbatches=2, bucket=300),
    "ends of three stages": case(predicting(3), 8, pp=3, dp=2, microbatches=4, schedule="gpipe"),
    "interleaved": case(
        predicting(4), 8, pp=2, virtual=2, microbatches=4, schedule="interleaved", tp=2
    ),
    "zero bubbles": case(predicting(), pp=2, microbatches=2, schedule="zero-bubble", tp=2),
    "computed again": case(
        predicting(), pp=2, tp=2, recompute=True, sequence_parallel=True, microbatches=2
    ),
    "optimizer shards": case(predicting(), dp=2, zero=1, pp=2, microbatches=2, bucket=300),
    "gradient shards": case(predicting(), dp=2, zero=2, pp=2, tp=2, microbatches=2, bucket=300),
    "parameter shards": case(predicting(), dp=2, zero=3, tp=2, sequence_parallel=True),
    "parameter shards, ends": case(
        predicting(), dp=2, zero=3, pp=2, microbatches=2, recompute=True
    ),
    "gather": case(predicting(), cp=2, tp=2, context="allgather", sequence_parallel=True),
    "heads": case(predicting(), cp=2, pp=2, context="ulysses", microbatches=2),
    "ring": case(predicting(), 2, cp=2, tp=2),
    "experts": case(mixing(), dp=2, ep=2),
    "experts, ends": case(
        mixing(), 8, pp=2, tp=2, dp=2, ep=4, sequence_parallel=True, microbatches=2
    ),
    "ring, ends": case(predicting(), 4, 16, cp=2, pp=2, microbatches=2, dp=2, zero=1, bucket=300),
}


@pytest.mark.parametrize("found", layouts(FAST, SLOW))
def test_a_layout_is_right(found: Case) -> None:
    assert_right(found)


# --- near misses

TENSOR = case(predicting(), tp=2)
PIPE = case(predicting(), pp=2, microbatches=2)


def _summed_over_tensor(operator: Operator) -> Operator:
    """The sum over ranks that all have the same."""
    return replace(operator, kind="all_reduce", group=Group(axes=("tp",)))


def _reduced(operator: Operator) -> Operator:
    """The gradients of what is the same on all ranks are summed before each takes its part."""
    return replace(
        operator,
        kind="reduce_scatter",
        attributes={"axis": operator.attributes["axis"]},
        group=Group(axes=("tp",)),
    )


def _swapped(operator: Operator) -> Operator:
    return replace(operator, inputs=operator.inputs[::-1])


def _kind(plan: Plan, kind: str, operand: str) -> str:
    """The operator of a kind that reads a tensor."""
    found = [
        operator.id
        for operator in plan.operators
        if operator.kind == kind and operand in operator.inputs
    ]
    assert len(found) == 1
    return found[0]


MISSES: dict[str, tuple[Case, str, Change]] = {
    "labels are those of the next token": (
        PIPE,
        "unsqueeze predicted.labels",
        reading(0, "labels"),
    ),
    "tokens are not those that follow": (PIPE, "embedding predicted.tokens", reading(0, "tokens")),
    "the mask is the model's": (PIPE, "loss.predicted.tokens.mask", reading(0, "mask")),
    "the count is the model's": (
        PIPE,
        "loss.predicted.tokens.count:own",
        reading(0, "loss.tokens.mask"),
    ),
    "one end's gradient of the embedding is missing": (PIPE, "grad:embedding.weight", dropped),
    "the loss counts twice": (TENSOR, "loss.predicted", _summed_over_tensor),
    "the gradient counts twice": (PIPE, "grad:predicted.loss.part", reading(1, Number("3/5"))),
    "the loss has no weight in the backward pass": (
        PIPE,
        "grad:predicted.loss.part",
        reading(1, Number(1)),
    ),
    "the gradient of the joined map is summed": (TENSOR, "grad:predicted.join", _reduced),
    "the hidden state is normed before": (PIPE, "predicted.hidden_norm", reading(0, "norm")),
    "hidden state and token change places": (PIPE, "cat predicted.token_norm", _swapped),
    "the module's norm is the model's": (PIPE, "predicted.norm", reading(1, "norm.weight")),
}

QUICK = ("labels are those of the next token", "one end's gradient of the embedding is missing")


@pytest.mark.parametrize(
    "name",
    [
        QUICK[0],
        pytest.param(QUICK[1], marks=pytest.mark.slow),
        *(
            pytest.param(name, marks=SLOWLY[place % 8 > 0])
            for place, name in enumerate(MISSES)
            if name not in QUICK
        ),
    ],
)
def test_a_near_miss_is_caught(name: str) -> None:
    right, place, change = MISSES[name]
    reference, parallel = right.plans()
    identity = _kind(parallel, *place.split()) if " " in place else place
    assert_caught(reference, changed(parallel, identity, change))


def test_a_map_that_cannot_be_cut_is_refused() -> None:
    model = replace(predicting(), hidden=18, attention=replace(predicting().attention, heads=4))
    with pytest.raises(
        PlanError,
        match=r"layout.tp: the map of 18 columns before the predicting layer cannot be cut evenly "
        r"over tp 4",
    ):
        case(model, tp=4).plans()
    case(replace(model, predicted=0), tp=4).plans()
