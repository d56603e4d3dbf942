"""The routing of a stage: from which rank tokens went to which, and to which expert.

A stage in which tokens choose experts says nothing of a way that no token took, or of experts that
are never empty or flooded. So the ways are counted in all draws together, over residues and on real
numbers. Whatever chooses places by the order of numbers is a *router*; its rows are the ranks whose
tokens choose, and its places the experts. An all-to-all that hands on what depends on a router is a
*move*; what its parts hold besides zeros are the tokens that it carries.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> routing_of(shape_reduced(Problem.of(plan, plan).whole_stage())) is None
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pitcheck.graph.graph import Graph, Node, sources_of
from pitcheck.ops.registry import BACKWARD, kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.prove.routing_counts import Bools, Coverage, Move, Router
from pitcheck.stage.batch import Argument, Batch, values_of
from pitcheck.stage.evaluate import Evaluated
from pitcheck.stage.pruned_batch import begins
from pitcheck.stage.reductions.part_effects import exchanges_parts
from pitcheck.stage.shaped_stage import ShapedStage

CHOOSING = kinds_with(Trait.PICKS_PLACES)
"""The operators that choose places by the order of numbers; their last output says which."""
CONTRACTIONS = kinds_with(Trait.CONTRACTS)
"""The operators behind which places are no longer those of experts."""
CUT_OUT = "slice"
"""The step that is left of an all-to-all whose parts are rows."""
LEAST_TOKENS = 8
"""The tokens that each rank must have routed."""
LEAST_CARRIED = 2
"""The tokens that must have gone from each sender to each receiver. With one alone, its place among
others is not tried.
"""
LEAST_CHOSEN = 1
"""The tokens of each rank that must have chosen each expert."""


class Routing:
    """The routers and moves of a stage, and what they did so far."""

    def __init__(
        self, shaped: ShapedStage, routers: Sequence[Router], moves: Sequence[Move]
    ) -> None:
        self._batch = shaped.stage.parallel
        self._target = shaped.stage.targets[0].name
        self._routers = routers
        self._moves = moves
        self._draws = 0

    @property
    def values(self) -> frozenset[int]:
        """The values of the parallel side at which tokens are counted."""
        routers = (v for router in self._routers for v in (router.output, router.operand.value))
        return frozenset((*routers, *(move.value for move in self._moves)))

    def take(self, evaluated: Evaluated, good: Any) -> None:
        """Count the ``good`` draws of an evaluation, shape (draws,)."""
        chosen: Bools = np.asarray(good)
        for router in self._routers:
            router.take(evaluated, chosen)
        for move in self._moves:
            move.take(evaluated, chosen)
        self._draws += int(chosen.sum())

    def places(self) -> int:
        """Return the number of experts of the router that most needs a biased draw; 0 before any.

        That is the largest router of which no draw has left some experts empty and flooded another.
        """
        open_ones = [r for r in self._experts if r.loads and r.bias() is None]
        return max((router.chosen.shape[1] for router in open_ones or self._experts), default=0)

    @property
    def biased(self) -> bool:
        """Return True if a draw left experts empty and flooded another, for every router.

        Routers of which no draw can do that do not count.
        """
        return (bool(self._moves) and all(move.even for move in self._moves)) or all(
            router.bias() is not None for router in self._experts
        )

    def lacking(self) -> str:
        """Return a way that too few tokens took, in a sentence, or ""."""
        for said in (*map(self._not_carried, self._moves), *map(self._not_chosen, self._drawn)):
            if said:
                return f"the routing of the stage of {self._target!r} was not tried: {said}"
        if self.biased:
            return ""
        return (
            f"the routing of the stage of {self._target!r} was not tried: no draw left an "
            f"expert without tokens and gave another one far more than its share"
        )

    def coverage(self) -> Coverage | None:
        """Return what was counted so far; None if no draw decides anything."""
        routers = self._experts
        if not routers:
            return None
        return Coverage(
            self._draws,
            min(int(router.tokens.min()) for router in self._drawn),
            max((int(move.sent.sum()) for move in self._moves), default=0),
            min((int(move.carried[move.sent].min()) for move in self._moves), default=0),
            sum(int(router.eligible.sum()) for router in routers),
            min(
                int(router.chosen[router.eligible].min(initial=router.tokens.max()))
                for router in self._drawn
            ),
            *min(
                (found for router in routers if (found := router.bias()) and found[0]),
                key=lambda found: found[1],
                default=(0, 0.0),
            ),
        )

    @property
    def _drawn(self) -> list[Router]:
        """Return the routers that some draw decides."""
        return [router for router in self._routers if router.loads]

    @property
    def _experts(self) -> list[Router]:
        """Return those of them whose places are experts."""
        return [router for router in self._drawn if not router.narrows]

    def _not_carried(self, move: Move) -> str:
        """Return the pair that carried least in words, if that is too little, else ""."""
        carried = np.where(move.sent, move.carried, LEAST_CARRIED)
        sender, receiver = np.unravel_index(int(carried.argmin()), carried.shape)
        least = int(carried[sender, receiver])
        if least >= LEAST_CARRIED:
            return ""
        node = self._batch.graph.nodes[move.node]
        pair = _pair(self._batch, node, move.value, int(sender), int(receiver))
        return (
            f"{pair} went {_tokens(least)} in {self._draws} draws, and {LEAST_CARRIED} are "
            f"needed (operator {node.operator!r})"
        )

    def _not_chosen(self, router: Router) -> str:
        """Return the row and place that were chosen least in words, if that is too seldom, else "".

        A row with too few tokens comes first.
        """
        name, row = self._batch.graph.nodes[router.step.node].operator, int(router.tokens.argmin())
        if router.tokens[row] < LEAST_TOKENS:
            where = _place(self._batch, router.output, router.begin + row)
            return (
                f"{where} routed {_tokens(int(router.tokens[row]))} in {self._draws} draws, "
                f"and {LEAST_TOKENS} are needed (operator {name!r})"
            )
        chosen = np.where(router.eligible, router.chosen, LEAST_CHOSEN)
        row, place = (int(i) for i in np.unravel_index(int(chosen.argmin()), chosen.shape))
        least = int(chosen[row, place])
        if least >= LEAST_CHOSEN:
            return ""
        where = _place(self._batch, router.output, router.begin + row)
        return (
            f"{_tokens(least)} of {where} chose place {place} in {self._draws} draws, and "
            f"{LEAST_CHOSEN} is needed (operator {name!r})"
        )


def routing_of(shaped: ShapedStage) -> Routing | None:
    """Return the routing of the parallel side of a stage.

    Return None if nothing there is chosen by an order and used.
    """
    batch = shaped.stage.parallel
    choosing = [
        number
        for number, step in enumerate(batch.steps)
        if step.kind in CHOOSING and step.outputs[-1] is not None
    ]
    used = (
        {
            argument.value
            for step in batch.steps
            if not step.kind.endswith(BACKWARD)
            for argument in step.arguments
        }
        if choosing
        else set()
    )
    first = begins(batch) if choosing else []
    routers = [
        _router(batch, number, first[number])
        for number in choosing
        if batch.steps[number].outputs[-1] in used
    ]
    found = [router for router in routers if router is not None]
    return (
        Routing(shaped, found, _moves(batch, {router.output for router in found}))
        if found
        else None
    )


def _router(batch: Batch, number: int, first: dict[int, int]) -> Router | None:
    """Return the router at step ``number``; None if it orders integers, or a whole tensor."""
    step = batch.steps[number]
    output, operand = step.outputs[-1], step.inputs[0]
    if (
        output is None
        or not isinstance(operand, Argument)
        or operand.rows.ndim != 1
        or batch.graph.values[operand.value].kind != "field"
    ):
        return None
    axis = step.attributes.get("axis", -1 if "k" in step.attributes else None)
    if axis is None:
        return None
    others = {
        a.value
        for other in batch.steps
        if other.kind in CHOOSING and other is not step
        for a in other.arguments
    }
    narrows = bool(others) and not others.isdisjoint(_reached(batch, [output], CONTRACTIONS))
    return Router(step, output, first[output], int(axis) % len(batch.shape(operand.value)), narrows)


def _reached(batch: Batch, values: Iterable[int], closed: frozenset[str] = frozenset()) -> set[int]:
    """Return some values and all whose elements depend on theirs.

    Steps of the kinds ``closed`` are not followed.
    """
    found = set(values)
    for step in batch.steps:
        if step.kind not in closed and any(
            argument.value in found for argument in step.looked_into
        ):
            found.update(output for output in step.outputs if output is not None)
    return found


def _moves(batch: Batch, chosen: set[int]) -> list[Move]:
    """Return the all-to-alls that hand on numbers which depend on what was chosen."""
    reached, found = _reached(batch, chosen), dict[tuple[int, int, int], Move]()
    for step in batch.steps:
        node = batch.graph.nodes[step.node]
        if not exchanges_parts(node.kind) or step.kind not in (node.kind, CUT_OUT):
            continue
        for operand in values_of(step.inputs):
            if operand.value in reached and batch.graph.values[operand.value].kind == "field":
                dim, count = (
                    int(node.attributes["split_axis"]) % len(batch.shape(operand.value)),
                    _members(node),
                )
                empty = np.zeros((batch.count(operand.value), count), dtype=np.int64)
                move = found.setdefault(
                    (operand.value, dim, count),
                    Move(step.node, operand.value, dim, empty > 0, empty),
                )
                move.sent[operand.rows.reshape(-1), int(node.attributes["position"])] = True
    return list(found.values())


def _members(node: Node) -> int:
    """Return how many ranks take part in a collective."""
    return sum(source.members or 1 for operand in node.inputs for source in sources_of(operand))


def _pair(batch: Batch, node: Node, value: int, row: int, position: int) -> str:
    """Return the sender of a row and the receiver of its part at ``position``, in words."""
    senders = set(_codes(batch, value, row))
    for other in batch.graph.nodes:
        if other.operator != node.operator or other.attributes.get("position") != position:
            continue
        codes = np.flatnonzero(other.mask)
        for source in (source for operand in other.inputs for source in sources_of(operand)):
            read = source.at(codes).reshape(len(codes), -1)
            for code, met in zip(codes.tolist(), read.tolist(), strict=True):
                both = senders.intersection(met)
                if both:
                    return f"from {_named(batch.graph, min(both))} to {_named(batch.graph, code)}"
    return f"from {_place(batch, value, row)} to member {position} of its group"


def _codes(batch: Batch, value: int, row: int) -> list[int]:
    """Return the coordinate codes at which a value has a row."""
    return np.flatnonzero(batch.rows[value] == row).tolist() if value in batch.grids else []


def _place(batch: Batch, value: int, row: int) -> str:
    """Return the coordinate at which a value has a row, in words."""
    codes = _codes(batch, value, row)
    return _named(batch.graph, codes[0]) if codes else f"row {row}"


def _named(graph: Graph, code: int) -> str:
    """Return a coordinate in words."""
    rank, microbatch = graph.place(code)
    return (
        f"rank {rank}"
        if graph.coordinates.microbatches == 1
        else f"rank {rank}, micro-batch {microbatch}"
    )


def _tokens(count: int) -> str:
    """Return a number of tokens in words."""
    return f"{count} token" if count == 1 else f"{count} tokens"
