"""The domain of the parallel plan: what it divides by, and takes logarithms and roots of.

That two formulas are equal as functions says nothing where one of them has no value: x / x is 1,
and sqrt(a) sqrt(c) is sqrt(a c), where they are defined. So the operand of every such operation of
the parallel plan, a *guard*, must be discharged in one of these ways:

- It is positive by construction, or integers show that it is not 0.
- It equals a guard that is.
- Whatever is compared and needs it needs, in the reference, a guard that fails wherever it does.

Residues tell which operands are equal. What needs an operand is seen by an evaluation in which
that operand is taken to be undefined (:mod:`pitcheck.algebra.residues.undefined`). Every different
operand has a trial of its own.

>>> domains([], *[None] * 3, at_once=8)  # nothing but positive divisors
Domains(lacking='', undefined=<Extent.NOTHING: 0>, decided=False)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import zip_longest
from math import prod
from typing import NamedTuple

import numpy as np

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.undefined import Undefined
from pitcheck.algebra.value import NAN, Value
from pitcheck.errors import BudgetError, PitcheckError
from pitcheck.prove.domains.alternatives import Alternatives
from pitcheck.prove.domains.group_tests import Answer, GroupTest, grouped
from pitcheck.prove.domains.guard_factors import Class, Known, as_strong
from pitcheck.prove.domains.operands import (
    UPPER,
    Bools,
    Elements,
    Guard,
    Operand,
    elements_of,
    guards_of,
    residue,
)
from pitcheck.stage.evaluate import Comparison

REFERENCE, PARALLEL = "reference ", "parallel "
SAID = {"div": "a quotient by", "log": "the logarithm of", "sqrt": "the root of"}
DRAWS = 2
"""The draws in which guards are compared by one residue each, or as products of others. Otherwise
one draw is enough: different numbers have the same two residues once in 2^60.
"""
DRAWS_OF_CHOICES = 16
"""The draws if inputs decide which operands are needed. In each, every decision between drawn
numbers has a random outcome.
"""
MOST_OPERANDS = 1 << 18
"""The different operands of both sides at which one look is taken, over all draws."""

_Key = tuple[int, bytes]
"""A draw, and the key of an operand."""
Draw = Callable[[Sequence[int]], ResidueAlgebra]
"""A function that returns an algebra for some draws."""
Redraw = Callable[[Sequence[int]], Undefined]
"""The same for an algebra with undefined elements. A draw may stand there several times."""
Further = Callable[[int], Sequence[int]]
"""A function that names further draws, for a number of first ones, in which integers decide as they
do in none of these.
"""
Compare = Callable[[ResidueAlgebra], Sequence[Comparison] | None]
"""A function that evaluates a stage and compares its targets; None if levels do not suffice."""


class Extent(IntEnum):
    """The part of a tensor that inputs may leave without a value."""

    NOTHING = 0
    ALL = 1
    """No element has a value, or all have one."""
    SOME = 2
    SEEN = 3
    """Some have none in a draw, in which integers or constants make it so."""


class Domains(NamedTuple):
    """The domains of both sides of a stage.

    ``lacking`` names a guard of the parallel plan that is not discharged, and says why; it is "" if
    there is none. ``undefined``: the part of the reference's targets that inputs may leave without
    a value. ``decided`` is True if it depends on drawn numbers what is divided by, or needed: then
    outcomes that no draw had are left to trials on real numbers.
    """

    lacking: str
    undefined: Extent
    decided: bool = False


def domains(
    guards: Collection[tuple[str, str]],
    draw: Draw,
    redraw: Redraw,
    compare: Compare,
    at_once: int,
    further: Further = lambda _: (),
) -> Domains:
    """Return if all guards of the parallel plan are discharged.

    ``guards``: (site, operation) of those that are not positive by construction. ``at_once``: the
    trials that are evaluated together.
    """
    if not guards:
        return Domains("", Extent.NOTHING)
    try:
        seen = _Seen()
        look = _Look(guards, draw(range(1)), compare, seen)
        found = look.domains(redraw, compare, at_once, free=False)
        if not found.lacking and (seen.chose or look.by_chance):
            decided = seen.chose
            if decided:
                if look.may_hold():
                    ordinary = draw(range(DRAWS_OF_CHOICES))
                    seen.held = _Look(guards, ordinary, compare, seen).held()
                algebra: ResidueAlgebra = _free(redraw(range(DRAWS_OF_CHOICES)))
            else:
                algebra = draw(range(DRAWS))
            again = _Look(guards, algebra, compare, seen)
            found = again.domains(redraw, compare, at_once, free=decided)
            more = further(DRAWS_OF_CHOICES) if decided and not found.lacking else ()
            if more:
                rare = _Look(guards, _free(redraw(more)), compare, seen)
                own = rare.domains(redraw, compare, at_once, free=True)
                found = Domains(own.lacking, max(own.undefined, found.undefined))
            return found._replace(decided=decided)
        return found
    except PitcheckError as error:
        reason = f"what has no value where a divisor vanishes cannot be seen: {error}"
        return Domains(reason, Extent.SOME)


def _free(algebra: Undefined) -> Undefined:
    """Return an algebra in which decisions between drawn numbers have random outcomes."""
    algebra.free_order = True
    return algebra


@dataclass(frozen=True)
class _Pair:
    """The guards of a draw that are not positive by construction, by their operands.

    ``own`` are those of the parallel plan, ``given`` those of the reference. ``positive`` are the
    words of the guards of both sides that are positive by construction, by operation.
    """

    own: dict[Class, Operand]
    given: dict[Class, Operand]
    positive: dict[str, set[int]]


class _Row(NamedTuple):
    """A trial in which an operand has no value: of the parallel plan, of the reference, or both."""

    draw: int
    own: Operand | None
    given: Operand | None


@dataclass
class _Seen:
    """Facts that several looks at one stage share.

    ``chose`` is True once inputs may have hidden an undefined number. ``needs`` are the elements
    that need an operand, by its key, if no choice of theirs could hide that: they are the same in
    every draw. ``dependent`` are the numbers of guards whose operand needs another guard. ``held``
    are the elements of guards of the reference that equal a positive guard whatever is decided, as
    numbers of a guard and flat places.
    """

    chose: bool = False
    needs: dict[bytes, Elements] = field(default_factory=dict)
    dependent: set[int] = field(default_factory=set)
    held: frozenset[tuple[int, int]] = frozenset()


class _Look:
    """A look at what needs the guards of a stage, in some draws.

    ``by_chance`` is True if guards may be equal, or follow from others, by chance.
    """

    def __init__(
        self,
        guards: Collection[tuple[str, str]],
        algebra: ResidueAlgebra,
        compare: Compare,
        seen: _Seen,
    ) -> None:
        comparisons = compare(algebra)
        if comparisons is None:
            raise BudgetError("too few levels are left")
        good = np.flatnonzero(~np.asarray(algebra.void)).tolist()
        # If all draws are void, none of them shows what is needed: look at the void ones.
        self._trials = {n: algebra.trials[n] for n in good or range(len(algebra.trials))}
        lacking = undefined(algebra, comparisons)
        self._whole = [not (own.any() or reference.any()) for own, reference in lacking]
        self._elements = lacking[0][0].size
        self._prime, self._guards, levels = guards_of(algebra)
        self.by_chance = levels < 2
        self._open = [each for each in self._guards if (each.site, each.what) in guards]
        self._strong = [each for each in self._guards if (each.site, each.what) not in guards]
        self._pairs = {draw: self._pair(draw) for draw in self._trials}
        self._seen = seen

    def _pair(self, draw: int) -> _Pair:
        """Return the guards of a draw."""
        # A number that inputs choose or count is small in most draws, and may be 0 in others.
        small = np.array([*Known(self._prime).constants("div")])
        positive: dict[str, set[int]] = {}
        for guard in self._strong:
            words = guard.operands(draw)
            kept = words[(words != 0) & ~np.isin(words & UPPER, small)]
            positive.setdefault(guard.what, set()).update(kept.tolist())
        own: dict[Class, Operand] = {}
        given: dict[Class, Operand] = {}
        for guard in self._open:
            reference = guard.site.startswith(REFERENCE)
            for (what, word), places in guard.places(draw).items():
                if reference or not any(word in positive.get(kind, ()) for kind in as_strong(what)):
                    side = given if reference else own
                    operand = side.setdefault((what, word), Operand(guard.site, {}))
                    operand.places[guard.number] = places
        return _Pair(own, given, positive)

    def domains(self, redraw: Redraw, compare: Compare, at_once: int, *, free: bool) -> Domains:
        """Return what both sides lack in some draw.

        With ``free`` every decision between drawn numbers has a random outcome.
        """
        unseen = [
            (draw, side, self._unseen(draw, operands))
            for draw, pair in self._pairs.items()
            for side, operands in enumerate((pair.own, pair.given))
        ]
        count = sum(len(operands) for _, _, operands in unseen)
        if count > MOST_OPERANDS:
            many = f"{count} different numbers are divisors or arguments of roots or logarithms"
            return Domains(f"{many}, which are too many", Extent.SOME)

        def evaluated(rows: Sequence[_Row]) -> tuple[Undefined, Sequence[Comparison]]:
            return self._evaluated(rows, redraw, compare, free)

        if not count and not self._seen.chose:
            # This draw may have chosen to divide by nothing that is open; others may choose not to.
            evaluated([_Row(next(iter(self._pairs)), None, None)] * 2)
        found: dict[_Key, Elements] = {}
        tests = [
            GroupTest(draw, side, group)
            for draw, side, operands in unseen
            for group in grouped(operands)
        ]
        left = self._tested(tests, evaluated, at_once, found)
        alone = [replace(test, operands=(each,)) for test in left for each in test.operands]
        self._tested(alone, evaluated, at_once, found)
        lacking = ""
        counts: list[int] = []
        for draw, pair in self._pairs.items():
            own, given = (
                [
                    found[at] if (at := (draw, each.key)) in found else self._seen.needs[each.key]
                    for each in side.values()
                ]
                for side in (pair.own, pair.given)
            )
            lacking = lacking or self._lacking(draw, pair, own, given)
            counts += [
                need.size
                for (each, operand), need in zip(pair.given.items(), given, strict=True)
                if not (self._holds(draw, each) or elements_of(operand) <= self._seen.held)
            ]
        return Domains(lacking, extent(counts, self._elements))

    def may_hold(self) -> bool:
        """Return True if the reference has guards, and there are positive ones they may equal."""
        return any(pair.given and any(pair.positive.values()) for pair in self._pairs.values())

    def held(self) -> frozenset[tuple[int, int]]:
        """Return the elements of the reference's guards that hold in all draws."""
        every = [
            frozenset[tuple[int, int]]().union(
                *(elements_of(o) for each, o in pair.given.items() if self._holds(draw, each))
            )
            for draw, pair in self._pairs.items()
        ]
        return frozenset.intersection(*every)

    def _holds(self, draw: int, guard: Class) -> bool:
        """Return True if a guard equals one that is positive and has a value for all inputs."""
        what, word = guard
        return any(
            word in self._pairs[draw].positive.get(kind, ())
            and any(
                own.what == kind and own.number not in self._seen.dependent and own.has(draw, word)
                for own in self._strong
            )
            for kind in as_strong(what)
        )

    def _unseen(self, draw: int, operands: Mapping[Class, Operand]) -> list[Operand]:
        """Return the operands of which this draw must show what needs them."""
        known = self._seen.needs if self._whole[draw] else {}
        return [each for each in operands.values() if each.key not in known]

    def _tested(
        self,
        tests: Sequence[GroupTest],
        evaluated: Callable[[Sequence[_Row]], tuple[Undefined, Sequence[Comparison]]],
        at_once: int,
        found: dict[_Key, Elements],
    ) -> list[GroupTest]:
        """Note in ``found`` which elements need the operands of some tests.

        They are elements of the parallel plan if the operand is, and else of the reference. Return
        the tests that do not tell.
        """
        trials: dict[int, tuple[list[Operand], list[Operand]]] = {}
        places = []
        for test in tests:
            asked = trials.setdefault(test.draw, ([], []))[test.side]
            places.append(len(asked))
            asked += test.asked
        rows = [_Row(draw, *pair) for draw, sides in trials.items() for pair in zip_longest(*sides)]
        answers: dict[tuple[int, int], list[Answer]] = {}
        for start in range(0, len(rows), max(at_once, 2)):
            self._answer(rows[start : start + max(at_once, 2)], evaluated, answers)
        left = []
        for test, first in zip(tests, places, strict=True):
            own = answers[test.draw, test.side][first : first + len(test.asked)]
            told = test.told(own)
            if told is None:
                left.append(test)
                continue
            for operand, elements, hides in told:
                found[test.draw, operand.key] = elements
                if self._whole[test.draw] and not hides:
                    self._seen.needs[operand.key] = elements
        return left

    def _answer(
        self,
        rows: Sequence[_Row],
        evaluated: Callable[[Sequence[_Row]], tuple[Undefined, Sequence[Comparison]]],
        answers: dict[tuple[int, int], list[Answer]],
    ) -> None:
        """Add what some trials leave undefined to ``answers``, by draw and side."""
        many = rows if len(rows) > 1 else [*rows, *rows]
        algebra, comparisons = evaluated(many)
        hidden, unsure = (
            np.broadcast_to(each, (len(many),)) for each in (algebra.hidden, algebra.unsure)
        )
        needs = undefined(algebra, comparisons)
        for row, need, hides, vague in zip(rows, needs, hidden, unsure, strict=False):
            for side, elements in enumerate(need):
                answers.setdefault((row.draw, side), []).append(
                    Answer(elements, bool(hides), bool(vague))
                )

    def _evaluated(
        self, rows: Sequence[_Row], redraw: Redraw, compare: Compare, free: bool
    ) -> tuple[Undefined, Sequence[Comparison]]:
        """Return an evaluation of some rows, at least two, and what was compared in it."""
        algebra = redraw([self._trials[row.draw] for row in rows])
        algebra.free_order = free
        algebra.undefined = {guard.number: self._places(guard, rows) for guard in self._open}
        comparisons = compare(algebra)
        if comparisons is None or len(algebra.guarded) != len(self._guards):
            raise BudgetError("it is computed in another way")
        self._seen.chose = self._seen.chose or algebra.chose
        self._seen.dependent |= {
            number
            for number, (_, _, operand) in enumerate(algebra.guarded)
            if operand.special is not None and bool((operand.special == NAN).any())
        }
        return algebra, comparisons

    def _places(self, guard: Guard, rows: Sequence[_Row]) -> Bools:
        """Return where a guard's operand is undefined, shape (rows, instances, *shape)."""
        shape = guard.finite.shape[1:]
        found = np.zeros((len(rows), prod(shape)), dtype=np.bool_)
        for number, row in enumerate(rows):
            for operand in (row.own, row.given):
                if operand is not None and guard.number in operand.places:
                    found[number, operand.places[guard.number]] = True
        return found.reshape(len(rows), *shape)

    def _lacking(
        self, draw: int, pair: _Pair, own: Sequence[Elements], given: Sequence[Elements]
    ) -> str:
        """Return what some element of the parallel plan needs and lacks in the reference.

        ``own`` and ``given`` are the elements that need the guards of the pair, in their order.
        """
        needs = dict(zip(pair.given, given, strict=True))
        alternatives = Alternatives(needs, lambda: self._known(draw, pair))
        for (each, operand), need in zip(pair.own.items(), own, strict=True):
            left = alternatives.lacking(each, need)
            self.by_chance = self.by_chance or alternatives.by_chance
            if left.size:
                said = SAID.get(each[0], f"{each[0]} of")
                return (
                    f"{said} something at {operand.site!r} has no value for "
                    f"all numbers, and what needs it needs none like it in the reference"
                )
        return ""

    def _known(self, draw: int, pair: _Pair) -> Known:
        """Return what is known of the numbers of a draw, by which guards may follow from others."""
        defined = {
            word
            for guard in self._guards
            if guard.site.startswith(PARALLEL) and guard.number not in self._seen.dependent
            for word in (guard.operands(draw) & UPPER).tolist()
        }
        positive = [(k, residue(word)) for k, words in pair.positive.items() for word in words]
        return Known(self._prime, positive, defined)


def undefined(
    algebra: ResidueAlgebra, comparisons: Sequence[Comparison]
) -> list[tuple[Bools, Bools]]:
    """Return for every trial the compared elements that are undefined.

    They are those of the parallel plan and of the reference, both of shape (elements,).
    """
    sides = [
        [_without_value(algebra, each, value) for each, value in of]
        for of in ([(c, c.actual) for c in comparisons], [(c, c.expected) for c in comparisons])
    ]
    parallel, reference = (np.concatenate(side, axis=1) for side in sides)
    return list(zip(parallel, reference, strict=True))


def _without_value(algebra: ResidueAlgebra, comparison: Comparison, value: Value) -> Bools:
    """Return the judged elements of one side that are undefined, shape (trials, elements)."""
    shape = (len(algebra.trials), *comparison.judged.shape[1:])
    codes = np.uint8(0) if value.special is None else to_host(algebra.xp, value.special)[0]
    found: Bools = np.broadcast_to(codes == NAN, shape) & comparison.judged[:1]
    return found.reshape(len(found), -1)


def extent(counts: Collection[int], elements: int) -> Extent:
    """Return the part of some elements that may be undefined.

    ``counts``: how many are undefined together, in several trials.
    """
    if not any(counts):
        return Extent.NOTHING
    return Extent.ALL if all(count in (0, elements) for count in counts) else Extent.SOME
