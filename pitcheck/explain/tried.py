"""The smallest repairs under which all outputs are right, tried one after the other: each is a finding of its own.

Where one repair makes all outputs right that differ, there is one mistake, however many operators compute something wrong behind it. Where none does, the one
that makes most of them right is taken for made, and the next one is looked for with it. Repairs that together do not make every output right say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pitcheck.check.whole import WholeRun
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.fused import interleaved
from pitcheck.explain.hypotheses import Cause
from pitcheck.explain.inserted import DUE, FURTHER, MISSING
from pitcheck.explain.order import reordered, side_by_side
from pitcheck.explain.repairs import LEFT_OUT, OTHERWISE, dropped_factor, foreign_literal
from pitcheck.explain.rerun import Rerun
from pitcheck.explain.sites import WENT_WRONG, Repair, Site, repairs_of, sites_of
from pitcheck.explain.standing import Standing
from pitcheck.explain.terms import added_on_every_rank, norm_of_all, weighted_microbatches
from pitcheck.explain.walk import Made, Walk

MOST_REPAIRS = 3
"""Independent mistakes that are told apart."""
MOST_STARTS = 3
"""Outputs from which a mistake is looked for where no repair makes all of them right."""
MOST_FUSED = 3000
"""Operators that are evaluated at most to find a fused parameter whose shards lie otherwise."""
MOST_WALKED = 20_000
"""Operators that are evaluated at most to find repairs along the program."""
MOST_CODES = 512
"""Coordinates of a plan up to which repairs are tried coordinate by coordinate."""


EARLY = ((foreign_literal, dropped_factor), (*OTHERWISE, added_on_every_rank), DUE, LEFT_OUT, MISSING)
"""Hypotheses in the order in which they are tried at all operators that are suspected."""


@dataclass(frozen=True)
class Tried:
    """A repair that was tried, and the outputs that it makes right, first the one that is nearest to it."""

    cause: Cause
    outputs: tuple[int, ...]


def tried_repairs(evidence: Evidence, run: WholeRun, differing: Sequence[int], first: str = "") -> list[Tried]:
    """Repairs that together make all outputs right; none where none were found. ``first``: the operator where the search begins."""
    if run.blocks is not None or run.targets_only or evidence.second.codes > MOST_CODES:
        return []
    found: list[Tried] = []
    try:
        rerun = Rerun(evidence)
        # Outputs that differ as they are and not as they are evaluated here are not understood: no repair is shown then.
        if rerun.right([], differing):
            return []
        left = sorted(differing, key=lambda n: (len(rerun.behind(n)), n))
        fused = _fused(evidence, left)
        if fused is not None:
            return [fused]
        standing = Standing(evidence)
        walked = _walked(evidence, standing, left)
        if walked:
            return walked
        while left and len(found) < MOST_REPAIRS:
            chosen = _best(rerun, standing, left, first)
            if chosen is None:
                return []
            (cause, overrides), right = chosen
            found.append(Tried(cause, tuple(right)))
            left = [n for n in left if n not in right]
            if left:
                changes = rerun.after(overrides, differing)
                rerun.changes.update(changes or {})
    except WENT_WRONG:
        # Too much was tried, or trying went wrong: what the values show is said all the same.
        return []
    return [] if left else found


def _fused(evidence: Evidence, left: Sequence[int]) -> Tried | None:
    """A fused parameter whose shards lie otherwise than they are taken apart."""
    try:
        found = interleaved(Rerun(evidence, most=MOST_FUSED), left)
    except WENT_WRONG:
        return None
    return None if found is None else Tried(found[0], tuple(found[2]))


def _walked(evidence: Evidence, standing: Standing, left: Sequence[int]) -> list[Tried]:
    """Repairs along the program, one per kind of mistake; those that make no output right by themselves stand with what is right at the end."""
    try:
        steps = Walk(Rerun(evidence, most=MOST_WALKED), standing, left).steps(
            (*EARLY, (side_by_side, weighted_microbatches, norm_of_all), FURTHER, (reordered,))
        )
    except WENT_WRONG:
        return []
    found: dict[tuple[str, str], list[Made]] = {}
    for step in steps:
        found.setdefault(step.alike, []).append(step)
    return [Tried(several[0].cause, tuple(sorted(set().union(*(s.right for s in several)))) or tuple(left)) for several in found.values()]


def _best(rerun: Rerun, standing: Standing, left: Sequence[int], first: str) -> tuple[Repair, list[int]] | None:
    """The first repair that makes all outputs right, else the one that makes most of them right."""
    best: tuple[Repair, list[int]] | None = None
    for start in left[:MOST_STARTS]:
        for repair in _repairs(rerun, standing, start, left, first):
            if not rerun.right(repair[1], [start]):
                continue
            right = rerun.right(repair[1], left)
            if len(right) == len(left):
                return repair, right
            if best is None or len(right) > len(best[1]):
                best = repair, right
    return best


def _repairs(rerun: Rerun, standing: Standing, start: int, left: Sequence[int], first: str) -> Iterator[Repair]:
    """Repairs of what an output is computed by: first of the operators that look wrong, and of those what they do rather than what they lack."""
    shared = rerun.behind(start).intersection(*(rerun.behind(n) for n in left))
    sites = sites_of(rerun, rerun.behind(start))
    for hypotheses in EARLY:
        for site in (site for site in sites if site.name == first):
            for hypothesis in hypotheses:
                yield from repairs_of(hypothesis, site)
    ranked: dict[int, list[Site]] = {}
    for site in sites:
        # What a right output depends on is hardly wrong.
        ranked.setdefault(2 * _behind_right(rerun.evidence, site) + (not _suspected(standing, site, first)), []).append(site)
    for _, several in sorted(ranked.items()):
        ordered = sorted(several, key=lambda site: (site.name != first, not shared.issuperset(site.numbers)))
        for hypotheses in (*EARLY, (side_by_side, weighted_microbatches, norm_of_all), FURTHER, (reordered,)):
            for site in ordered:
                for hypothesis in hypotheses:
                    yield from repairs_of(hypothesis, site)


def _behind_right(evidence: Evidence, site: Site) -> bool:
    behind = evidence.behind_right.get(site.value)
    return behind is not None and bool(behind[site.codes].all())


def _suspected(standing: Standing, site: Site, first: str) -> bool:
    if site.name == first:
        return True
    return not standing.evidence.is_true(site.value) or bool(standing.wrong(site.value)[site.codes].any())
