"""Every kind of mutation, in both directions: a mutant that changes an output is caught, one that
changes nothing is proven.
"""

from __future__ import annotations

import pytest
from mutation.judged import judged, wrong
from support.by_day import some_at_once
from zoo.pairs import pair

from pitcheck.mutation.causes import RIGHT_CODES
from pitcheck.mutation.kinds import KINDS

CHANGING = {
    "drop-reduction": "masked_mean",
    "drop-exchange": "causal_context_parallel",
    "repeat-reduction": "zero_sgd",
    "insert-reduction": "replicated",
    "regroup": "three_dimensional",
    "members": "experts_all_to_all",
    "reduction": "other_orders",
    "average": "masked_mean",
    "slice": "zero_sgd",
    "offset": "uneven_rows",
    "random": "dropout_over_shards",
    "axis": "ulysses",
    "constant": "rms_norm_hidden",
    "attribute": "rotary_half",
    "mask": "sliding_windows",
    "function": "literal_sizes",
    "factor": "replicated",
    "operand": "microbatches",
    "exchange": "zero_sgd",
    "stale": "zero_adamw",
    "microbatch": "microbatches_by_hand",
    "term": "partial_inputs",
    "skip": "different_ranks",
    "peer": "three_dimensional",
    "order": "pipeline",
    "collective-order": "masked_mean",
    "given": "reversed_shards",
}
"""A plan in which mutants of that kind change an output."""
UNCHANGING = {
    "drop-reduction": "groups_of_one",
    "drop-exchange": "groups_of_one",
    "repeat-reduction": "groups_of_one",
    "insert-reduction": "replicated",
    "regroup": "groups_of_one",
    "reduction": "groups_of_one",
    "average": "groups_of_one",
    "slice": "zero_sgd",
    "offset": "uneven_rows",
    "mask": "sliding_windows",
    "factor": "ring_attention_2",
    "microbatch": "microbatches_by_hand",
    "order": "pipeline",
    "collective-order": "tensor_and_data_parallel",
}
"""A plan in which some of that kind change nothing."""
COUNT = 8


@pytest.mark.parametrize("kind", some_at_once(KINDS, 2))
def test_what_changes_an_output_is_caught(kind: str) -> None:
    told = judged(*pair(CHANGING[kind]), [kind], COUNT)
    assert not wrong(told)
    assert any(outcome.status == "caught" for outcome in told), [
        f"{outcome.status} {outcome.name}" for outcome in told
    ]
    assert all(outcome.code == "PIT206" for outcome in told if outcome.status == "open"), (
        "other draws of the same kind are all that may stay open"
    )


@pytest.mark.parametrize("kind", UNCHANGING)
def test_what_changes_nothing_is_proven(kind: str) -> None:
    told = judged(*pair(UNCHANGING[kind]), [kind], COUNT)
    assert not wrong(told)
    assert any(outcome.status == "proven" for outcome in told)
    assert not [outcome.name for outcome in told if outcome.status == "unproven"]


def test_every_kind_has_the_codes_that_name_it() -> None:
    assert set(RIGHT_CODES) == set(KINDS) == set(CHANGING)
    assert all(codes for codes in RIGHT_CODES.values())
