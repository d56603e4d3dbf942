"""Families of operators that causes are looked for in, each made of traits and declarations."""

from __future__ import annotations

from pitcheck.claims.conjecture import VIEWS
from pitcheck.ops.registry import (
    collective_kinds,
    kinds_that_may,
    kinds_with,
    operator_kind,
    operator_names,
)
from pitcheck.ops.traits import Trait

JOINS = kinds_with(Trait.JOINS)
"""Operators that put their operands into one tensor."""
CUTS = kinds_with(Trait.CUTS)
"""Operators that give runs of places along a dimension."""
CASTS = kinds_that_may(Trait.CONVERTS)
"""Operators that give their operand in another dtype."""
MOVES = VIEWS | CUTS | kinds_with(Trait.SELECTS) | JOINS | CASTS
"""Operators that only move elements."""
FILLS = frozenset(k for k in kinds_with(Trait.ROUNDS_NOTHING) if operator_kind(k).inputs == (0, 0))
"""Operators that fill a tensor with one number."""
COPIES = MOVES | FILLS
"""Operators that compute no new numbers: they move elements or fill with one number."""
PASSES_ON = frozenset(kind for kind in operator_names() if operator_kind(kind).copies)
"""Operators that give their operand as it is."""

REDUCTIONS = frozenset(
    kind
    for kind in collective_kinds()
    if "reduction" in operator_kind(kind).attributes
    and not (kind in kinds_with(Trait.KEEPS_SIZES) and "position" in operator_kind(kind).attributes)
)
"""Collectives that combine what all members of a group hold, place by place.

One that depends on a member's place, and keeps the sizes, combines only some of them.
"""
WHOLE_REDUCTIONS = REDUCTIONS & kinds_with(Trait.KEEPS_SIZES)
"""Reductions that give the whole result and not a part of it."""
ACCUMULATIONS = kinds_with(Trait.ADDS_PLAINLY)
"""Operators that add up what micro-batches hold."""
ADDITIONS = frozenset(k for k in kinds_with(Trait.ADDS_TERMS) if operator_kind(k).inputs == (2, 2))
"""Sums and differences of two operands."""
SUMS = ADDITIONS & kinds_that_may(Trait.ADDS_PLAINLY)
"""Sums of two operands."""
DIFFERENCES = ADDITIONS - SUMS
"""Differences of two operands."""
SUMS_ALONG = kinds_with(Trait.ADDS_ALONG) - kinds_with(Trait.AVERAGES)
"""Sums over dimensions of one tensor."""
KEEPS_SUMS = (
    REDUCTIONS | ACCUMULATIONS | ADDITIONS | SUMS_ALONG | JOINS | kinds_with(Trait.KEEPS_ORDER)
) | CASTS
"""Operators behind which the addends of a sum, or its parts, are still that."""

QUOTIENTS = kinds_with(Trait.DIVIDES)
"""Quotients of two operands."""
SCALES = kinds_with(Trait.SCALES)
"""Operators that multiply the elements of their first operand."""
PRODUCTS = SCALES & kinds_with(Trait.MULTILINEAR)
"""Products of two operands, place by place."""
SCALINGS = PRODUCTS | QUOTIENTS
"""Products and quotients of two operands, place by place."""
COMBINATIONS = ADDITIONS | SCALINGS | ACCUMULATIONS | PASSES_ON
"""Operators that are linear in one tensor if the other operand is a number."""
ROOTS = kinds_with(Trait.TAKES_ROOT)
"""Square roots and their reciprocals."""
LIMITS = kinds_with(Trait.LIMITS)
"""Functions that keep a divisor from being too small."""
SQUARES = kinds_that_may(Trait.SQUARES)
"""Squares of one operand, and powers that are squares with some exponents."""
ADDS_SQUARES = SQUARES | PRODUCTS | SUMS_ALONG | JOINS | SUMS
"""Operators on the way from tensors to a sum of squares."""
WITH_BIAS = frozenset(k for k in kinds_with(Trait.CONTRACTS) if operator_kind(k).inputs == (2, 3))
"""Affine maps, which may add a third operand."""
