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

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.backend import to_host
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.undefined import Undefined
from pitcheck.algebra.value import NAN, Value
from pitcheck.errors import BudgetError, PitcheckError
from pitcheck.prove.guard_factors import Class, Known, as_strong, discharging
from pitcheck.stage.evaluate import Comparison

Words = NDArray[np.int64]
Bools = NDArray[np.bool_]

REFERENCE, PARALLEL = "reference ", "parallel "
SAID = {"div": "a quotient by", "log": "the logarithm of", "sqrt": "the root of"}
BITS = 31
"""The bits of a residue. An operand's word has a residue, or two, the upper level's below."""
DRAWS = 2
"""The draws in which guards are compared by one residue each, or as products of others. Otherwise
one draw is enough: different numbers have the same two residues once in 2^60.
"""
DRAWS_OF_CHOICES = 16
"""The draws if inputs decide which operands are needed. In each, every decision between drawn
numbers has a random outcome.
"""
MOST_ROWS = 1 << 14
"""The trials that one look may take: the different operands of all draws."""

Draw = Callable[[Sequence[int]], ResidueAlgebra]
"""A function that returns an algebra for some draws."""
Redraw = Callable[[Sequence[int]], Undefined]
"""The same for an algebra with undefined elements. A draw may stand there several times."""
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
    guards: Collection[tuple[str, str]], draw: Draw, redraw: Redraw, compare: Compare, at_once: int
) -> Domains:
    """Return if all guards of the parallel plan are discharged.

    ``guards``: (site, operation) of those that are not positive by construction. ``at_once``: the
    trials that are evaluated together.
    """
    if not guards:
        return Domains("", Extent.NOTHING)
    try:
        look = _Look(guards, draw(range(1)), compare)
        found = look.domains(redraw, compare, at_once, free=False)
        if not found.lacking and (look.chose or look.by_chance):
            if look.chose:
                algebra: ResidueAlgebra = _free(redraw(range(DRAWS_OF_CHOICES)))
            else:
                algebra = draw(range(DRAWS))
            again = _Look(guards, algebra, compare)
            found = again.domains(redraw, compare, at_once, free=look.chose)
            return found._replace(decided=look.chose)
        return found
    except PitcheckError as error:
        reason = f"what has no value where a divisor vanishes cannot be seen: {error}"
        return Domains(reason, Extent.SOME)


def _free(algebra: Undefined) -> Undefined:
    """Return an algebra in which decisions between drawn numbers have random outcomes."""
    algebra.free_order = True
    return algebra


@dataclass(frozen=True, eq=False)
class _Guard:
    """A guard, by its number among all, with its operand in every draw.

    ``words`` and ``finite`` have shape (draws, instances, *shape). NaN and infinity have no word.
    """

    number: int
    site: str
    what: str
    words: Words
    finite: Bools

    def classes(self, draw: int) -> list[Class]:
        """Return the different guards of a draw."""
        words: list[int] = np.unique(self.words[draw][self.finite[draw]]).tolist()
        return [(self.what, word) for word in words]


@dataclass(frozen=True)
class _Pair:
    """The guards of a draw that are not positive by construction.

    ``own`` are those of the parallel plan with a site of each, ``given`` those of the reference.
    ``positive`` are the guards of both sides that are positive by construction.
    """

    own: dict[Class, str]
    given: list[Class]
    positive: frozenset[Class]

    @property
    def rows(self) -> int:
        """The trials in which each of them is undefined once."""
        return max(len(self.own), len(self.given))


class _Look:
    """A look at what needs the guards of a stage, in some draws.

    ``chose`` is True once inputs may have hidden an undefined number. ``by_chance`` is True if
    guards may be equal, or follow from others, by chance.
    """

    def __init__(
        self, guards: Collection[tuple[str, str]], algebra: ResidueAlgebra, compare: Compare
    ) -> None:
        if compare(algebra) is None:
            raise BudgetError("too few levels are left")
        self.chose = False
        good = np.flatnonzero(~np.asarray(algebra.void)).tolist()
        # If all draws are void, none of them shows what is needed: look at the void ones.
        self._trials = {n: algebra.trials[n] for n in good or range(len(algebra.trials))}
        self._prime, self._guards, levels = _guards(algebra)
        self.by_chance = levels < 2
        self._open = [each for each in self._guards if (each.site, each.what) in guards]
        self._pairs = {draw: self._pair(draw) for draw in self._trials}
        self._dependent: set[int] = set()

    def _pair(self, draw: int) -> _Pair:
        """Return the guards of a draw."""
        # A number that inputs choose or count is small in most draws, and may be 0 in others.
        small = Known(self._prime).constants("div")
        positive = {
            each
            for guard in self._guards
            if guard not in self._open
            for each in guard.classes(draw)
            if each[1] and _residue(each[1]) not in small
        }
        own: dict[Class, str] = {}
        given: dict[Class, str] = {}
        for guard in self._open:
            for what, word in guard.classes(draw):
                if guard.site.startswith(REFERENCE):
                    given.setdefault((what, word), guard.site)
                elif not any((kind, word) in positive for kind in as_strong(what)):
                    own.setdefault((what, word), guard.site)
        return _Pair(own, list(given), frozenset(positive))

    def domains(self, redraw: Redraw, compare: Compare, at_once: int, *, free: bool) -> Domains:
        """Return what both sides lack in some draw.

        With ``free`` every decision between drawn numbers has a random outcome.
        """
        rows = [(draw, number) for draw, pair in self._pairs.items() for number in range(pair.rows)]
        if len(rows) > MOST_ROWS:
            many = f"{len(rows)} different numbers are divisors or arguments of roots or logarithms"
            return Domains(f"{many}, which are too many", Extent.SOME)
        needs: list[tuple[Bools, Bools]] = []
        for start in range(0, len(rows), max(at_once, 2)):
            needs += self._needs(rows[start : start + max(at_once, 2)], redraw, compare, free)
        lacking = ""
        for draw, pair in self._pairs.items():
            own = [need for row, need in zip(rows, needs, strict=True) if row[0] == draw]
            lacking = lacking or self._lacking(draw, pair, own)
        return Domains(lacking, extent([need[1] for need in needs]))

    def _needs(
        self, rows: Sequence[tuple[int, int]], redraw: Redraw, compare: Compare, free: bool
    ) -> list[tuple[Bools, Bools]]:
        """Return for every row (draw, number) what needs the guards of that number.

        They are the elements, shape (elements,), of the parallel plan that need its own, and of the
        reference that need the reference's.
        """
        # One trial alone would not tell what is drawn from what is constant.
        many = rows if len(rows) > 1 else [*rows, *rows]
        algebra = redraw([self._trials[draw] for draw, _ in many])
        algebra.free_order = free
        algebra.undefined = {guard.number: self._places(guard, many) for guard in self._open}
        comparisons = compare(algebra)
        if comparisons is None or len(algebra.guarded) != len(self._guards):
            raise BudgetError("it is computed in another way")
        self.chose = self.chose or algebra.chose
        self._dependent |= {
            number
            for number, (_, _, operand) in enumerate(algebra.guarded)
            if operand.special is not None and bool((operand.special == NAN).any())
        }
        return undefined(algebra, comparisons)[: len(rows)]

    def _places(self, guard: _Guard, rows: Sequence[tuple[int, int]]) -> Bools:
        """Return where a guard's operand is undefined, shape (rows, instances, *shape)."""
        reference = guard.site.startswith(REFERENCE)
        found = []
        for draw, number in rows:
            pair = self._pairs[draw]
            classes = pair.given if reference else list(pair.own)
            what, word = classes[number] if number < len(classes) else ("", 0)
            here = guard.finite[draw] & (guard.words[draw] == word)
            found.append(here if what == guard.what else np.zeros_like(here))
        return np.stack(found)

    def _lacking(self, draw: int, pair: _Pair, needs: Sequence[tuple[Bools, Bools]]) -> str:
        """Return what some element of the parallel plan needs and lacks in the reference."""
        for number, (each, site) in enumerate(pair.own.items()):
            left = needs[number][0].copy()
            for chosen in self._alternatives(draw, pair, each, needs, left):
                left &= ~np.logical_and.reduce([needs[place][1] for place in chosen])
                if not left.any():
                    break
            if left.any():
                return (
                    f"{SAID.get(each[0], each[0] + ' of')} something at {site!r} has no value for "
                    f"all numbers, and what needs it needs none like it in the reference"
                )
        return ""

    def _alternatives(
        self,
        draw: int,
        pair: _Pair,
        own: Class,
        needs: Sequence[tuple[Bools, Bools]],
        left: Bools,
    ) -> Iterator[tuple[int, ...]]:
        """Yield sets of guards of the reference; where those of one set hold, ``own`` holds.

        Equal guards come first. ``left`` are the elements that still lack one; what they do not
        need is of no use.
        """
        for kind in as_strong(own[0]):
            if (kind, own[1]) in pair.given:
                yield (pair.given.index((kind, own[1])),)
        if not left.any():
            return
        defined = {
            _residue(word)
            for guard in self._guards
            if guard.site.startswith(PARALLEL) and guard.number not in self._dependent
            for _, word in guard.classes(draw)
        }
        known = Known(self._prime, [(k, _residue(word)) for k, word in pair.positive], defined)
        near = [n for n in range(len(pair.given)) if (needs[n][1] & left).any()]
        given = [(pair.given[n][0], _residue(pair.given[n][1])) for n in near]
        self.by_chance = True
        for chosen in discharging((own[0], _residue(own[1])), given, known):
            yield tuple(near[place] for place in chosen)


def _residue(word: int) -> int:
    """Return the upper residue of a word."""
    return word & ((1 << BITS) - 1)


def _guards(algebra: ResidueAlgebra) -> tuple[int, list[_Guard], int]:
    """Return the prime of the upper residues, all guards of an evaluation, and their levels.

    Words are of the upper levels that all operands have. If they have none in common, each has the
    word of its own upper level, and equals only those of that level.
    """
    spans = [(v.lowest, v.lowest + int(v.data.shape[0])) for _, _, v in algebra.guarded]
    low, stop = max(low for low, _ in spans), min(stop for _, stop in spans)
    found = []
    for number, (site, what, value) in enumerate(algebra.guarded):
        own = (low, stop) if low < stop else (value.lowest, spans[number][1])
        words, finite = _words(algebra, value, *own)
        if low >= stop:
            words = words | (np.int64(own[1]) << 2 * BITS)
        found.append(_Guard(number, site, what, words, finite))
    return algebra.chain.primes[stop - 1], found, stop - low


def _words(algebra: ResidueAlgebra, value: Value, low: int, stop: int) -> tuple[Words, Bools]:
    """Return the words of all elements at levels from ``low`` to before ``stop``.

    Returns:
        The words and where they stand for finite numbers, both of shape (draws, instances, *shape).
    """
    data = to_host(algebra.xp, value.data)
    words = data[stop - 1 - value.lowest]
    if stop - low > 1:
        words = words | (data[stop - 2 - value.lowest] << BITS)
    special = np.uint8(0) if value.special is None else to_host(algebra.xp, value.special)[0]
    words, special = np.broadcast_arrays(words, special)
    shape = (len(algebra.trials), *words.shape[1:])
    return np.broadcast_to(words, shape), np.broadcast_to(special == 0, shape)


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


def extent(needs: Sequence[Bools]) -> Extent:
    """Return the part of all elements that may be undefined, from what is so in several trials."""
    if not any(need.any() for need in needs):
        return Extent.NOTHING
    return Extent.ALL if all(need.all() or not need.any() for need in needs) else Extent.SOME
