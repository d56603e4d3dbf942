"""The smallest repairs that make all outputs right, tried one after the other.

If one repair makes all outputs right, there is one mistake, however many operators behind it are
wrong. If none does, one is taken for made and the next is looked for with it: along the program
first, then output by output. Repairs that do not make every output right together are shown only if
they were found along the program and make some right; the finding says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pitcheck.algebra.discrete import Decision
from pitcheck.errors import PitcheckError
from pitcheck.explain.diagnosis import Diagnosis, Family
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.observations.observation import AtOperator
from pitcheck.explain.observations.reductions import term_for_sum
from pitcheck.explain.repairs.missing_term_or_factor import factor_of_outputs
from pitcheck.explain.repairs.repair import Repair, along_program, from_outputs
from pitcheck.explain.repairs.scaled_sums import forgotten_sums, scaled_reductions
from pitcheck.explain.repairs.unchanged_output import not_changed
from pitcheck.explain.rerun.changes import Change
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import Candidate, Site, sites_of, where_it_changes
from pitcheck.explain.search_along import Made, Walk
from pitcheck.explain.table import (
    FACTOR,
    MOST_CODES,
    MOST_FUSED,
    MOST_REPAIRS,
    MOST_STARTS,
    MOST_WALKED,
    PLACEMENTS,
    REPAIRS,
)
from pitcheck.explain.wrong_values import WrongValues
from pitcheck.ops.registry import BACKWARD
from pitcheck.refute.whole_run import SAME, WholeRun

OTHER_TENSOR = "PIT103"
"""The code of operands that are other tensors: one may happen to be the right one times a factor.
"""
First = Callable[[], str | None]
"""Gives the operator where the search from outputs begins; None if no operator looks wrong."""


@dataclass(frozen=True)
class Tried:
    """A repair that was tried, and the outputs that it makes right, the nearest first.

    ``made``: what was changed, with its place among all changes of the repairs that are shown
    together; empty if no run of the plan had it.
    """

    diagnosis: Diagnosis
    outputs: tuple[int, ...]
    made: tuple[tuple[int, Sequence[Change]], ...] = ()
    others: tuple[Diagnosis, ...] = ()
    """The further places where the same mistake was made."""


@dataclass(frozen=True)
class Effect:
    """The outputs that were compared with all repairs made, and those that are wrong then.

    ``one_sided`` are the operators, in words, that the repairs reach and that decided alike for all
    inputs: nothing is known of their other outcome.
    """

    compared: frozenset[int]
    wrong: frozenset[int]
    one_sided: tuple[str, ...] = ()


def effect_of(
    evidence: Evidence, run: WholeRun, found: Sequence[Tried], differing: Sequence[int]
) -> Effect:
    """Return what all repairs together make of all outputs, including those that were right before.

    An output whose difference is rounding alone is not compared. If comparing all costs too much,
    only what is known of the outputs that differ is returned.
    """
    numbers = [n for n in range(len(run.comparisons)) if n in differing or run.largest[n] <= SAME]
    before = len(run.evaluated.algebra.decisions)
    right = _right_with(evidence, found, numbers) if all(e.made for e in found) else frozenset()
    one_sided = _one_sided(run.evaluated.algebra.decisions[before:])
    known = frozenset(n for each in found for n in each.outputs)
    if not known <= right:
        return Effect(known, frozenset(), one_sided)
    return Effect(frozenset(numbers), frozenset(numbers) - right, one_sided)


def _one_sided(decisions: Iterable[Decision]) -> tuple[str, ...]:
    """Return the sites, in words, of which one outcome was never seen."""
    seen: dict[str, tuple[bool, bool]] = {}
    for each in decisions:
        site = each.site.rpartition("#")[0]
        true, false = seen.get(site, (False, False))
        seen[site] = true or bool(each.true.any()), false or bool(each.false.any())
    return tuple(site for site, (true, false) in seen.items() if site and not (true and false))


def _right_with(
    evidence: Evidence, found: Sequence[Tried], numbers: Sequence[int]
) -> frozenset[int]:
    """Return those of some outputs that are right with all repairs; none if that costs too much."""
    rerun = Rerun(evidence, most=MOST_WALKED)
    made = (made for each in found for made in each.made)
    try:
        for _, changes in sorted(made, key=lambda each: each[0]):
            rerun.changes.update(rerun.after(changes, numbers) or {})
        return frozenset(rerun.right([], numbers))
    except PitcheckError:  # too much to be compared
        return frozenset()


def tried_repairs(
    evidence: Evidence, run: WholeRun, differing: Sequence[int], first: First
) -> list[Tried]:
    """Return repairs that together make all outputs right.

    Else those found along the program that make some right; none if none were found. ``first`` is
    asked for only if nothing was found along the program.
    """
    if run.blocks is not None or run.targets_only or evidence.second.codes > MOST_CODES:
        return []
    try:
        rerun = Rerun(evidence)
        # If an output differs in the run and not here, the difference is not understood: no
        # repair is shown.
        if rerun.right([], differing):
            return []
        left = sorted(differing, key=lambda n: (len(rerun.behind(n)), n))
    except PitcheckError:  # what the values show is said all the same
        return []
    otherwise = _lying_otherwise(evidence, left)
    if otherwise is not None:
        return [otherwise]
    lost = _not_changed(evidence, left)
    left = [n for n in left if n not in {output for each in lost for output in each.outputs}]
    return [*_computed(evidence, left, first), *lost] if left else lost


def _not_changed(evidence: Evidence, left: Sequence[int]) -> list[Tried]:
    """Return outputs that are what was given, one per kind of addend that is missing."""
    try:
        rerun = Rerun(evidence)
        found = [(cause, n) for n in left if (cause := not_changed(rerun, n)) is not None]
    except PitcheckError:
        return []
    return [Tried(found[0][0], tuple(n for _, n in found))] if found else []


def _computed(evidence: Evidence, left: list[int], first: First) -> list[Tried]:
    """Return repairs of outputs that are computed.

    If the forward pass gives something wrong, it is searched first: what follows is wrong with it.
    """
    try:
        expected = WrongValues(evidence)
    except PitcheckError:
        return []
    forward = [n for n in left if not _needs_backward(evidence, n)]
    if 0 < len(forward) < len(left):
        found = _of_outputs(expected.copy(), forward, first)
        if found and len(_right_with(evidence, found, left)) == len(left):
            return [
                replace(
                    found[0], outputs=(*found[0].outputs, *(n for n in left if n not in forward))
                ),
                *found[1:],
            ]
    return _of_outputs(expected, left, first)


def _needs_backward(evidence: Evidence, number: int) -> bool:
    """Return True if an output is computed by a derivative."""
    return any(
        evidence.second.nodes[node].kind.endswith(BACKWARD)
        for node in Rerun(evidence).behind(number)
    )


def _of_outputs(expected: WrongValues, left: list[int], first: First) -> list[Tried]:
    try:
        rerun = Rerun(expected.evidence)
    except PitcheckError:
        return []
    walked = _walked(expected.evidence, expected, left)
    if _all(walked, left):
        return walked
    return _searched(rerun, expected, left, first) or [each for each in walked if each.outputs]


def _all(found: Sequence[Tried], left: Sequence[int]) -> bool:
    return set(left) == {output for each in found for output in each.outputs}


def _searched(rerun: Rerun, expected: WrongValues, left: list[int], first: First) -> list[Tried]:
    """Return repairs of few mistakes, each looked for from an output.

    None if they do not make all outputs right.
    """
    lacking = _lacking(expected.evidence, left)
    if lacking:
        return lacking
    found: list[Tried] = []
    differing = left
    try:
        while left and len(found) < MOST_REPAIRS:
            chosen = _best(rerun, expected, left, first)
            if chosen is None:
                return []
            candidate, right = chosen
            found.append(
                Tried(
                    where_it_changes(rerun, candidate), tuple(right), ((len(found), candidate[1]),)
                )
            )
            left = [n for n in left if n not in right]
            if left:
                changes = rerun.after(candidate[1], differing)
                rerun.changes.update(changes or {})
    except PitcheckError:  # too much was tried, or trying went wrong
        return []
    return [] if left else found


def _lacking(evidence: Evidence, left: Sequence[int]) -> list[Tried]:
    """Return the sums and means over ranks that outputs themselves lack; none unless they are all.

    Nothing is forgotten more often, and few operators are evaluated to see it.
    """
    repairs = [repair for repair in REPAIRS if repair.ends]
    steps: list[Candidate] = []
    try:
        rerun = Rerun(evidence)
        for number in left:
            if rerun.right([], [number]):
                continue
            last = rerun.wanted(number).target.cut.value
            sites = [site for site in sites_of(rerun, rerun.behind(number)) if site.value == last]
            candidates = _of_phase(repairs, sites)
            found = next((each for each in candidates if rerun.right(each[1], [number])), None)
            if found is None:
                return []
            steps.append(found)
            rerun.changes.update(rerun.after(found[1], left) or {})
    except PitcheckError:  # too much was tried
        return []
    families: dict[Family, list[tuple[int, Candidate]]] = {}
    for place, step in enumerate(steps):
        families.setdefault(step[0].family, []).append((place, step))
    return [
        Tried(
            several[0][1][0],
            tuple(left),
            tuple((place, changes) for place, (_, changes) in several),
            tuple(diagnosis for _, (diagnosis, _) in several[1:]),
        )
        for several in families.values()
    ]


def _lying_otherwise(evidence: Evidence, left: Sequence[int]) -> Tried | None:
    """Return given tensors that lie otherwise than the program takes them."""
    for placement in PLACEMENTS:
        try:
            found = placement.find(Rerun(evidence, most=placement.most), left)
        except PitcheckError:
            continue
        if found is not None:
            return Tried(found[0], tuple(found[2]))
    return None


def _walked(evidence: Evidence, expected: WrongValues, left: Sequence[int]) -> list[Tried]:
    """Return repairs along the program, one per kind of mistake.

    If there are several, one factor, or one that the outputs alone show, may explain them all. One
    factor also comes before a repair that may agree by chance: what is before the factor is right.
    """
    steps = _steps(Walk(Rerun(evidence, most=MOST_WALKED), expected, left))
    found = _by_kind(steps, left)
    by_chance = any(step.by[0].chance for step in steps)
    if not _all(found, left) or by_chance:
        scaled = _scaled(Rerun(evidence, most=MOST_FUSED), left)
        if scaled is None:
            scaled = _unsummed(Rerun(evidence, most=MOST_FUSED), expected, left)
        if scaled is not None:
            return [scaled]
    if by_chance or len(steps) > 1:
        one = _one_factor(Rerun(evidence, most=MOST_FUSED), left)
        if one is not None:
            return [one]
    if any(each.diagnosis.code == OTHER_TENSOR for each in found):
        by_factor = _off_by_one_factor(Rerun(evidence, most=MOST_FUSED), left)
        if by_factor is not None:
            return [by_factor]
    if len(found) == 1 and _all(found, left):
        return found
    coarse = _by_kind(
        _steps(Walk(Rerun(evidence, most=MOST_WALKED), expected, left, outputs_only=True)), left
    )
    return (
        coarse
        if _all(coarse, left) and (len(coarse) < len(found) or not _all(found, left))
        else found
    )


def _off_by_one_factor(rerun: Rerun, left: Sequence[int]) -> Tried | None:
    """Return the factor by which all outputs are off: it says less than another operand does."""
    try:
        return _together(factor_of_outputs(rerun, left), left)
    except PitcheckError:
        return None


def _scaled(rerun: Rerun, left: Sequence[int]) -> Tried | None:
    """Return all sums over one group that should be means, or the other way round."""
    try:
        return _together(scaled_reductions(rerun, left), left)
    except PitcheckError:  # too much was tried
        return None


def _unsummed(rerun: Rerun, expected: WrongValues, left: Sequence[int]) -> Tried | None:
    """Return all addends over one group that are used as if they were their sums."""
    terms: dict[int | None, Diagnosis] = {}
    try:
        for root in expected.roots(rerun.wanted(n).target.cut.value for n in left):
            found = term_for_sum(AtOperator(expected, root))
            if found is not None:
                terms.setdefault(found.value, found)
        return _together(forgotten_sums(rerun, list(terms.values()), left), left)
    except PitcheckError:  # too much was tried
        return None


def _together(
    found: tuple[list[Diagnosis], Sequence[Change]] | None, left: Sequence[int]
) -> Tried | None:
    """Return mistakes that one change mends together, all outputs with them."""
    if found is None:
        return None
    (first, *others), changes = found
    return Tried(first, tuple(left), ((0, changes),), tuple(others))


def _one_factor(rerun: Rerun, left: Sequence[int]) -> Tried | None:
    """Return one factor without which every output is right."""
    try:
        for site in sites_of(
            rerun, rerun.behind(left[0]).intersection(*(rerun.behind(n) for n in left))
        ):
            for candidate in FACTOR.of(site):
                if rerun.all_right(candidate[1], left):
                    return Tried(
                        where_it_changes(rerun, candidate), tuple(left), ((0, candidate[1]),)
                    )
    except PitcheckError:
        return None
    return None


def _steps(walk: Walk) -> list[Made]:
    try:
        return walk.steps(along_program(REPAIRS))
    except PitcheckError:
        return []


def _by_kind(steps: Sequence[Made], left: Sequence[int]) -> list[Tried]:
    found: dict[Family, list[tuple[int, Made]]] = {}
    for place, step in enumerate(steps):
        found.setdefault(step.family, []).append((place, step))
    tried = [_of_kind(several, left) for several in found.values()]
    # A repair that makes no output right by itself is told with all that are right in the end.
    return (
        [each if each.outputs else replace(each, outputs=tuple(left)) for each in tried]
        if _all(tried, left)
        else tried
    )


def _of_kind(several: Sequence[tuple[int, Made]], left: Sequence[int]) -> Tried:
    outputs = tuple(n for n in left if any(n in step.right for _, step in several))
    diagnoses = [step.diagnosis for _, step in several]
    return Tried(
        diagnoses[0],
        outputs,
        tuple((place, step.changes) for place, step in several),
        tuple(diagnoses[1:]),
    )


def _best(
    rerun: Rerun, expected: WrongValues, left: Sequence[int], first: First
) -> tuple[Candidate, list[int]] | None:
    """Return the first repair that makes all outputs right, else the one that makes most right."""
    best: tuple[Candidate, list[int]] | None = None
    for start in left[:MOST_STARTS]:
        for candidate in _candidates(rerun, expected, start, left, first):
            if not rerun.right(candidate[1], [start]):
                continue
            right = rerun.right(candidate[1], left)
            if len(right) == len(left):
                return candidate, right
            if best is None or len(right) > len(best[1]):
                best = candidate, right
    return best


def _candidates(
    rerun: Rerun, expected: WrongValues, start: int, left: Sequence[int], first: First
) -> Iterator[Candidate]:
    """Yield repairs of what an output is computed by.

    Operators that look wrong come first, and of those what they do before what they lack.
    """
    named = first()
    shared = rerun.behind(start).intersection(*(rerun.behind(n) for n in left))
    sites, phases = sites_of(rerun, rerun.behind(start)), from_outputs(REPAIRS)
    for phase in phases[:-1]:
        yield from _of_phase(phase, [site for site in sites if site.name == named])
    ranked: dict[int, list[Site]] = {}
    for site in sites:
        # An operator that a right output depends on is hardly wrong.
        ranked.setdefault(
            2 * _behind_right(rerun.evidence, site) + (not _suspected(expected, site, named)), []
        ).append(site)
    for _, several in sorted(ranked.items()):
        ordered = sorted(
            several, key=lambda site: (site.name != named, not shared.issuperset(site.numbers))
        )
        for phase in phases:
            yield from _of_phase(phase, ordered)


def _of_phase(phase: Sequence[Repair], sites: Sequence[Site]) -> Iterator[Candidate]:
    for site in sites:
        for repair in phase:
            yield from repair.of(site)


def _behind_right(evidence: Evidence, site: Site) -> bool:
    behind = evidence.behind_right.get(site.value)
    return behind is not None and bool(behind[site.codes].all())


def _suspected(expected: WrongValues, site: Site, first: str | None) -> bool:
    if site.name == first:
        return True
    return not expected.evidence.is_true(site.value) or bool(
        expected.wrong(site.value)[site.codes].any()
    )
