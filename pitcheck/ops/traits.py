"""Facts about operators that proofs and rules rest on.

An operator claims its traits where it is declared. Every trait has a law in
``tests/ops/ops_laws.py``. The law is run for every operator that claims the trait. For every other
one a counterexample is found, or a reason stands there. So a new operator only needs its
declaration and a row of operands. A missing trait costs proofs. A trait of *decisions* makes proofs
ask for more, and must not be missing.

>>> from pitcheck.ops.registry import has_trait
>>> [has_trait("all_reduce", Trait.ADDS_MEMBERS, {"reduction": how}) for how in ("sum", "max")]
[True, False]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum, auto
from typing import Any

Condition = Callable[[Mapping[str, Any]], bool]
"""A function from an operator's attributes to True if it has a trait with them."""


class Communication(StrEnum):
    """The ways in which ranks meet in an operator."""

    NONE = auto()
    """Nobody meets: it runs on one rank."""
    COLLECTIVE = auto()
    """The members of its group meet and exchange data."""
    BARRIER = auto()
    """The members of its group meet and exchange nothing."""
    SEND = auto()
    """Its rank meets the one that receives."""
    RECEIVE = auto()
    """Its rank meets the one that sends."""
    WAIT = auto()
    """The ranks meet that meet in the operator it waits for."""


class Trait(StrEnum):
    """A fact about an operator.

    Operands are real numbers, unless a trait says otherwise; *elements* are those of tensors. A
    docstring ends with the rooms that rest on the trait, if there are few.
    """

    # --- places of elements
    KEEPS_ORDER = auto()
    """Every output has all elements of the only operand in row-major order. For memory rules: the
    result may lie where the operand lies.
    """
    SHOWS_ALL = auto()
    """The result is a view of the only operand: all of its elements, none in two places that need
    memory of their own. For conjectures, hints and precision.
    """
    REARRANGES = auto()
    """Every element of the only operand stands at one place of the result, and the derivative moves
    gradients back. A sum behind it stays a sum.
    """
    CUTS = auto()
    """Every output is a run of evenly spaced places along one dimension of the only operand, which
    keeps its number of dimensions.
    """
    SELECTS = auto()
    """Every output is one place of one dimension, which disappears."""
    JOINS = auto()
    """All operands stand in the result, each element once and nothing else. With one operand the
    result is that operand.
    """
    EXTENDS = auto()
    """Every operand stands in the result as a block along the dimension ``axis``, beside others or
    beside fixed numbers. For buffers of terms of sums.
    """
    CARRIES = auto()
    """A collective that computes nothing: every element of the result is an element of a member's
    tensor. For precision: the terms of a sum stand behind it.
    """
    CONVERTS = auto()
    """The result has the numbers of the operand in the dtype that an attribute names, if they fit.
    For causes: it is passed by as a move of elements is.
    """
    ROUNDS_NOTHING = auto()
    """Every element of the result is one of an operand or its opposite, or the same for all
    operands. For precision.
    """

    # --- sums
    ADDS_TERMS = auto()
    """The result is linear in all operands together, and an element of it is made of several of
    theirs. For precision: the terms are the operands.
    """
    ADDS_WITHIN = auto()
    """Like ADDS_TERMS, in a tensor of the same sizes: shapes do not say which elements are added.
    For precision.
    """
    NORMALIZES = auto()
    """It sums over a dimension on the way to the result, and rounds the sums. Precision counts its
    derivative as such a sum, too.
    """
    ADDS_MEMBERS = auto()
    """The result is the sum over the members of the same part of each. For sums over symmetric
    coordinates.
    """
    ADDS_PLAINLY = auto()
    """The result is the sum of the operands, or of the members, as they are."""
    ADDS_ALONG = auto()
    """The result is the sum over ``axes``, or that sum divided by the number of elements."""
    AVERAGES = auto()
    """The result does not change if every element is repeated along a reduced dimension. For equal
    numbers it is that number.
    """
    KEEPS_SIZES = auto()
    """A collective whose result has the sizes of one member's tensor, for any number of members."""
    LEAVES_OTHER_AXES = auto()
    """A collective that treats every dimension but ``axis``, or without ``axis`` every dimension,
    place by place. Buffers are narrowed along it.
    """

    # --- formulas
    PLACE_BY_PLACE = auto()
    """An element of the result depends on the elements at its place alone, and in the same way at
    every place, if the operands are of one shape or single numbers. For sums in slabs.
    """
    MULTILINEAR = auto()
    """The result is linear in every operand while the others are fixed."""
    SCALES = auto()
    """An element of the result is that of the first operand times a number that depends on the
    other operand, the sizes or nothing. For precision.
    """
    CONTRACTS = auto()
    """The result is affine in every operand while the others are fixed, and its elements add up
    many products.
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
    """The result is the quotient of the first operand by the second, place by place."""

    SUBTRACTS = auto()
    """The result is the first operand less the second, place by place. For what is finite."""
    BOUNDS_ABOVE = auto()
    """No element of the first operand is greater than that of the first output over it, the one
    without the dimension ``axis``, or without the ``axes``. For what is finite.
    """
    SQUARES = auto()
    """The result is the product of the operand with itself. For causes of wrong norms."""
    COMMUTES = auto()
    """The result is the same if both operands change places. Mutation and repairs exchange the
    operands of the others.
    """
    LIMITS = auto()
    """Every element of the result is that of the first operand, or a bound that it is beyond. For
    repairs: a divisor behind it is one still.
    """
    STEPS = auto()
    """Numbers near the operands give the same result, but for few operands. Repairs do not try it
    in the place of another function, which it says little of.
    """

    # --- domains
    TOTAL = auto()
    """There is a value for all real operands. On the way nothing is compared, and no quotient,
    logarithm, root or named function is taken of them.
    """
    DEFINED_FOR_POSITIVE = auto()
    """There is a value if all elements are positive, but not for all numbers."""
    GIVES_POSITIVE = auto()
    """The result is positive for all operands."""
    KEEPS_POSITIVE = auto()
    """The result is positive if all elements of all operands are, provided that it is of real
    numbers.
    """

    # --- decisions: such operators are tried more often, so that every operator that obeys the
    # law has the trait, or a reason
    PICKS_PLACES = auto()
    """The last output has the places along ``axis`` of the chosen elements of the operand: it
    routes tokens.
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
"""The traits that an operator's derivative has as well, between the gradient that it is given and
the one that it computes. No derivative has any other.
"""
