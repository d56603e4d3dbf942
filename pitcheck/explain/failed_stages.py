"""Findings from the stages that do not hold over what a plan says of its tensors: each is explained
by itself, from what it reads to what it should give.

All other stages are proven, so that what such a stage reads is what it should be, on every input of
the plans. Its own steps are few, however many ranks, layers and micro-batches the plan has.
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
from pitcheck.explain.at_root import cause_at
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.difference import (
    Explained,
    at,
    explained,
    explained_by,
    gap_finding,
    is_tried,
    located,
    shown,
)
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.expected_values import Standing, compared_wrong
from pitcheck.explain.repairs.table import MOST_CODES
from pitcheck.explain.siblings import first_sibling, odd_writers, sibling_cause
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph
from pitcheck.graph.grids import Codes, near
from pitcheck.prove.prover import Obligation
from pitcheck.refute.block_run import run_stage_on_blocks, shape_on_blocks
from pitcheck.refute.whole_run import SAME, WholeRun, conjecture, run_stage
from pitcheck.report.report import Finding, TriedRepair
from pitcheck.stage.equal_blocks import Blocks
from pitcheck.stage.stage import CutOf, Target
from pitcheck.witness.shrink import witness_of
from pitcheck.witness.witness import save_witness

MOST_EXPLAINED = 5
MOST_STAGES = 12
"""Stages that are explained: those of one mistake are one finding."""
REDUCED = frozenset({"PIT104", "PIT105", "PIT106"})
"""Causes of which the values of an operator tell more than what others run in its place."""
MOST_ROWS = 4096
MOST_STEPS = 120
"""Steps of a stage, and rows of all of them, up to which its inputs are made small."""


@dataclass
class Refused:
    """The whole run in which outputs ``real`` differ, the stages that do not hold, and the cuts
    between which they lie.
    """

    run: WholeRun
    real: list[int]
    failed: Sequence[Obligation]
    cuts: Mapping[int, Cut]


def explain_refused(problem: Problem, found: Refused) -> list[Finding]:
    """Findings for the stages that do not hold, in the order of the program; each with an output of
    the whole pair that differs.

    Repairs are tried in one stage after the other until none is found in one: looking for none
    costs most.
    """
    second, specification = problem.parallel, problem.specification
    trying = second.codes <= MOST_CODES
    gaps = [gap_finding(gap, "mismatch") for gap in specification.gaps if not gap.output]
    families: dict[object, dict[str | None, Explained]] = {}
    for stages, obligation in enumerate(
        sorted(found.failed, key=lambda o: second.depth(o.target.cut.value))
    ):
        if len(families) + len(gaps) < MOST_EXPLAINED and stages < MOST_STAGES:
            blamed = {operator for places in families.values() for operator in places}
            if not blamed & {second.nodes[node].operator for node in obligation.nodes}:
                of_stage = _explained(problem, found, obligation, trying=trying)
                trying = any(is_tried(each.finding) for each in of_stage)
                for each in of_stage:
                    # What is only concluded, and not tried, is told place by place.
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
    """Return one finding of one mistake that was made at several places. ``more`` is said of it at
    the end.
    """
    first, *others = places
    finding = first.finding
    named = messages.places([(each.operator or "", each.tensor) for each in others])
    cause = f"{finding.cause}{named}{more}"
    effects = [each.finding.tried for each in places if each.finding.tried is not None]
    if not others or not effects:
        return replace(finding, cause=cause)
    right = tuple(dict.fromkeys(name for effect in effects for name in effect.right))
    effect = TriedRepair(right=right, compared=len(right))
    return replace(
        finding,
        cause=cause,
        repair=f"{messages.repair(first.diagnosis)} "
        f"{messages.tried(effect, mended=False, everything=0)}",
        tried=effect,
        ranks=tuple(sorted({rank for each in places for rank in each.finding.ranks})),
        microbatches=tuple(
            sorted({batch for each in places for batch in each.finding.microbatches})
        ),
    )


def _affected(found: Refused, total: int) -> str:
    """Which outputs differ, of all or of those that were run."""
    names = list(dict.fromkeys(found.run.comparisons[n].target.name for n in found.real))
    some = f"{', '.join(map(repr, names[:3]))}{' and others' if len(names) > 3 else ''}"
    if len({comparison.target.name for comparison in found.run.comparisons}) < total:
        return (
            f"; of {total} outputs the nearest were run, and {some} "
            f"differ{'s' if len(names) == 1 else ''}"
        )
    return f"; of {total} outputs {len(names)} differ, {some}"


def first_refused(second: Graph, failed: Sequence[Obligation]) -> list[int]:
    """The values at which the stages end that do not hold, the first of the program first; as many
    as are explained.
    """
    return sorted(dict.fromkeys(o.target.cut.value for o in failed), key=second.depth)[
        :MOST_EXPLAINED
    ]


def suspected(second: Graph, obligation: Obligation) -> Codes:
    """The codes at which a stage that does not hold runs a record of its own, else those at which
    its values differ.
    """
    odd = odd_writers(second, obligation.nodes)
    if odd:
        own: Codes = np.flatnonzero(second.nodes[odd[0][1]].mask)
        return own
    return _differing(obligation)


def _differing(obligation: Obligation) -> Codes:
    """Codes at which the values of a stage that does not hold differ; where that was not seen, one
    at which they are compared.
    """
    differing = obligation.proof.differing
    return obligation.target.codes[:1] if differing is None else differing


def unproven(second: Graph, obligation: Obligation, why: str) -> Finding:
    """The finding that a stage over hints does not hold, although no input of both plans shows a
    difference.
    """
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
    """The findings of a stage, and what they have in common: an output of the whole pair that
    differs, and a small input of the stage.
    """
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
        # the values of the stage cannot be had: it is named all the same
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
    """Repairs that make a stage right, tried with other data at every coordinate; none where
    nothing is found.
    """
    try:
        run = run_stage(problem, cut_of, target)
        if run.largest[0] <= SAME:
            return []
        given = Specification(initial=dict(run.stage.cuts))
        cuts = conjecture(problem.specified(given), run)
        evidence = Evidence(problem.reference, problem.parallel, given, run, cuts)
        return [
            each for each in explained(evidence, run, [0], of_stage=True) if is_tried(each.finding)
        ]
    except (PitcheckError, MemoryError):  # the stage cannot be run by itself
        return []


def _located(problem: Problem, run: WholeRun) -> Explained:
    """What is wrong at the first operator of a stage that reads what it should and gives something
    else.
    """
    given = Specification(initial=dict(run.stage.cuts))
    evidence = Evidence(run.stage.reference.graph, problem.parallel, given, run, {})
    value = run.comparisons[0].target.cut.value
    wrong = np.flatnonzero(compared_wrong(evidence, value))
    sibling = first_sibling(
        evidence, value, wrong, np.setdiff1d(run.comparisons[0].target.codes, wrong)
    )
    if sibling is not None and not sibling.reduces:
        return explained_by(
            evidence,
            run,
            at(evidence, 0, sibling.step, sibling.value, sibling_cause(evidence, sibling)),
            [0],
        )
    cuts = conjecture(problem.specified(given), run)
    evidence = Evidence(run.stage.reference.graph, problem.parallel, given, run, cuts)
    standing = Standing(evidence)
    root = next(iter(standing.roots([value])), None)
    cause = cause_at(standing, root) if root is not None else None
    if sibling is not None and not (
        cause is not None
        and cause.code in REDUCED
        and root is not None
        and root.step is sibling.step
    ):
        return explained_by(
            evidence,
            run,
            at(evidence, 0, sibling.step, sibling.value, sibling_cause(evidence, sibling)),
            [0],
        )
    if root is None or cause is None or not cause.explains:
        return explained_by(evidence, run, located(evidence, run, [0]), [0])
    return explained_by(evidence, run, at(evidence, 0, root.step, root.value, cause), [0])


def _distance(second: Graph, output: int, value: int) -> tuple[bool, int]:
    """Outputs computed after a value first, the nearest first of all."""
    own, other = second.depth(output), second.depth(value)
    return own < other, abs(own - other)


def _unexplained(second: Graph, obligation: Obligation) -> Explained:
    value = obligation.target.cut.value
    name = second.values[value].name
    codes = _differing(obligation)
    count = second.coordinates.microbatches
    writers = [second.nodes[w] for w in second.values[value].writers]
    diagnosis = Diagnosis(messages.STAGE_DIFFERS, {"result": name})
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
    """A small input of the stage, at one coordinate at which it differs, as a file, or why it is
    not written; both None where none is found or wanted.
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
    """The target at one coordinate; of a sum, at those of all its terms."""
    groups = target.cut.group_of
    codes = target.codes
    chosen = codes[codes == code] if groups is None else codes[groups[codes] == groups[code]]
    return dataclasses.replace(target, where=near(target.cut.lattice.mask(chosen), target.home))
