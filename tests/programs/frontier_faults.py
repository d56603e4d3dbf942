"""The eight mistakes that must be caught at their place, put into plans of Llama-3 and DeepSeek-V3
at any scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from programs.faults import (
    Change,
    Place,
    at_place,
    dropped,
    first_operand,
    of_microbatch,
    over_ranks,
    with_attributes,
)

from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import MICROBATCH_AXIS, Operator, Plan, Table


@dataclass(frozen=True)
class Fault:
    """A change of operator ``identity`` at ``place``, and the codes that name it rightly."""

    identity: str
    place: Place
    change: Callable[[Plan], Change]
    codes: tuple[str, ...]

    def put(self, plan: Plan) -> tuple[Plan, str]:
        """The plan with the mistake, and the operator that was changed."""
        identity = _rescaled(plan, self.identity) if ".rescale." in self.identity else self.identity
        return at_place(plan, identity, self.place, self.change(plan)), identity

    def ranks(self, plan: Plan, identity: str) -> set[int]:
        """The ranks at which the mistake is."""
        return set(_members(plan, identity, self.place))


def dense(
    layer: int, last: Mapping[str, int], microbatch: int, loss: str = "loss"
) -> dict[str, Fault]:
    """Six mistakes that every plan with tensor and sequence parallelism may have, in a layer and a
    micro-batch, of the replica at ``last``.

    ``loss``: the operator that adds up the ranks' losses.
    """
    now, rank = {MICROBATCH_AXIS: microbatch}, {**last, "tp": 1}
    name = f"layers.{layer}"
    return {
        "dropped all-reduce": Fault(
            f"grad:{name}.attention_norm.weight", last, _plainly(dropped), ("PIT104",)
        ),
        "wrong group": Fault(
            f"grad:{name}.attention.o.weight",
            {"tp": 1},
            _half_of_group(f"grad:{name}.attention.o.weight", {"tp": 1}),
            ("PIT106",),
        ),
        "shard off by one": Fault("embedding.rows.begin", rank, _plainly(_one_later), ("PIT107",)),
        "wrong micro-batch": Fault(
            "loss.tokens.counted",
            {**rank, **now},
            _plainly(of_microbatch(1, microbatch - 1)),
            ("PIT108",),
        ),
        "stale buffer": Fault(
            f"{name}.attention.mixed",
            {**rank, **now},
            _plainly(of_microbatch(0, microbatch - 1)),
            ("PIT108",),
        ),
        "loss averaged twice": Fault(
            loss, {"tp": 1}, _plainly(with_attributes(reduction="avg")), ("PIT101", "PIT111")
        ),
    }


def wrong_expert(layer: int, place: Place, microbatch: int) -> Fault:
    """Give one group of experts the tokens of the next group in a micro-batch.

    The members of the group stand in another order.
    """
    identity = f"layers.{layer}.mlp.packed:there"
    return Fault(
        identity,
        {**place, MICROBATCH_AXIS: microbatch},
        _members_later(identity, place),
        ("PIT106", "PIT107"),
    )


def not_rescaled(layer: int, place: Place) -> Fault:
    """The sum of the hops before is not rescaled to the new maximum."""
    return Fault(f"layers.{layer}.attention.rescale.1", place, _plainly(first_operand), ("PIT102",))


def _plainly(change: Change) -> Callable[[Plan], Change]:
    return lambda _: change


def _members(plan: Plan, identity: str, place: Place) -> list[int]:
    """The ranks that run an operator at a place."""
    operator = next(o for o in plan.operators if o.id == identity)
    coordinates = Coordinates.of(plan)
    mask = coordinates.mask(operator.where) & coordinates.mask(
        ({axis: (at,) for axis, at in place.items()},) if place else ()
    )
    return [rank for rank in range(coordinates.ranks) if mask[rank].any()]


def _half_of_group(identity: str, place: Place) -> Callable[[Plan], Change]:
    def change(plan: Plan) -> Change:
        ranks = _members(plan, identity, place)
        return over_ranks((ranks[: len(ranks) // 2], ranks[len(ranks) // 2 :]))

    return change


def _members_later(identity: str, place: Place) -> Callable[[Plan], Change]:
    def change(plan: Plan) -> Change:
        ranks = _members(plan, identity, place)
        return over_ranks(([*ranks[1:], ranks[0]],))

    return change


def _one_later(operator: Operator) -> Operator:
    """Every shard but the first begins one later."""
    table = operator.attributes["offset"]
    assert isinstance(table, Table)
    first, *others = (int(str(value)) for value in table.values)
    return with_attributes(offset=Table(table.over, (first, *(place + 1 for place in others))))(
        operator
    )


def _rescaled(plan: Plan, factor: str) -> str:
    """The first product with a factor."""
    return next(o.id for o in plan.operators if o.kind == "mul" and factor in o.inputs)
