"""A program with one typical mistake is not equivalent."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from programs.near_misses import (
    Change,
    assert_caught,
    changed,
    dropped,
    first_only,
    of_microbatch_0,
    over,
    with_attributes,
)
from programs.program_cases import SLOWLY, Case, case, gpt, llama

from pitcheck.plan.model import Table

DATA = case(llama(), 8, dp=2, tp=2, microbatches=2)
SHARDS = case(llama(), 8, dp=2, microbatches=2, zero=1, bucket=300)
FSDP = case(llama(), 4, dp=2, zero=3)
PIPE = case(gpt(3), pp=2, microbatches=2)
SEQUENCE = case(llama(), tp=2, sequence_parallel=True)
RING = case(llama(), 2, cp=2)
GATHER = case(llama(), cp=2, context="allgather")
HEADS = case(llama(), 4, cp=2, context="ulysses")

MISSES: dict[str, tuple[Case, str, Change]] = {
    "a gradient is not summed over data": (DATA, "grad:layers.1.mlp.up.weight", dropped),
    "a gradient is averaged": (
        DATA,
        "grad:layers.1.mlp.up.weight",
        with_attributes(reduction="avg"),
    ),
    "a gradient is summed over the wrong group": (
        DATA,
        "grad:layers.0.attention.o.weight",
        over("tp"),
    ),
    "the loss is averaged twice": (DATA, "loss", with_attributes(reduction="avg")),
    "the count is that of one rank": (DATA, "loss.tokens.count", dropped),
    "the sum of a row-parallel layer is missing": (DATA, "layers.0.mlp.down", dropped),
    "the gradient of a copied input is not summed": (DATA, "grad:layers.1.mlp_norm", dropped),
    "the rows of the vocabulary begin one later": (
        DATA,
        "embedding.rows.begin",
        with_attributes(offset=Table(("tp",), (0, 21))),
    ),
    "a micro-batch is missing in a sum": (
        DATA,
        "accumulated:layers.0.mlp.gate.weight",
        with_attributes(microbatches=(0,)),
    ),
    "the squares of other ranks are missing": (DATA, "squares.own.tp.summed", dropped),
    "a norm's gradient misses the sequence": (SEQUENCE, "grad:layers.0.mlp_norm.weight", dropped),
    "the losses of another micro-batch": (PIPE, "loss.tokens.counted", of_microbatch_0(0)),
    "tied ends are not summed": (PIPE, "grad:embedding.weight", dropped),
    "a shard of the rank before": (
        SHARDS,
        "layers.1.mlp.up.weight:own",
        with_attributes(position=Table(("dp",), (1, 0))),
    ),
    "shards are averaged": (SHARDS, "bucket.1:shard", with_attributes(reduction="avg")),
    "scattered gradients are not added up": (
        FSDP,
        "layers.1:scattered:shard",
        with_attributes(reduction="max"),
    ),
    "the mask begins elsewhere": (
        GATHER,
        "visible.0.places",
        with_attributes(offset=Table(("cp",), (0, 3))),
    ),
    "heads come back along the wrong dimension": (
        HEADS,
        "layers.0.attention.back",
        with_attributes(split_axis=2, concat_axis=1),
    ),
    "the wrong mask of a hop": (RING, "visible.0.1", lambda o: replace(o, kind="lt")),
}

FAST = ("a gradient is not summed over data", "the loss is averaged twice")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FAST else SLOWLY[place % 8 > 0])
        for place, name in enumerate(MISSES)
    ],
)
def test_a_near_miss_is_caught(name: str) -> None:
    right, identity, change = MISSES[name]
    reference, parallel = right.plans()
    assert_caught(reference, changed(parallel, identity, change))


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_a_missing_rescale_is_caught(place: int) -> None:
    reference, parallel = RING.plans()
    found = [
        o.id
        for o in parallel.operators
        if o.kind == "mul" and "layers.1.attention.rescale.1" in o.inputs
    ]
    assert len(found) == 2
    assert_caught(reference, changed(parallel, found[place], first_only))
