"""Repairs found one after the other along the program, each of the first value that is wrong.

If it is known what values in between should hold, a change is judged without following it to the
outputs: the first value behind it that was wrong must be right, or right at more coordinates. What
is kept is judged by the outputs all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from pitcheck.errors import BudgetError
from pitcheck.explain.diagnosis import Diagnosis, Family
from pitcheck.explain.families import ACCUMULATIONS
from pitcheck.explain.repairs.repair import Chain, Phases, Repair
from pitcheck.explain.rerun.changes import Change, Held
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import Candidate, Site, sites_of, where_it_changes
from pitcheck.explain.wrong_values import WrongValues
from pitcheck.stage.batch import Step

MOST_STEPS = 60
"""Repairs made one after the other; those of one kind are one mistake."""
MOST_FOLLOWED = 6
"""Changes that make a value right and are followed to the outputs."""
MOST_HERE = 2_000
"""Operators that are evaluated at most to make one value right."""
MOST_SITES = 24
"""Operators around a wrong value that are looked at, the nearest ones."""
AHEAD = 3
"""Operators behind a wrong value that are looked at, too.

What the value should hold may be known wrongly, and mended by what reads it.
"""
Around = tuple[str, tuple[str, ...]]
"""The kind of an operator, and those of the operators that read its result."""


@dataclass(frozen=True)
class Made:
    """A repair that was made, and the outputs that became right by it."""

    diagnosis: Diagnosis
    changes: Sequence[Change]
    by: tuple[Repair, Around]
    right: frozenset[int]

    @property
    def family(self) -> Family:
        """Equal for repairs of one kind of mistake."""
        return self.diagnosis.family


@dataclass
class Judged:
    """The number of values behind a change that were wrong and are less so.

    Values count up to the first that is as wrong as before.
    """

    reach: int = 0


class Walk:
    """Repairs of the outputs ``differing``, in the order of the program.

    ``outputs_only``: True to judge by the outputs alone, and not by values in between.
    """

    def __init__(
        self,
        rerun: Rerun,
        expected: WrongValues,
        differing: Sequence[int],
        outputs_only: bool = False,
    ) -> None:
        self.rerun = rerun
        self.expected = expected
        self.differing = list(differing)
        evidence = rerun.evidence
        behind = frozenset().union(*(rerun.behind(n) for n in differing))
        self.watched = rerun.due
        outputs = {evidence.run.comparisons[n].target.cut.value for n in differing}
        for step in evidence.batch.steps:
            for value in step.outputs:
                asked = (
                    value is not None
                    and step.node in behind
                    and (value in outputs or not outputs_only)
                )
                known = expected.watched(value) if value is not None and asked else None
                if (
                    value is not None
                    and known is not None
                    and evidence.second.values[value].kind == "field"
                ):
                    self.watched.pop(value, None)
                    self.watched[value] = known
        self.wrong: dict[int, int] = {}
        self._look(list(self.watched))

    def _look(self, values: Iterable[int]) -> None:
        """Judge values as they are now.

        If a value was right and is wrong since another one is right, its hint is wrong: it is left.
        """
        for value in values:
            held = self.rerun.held(value) if value in self.watched else None
            if held is not None:
                now, before = self.rerun.wrong_at(self.watched[value], held), self.wrong.get(value)
                self.wrong[value] = now
                if before == 0 and now:
                    self._leave(value)

    def steps(self, phases: Phases) -> list[Made]:
        """Return repairs after which outputs are right; not always all of them."""
        found: list[Made] = []
        right: frozenset[int] = frozenset()
        try:
            while (
                len(right) < len(self.differing)
                and len(found) < MOST_STEPS
                and self._first() is not None
            ):
                left = [n for n in self.differing if n not in right]
                best = self._best(phases, left, found)
                changed = None if best is None else self.rerun.after(best[1][1], self.differing)
                if best is None or changed is None:
                    self._leave(self._first())
                    continue
                diagnosis = where_it_changes(self.rerun, best[1])
                self.rerun.changes.update(changed)
                self._look(changed)
                now = frozenset(self.rerun.right([], self.differing))
                if not right <= now:  # what was right is wrong again: these are no repairs
                    return []
                found.append(Made(diagnosis, best[1][1], best[0], now - right))
                right = now
        except BudgetError:  # what was found so far stands
            return found
        return found

    def _first(self) -> int | None:
        """Return the first value that is wrong; None if there is none."""
        return next((value for value in self.watched if self.wrong.get(value)), None)

    def _leave(self, value: int | None) -> None:
        """Stop watching a value: its hint is wrong."""
        if value is not None:
            del self.watched[value], self.wrong[value]

    def _best(
        self, phases: Phases, left: Sequence[int], made: Sequence[Made]
    ) -> tuple[tuple[Repair, Around], Candidate] | None:
        """Return the change that helps farthest.

        The first one is taken that makes all outputs right, or repeats a repair that was made
        before.
        """
        first = self._first()
        best: tuple[int, tuple[Repair, Around], Candidate] | None = None
        followed = 0
        before = {(each.family, each.by[1]) for each in made}
        for by, candidate in self._repairs(
            phases,
            [] if first is None else self._around(first),
            dict.fromkeys(each.by for each in made),
        ):
            judged = Judged()
            changed = self.rerun.after(candidate[1], left, partial(self._goes_on, judged))
            if judged.reach:
                if changed is not None and len(self.rerun.right(candidate[1], left)) == len(left):
                    return by, candidate
                if (candidate[0].family, by[1]) in before:
                    return by, candidate
                followed += 1
                if best is None or judged.reach > best[0]:
                    best = judged.reach, by, candidate
            if followed >= MOST_FOLLOWED:
                break
        return None if best is None else best[1:]

    def _repairs(
        self, phases: Phases, sites: Sequence[Site], before: Iterable[tuple[Repair, Around]]
    ) -> Iterator[tuple[tuple[Repair, Around], Candidate]]:
        """Yield what was done before at similar operators, then every repair.

        If too much is tried, the last phase, which costs little, comes at once.
        """
        most = self.rerun.spent + MOST_HERE
        around = {site: self._seen_from(site) for site in sites}
        for repair, place in before:
            for site in (site for site in sites if around[site] == place):
                yield from (((repair, place), candidate) for candidate in repair.of(site))
        for phase in phases:
            for site in self._in_order(sites, phase):
                for repair in phase:
                    for candidate in self._within(
                        repair.of(site), inf if phase is phases[-1] else most
                    ):
                        yield (repair, around[site]), candidate

    def _within(self, candidates: Iterator[Candidate], most: float) -> Iterator[Candidate]:
        """Yield candidates until so many operators were evaluated."""
        while self.rerun.spent <= most and (candidate := next(candidates, None)) is not None:
            yield candidate

    def _in_order(self, sites: Sequence[Site], phase: Sequence[Repair]) -> Sequence[Site]:
        """Return the sites in the order in which the repairs of a phase try them.

        That is the nearest first, or the first of a chain.
        """
        chains = {repair.chain for repair in phase}
        if chains == {Chain.SUMS}:
            return sorted(sites, key=partial(self._place, known=self._known_term))
        return (
            sorted(sites, key=partial(self._place, known=self._seen_term))
            if chains == {Chain.MEANS}
            else sites
        )

    def _place(self, site: Site, known: Callable[[int], bool]) -> tuple[int, int]:
        """Return a key that sorts addends first, in the order of the program.

        What micro-batches hold is added up before ranks are asked for theirs.
        """
        evidence = self.rerun.evidence
        if not known(site.value) or any(
            step.kind in ACCUMULATIONS for step in evidence.readers.get(site.value, [])
        ):
            return 1, 0
        return 0, min(evidence.second.rank[number] for number in site.numbers)

    def _known_term(self, value: int) -> bool:
        """Return True if it is known of which sum a value is an addend."""
        due = self.watched.get(value)
        return due is not None and due.sums is not None

    def _seen_term(self, value: int) -> bool:
        """Return True if a value is seen to be an addend of a mean."""
        return (
            value not in self.watched
            and (grouping := self.expected.grouping(value)) is not None
            and grouping.times > 1
        )

    def _seen_from(self, site: Site) -> Around:
        return site.kind, tuple(
            sorted(step.kind for step in self.rerun.evidence.readers.get(site.value, []))
        )

    def _goes_on(self, judged: Judged, value: int, held: Held) -> bool:
        """Return True if a change is worth being followed beyond a value."""
        if self.wrong.get(value):
            if self.rerun.wrong_at(self.watched[value], held) >= self.wrong[value]:
                return False
            judged.reach += 1
        return True

    def _around(self, value: int) -> list[Site]:
        """Return operators that may have made a value wrong, the nearest first, and its readers."""
        evidence = self.rerun.evidence
        back = self._reached(
            [value],
            lambda v: evidence.writers.get(v, []),
            evidence.inputs,
            len(evidence.batch.steps),
        )
        ahead = self._reached(
            [value], lambda v: evidence.readers.get(v, []), evidence.outputs, AHEAD
        )
        order = {number: place for place, number in enumerate(dict.fromkeys([*back, *ahead]))}
        sites = sites_of(self.rerun, list(order)[:MOST_SITES])
        return sorted(sites, key=lambda site: min(order[number] for number in site.numbers))

    def _settled(self, value: int) -> bool:
        """Return True if a value is right as it is.

        Right addends may still have to be summed.
        """
        return self.wrong.get(value) == 0 and self.watched[value].sums is None

    def _reached(
        self,
        values: list[int],
        steps: Callable[[int], list[Step]],
        further: Callable[..., list[int]],
        most: int,
    ) -> list[int]:
        """Return the nodes reached from values through what may be wrong, level by level."""
        found: dict[int, None] = {}
        seen = set(values)
        for _ in range(most):
            following: list[int] = []
            for value in values:
                for step in steps(value):
                    if any(output is not None for output in step.outputs):
                        found[step.node] = None
                        following.extend(
                            v for v in further(step) if v not in seen and not self._settled(v)
                        )
                        seen.update(following)
            values = following
            if not values or len(found) >= MOST_SITES:
                break
        return list(found)
