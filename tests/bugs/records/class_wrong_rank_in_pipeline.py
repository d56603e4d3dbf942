"""A stage sends to the rank in the same place of the next stage."""

from __future__ import annotations

from typing import Any

from bugs.cases import Case, llama, spread
from bugs.record import Bug, each
from msgspec.structs import replace

from pitcheck.plan.model import Operator, Plan, Table


def to_the_next_replica(case: Case) -> Plan:
    """Activations go to, and come from, the data-parallel replica beside the right one; gradients
    go where they should.
    """
    plan = case.plans()[1]
    return replace(plan, operators=tuple(_moved(plan, operator) for operator in plan.operators))


def _moved(plan: Plan, operator: Operator) -> Operator:
    if not str(operator.attributes.get("tag", "")).startswith("forward."):
        return operator
    table = operator.attributes["peer"]
    assert isinstance(table, Table)
    sizes = {axis.name: axis.size for axis in plan.mesh}
    step = sizes.get("tp", 1)
    values: list[Any] = [
        _beside(int(str(rank)), sizes.get("dp", 1), step, 1 if operator.kind == "send" else -1)
        for rank in table.values
    ]
    return replace(
        operator, attributes={**operator.attributes, "peer": Table(table.over, tuple(values))}
    )


def _beside(rank: int, replicas: int, step: int, distance: int) -> int:
    own = rank // step % replicas
    return rank + ((own + distance) % replicas - own) * step


BUG = Bug(
    where="TrainVerify, synthetic: a wrong rank in a pipeline move",
    should="a stage receives the activations of its own replica",
    was="of the replica beside",
    codes=("PIT103", "PIT106", "PIT107"),
    says=("layers.0.output",),
    shows=each(
        to_the_next_replica,
        two_replicas=spread(llama(2), 2, dp=2, pp=2),
        microbatches=spread(llama(2), 4, dp=2, pp=2, microbatches=2),
    ),
    silent=each(
        to_the_next_replica,
        one_replica=spread(llama(2), 2, pp=2, microbatches=2),
        one_stage=spread(llama(2), 2, dp=2),
    ),
)
