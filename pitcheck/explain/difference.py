"""From outputs that differ to findings: where the mistake is, on which ranks, and what mends it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from msgspec.structs import replace

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import Gap
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.held_values import (
    Place,
    element_at,
    held_values,
    whole_place,
    worst_place,
)
from pitcheck.explain.messages import spell
from pitcheck.explain.observations.moved_rows import moved_rows
from pitcheck.explain.observe import Located, at, located
from pitcheck.explain.other_meshes import Confirmed, Situation, confirmed, mends
from pitcheck.explain.search import Effect, Tried, effect_of, tried_repairs
from pitcheck.explain.steps_around import steps_around
from pitcheck.graph.cuts import Cut
from pitcheck.plan.model import PairAt
from pitcheck.refute.counted_differences import SecondLook
from pitcheck.refute.shown import global_place
from pitcheck.refute.whole_run import WholeRun, further_conjecture
from pitcheck.report.report import Finding, Shown, TriedRepair
from pitcheck.stage.evaluate import Comparison
from pitcheck.witness.shrink import find_witness
from pitcheck.witness.witness import save_witness


@dataclass(frozen=True)
class Explained:
    """A finding with its mistake.

    ``operator`` and ``tensor``: what it names. ``outputs``: the numbers of the outputs that it
    explains.
    """

    finding: Finding
    operator: str | None
    tensor: str
    outputs: list[int]
    diagnosis: Diagnosis


def gap_finding(gap: Gap, verdict: str) -> Finding:
    """Return the finding of a part of a reference tensor that no rank holds."""
    return Finding(
        code="PIT110",
        verdict="mismatch" if verdict == "mismatch" else "inconclusive",
        title=f"part {spell(gap.box)} of {gap.reference!r} is held by no rank",
        output=gap.reference,
        operator=gap.tensor,
        cause=f"the shards of {gap.tensor!r} over all ranks do not cover {gap.reference!r}",
        repair=f"let some rank hold {spell(gap.box)}",
    )


def explain_difference(
    problem: Problem,
    run: WholeRun,
    cuts: Mapping[int, Cut],
    differing: list[int],
    again: PairAt | None = None,
) -> list[Finding]:
    """Return findings for the outputs ``differing``, the first cause first.

    ``again`` makes the pair at other mesh sizes, where repairs are tried, too; None: it cannot be.
    """
    specification = problem.specification
    evidence = Evidence(
        problem.reference,
        problem.parallel,
        specification,
        run,
        {**further_conjecture(problem, run, cuts), **cuts},
    )
    gaps = [gap_finding(gap, "mismatch") for gap in specification.gaps if not gap.output]

    def confirm(found: list[Tried]) -> Confirmed:
        if again is None:
            return Confirmed(found)
        return confirmed(found, Situation(evidence, run, differing), problem, again)

    findings = [
        _witnessed(evidence, run, each.outputs, each.finding, problem.options, problem.seed)
        for each in explained(evidence, run, differing, confirm)
    ]
    # A gap may cause the differences, so it comes first unless another repair was tried.
    if any(map(is_tried, findings)):
        return [*findings, *gaps]
    roles = {v.tensor.name: v.tensor.role for v in problem.parallel.values}
    return sorted([*gaps, *findings], key=partial(_place, roles))


def explain_by_causes(
    problem: Problem, found: SecondLook, causes: Sequence[Finding]
) -> list[Finding]:
    """Return findings of another pair, with what differs here in place of what differs there.

    ``causes``: findings whose repairs together are known to make this pair right.
    """
    run, shown = found.run, found.shown
    evidence = Evidence(problem.reference, problem.parallel, problem.specification, run, found.cuts)
    here = [
        replace(
            cause,
            output=shown.output,
            element=shown.element,
            reference_value=shown.reference_value,
            parallel_value=shown.parallel_value,
            stage=None,
            held=None,
        )
        for cause in causes
    ]
    options, seed = problem.options, problem.seed
    return [_witnessed(evidence, run, found.real, each, options, seed) for each in here]


def _place(roles: Mapping[str, str | None], finding: Finding) -> int:
    """Return the place of a finding whose repair was not tried among others.

    An optimizer that leaves out a parameter has no state for it: that gap follows from the mistake.
    """
    if finding.code == "PIT100":
        return 3
    return {"parameter": 0, "optimizer_state": 2}.get(roles.get(finding.operator or "") or "", 1)


def unexplained(shown: Shown, why: str) -> Finding:
    """Return the finding of a difference whose cause is not known, and ``why``."""
    return Finding(
        code="PIT100",
        verdict="mismatch",
        title=f"{shown.output!r} differs from the reference",
        output=shown.output,
        element=shown.element,
        reference_value=shown.reference_value,
        parallel_value=shown.parallel_value,
        cause=why,
    )


def is_tried(finding: Finding) -> bool:
    """Return True if the repair of a finding was tried, and not only concluded from values."""
    return finding.tried is not None


def explained(
    evidence: Evidence,
    run: WholeRun,
    differing: list[int],
    confirm: Callable[[list[Tried]], Confirmed] = Confirmed,
    *,
    of_stage: bool = False,
) -> list[Explained]:
    """Return findings: the repairs that make all outputs right, else what the values show.

    ``confirm`` tries repairs at other meshes. ``of_stage``: True for a stage, whose outputs are not
    those of the plan.
    """
    seen = cache(partial(located, evidence, run, differing))
    tried = tried_repairs(evidence, run, differing, lambda: seen().operator(evidence))
    if not tried:
        return [explained_by(evidence, run, seen(), differing)]
    result = confirm(tried) if mends(tried, differing) else Confirmed(tried)
    effect = effect_of(evidence, run, result.found, differing)
    return [
        _tried(
            evidence,
            run,
            each,
            differing,
            _said(run, each, effect, result),
            effect.one_sided,
            of_stage=of_stage,
        )
        for each in result.found
    ]


def _tried(
    evidence: Evidence,
    run: WholeRun,
    tried: Tried,
    differing: list[int],
    effect: TriedRepair,
    one_sided: Sequence[str],
    *,
    of_stage: bool,
) -> Explained:
    """Return the finding of a repair that was tried."""
    value = 0 if tried.diagnosis.value is None else tried.diagnosis.value
    own = at(evidence, tried.outputs[0], None, value, tried.diagnosis)
    others = [
        at(evidence, own.number, None, own.value if each.value is None else each.value, each)
        for each in tried.others
    ]
    everything = max(evidence.specification.total, len({c.target.name for c in run.comparisons}))
    words = messages.tried(
        effect,
        mended=not of_stage and len(tried.outputs) == len(differing),
        everything=everything,
        mesh=evidence.second.coordinates.sizes,
        one_sided=one_sided,
        sought=run.sought,
    )
    found = explained_by(evidence, run, own, list(tried.outputs), others)
    return dataclasses.replace(
        found,
        finding=replace(
            found.finding,
            repair=f"{found.finding.repair} ({words})",
            tried=replace(effect, said=words),
        ),
    )


def explained_by(
    evidence: Evidence,
    run: WholeRun,
    found: Located,
    outputs: list[int],
    others: Iterable[Located] = (),
) -> Explained:
    """Return the finding of a mistake that was located, with the mistake itself."""
    finding = finding_of(evidence, run, found, others)
    return Explained(
        finding, found.operator(evidence), evidence.name(found.value), outputs, found.diagnosis
    )


def _said(run: WholeRun, tried: Tried, effect: Effect, result: Confirmed) -> TriedRepair:
    def names(numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.comparisons[n].target.name for n in numbers))

    return TriedRepair(
        right=names(tried.outputs),
        wrong=names(sorted(effect.wrong)),
        compared=len(names(effect.compared)),
        together=len(result.found) > 1,
        meshes=() if effect.wrong else tuple(map(dict, result.meshes)),
        faultless=tuple(map(dict, result.faultless)),
    )


def _witnessed(
    evidence: Evidence,
    run: WholeRun,
    differing: list[int],
    finding: Finding,
    options: Options,
    seed: int,
) -> Finding:
    """Return a finding with a small witness, which is saved if the options say so."""
    given = {
        value: cut
        for value, cut in evidence.cuts.items()
        if cut.scale == 1 and cut.group_of is None
    }
    given |= evidence.specification.initial
    wrong = {run.comparisons[n].target.cut.value for n in differing}
    targets = [run.comparisons[n].target for n in differing]
    witness = find_witness(
        evidence.first,
        evidence.second,
        {v: c for v, c in given.items() if v not in wrong or v in evidence.specification.initial},
        targets,
        finding,
        seed,
    )
    if witness is None:
        return finding
    path, unsaved = save_witness(witness, options.witness_directory)
    return replace(
        finding,
        output=witness.output,
        element=tuple(
            global_place(i, tuple(box))
            for i, box in zip(witness.compared.element, witness.compared.box, strict=True)
        ),
        reference_value=witness.reference_value,
        parallel_value=witness.parallel_value,
        witness=path,
        unsaved=unsaved,
    )


def finding_of(
    evidence: Evidence, run: WholeRun, found: Located, others: Iterable[Located] = ()
) -> Finding:
    """Return the finding of a mistake. ``others``: the further places where it was made."""
    diagnosis, several = found.diagnosis, [found, *found.others, *others]
    output, element, values = shown(run, found.number)
    operator = found.operator(evidence)
    record = evidence.second.nodes[diagnosis.step.node] if diagnosis.step is not None else None
    further = dict.fromkeys(
        (each.operator(evidence) or "", evidence.name(each.value)) for each in several[1:]
    )
    name = evidence.name(found.value)
    further.pop((operator or "", name), None)
    tensors = [tensor for _, tensor in further]
    told = len(messages.in_title(name, tensors)[1])
    places = "" if 0 < told <= messages.MOST_IN_TITLE else messages.places(list(further))
    codes = np.unique(
        np.concatenate(
            [
                evidence.codes(each.value) if (of := each.diagnosis.codes) is None else of
                for each in several
            ]
        )
    )
    return Finding(
        code=diagnosis.code,
        verdict="mismatch",
        title=messages.title(diagnosis, output, name, tensors),
        output=output,
        operator=f"{operator} ({record.kind})" if record is not None else None,
        source=(record.source or None) if record is not None else None,
        ranks=evidence.ranks_of(codes),
        microbatches=evidence.microbatches_of(found.value, codes),
        element=element,
        reference_value=values[0],
        parallel_value=values[1],
        cause=f"{messages.said(diagnosis)}{places}{moved_rows(evidence, found.number)}",
        repair=messages.repair(diagnosis) or None,
        edits=messages.edits([_named(evidence, each) for each in several]),
        steps=steps_around(evidence, found),
        held=held_values(evidence, found.number),
    )


def _named(evidence: Evidence, found: Located) -> Diagnosis:
    """Return a diagnosis that says its operator, the kind of it, and its result by name."""
    name, step = evidence.name(found.value), found.diagnosis.step
    kind = "given" if step is None else evidence.second.nodes[step.node].kind
    operator = found.operator(evidence)
    return found.diagnosis.named(operator=operator or name, kind=kind, result=name)


def shown(run: WholeRun, number: int) -> tuple[str, tuple[int, ...], tuple[str, str]]:
    """Return the element of an output that differs most.

    Returns:
        The name of the output, the place of the element in the whole tensor, and its value in the
        reference and in the parallel plan.
    """
    comparison, place = run.comparisons[number], worst_place(run, number)
    return (
        comparison.target.name,
        whole_place(run, number, place),
        _shown_apart(comparison, place),
    )


def _shown_apart(comparison: Comparison, place: Place) -> tuple[str, str]:
    """Return both values with as many digits as it takes to tell them apart."""
    pair = [element_at(value, place) for value in (comparison.expected, comparison.actual)]
    for digits in (9, 17):
        expected, actual = (f"{x:.{digits}g}" for x in pair)
        if expected != actual:
            return expected, actual
    return expected, f"{actual} (differs beyond the 17th digit)"
