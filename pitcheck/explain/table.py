"""The table of mistakes: all that are looked for, in their order, and what may be spent on them.

Repairs and placements are run; observations are seen from the values of one run.
"""

from __future__ import annotations

from pitcheck.explain.observations.factors import factor_of_output, factor_of_result
from pitcheck.explain.observations.observation import AtOperator, AtOutput, Observation, OnTheWay
from pitcheck.explain.observations.operators import other_microbatches, unlike_reference
from pitcheck.explain.observations.parts import (
    doubled_part,
    joined_twice,
    other_part,
    other_tensor,
    unrelated_parts,
    whole_for_parts,
)
from pitcheck.explain.observations.passes import mixed_passes
from pitcheck.explain.observations.reductions import (
    forgotten_sum_inside,
    forgotten_sum_of_output,
    missing_sum,
    not_by_sum,
    reduced_over_others,
    summed_over_others,
    term_for_sum,
    term_of_rounds,
)
from pitcheck.explain.observations.terms import (
    left_as_given_there,
    right_in_part,
    right_on_others,
    term_of_output,
    term_of_result,
)
from pitcheck.explain.observations.ways import given_unused, unmasked
from pitcheck.explain.placements.axis_order import exchanged_axes
from pitcheck.explain.placements.fused_parameter import interleaved
from pitcheck.explain.placements.known_numbers import numbers_of_others
from pitcheck.explain.placements.part_order import parts_in_order
from pitcheck.explain.repairs.attributes import other_attribute, other_places
from pitcheck.explain.repairs.collectives import (
    crossed_calls,
    dropped_reduction,
    larger_group,
    other_extremum,
    other_group,
    other_reduction,
    other_root,
    smaller_group,
)
from pitcheck.explain.repairs.copied_terms import (
    unaveraged_part,
    unreduced_part,
    unreduced_parts,
)
from pitcheck.explain.repairs.element_order import exchanged_parts, reordered, side_by_side
from pitcheck.explain.repairs.functions import exchanged_operands, other_function
from pitcheck.explain.repairs.layout import gathered_before, moved_parts
from pitcheck.explain.repairs.masks import mask_of_reference
from pitcheck.explain.repairs.microbatches import (
    all_microbatches,
    mean_of_means,
    own_microbatch,
)
from pitcheck.explain.repairs.missing_collective import (
    missing_exchange,
    missing_gather,
    missing_mean,
    missing_reduction,
)
from pitcheck.explain.repairs.missing_operator import (
    function_left_out,
    operator_left_out,
    operator_left_out_of_operand,
    operator_of_others,
)
from pitcheck.explain.repairs.missing_term_or_factor import (
    due_term,
    mesh_factor,
    missing_factor,
    missing_number,
    missing_term,
    missing_term_of_operand,
)
from pitcheck.explain.repairs.norms import counted_twice, norm_of_all
from pitcheck.explain.repairs.numbers import (
    dropped_factor,
    dropped_operator,
    foreign_literal,
    other_literal,
)
from pitcheck.explain.repairs.operands import due_operand, exchanged_tensors, near_operand
from pitcheck.explain.repairs.repair import Chain, Placement, Repair, Scope
from pitcheck.explain.repairs.scaled_sums import scaled_reduction
from pitcheck.explain.repairs.sum_terms import (
    added_on_every_rank,
    weighted_microbatches,
)
from pitcheck.explain.repairs.whole_dimension import whole_dimension

AT_OPERATOR: tuple[Observation[AtOperator], ...] = (
    Observation("other micro-batches", other_microbatches),
    Observation("unlike the reference", unlike_reference),
    Observation("mixed passes", mixed_passes),
    Observation("addend used for its sum", term_for_sum),
    Observation("summed over others", summed_over_others),
    Observation("factor", factor_of_result),
    Observation("not by a sum", not_by_sum),
    Observation("missing sum", missing_sum),
    Observation("other tensor", other_tensor),
    Observation("right on other ranks", right_on_others),
    Observation("missing addend", term_of_result),
    Observation("unrelated parts", unrelated_parts),
    Observation("reduced over others", reduced_over_others),
    Observation("part joined twice", joined_twice),
    Observation("whole used for its parts", whole_for_parts),
    Observation("addend of rounds used for its sum", term_of_rounds),
    Observation("not masked", unmasked),
    Observation("given and not used", given_unused),
)
"""Mistakes that show at the first wrong operator."""
ON_THE_WAY: tuple[Observation[OnTheWay], ...] = (
    Observation("doubled part", doubled_part),
    Observation("forgotten sum", forgotten_sum_inside),
)
"""Mistakes that show at a value from which a wrong output is computed."""
AT_OUTPUT: tuple[Observation[AtOutput], ...] = (
    Observation("left as given on some ranks", left_as_given_there),
    Observation("factor", factor_of_output),
    Observation("other part", other_part),
    Observation("forgotten sum", forgotten_sum_of_output),
    Observation("right in part", right_in_part),
    Observation("missing addend", term_of_output),
)
"""Mistakes that show at an output."""

MOST_REPAIRS = 3
"""Independent mistakes that are told apart."""
MOST_STARTS = 3
"""Outputs from which a mistake is looked for if no repair makes all of them right."""
MOST_FUSED = 3_000
"""Operators that are evaluated at most to find how given tensors lie, or one factor."""
MOST_WALKED = 8_000
"""Operators that are evaluated at most to find repairs along the program."""
MOST_CODES = 512
"""Coordinates of a plan up to which repairs are tried."""

PLACEMENTS = (
    Placement("parts in order", parts_in_order, MOST_FUSED),
    Placement("interleaved", interleaved, MOST_FUSED),
    Placement("numbers of others", numbers_of_others, MOST_WALKED),
    Placement("exchanged axes", exchanged_axes, MOST_WALKED),
)
"""Hypotheses about how given tensors and known numbers lie, tried before any operator is blamed."""

FACTOR = Repair("dropped factor", dropped_factor, along=0, search=0)
"""The repair that is tried once more if several were found: one factor may explain them all."""
SCALED = Repair("scaled reduction", scaled_reduction)
"""The repair of one of the reductions that are scaled together, tried at another mesh alone."""
REPAIRS = (
    # The same operator with another number, attribute, place or reduction.
    Repair("crossed calls", crossed_calls, along=0, search=0),
    Repair("exchanged operands", exchanged_operands, along=0, search=0),
    Repair("exchanged parts", exchanged_parts, along=0, search=0),
    Repair("foreign literal", foreign_literal, along=0, search=0),
    FACTOR,
    Repair("dropped reduction", dropped_reduction, along=1, search=1),
    Repair("other reduction", other_reduction, along=1, search=1),
    Repair("other root", other_root, along=1, search=1),
    Repair("other group", other_group, along=1, search=1),
    Repair("smaller group", smaller_group, along=1, search=1),
    Repair("all micro-batches", all_microbatches, along=1, search=1),
    Repair("other micro-batch", own_microbatch, along=1, search=1),
    Repair("other literal", other_literal, along=1, search=1),
    Repair("other attribute", other_attribute, along=1, search=1),
    Repair("other place", other_places, along=1, search=1),
    # Sums of ranks, of micro-batches and of squares.
    Repair("added on every rank", added_on_every_rank, along=3, search=6),
    Repair("side by side", side_by_side, along=3, search=6),
    Repair("weighted micro-batches", weighted_microbatches, along=3, search=6),
    Repair("mean of means", mean_of_means, along=3, search=6),
    Repair("norm of all", norm_of_all, along=3, search=6),
    Repair("counted twice", counted_twice, along=3, search=6),
    Repair("mask of the reference", mask_of_reference, along=3, search=6),
    # Operators that are missing where a tensor is only passed on.
    Repair("unreduced part", unreduced_part, chain=Chain.SUMS, along=4, search=6),
    Repair("unreduced parts", unreduced_parts, chain=Chain.SUMS, along=4, search=6),
    Repair("operator of others", operator_of_others, along=2, search=6),
    Repair("operator left out", operator_left_out, along=2, search=6),
    Repair("operator left out of an operand", operator_left_out_of_operand, along=2, search=6),
    Repair("missing number", missing_number, chance=True, along=2, search=6),
    Repair("function left out", function_left_out, chance=True, along=2, search=6),
    Repair("missing term", missing_term, Scope.RESULT, chance=True, along=7, search=6),
    Repair("unaveraged part", unaveraged_part, chain=Chain.MEANS, along=5, search=6),
    # A factor of the mesh comes before repairs that agree by chance.
    Repair("factor of the mesh", mesh_factor, Scope.RESULT, chance=True, along=6, search=2),
    # Operands and addends of the reference.
    Repair("operand of the reference", due_operand, chance=True, along=7, search=3),
    Repair("term of the reference", due_term, Scope.RESULT, chance=True, along=7, search=3),
    Repair("dropped operator", dropped_operator, chance=True, along=8, search=4),
    Repair(
        "missing reduction",
        missing_reduction,
        Scope.RESULT,
        chain=Chain.SUMS,
        ends=True,
        along=4,
        search=5,
    ),
    Repair(
        "missing mean",
        missing_mean,
        Scope.RESULT,
        chain=Chain.MEANS,
        ends=True,
        along=5,
        search=5,
    ),
    Repair("missing gather", missing_gather, Scope.RESULT, chain=Chain.SUMS, along=4, search=5),
    Repair("missing exchange", missing_exchange, Scope.RESULT, chain=Chain.SUMS, along=4, search=5),
    Repair("whole dimension", whole_dimension, along=5, search=5),
    Repair("larger group", larger_group, along=9, search=5),
    Repair("other function", other_function, chance=True, along=10, search=7),
    # Repairs that make many outputs right by accident.
    Repair("other extremum", other_extremum, chance=True, along=11, search=8),
    Repair("missing term of an operand", missing_term_of_operand, chance=True, along=11, search=8),
    Repair("near operand", near_operand, chance=True, along=11, search=8),
    Repair("exchanged tensors", exchanged_tensors, Scope.RESULT, chance=True, along=11, search=8),
    Repair("moved parts", moved_parts, along=11, search=8),
    Repair("gathered before a view", gathered_before, along=11, search=8),
    Repair("missing factor", missing_factor, Scope.RESULT, chance=True, along=11, search=8),
    Repair("reordered", reordered, Scope.RESULT, along=12),
)
