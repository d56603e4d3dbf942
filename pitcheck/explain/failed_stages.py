"""Findings from the stages that do not hold over the plan's hints, each explained by itself.

All other stages are proven, so such a stage reads what it should, on every input of the plans. Its
steps are few, however many ranks, layers and micro-batches the plan has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import Specification
from pitcheck.errors import PitcheckError
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.difference import (
    Explained,
    explained,
    explained_by,
    gap_finding,
    is_tried,
    shown,
)
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.observations.observation import AtOperator
from pitcheck.explain.observe import at, cause_at, located
from pitcheck.explain.siblings import first_sibling, odd_writers, sibling_cause
from pitcheck.explain.table import MOST_CODES
from pitcheck.explain.wrong_values import WrongValues, compared_wrong
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph
from pitcheck.graph.grids import Codes, near
from pitcheck.prove.prover import Obligation
from pitcheck.refute.block_run import run_stage_on_blocks, shape_on_blocks
from pitcheck.refute.both_ways import run_both_ways
from pitcheck.refute.whole_run import SAME, WholeRun, conjecture, run_stage
from pitcheck.report.report import Finding, TriedRepair
from pitcheck.stage.equal_blocks import Blocks
from pitcheck.stage.stage import CutOf, Target
from pitcheck.witness.shrink import witness_of
from pitcheck.witness.witness import save_witness

STAGE_DIFFERS = Kind(
    "PIT100",
    "given all that is proven before it, {result!r} differs from what the plan says that it "
    "holds; no known cause explains it",
)


MOST_EXPLAINED = 5
MOST_STAGES = 12
"""Stages that are explained; those of one mistake are one finding."""
REDUCED = frozenset({"PIT104", "PIT105", "PIT106"})
"""Causes that the values of an operator tell better than what other ranks run in its place."""
MOST_ROWS = 4096
MOST_STEPS = 120
"""Steps of a stage, and ``MOST_ROWS`` rows of all of them, up to which its inputs are made small.
"""


@dataclass
class Refused:
    """The whole run in which outputs ``real`` differ, and the stages that do not hold.

    ``cuts``: the cuts between which these stages lie.
    """

    run: WholeRun
    real: list[int]
    failed: Sequence[Obligation]
    cuts: Mapping[int, Cut]


def explain_refused(problem: Problem, found: Refused) -> list[Finding]:
    """Return findings for the stages that do not hold, in the order of the program.

    Each names an output of the plans that differs. Repairs are tried stage by stage until a stage
    has none: looking for none costs most.
    """
    second, specification = problem.parallel, problem.specification
    trying = second.codes <= MOST_CODES
    gaps = [gap_finding(gap, "mismatch") for gap in specification.gaps if not gap.output]
    families: dict[object, dict[str | None, Explained]] = {}
    # Known findings must not hide others, so every stage is explained where some may be known.
    every = problem.options.prove_rest
    for stages, obligation in enumerate(
        sorted(found.failed, key=lambda o: second.depth(o.target.cut.value))
    ):
        few = len(families) + len(gaps) < MOST_EXPLAINED and stages < MOST_STAGES
        if every or few:
            blamed = {operator for places in families.values() for operator in places}
            if not blamed & {second.nodes[node].operator for node in obligation.nodes}:
                of_stage = _explained(problem, found, obligation, trying=trying)
                trying = any(is_tried(each.finding) for each in of_stage)
                for each in of_stage:
                    # Causes that are only observed, and not tried, are told place by place.
                    family = (
                        each.diagnosis.family
                        if is_tried(each.finding)
                        else (each.operator, each.finding.cause)
                    )
                    families.setdefault(family, {}).setdefault(each.operator, each)
    affected = _affected(found, len({e.name for e in specification.expected}))
    findings = [
        _together(list(places.values()), "" if number else affected)
        for number, places in enumerate(families.values())
    ]
    return [*findings, *gaps]


def _together(places: Sequence[Explained], more: str) -> Finding:
    """Return one finding of one mistake made at several places. ``more`` ends its cause."""
    first, *others = places
    finding = first.finding
    named = messages.places([(each.operator or "", each.tensor) for each in others])
    cause = f"{finding.cause}{named}{more}"
    effects = [each.finding.tried for each in places if each.finding.tried is not None]
    if not others or not effects:
        return replace(finding, cause=cause)
    right = tuple(dict.fromkeys(name for effect in effects for name in effect.right))
    effect = TriedRepair(right=right, compared=len(right))
    words = messages.tried(effect, mended=False, everything=0)
    edits = (edit for each in places for edit in each.finding.edits)
    return replace(
        finding,
        cause=cause,
        repair=f"{messages.repair(first.diagnosis)} ({words})",
        edits=tuple(dict.fromkeys(edits))[: 2 * messages.MOST_PLACES],
        tried=replace(effect, said=words),
        ranks=tuple(sorted({rank for each in places for rank in each.finding.ranks})),
        microbatches=tuple(
            sorted({batch for each in places for batch in each.finding.microbatches})
        ),
    )


def _affected(found: Refused, total: int) -> str:
    """Return as text which outputs differ, of all or of those that were run."""
    names = list(dict.fromkeys(found.run.comparisons[n].target.name for n in found.real))
    some = f"{', '.join(map(repr, names[:3]))}{' and others' if len(names) > 3 else ''}"
    if len({comparison.target.name for comparison in found.run.comparisons}) < total:
        return (
            f"; of {total} outputs the nearest were run, and {some} "
            f"differ{'s' if len(names) == 1 else ''}"
        )
    return f"; of {total} outputs {len(names)} differ, {some}"


def first_refused(second: Graph, failed: Sequence[Obligation]) -> list[int]:
    """Return the values at which failing stages end, the first of the program first.

    There are as many as are explained.
    """
    return sorted(dict.fromkeys(o.target.cut.value for o in failed), key=second.depth)[
        :MOST_EXPLAINED
    ]


def suspected(second: Graph, obligation: Obligation) -> Codes:
    """Return the coordinates at which a failing stage runs a record that others do not.

    If there is none, those at which its values differ. The shape is (codes,).
    """
    odd = odd_writers(second, obligation.nodes)
    if odd:
        own: Codes = np.flatnonzero(second.nodes[odd[0][1]].mask)
        return own
    return _differing(obligation)


def _differing(obligation: Obligation) -> Codes:
    """Return the coordinates at which a failing stage differs; else one that is compared."""
    differing = obligation.proof.differing
    return obligation.target.codes[:1] if differing is None else differing


def unproven(second: Graph, obligation: Obligation, why: str) -> Finding:
    """Return the finding of a stage that does not hold although no input of both plans differs."""
    found = _unexplained(second, obligation).finding
    name = second.values[obligation.target.cut.value].name
    title = (
        f"{name!r} is not proven to hold what the plan says ({obligation.proof.reason}), and {why}"
    )
    return replace(
        found,
        code=obligation.proof.code or "PIT202",
        verdict="inconclusive",
        title=title,
        stage=obligation.key[:12],
        cause=None,
    )


def _explained(
    problem: Problem, found: Refused, obligation: Obligation, *, trying: bool
) -> list[Explained]:
    """Return the findings of a stage, each with an output that differs and a small input."""
    second, blocks = problem.parallel, found.run.blocks
    target = obligation.target
    found_here = _unexplained(second, obligation)

    def cut_of(value: int) -> Cut | None:
        return problem.specification.initial.get(value) or found.cuts.get(value)

    findings = _repaired(problem, cut_of, target) if trying else []
    if not findings and blocks is not None:
        try:
            run = run_stage_on_blocks(problem, cut_of, target, blocks)
            if run.largest[0] > SAME:
                found_here = _located(problem, run)
        # Without its values the stage is still named.
        except (PitcheckError, MemoryError):
            pass
    findings = findings or [found_here]
    if blocks is not None:
        path, unsaved = _witness(
            problem, cut_of, target, _differing(obligation), findings[0].finding, blocks
        )
        findings = [
            dataclasses.replace(each, finding=replace(each.finding, witness=path, unsaved=unsaved))
            for each in findings
        ]
    number = min(
        found.real,
        key=lambda n: _distance(
            second, found.run.comparisons[n].target.cut.value, target.cut.value
        ),
    )
    output, element, values = shown(found.run, number)
    facts = {
        "output": output,
        "element": element,
        "reference_value": values[0],
        "parallel_value": values[1],
    }
    return [dataclasses.replace(each, finding=replace(each.finding, **facts)) for each in findings]


def _repaired(problem: Problem, cut_of: CutOf, target: Target) -> list[Explained]:
    """Return findings of repairs that make a stage right; none if there are none.

    They are tried with other data at every coordinate.
    """
    try:
        run = run_stage(problem, cut_of, target)
        if run.largest[0] <= SAME:
            return []
        run = run_both_ways(run, [0], problem.options.max_memory)
        given = Specification(initial=dict(run.stage.cuts))
        cuts = conjecture(problem.specified(given), run)
        evidence = Evidence(problem.reference, problem.parallel, given, run, cuts)
        return [
            each for each in explained(evidence, run, [0], of_stage=True) if is_tried(each.finding)
        ]
    except (PitcheckError, MemoryError):  # the stage cannot be run by itself
        return []


def _located(problem: Problem, run: WholeRun) -> Explained:
    """Return what the values of a stage show at the first operator that is wrong."""
    given = Specification(initial=dict(run.stage.cuts))
    evidence = Evidence(run.stage.reference.graph, problem.parallel, given, run, {})
    value = run.comparisons[0].target.cut.value
    wrong = np.flatnonzero(compared_wrong(evidence, value))
    right = np.setdiff1d(run.comparisons[0].target.codes, wrong)
    sibling = first_sibling(evidence, value, wrong, right)
    told = None
    if sibling is not None:
        cause = sibling_cause(evidence, sibling)
        told = at(evidence, 0, sibling.step, sibling.value, cause)
        if not sibling.reduces:
            return explained_by(evidence, run, told, [0])
    cuts = conjecture(problem.specified(given), run)
    evidence = Evidence(run.stage.reference.graph, problem.parallel, given, run, cuts)
    expected = WrongValues(evidence)
    root = next(iter(expected.roots([value])), None)
    found = None if root is None else cause_at(AtOperator(expected, root))
    if sibling is not None and told is not None:
        better = found is not None and found.code in REDUCED
        if not better or root is None or root.step is not sibling.step:
            return explained_by(evidence, run, told, [0])
    if root is None or found is None or not found.explains:
        return explained_by(evidence, run, located(evidence, run, [0]), [0])
    return explained_by(evidence, run, at(evidence, 0, root.step, root.value, found), [0])


def _distance(second: Graph, output: int, value: int) -> tuple[bool, int]:
    """Return a key that sorts outputs computed after a value first, the nearest of them first."""
    own, other = second.depth(output), second.depth(value)
    return own < other, abs(own - other)


def _unexplained(second: Graph, obligation: Obligation) -> Explained:
    value = obligation.target.cut.value
    name = second.values[value].name
    codes = _differing(obligation)
    count = second.coordinates.microbatches
    writers = [second.nodes[w] for w in second.values[value].writers]
    diagnosis = Diagnosis(STAGE_DIFFERS, {"result": name})
    finding = Finding(
        code=diagnosis.code,
        verdict="mismatch",
        title=f"{name!r} is not what it should be",
        operator=f"{writers[-1].operator} ({writers[-1].kind})" if writers else None,
        ranks=tuple(sorted({int(c) // count for c in codes})),
        microbatches=tuple(sorted({int(c) % count for c in codes}))
        if second.values[value].tensor.microbatched
        else (),
        cause=messages.said(diagnosis),
    )
    return Explained(finding, writers[-1].operator if writers else None, name, [], diagnosis)


def _witness(
    problem: Problem,
    cut_of: CutOf,
    target: Target,
    codes: Codes,
    finding: Finding,
    blocks: Blocks,
) -> tuple[str | None, str | None]:
    """Save a small input of the stage at one coordinate at which it differs.

    Returns:
        The path of the file, or why it was not written; both None if none is found or wanted.
    """
    directory = problem.options.witness_directory
    if directory is None:
        return None, None

    def moved(value: int) -> Cut | None:
        cut = cut_of(value)
        return None if cut is None else blocks.of(cut)

    try:
        shaped, _, _ = shape_on_blocks(problem, moved, [_at(target, int(codes[0]))], blocks)
        sides = shaped.stage.reference.steps, shaped.stage.parallel.steps
        if (
            sum(map(len, sides)) > MOST_STEPS
            or sum(step.count for steps in sides for step in steps) > MOST_ROWS
        ):
            return None, None
        witness = witness_of(shaped, finding, problem.seed)
    except (PitcheckError, MemoryError):
        return None, None
    return (None, None) if witness is None else save_witness(witness, directory)


def _at(target: Target, code: int) -> Target:
    """Return the target at one coordinate; of a sum, at those of all its addends."""
    groups = target.cut.group_of
    codes = target.codes
    chosen = codes[codes == code] if groups is None else codes[groups[codes] == groups[code]]
    return dataclasses.replace(target, where=near(target.cut.lattice.mask(chosen), target.home))
