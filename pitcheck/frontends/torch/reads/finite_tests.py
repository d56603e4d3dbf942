"""Tests for infinity and NaN, which are assumed to find neither.

Nobody has the numbers while a program is recorded. A program that tests them to raise, to abort or
to leave out a step is recorded as it runs if they are finite. Nothing else is assumed: of other
conditions, and of numbers that the program itself makes infinite or NaN, nobody knows the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.frontends.torch.reads.infinite_values import InfiniteValues, Source
from pitcheck.frontends.torch.reads.joins import Joins
from pitcheck.frontends.torch.reads.signs import Signs, is_told
from pitcheck.frontends.torch.recording.known_values import evaluate
from pitcheck.frontends.torch.trace import Argument, Event, Ref, operands

TESTED_ELEMENTS = 1 << 24
"""The greatest number of elements of a test whose outcome is followed."""
TESTS = frozenset({"isnan", "isinf", "isposinf", "isneginf", "isfinite"})
"""The operators whose outcome is the same for all finite numbers."""
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
CHOICES = {"where": (0, 1, 2), "masked_fill": (1, 2, 0)}
"""The places of the condition, of what is taken where it holds, and of what is taken elsewhere."""


class Outcome(NamedTuple):
    """The numbers that a value has if tests for infinity and NaN find neither.

    ``tests`` are the lines of the tests. ``through``: the meetings by which what is tested, or the
    outcome, came from other ranks; bit n stands for meeting n of this rank. ``touched`` is the
    source of any infinity with which something that is tested has been computed.
    """

    numbers: torch.Tensor
    tests: frozenset[str]
    through: int = 0
    touched: Source = Source()

    @property
    def number(self) -> bool | int | float:
        """Return the only element."""
        with _disable_current_modes():
            found: bool | int | float = self.numbers.item()
        return found


_UNTESTED = Outcome(torch.zeros(0), frozenset())


class FiniteTests:
    """The outcomes of tests for infinity and NaN if what is tested is finite, by value.

    ``known`` has the values whose numbers are known; these are never assumed. ``infinite`` are the
    values that may be infinite or NaN because the program makes them so, and ``touched`` those that
    it has computed from such numbers, even if these are taken to be finite again.
    """

    def __init__(self, known: Mapping[int, torch.Tensor]) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self.infinite = InfiniteValues(known)
        self.touched = InfiniteValues(known, ())
        self._signs = Signs(known)
        self._joins = Joins()
        self._known = known

    def follow(self, event: Event, shapes: Sequence[tuple[int, ...]], floating: bool) -> None:
        """Note what an event gives, of which not all operands are known.

        ``shapes`` are those of the operands, in order. ``floating``: its results are floating-point
        numbers.
        """
        read, condition = self._read(event, shapes)
        self.infinite.follow(event, read, floating, condition.through)
        # Both numbers may be taken if infinity has to do with the condition.
        touched = event.arguments if condition.touched.made else read
        self.touched.follow(event, touched, floating, condition.touched.through)
        self._signs.follow(event, read, condition.tests)
        self._evaluate(event, shapes)

    def meet(self, event: Event, number: int, given: Sequence[int]) -> tuple[Source, Source]:
        """Note that ranks meet in an event, which is meeting ``number`` of this rank.

        ``given`` are the values that this rank gives.

        Returns:
            The sources of infinity in what it gives: that which is not tamed, and any.
        """
        infinite, touched = self.sources(given)
        self.infinite.arrive(event, number, infinite.made)
        self.touched.arrive(event, number, touched.made)
        return infinite, touched

    def sources(self, values: Sequence[int]) -> tuple[Source, Source]:
        """Return the sources of infinity in values, or in what was tested for them.

        The first is of what is not tamed, the second of any.
        """
        outcomes = [self.outcomes[value] for value in values if value in self.outcomes]
        return (
            self.infinite.source(values).joined(Source(False, each.through) for each in outcomes),
            self.touched.source(values).joined(each.touched for each in outcomes),
        )

    def _read(
        self, event: Event, shapes: Sequence[tuple[int, ...]]
    ) -> tuple[tuple[Argument, ...], Outcome]:
        """Return the arguments of which the results are made, and the outcome that tells so.

        A choice between two numbers takes one of them if a test tells its condition. The outcome is
        that of no test if nothing is chosen.
        """
        parts = self._joins.parts(event, shapes)
        if parts is not None:
            return parts, _UNTESTED
        places = CHOICES.get(event.operator.partition(".")[0])
        if places is None:
            return event.arguments, _UNTESTED
        condition, *taken = (event.arguments[place] for place in places)
        outcome = self.outcomes.get(condition.value) if isinstance(condition, Ref) else None
        if outcome is None:
            return tuple(taken), _UNTESTED
        return self.taken(event, outcome), outcome

    def taken(self, event: Event, condition: Outcome) -> tuple[Argument, ...]:
        """Return the arguments that a choice takes somewhere, by the outcome of its condition."""
        _, *places = CHOICES[event.operator.partition(".")[0]]
        with _disable_current_modes():
            return tuple(
                event.arguments[place]
                for place, missing in zip(places, (False, True), strict=True)
                if not bool((condition.numbers == missing).all())
            )

    def _evaluate(self, event: Event, shapes: Sequence[tuple[int, ...]]) -> None:
        read = operands(event.arguments)
        if not read or any(math.prod(shape) > TESTED_ELEMENTS for shape in shapes):
            return
        tests = self._tests(event)
        if tests is not None and not any(number in self.infinite for number in read):
            self._put(event, self._finite(read, shapes), tests)
        elif any(number in self.outcomes for number in read) and all(
            number in self.outcomes or number in self._known for number in read
        ):
            assumed = {n: self.outcomes[n].numbers for n in read if n in self.outcomes}
            known = {n: self._known[n] for n in read if n in self._known}
            self._put(event, {**known, **assumed}, frozenset())

    def _finite(
        self, read: Sequence[int], shapes: Sequence[tuple[int, ...]]
    ) -> dict[int, torch.Tensor]:
        """Return finite numbers for the operands of a test; any others have the same outcome."""
        with _disable_current_modes():
            zeros = {
                number: torch.zeros(()).expand(shape)
                for number, shape in zip(read, shapes, strict=True)
            }
        return {**zeros, **{n: self._known[n] for n in read if n in self._known}}

    def _put(
        self, event: Event, numbers: Mapping[int, torch.Tensor], tests: frozenset[str]
    ) -> None:
        read = operands(event.arguments)
        infinite, touched = self.sources(read)
        for number in read:
            tests |= self.outcomes[number].tests if number in self.outcomes else frozenset()
        for value, result in zip(event.outputs, evaluate(event, numbers) or (), strict=False):
            if value is not None and result is not None:
                self.outcomes[value] = Outcome(result, tests, infinite.through, touched)

    def _tests(self, event: Event) -> frozenset[str] | None:
        """Return the lines of tests of which an event is one; None if it is no test."""
        name = event.operator.partition(".")[0]
        line = frozenset({event.source or "outside the user's code"})
        if name in TESTS:
            return line
        if name not in COMPARISONS:
            return None
        first, second = event.arguments[:2]
        if isinstance(second, Ref):
            same = first == second and name in ("eq", "ne")
            return line if same or self._is_infinity(second.value) else None
        if isinstance(second, float) and math.isinf(second):
            return line
        signs = self._signs.lines(first.value) if isinstance(first, Ref) else None
        return line | signs if signs is not None and is_told(name, second) else None

    def _is_infinity(self, value: int) -> bool:
        if value not in self._known:
            return False
        with _disable_current_modes():
            known = self._known[value]
            return known.is_floating_point() and known.numel() > 0 and bool(known.isinf().all())
