"""A program with one typical mistake is not equivalent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from oracle.judge import judge_often
from program_cases import Case, case, gpt, llama, said

from pitcheck.check.options import Options
from pitcheck.check.run import check
from pitcheck.plan.model import Group, Operator, Plan, Table, Use

Change = Callable[[Operator], Operator]


def _changed(plan: Plan, identity: str, change: Change) -> Plan:
    assert identity in {operator.id for operator in plan.operators}, identity
    return replace(plan, operators=tuple(change(o) if o.id == identity else o for o in plan.operators))


def _dropped(operator: Operator) -> Operator:
    return replace(operator, kind="identity", attributes={}, group=None)


def _over(*axes: str) -> Change:
    return lambda operator: replace(operator, group=Group(axes=axes))


def _with(**attributes: Any) -> Change:
    return lambda operator: replace(operator, attributes={**operator.attributes, **attributes})


def _first_only(operator: Operator) -> Operator:
    return replace(operator, kind="identity", inputs=operator.inputs[:1], attributes={})


def _of_microbatch_0(place: int) -> Change:
    def change(operator: Operator) -> Operator:
        operand = operator.inputs[place]
        assert isinstance(operand, str)
        return replace(operator, inputs=(*operator.inputs[:place], Use(operand, 0), *operator.inputs[place + 1 :]))

    return change


DATA = case(llama(), 8, dp=2, tp=2, microbatches=2)
SHARDS = case(llama(), 8, dp=2, microbatches=2, zero=1, bucket=300)
FSDP = case(llama(), 4, dp=2, zero=3)
PIPE = case(gpt(3), pp=2, microbatches=2)
SEQUENCE = case(llama(), tp=2, sequence_parallel=True)
RING = case(llama(), 2, cp=2)
GATHER = case(llama(), cp=2, context="allgather")
HEADS = case(llama(), 4, cp=2, context="ulysses")

MISSES: dict[str, tuple[Case, str, Change]] = {
    "a gradient is not summed over data": (DATA, "grad:layers.1.mlp.up.weight", _dropped),
    "a gradient is averaged": (DATA, "grad:layers.1.mlp.up.weight", _with(reduction="avg")),
    "a gradient is summed over the wrong group": (DATA, "grad:layers.0.attention.o.weight", _over("tp")),
    "the loss is averaged twice": (DATA, "loss", _with(reduction="avg")),
    "the count is that of one rank": (DATA, "loss.tokens.count", _dropped),
    "the sum of a row-parallel layer is missing": (DATA, "layers.0.mlp.down", _dropped),
    "the gradient of a copied input is not summed": (DATA, "grad:layers.1.mlp_norm", _dropped),
    "the rows of the vocabulary begin one later": (DATA, "embedding.rows", _with(offset=Table(("tp",), (0, 21)))),
    "a micro-batch is missing in a sum": (DATA, "accumulated:layers.0.mlp.gate.weight", _with(microbatches=(0,))),
    "the squares of other ranks are missing": (DATA, "squares.own.tp.summed", _dropped),
    "a norm's gradient misses the sequence": (SEQUENCE, "grad:layers.0.mlp_norm.weight", _dropped),
    "the losses of another micro-batch": (PIPE, "loss.tokens.counted", _of_microbatch_0(0)),
    "tied ends are not summed": (PIPE, "grad:embedding.weight", _dropped),
    "a shard of the rank before": (SHARDS, "layers.1.mlp.up.weight:own", _with(position=Table(("dp",), (1, 0)))),
    "shards are averaged": (SHARDS, "bucket.1:shard", _with(reduction="avg")),
    "scattered gradients are not added up": (FSDP, "layers.1:scattered:shard", _with(reduction="max")),
    "the mask begins elsewhere": (GATHER, "visible.0.places", _with(offset=Table(("cp",), (0, 3)))),
    "heads come back along the wrong dimension": (HEADS, "layers.0.attention.back", _with(split_axis=2, concat_axis=1)),
    "the wrong mask of a hop": (RING, "visible.0.1", lambda o: replace(o, kind="lt")),
}

FAST = ("a gradient is not summed over data", "the loss is averaged twice")


def _assert_caught(reference: Plan, wrong: Plan) -> None:
    assert not judge_often(reference, wrong, range(6)).same
    report = check(reference, wrong, Options(seed=1))
    assert report.verdict in ("mismatch", "invalid"), said(report)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in MISSES])
def test_a_near_miss_is_caught(name: str) -> None:
    right, identity, change = MISSES[name]
    reference, parallel = right.plans()
    _assert_caught(reference, _changed(parallel, identity, change))


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_a_missing_rescale_is_caught(place: int) -> None:
    reference, parallel = RING.plans()
    found = [o.id for o in parallel.operators if o.kind == "mul" and "layers.1.attention.rescale.1" in o.inputs]
    assert len(found) == 2
    _assert_caught(reference, _changed(parallel, found[place], _first_only))
