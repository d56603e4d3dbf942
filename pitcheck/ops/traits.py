"""Facts about operators that proofs and rules rest on.

An operator claims its traits where it is declared. Every trait has a law, in
``tests/ops/ops_laws.py``: it is run for every operator that claims the trait, and for every other
one a counterexample is found or a reason stands there. So nothing has to be done for a new operator
but to declare it and to write a row of operands. A trait that is missing costs proofs; one of
*decisions* makes proofs ask for more, and must not be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum, auto
from typing import Any

Condition = Callable[[Mapping[str, Any]], bool]
"""Attributes of an operator -> whether it has a trait with them."""


class Communication(StrEnum):
    """Who meets in an operator."""

    NONE = auto()
    """Nobody: it runs on one rank."""
    COLLECTIVE = auto()
    """The members of its group, who exchange data."""
    BARRIER = auto()
    """The members of its group, who exchange nothing."""
    SEND = auto()
    """Its rank and the one that receives."""
    RECEIVE = auto()
    """Its rank and the one that sends."""
    WAIT = auto()
    """Whoever meets in the operator that it waits for."""


class Trait(StrEnum):
    """One fact. Operands are real numbers here, unless a trait says otherwise; *elements* are those
    of tensors.
    """

    # --- where elements go
    KEEPS_ORDER = auto()
    """Every output has all elements of the only operand in row-major order. Memory rules: the
    result may lie where the operand lies.
    """
    SHOWS_ALL = auto()
    """The result is a view of the only operand: all of its elements, none in two places that need
    memory of their own. Conjectures, hints, precision.
    """
    REARRANGES = auto()
    """Every element of the only operand stands at one place of the result, and the derivative moves
    gradients back. A sum behind it stays a sum.
    """
    CUTS = auto()
    """Every output is a run of places, evenly spaced, along one dimension of the only operand,
    which keeps its number of dimensions.
    """
    SELECTS = auto()
    """Every output is one place of one dimension, which disappears."""
    JOINS = auto()
    """All operands stand in the result, each element once and nothing else. With one operand it is
    the operand.
    """
    EXTENDS = auto()
    """Every operand stands in the result as a block, beside others or beside fixed numbers, along
    the dimension ``axis``. Buffers of terms of sums.
    """
    CARRIES = auto()
    """A collective that computes nothing: every element of the result is an element that a member
    holds. Precision: the terms of a sum stand behind it.
    """
    ROUNDS_NOTHING = auto()
    """Every element of the result is one of an operand or its opposite, or the same for all
    operands. Precision.
    """

    # --- sums
    ADDS_TERMS = auto()
    """The result is linear in all operands together, and an element of it is made of several of
    theirs. Precision: the terms are the operands.
    """
    ADDS_WITHIN = auto()
    """Like ADDS_TERMS, in a tensor of the same sizes: which elements are added is not said by
    shapes. Precision.
    """
    NORMALIZES = auto()
    """Sums over a dimension on the way to the result, and rounds them. Precision counts its
    derivative as such a sum, too.
    """
    ADDS_MEMBERS = auto()
    """The result is the sum over the members of the same part of each. Sums over symmetric
    coordinates.
    """
    ADDS_PLAINLY = auto()
    """The result is the sum of the operands, or of the members, as they are."""
    ADDS_ALONG = auto()
    """The result is the sum over ``axes``, or that sum divided by the number of elements."""
    AVERAGES = auto()
    """The result does not change where every element is repeated along a dimension that is reduced;
    of equal numbers it is that number.
    """
    KEEPS_SIZES = auto()
    """A collective whose result has the sizes of one member's tensor, however many members there
    are.
    """
    LEAVES_OTHER_AXES = auto()
    """A collective that treats every dimension but ``axis``, or without ``axis`` every dimension,
    place by place. Buffers are narrowed along it.
    """

    # --- formulas
    MULTILINEAR = auto()
    """Linear in every operand while the others are fixed."""
    SCALES = auto()
    """An element of the result is that of the first operand times a number that depends on the
    other operand, the sizes or nothing. Precision.
    """
    CONTRACTS = auto()
    """Affine in every operand while the others are fixed, and elements of the result add up many
    products.
    """
    MULTIPLIES_MATRICES = auto()
    """Products of matrices are computed on the way: the work is more than the sizes of operands and
    result.
    """
    TAKES_ROOT = auto()
    """A square root is taken of the elements of the first operand as they are. Such operands are
    drawn as squares.
    """
    DIVIDES = auto()
    """The quotient of the first operand by the second, place by place."""

    # --- where there is a value
    TOTAL = auto()
    """There is a value for all real operands; nothing is compared, and no quotient, logarithm, root
    or named function of them is taken on the way.
    """
    DEFINED_FOR_POSITIVE = auto()
    """There is a value where all elements are positive, but not for all numbers."""
    GIVES_POSITIVE = auto()
    """The result is positive whatever the operands are."""
    KEEPS_POSITIVE = auto()
    """The result is positive where all elements of all operands are, if it is of real numbers."""

    # --- decisions: what has these is tried more often, so that every operator of which the law
    # holds has them, or a reason
    PICKS_PLACES = auto()
    """The last output says at which places along ``axis`` the chosen elements of the operand stand:
    what routes tokens.
    """
    CHANGES_BELOW = auto()
    """A comparison with an integer n that changes its outcome from n - 1 to n."""
    CHANGES_ABOVE = auto()
    """A comparison with an integer n that changes its outcome from n to n + 1."""
    FLIPS_SIGNS = auto()
    """Some elements of the result are the opposites of elements of an operand. The opposite of the
    least integer of a dtype does not fit into it.
    """
    GIVES_BITS = auto()
    """The result is of integers, 0 or 1 each, whatever the operands are."""
    READS_SHAPE = auto()
    """The result depends on the sizes of the only operand alone, and on attributes."""


ALSO_OF_DERIVATIVES = frozenset({Trait.REARRANGES})
"""Traits that an operator's derivative has as well, between the gradient that is given and the one
that it computes. No derivative has any other.
"""
