"""The kinds of mutation, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pitcheck.mutation import attributes, collectives, wiring
from pitcheck.mutation import whole_plan as whole
from pitcheck.mutation.edits import Edit
from pitcheck.mutation.facts import Facts
from pitcheck.plan.model import Operator, Plan

OF_RECORDS: Mapping[str, Callable[[Facts, Operator], Iterator[tuple[str, Edit]]]] = {
    "drop-reduction": collectives.dropped_reductions,
    "drop-exchange": collectives.dropped_exchanges,
    "repeat-reduction": collectives.repeated_reductions,
    "insert-reduction": collectives.inserted_reductions,
    "regroup": collectives.regrouped,
    "members": collectives.members_moved,
    "reduction": collectives.other_reductions,
    "average": collectives.averages,
    "slice": attributes.slices,
    "offset": attributes.offsets,
    "random": attributes.random_state,
    "axis": attributes.axes,
    "constant": attributes.constants,
    "attribute": attributes.other_attributes,
    "mask": attributes.masks,
    "function": attributes.functions,
    "factor": wiring.factors,
    "operand": wiring.operands,
    "exchange": wiring.exchanged_operands,
    "stale": wiring.stale,
    "microbatch": wiring.microbatches,
    "term": wiring.terms,
    "skip": wiring.skipped,
}
"""Kinds that change one record, at all its coordinates or at some."""

OF_PLANS: Mapping[str, Callable[[Facts], Iterator[tuple[str, str, Callable[[], Plan]]]]] = {
    "peer": whole.peers,
    "order": whole.orders,
    "collective-order": whole.collective_orders,
    "given": whole.given,
}
"""Kinds that change the plan as a whole."""

KINDS = (*OF_RECORDS, *OF_PLANS)
