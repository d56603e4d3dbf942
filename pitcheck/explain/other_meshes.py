"""Repairs tried once more on the same pair of programs, made at another mesh size.

A repair may fit one size by chance: on two ranks the mean is half of the sum, so a factor 1/2 too
many looks like a mean that should be a sum. At another size they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import prod

import numpy as np

from pitcheck.base.numbers import parse_number
from pitcheck.claims.problem import Problem
from pitcheck.errors import PitcheckError, PlanError
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.observe import located
from pitcheck.explain.ratios import Factor
from pitcheck.explain.repairs.scaled_sums import axes_of
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import Candidate, sites_of, where_it_changes
from pitcheck.explain.search import Tried, tried_repairs
from pitcheck.explain.table import MOST_WALKED, REPAIRS, SCALED
from pitcheck.ops.registry import collective_kinds
from pitcheck.plan.model import PairAt
from pitcheck.plan.validate import examine
from pitcheck.refute.both_ways import with_ways
from pitcheck.refute.counted_differences import PLAIN
from pitcheck.refute.whole_run import SAME, WholeRun, conjecture, further_conjecture, run_whole

Mesh = Mapping[str, int]
"""The size of every mesh axis by its name."""

MOST_MESHES = 2
"""Other meshes at which repairs are tried."""
MOST_RANKS = 16
"""Ranks of the largest mesh at which a pair is made again."""
MOST_INSTANCES = 2_000
"""Operators of all ranks together up to which a pair is made again: recording one takes
milliseconds.
"""
IN_WORDS = frozenset({"times", "group"})
"""Facts that are words about numbers or ranks, which are others at another size."""
SIZED = frozenset({"number", "literal", "right", "ratio", "meaning", "count"})
"""Facts that are numbers of the program, and may grow or shrink with a mesh axis."""


@dataclass(frozen=True)
class Situation:
    """The pair of plans at one mesh: the values of a run, and the outputs that differ in it."""

    evidence: Evidence
    run: WholeRun
    differing: Sequence[int]

    @property
    def mesh(self) -> Mesh:
        """The size of every mesh axis of the parallel plan."""
        return self.evidence.second.coordinates.sizes

    @cached_property
    def compared(self) -> list[int]:
        """The outputs that must be right with a repair: all but those that only rounding tells."""
        every = range(len(self.run.comparisons))
        return [n for n in every if n in self.differing or self.run.largest[n] <= SAME]

    @cached_property
    def axes(self) -> dict[str, str]:
        """By collective the mesh axes over which it runs, if its groups are those of axes."""
        kinds, nodes = collective_kinds(), self.evidence.second.nodes
        found = {n.operator: axes_of(self.evidence, n) for n in nodes if n.kind in kinds}
        return {operator: axes for operator, axes in found.items() if axes is not None}

    @cached_property
    def repairs(self) -> list[Tried]:
        """The repairs that make all outputs right; none if none were found."""
        found = tried_repairs(
            self.evidence,
            self.run,
            list(self.differing),
            lambda: located(self.evidence, self.run, list(self.differing)).operator(self.evidence),
        )
        return found if mends(found, self.differing) else []


@dataclass(frozen=True)
class Confirmed:
    """Repairs, and what other meshes say of them.

    ``meshes``: where they make every output right, too. ``faultless``: where no output differs
    without them.
    """

    found: list[Tried]
    meshes: tuple[Mesh, ...] = ()
    faultless: tuple[Mesh, ...] = ()


def mends(found: Sequence[Tried], differing: Sequence[int]) -> bool:
    """Return True if repairs were found that make right all outputs that differ."""
    return bool(found) and set(differing) == {n for each in found for n in each.outputs}


def confirmed(found: list[Tried], here: Situation, problem: Problem, again: PairAt) -> Confirmed:
    """Return the repairs that hold at other meshes, too, as far as the pair can be made there.

    Repairs that hold at this mesh alone lose to others that hold at both. If none hold at both,
    those that were found stay, and nothing is said of the other mesh.
    """
    result = Confirmed(found)
    there: list[Situation] = []
    made = (each for each in _elsewhere(problem, again, here.run.ways) if _follows_mesh(each, here))
    for situation in islice(made, MOST_MESHES):
        if not situation.differing:
            result = replace(result, faultless=(*result.faultless, situation.mesh))
            continue
        settled = _confirmed_at(situation, result.found, here)
        if settled is None:
            settled = _replaced_at(situation, here)
            # Repairs that replace others have to hold at the meshes before, too.
            if settled is None or any(_repeated(settled, here, each) is None for each in there):
                continue
        there.append(situation)
        result = replace(result, found=settled, meshes=(*result.meshes, situation.mesh))
    return result


def _follows_mesh(there: Situation, here: Situation) -> bool:
    """Return True if collectives run over the same mesh axes at both sizes.

    A program that takes its groups from constants is another program at another size.
    """
    shared = here.axes.keys() & {node.operator for node in there.evidence.second.nodes}
    return all(there.axes.get(operator) == here.axes[operator] for operator in shared)


def _elsewhere(problem: Problem, again: PairAt, ways: Sequence[int]) -> Iterator[Situation]:
    """Yield the pair at other meshes, each with another size of one axis.

    ``ways``: the trials whose inputs show further outcomes of decisions here.
    """
    mesh = problem.parallel.coordinates.sizes
    for axis in (axis for axis, size in mesh.items() if size > 1):
        sizes = (size for size in other_sizes(mesh[axis]) if _affordable(problem, axis, size))
        made = (_made(problem, again, {**mesh, axis: size}, ways) for size in sizes)
        situation = next((each for each in made if each is not None), None)
        if situation is not None:
            yield situation


def other_sizes(size: int) -> list[int]:
    """Return the sizes at which an axis of ``size`` ranks is tried, each at least 2."""
    # A loop that doubles a number up to the ranks would never end at a size between.
    return [size // 2, 2 * size] if size % 2 == 0 and size > 2 else [2 * size]


def _affordable(problem: Problem, axis: str, size: int) -> bool:
    mesh = problem.parallel.coordinates.sizes
    ranks = prod(mesh.values())
    more = ranks // mesh[axis] * size
    instances = sum(int(np.count_nonzero(node.mask)) for node in problem.parallel.nodes)
    return more <= MOST_RANKS and instances * more <= MOST_INSTANCES * ranks


def _made(problem: Problem, again: PairAt, mesh: Mesh, ways: Sequence[int]) -> Situation | None:
    """Return the pair at another mesh; None if it cannot be made, is not valid, or cannot run."""
    try:
        reference, parallel = again(mesh)
        sizes = {axis.name: axis.size for axis in parallel.mesh}
        sides = (reference, None), (parallel, reference)
        broken = [v for side in sides for v in examine(*side)[0] if v.severity == "error"]
        if broken or sizes != dict(mesh):
            return None
        other = Problem.of(reference, parallel, options=problem.options, seed=problem.seed)
        if _outputs(other) != _outputs(problem) or other.specification.gaps:
            return None
        run = with_ways(run_whole(other), ways, problem.options.max_memory)
        cuts = conjecture(other, run)
        cuts = {**further_conjecture(other, run, cuts), **cuts}
        evidence = Evidence(other.reference, other.parallel, other.specification, run, cuts)
    except PitcheckError:
        return None
    return Situation(evidence, run, [n for n in run.suspects() if run.largest[n] > PLAIN])


def _outputs(problem: Problem) -> set[str]:
    """Return the names of the outputs that are compared."""
    return {expected.name for expected in problem.specification.expected}


def _confirmed_at(there: Situation, found: list[Tried], here: Situation) -> list[Tried] | None:
    """Return repairs that were found here if they hold at another mesh, too; None if they do not.

    They do if they make every output right there, or if a search there finds the same mistakes.
    """
    repeated = _repeated(found, here, there)
    if repeated is not None:
        return _narrowed(found, repeated)
    same = len(found) == len(there.repairs) and _same_mistakes(found, here, there)
    return _narrowed(found, there.repairs) if same else None


def _replaced_at(there: Situation, here: Situation) -> list[Tried] | None:
    """Return repairs found at another mesh that hold here as well; None without."""
    back = _repeated(there.repairs, there, here) if there.repairs else None
    return None if back is None else _narrowed(back, there.repairs)


def _repeated(found: Sequence[Tried], here: Situation, there: Situation) -> list[Tried] | None:
    """Return the same repairs at the same operators of another mesh.

    None if there are no such operators, or not every output is right then.
    """
    rerun = Rerun(there.evidence, most=MOST_WALKED)
    made: dict[int, list[Tried]] = {}
    try:
        for place, (number, diagnosis) in enumerate(_in_order(found)):
            candidate = _best(rerun, _again(rerun, diagnosis, here, there), there)
            changed = None if candidate is None else rerun.after(candidate[1], there.compared)
            if candidate is None or changed is None:
                return None
            each = Tried(
                where_it_changes(rerun, candidate),
                tuple(there.differing),
                ((place, candidate[1]),),
            )
            made.setdefault(number, []).append(each)
            rerun.changes.update(changed)
        if len(rerun.right([], there.compared)) < len(there.compared):
            return None
    except PitcheckError:  # too much was tried
        return None
    return [_of_one_mistake(made[number]) for number in range(len(found))]


def _of_one_mistake(places: Sequence[Tried]) -> Tried:
    first, *others = places
    return replace(
        first,
        made=tuple(step for each in places for step in each.made),
        others=tuple(each.diagnosis for each in others),
    )


def _in_order(found: Sequence[Tried]) -> list[tuple[int, Diagnosis]]:
    """Return every place of every mistake with the mistake's number, in the order of repair."""
    steps: list[tuple[int, int, Diagnosis]] = []
    for number, each in enumerate(found):
        diagnoses = [each.diagnosis, *each.others]
        order = [place for place, _ in each.made]
        if len(order) != len(diagnoses):  # one change repaired them all
            order = order[:1] * len(diagnoses) or [0] * len(diagnoses)
        steps += [(place, number, d) for place, d in zip(order, diagnoses, strict=True)]
    return [(number, d) for _, number, d in sorted(steps, key=lambda step: step[:2])]


def _best(rerun: Rerun, candidates: Iterator[Candidate], there: Situation) -> Candidate | None:
    """Return the first candidate that makes most outputs right; None without candidates."""
    best: tuple[int, Candidate] | None = None
    for candidate in candidates:
        right = len(rerun.right(candidate[1], there.compared))
        if best is None or right > best[0]:
            best = right, candidate
        if right == len(there.compared):
            break
    return None if best is None else best[1]


def _again(
    rerun: Rerun, diagnosis: Diagnosis, here: Situation, there: Situation
) -> Iterator[Candidate]:
    """Yield the repairs of one mistake at the operator of the same name, kind and source."""
    if diagnosis.step is None or diagnosis.value is None:
        return
    node, graph = here.evidence.second.nodes[diagnosis.step.node], there.evidence.second
    numbers = [
        number
        for number in rerun.steps
        if (other := graph.nodes[number]).operator == node.operator
        and (other.kind, other.source) == (node.kind, node.source)
    ]
    tensor = here.evidence.name(diagnosis.value)
    sites = [site for site in sites_of(rerun, numbers) if site.called == tensor]
    for repair in (*REPAIRS, SCALED):
        for site in sites:
            for candidate in repair.of(site):
                if same_mistake(diagnosis, here.mesh, candidate[0], there.mesh):
                    yield candidate


def same_mistake(one: Diagnosis, here: Mesh, other: Diagnosis, there: Mesh) -> bool:
    """Return True if two mistakes, made at two meshes, are one.

    They are of one kind and have equal facts. Numbers may grow or shrink with the changed axis.
    """
    ratio = Fraction(prod(there.values()), prod(here.values()))
    return (one.kind.unsized or one.kind) == (other.kind.unsized or other.kind) and all(
        _alike(one.facts[name], other.facts[name], ratio if name in SIZED else Fraction(1))
        for name in (one.facts.keys() & other.facts.keys()) - IN_WORDS
    )


def _alike(one: object, other: object, ratio: Fraction) -> bool:
    if one == other:
        return True
    a, b = _number(one), _number(other)
    return a is not None and b is not None and b in (a, a * ratio, a / ratio)


def _number(fact: object) -> Fraction | None:
    """Return a fact as a number; None if it is none."""
    if isinstance(fact, Factor):
        return fact.ratio
    try:
        number = parse_number(fact) if isinstance(fact, (int, float, str)) else fact
    except PlanError:
        return None
    return number if isinstance(number, Fraction) else None


def _same_mistakes(found: Sequence[Tried], here: Situation, there: Situation) -> bool:
    """Return True if a search there finds the same mistakes at operators of the same names."""
    places = _in_order(found), _in_order(there.repairs)
    return len(places[0]) == len(places[1]) and all(
        _operator(one, here) == _operator(other, there)
        and same_mistake(one, here.mesh, other, there.mesh)
        for (_, one), (_, other) in zip(*places, strict=True)
    )


def _operator(diagnosis: Diagnosis, situation: Situation) -> str | None:
    step = diagnosis.step
    return None if step is None else situation.evidence.second.nodes[step.node].operator


def _narrowed(found: Sequence[Tried], others: Sequence[Tried]) -> list[Tried]:
    """Return repairs whose factors name only what has their size at the other mesh as well."""
    return [
        replace(one, diagnosis=_narrower(one.diagnosis, other.diagnosis))
        for one, other in zip(found, others, strict=True)
    ]


def _narrower(one: Diagnosis, other: Diagnosis) -> Diagnosis:
    facts = {
        name: fact.narrowed(theirs)
        if isinstance(fact, Factor) and isinstance(theirs := other.facts.get(name), Factor)
        else fact
        for name, fact in one.facts.items()
    }
    factors = [fact for fact in facts.values() if isinstance(fact, Factor)]
    named = not factors or any(fact.names for fact in factors)
    return replace(one, facts=facts, kind=one.kind if named else one.kind.unsized or one.kind)
