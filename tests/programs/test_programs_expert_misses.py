"""A mixture of experts with one typical mistake is not equivalent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from programs.program_cases import Case, said
from programs.test_programs_experts import SEQUENCE, deepseek, mixtral, spread

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge_often
from pitcheck.plan.model import Group, Operator, Plan

Change = Callable[[Operator], Operator]


def _dropped(operator: Operator) -> Operator:
    return replace(operator, kind="identity", attributes={}, group=None)


def _over(*axes: str) -> Change:
    return lambda operator: replace(operator, group=Group(axes=axes))


def _with(**attributes: Any) -> Change:
    return lambda operator: replace(operator, attributes={**operator.attributes, **attributes})


def _reading(*inputs: str) -> Change:
    return lambda operator: replace(operator, inputs=inputs)


def _first_only(operator: Operator) -> Operator:
    return replace(operator, kind="identity", inputs=operator.inputs[:1])


PAIR = spread(mixtral(), dp=2, ep=2)
CUT = spread(mixtral(), dp=2, ep=2, etp=2, **SEQUENCE)
DEEP = spread(deepseek(), 8, dp=4, ep=4, **SEQUENCE)
SHARDS = spread(mixtral(), 8, dp=4, ep=2, zero=1)
MLP = "layers.0.mlp"
DEEPER = "layers.1.mlp"

MISSES: dict[str, tuple[Case, str, Change]] = {
    "the worst experts": (PAIR, f"{MLP}.router.choice", _with(largest=False)),
    "the choice without its bias": (
        DEEP,
        f"{DEEPER}.router.limited",
        lambda o: replace(o, inputs=(f"{DEEPER}.router.scores", *o.inputs[1:])),
    ),
    "weights of the steered scores": (
        DEEP,
        f"{DEEPER}.router.best_scores",
        _reading(f"{DEEPER}.router.steered", f"{DEEPER}.router.choice"),
    ),
    "tokens are not sent": (PAIR, f"{MLP}.packed:there", _dropped),
    "tokens go to others than their marks": (
        DEEP,
        f"{DEEPER}.packed:there",
        lambda o: replace(o, group=Group(ranks=((0, 2, 1, 3), (4, 6, 5, 7)))),
    ),
    "marks are not sent": (PAIR, f"{MLP}.marks:there", _dropped),
    "results do not come back": (PAIR, f"{MLP}.experts.weighted:back", _dropped),
    "results come back to others": (
        DEEP,
        f"{DEEPER}.experts.weighted:back",
        lambda o: replace(o, group=Group(ranks=((0, 2, 1, 3), (4, 6, 5, 7)))),
    ),
    "gradients of results are not sent": (PAIR, f"grad:{MLP}.experts.weighted", _dropped),
    "gradients of tokens do not come back": (PAIR, f"grad:{MLP}.packed", _dropped),
    "gradients of weights do not come back": (PAIR, f"grad:{MLP}.shares", _dropped),
    "results without their weights": (
        PAIR,
        f"{MLP}.experts.weighted",
        lambda o: replace(o, inputs=(f"{MLP}.experts.down",)),
    ),
    "every token for every expert": (PAIR, f"{MLP}.experts.tokens", _first_only),
    "an expert's gradient over all data": (SHARDS, "bucket.1:shard", _over("dp", "dp_inner")),
    "an expert's gradient of one rank": (DEEP, f"grad:{DEEPER}.experts.down.weight", _dropped),
    "an expert's gradient over the wrong half": (
        DEEP,
        f"grad:{DEEPER}.experts.gate.weight",
        _over("dp_inner"),
    ),
    "an expert's gradient averaged": (
        DEEP,
        f"grad:{DEEPER}.experts.up.weight",
        _with(reduction="avg"),
    ),
    "the router's gradient of one part of the sequence": (
        DEEP,
        f"grad:{DEEPER}.router.weight",
        _dropped,
    ),
    "squares of experts count once per rank": (
        DEEP,
        "squares.own.dp_inner.tp.summed",
        _over("dp", "dp_inner", "tp"),
    ),
    "squares of other ranks' experts are missing": (
        DEEP,
        "squares.own.dp_inner.tp.summed",
        _dropped,
    ),
    "terms of cut experts are not added up": (
        CUT,
        f"{MLP}.experts.weighted:own",
        _with(reduction="max"),
    ),
    "shares of tokens of one part of the sequence": (DEEP, f"{DEEPER}.router.share", _dropped),
    "shares of tokens over all data": (
        DEEP,
        f"{DEEPER}.router.share",
        _over("dp", "dp_inner", "tp"),
    ),
    "the balance loss of one part of the sequence": (
        DEEP,
        f"{DEEPER}.router.auxiliary",
        _over("dp", "dp_inner"),
    ),
    "the z loss averaged": (PAIR, f"{MLP}.router.z", _with(reduction="avg")),
    "the load of one rank": (DEEP, f"{DEEPER}.router.load", _dropped),
    "the load without the sequence": (DEEP, f"{DEEPER}.router.load", _over("dp", "dp_inner")),
}
BY_DAY = (
    "tokens are not sent",
    "an expert's gradient of one rank",
    "an expert's gradient over all data",
)
"""The slow cases that CI has minutes for; a nightly job tries all."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow, *([] if name in BY_DAY else [pytest.mark.nightly])]


def _changed(plan: Plan, identity: str, change: Change) -> Plan:
    """The plan with the operator of this name, or that writes the tensor of this name, changed."""
    found = [o for o in plan.operators if o.id == identity or identity in o.outputs]
    assert found, identity
    return replace(plan, operators=tuple(change(o) if o is found[0] else o for o in plan.operators))


def _assert_caught(reference: Plan, wrong: Plan) -> None:
    assert not judge_often(reference, wrong, range(6)).same
    report = check(reference, wrong, Options(seed=1, explain=False))
    assert report.verdict in ("mismatch", "invalid"), said(report)


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in MISSES])
def test_a_near_miss_is_caught(name: str) -> None:
    right, identity, change = MISSES[name]
    reference, parallel = right.plans()
    _assert_caught(reference, _changed(parallel, identity, change))


@pytest.mark.slow
def test_weights_applied_twice_are_caught() -> None:
    reference, parallel = PAIR.plans()
    weighted = next(
        o for o in parallel.operators if o.kind == "mul" and o.inputs[0] == f"{MLP}.experts.down"
    )
    again = replace(
        weighted, id="again", inputs=(weighted.outputs[0], weighted.inputs[1]), outputs=("again",)
    )
    tensors = {tensor.name: tensor for tensor in parallel.tensors}
    added = replace(tensors[weighted.outputs[0]], name="again")
    operators = [
        replace(o, inputs=("again",)) if o.id == f"{MLP}.experts.weighted" else o
        for o in parallel.operators
    ]
    operators.insert(next(n for n, o in enumerate(operators) if o.id == weighted.id) + 1, again)
    blocks = {
        name: tuple(x for i in ids for x in ((i, "again") if i == weighted.id else (i,)))
        for name, ids in parallel.blocks.items()
    }
    _assert_caught(
        reference,
        replace(
            parallel, tensors=(*parallel.tensors, added), operators=tuple(operators), blocks=blocks
        ),
    )


@pytest.mark.slow
def test_the_number_of_tokens_of_another_rank_is_caught() -> None:
    """The numbers that a rank sends taken for those that it gets."""
    reference, parallel = PAIR.plans()
    counts = next(o for o in parallel.operators if o.id == f"{MLP}.counts").outputs[0]
    turned = next(
        o for o in parallel.operators if o.kind == "transpose" and o.inputs == (counts,)
    ).outputs[0]
    _assert_caught(reference, _changed(parallel, f"{turned}:there", _dropped))
