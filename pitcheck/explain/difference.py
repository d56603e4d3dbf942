"""From a real difference of outputs to findings: where it begins, on which ranks, why, and what
would mend it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from pitcheck.base.options import Options
from pitcheck.claims.conjecture import Floats, real_differences
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import Gap
from pitcheck.errors import PitcheckError
from pitcheck.explain import messages
from pitcheck.explain.at_root import cause_at
from pitcheck.explain.counterfactual import mended_by_a_reduction
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.expected_values import Standing
from pitcheck.explain.hypotheses import (
    constant_ratio,
    duplicated_part,
    factor,
    forgotten_sum,
    missing_term,
    other_operator,
    other_part,
    ratio_cause,
    spell,
)
from pitcheck.explain.search import Effect, Tried, effect_of, tried_repairs
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Codes
from pitcheck.refute.shown import global_place
from pitcheck.refute.whole_run import WholeRun, further_conjecture
from pitcheck.report.report import Finding, Shown, TriedRepair
from pitcheck.stage.batch import Step
from pitcheck.stage.evaluate import Comparison
from pitcheck.witness.shrink import find_witness
from pitcheck.witness.witness import save_witness

MOST_FINDINGS = 5


@dataclass(frozen=True)
class Located:
    """A diagnosis of which step (None: nothing computes it), value and coordinates are known, at
    output ``number``, which shows it.
    """

    number: int
    diagnosis: Diagnosis
    value: int
    others: tuple[Located, ...] = ()
    """The further places where the same mistake was made."""

    def operator(self, evidence: Evidence) -> str | None:
        """Return the plan's operator at fault; None if nothing computes what is wrong."""
        return None if self.diagnosis.step is None else evidence.operator(self.diagnosis.step)


@dataclass(frozen=True)
class Explained:
    """A finding, the operator and the tensor that it names, the numbers of the outputs that it
    explains, and the mistake itself.
    """

    finding: Finding
    operator: str | None
    tensor: str
    outputs: list[int]
    diagnosis: Diagnosis


def gap_finding(gap: Gap, verdict: str) -> Finding:
    """A part of a reference tensor that no rank holds."""
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
    problem: Problem, run: WholeRun, cuts: Mapping[int, Cut], differing: list[int]
) -> list[Finding]:
    """Findings for the outputs ``differing`` that differ on the reals, first cause first."""
    specification = problem.specification
    evidence = Evidence(
        problem.reference,
        problem.parallel,
        specification,
        run,
        {**further_conjecture(problem, run, cuts), **cuts},
    )
    gaps = [gap_finding(gap, "mismatch") for gap in specification.gaps if not gap.output]
    findings = [
        _witnessed(evidence, run, each.outputs, each.finding, problem.options, problem.seed)
        for each in explained(evidence, run, differing)
    ]
    parameters = {
        t.name for t in (v.tensor for v in problem.parallel.values) if t.role == "parameter"
    }
    # What a gap brings about is only named before it where a repair of something else was tried.
    tried = any(map(is_tried, findings))
    return (
        [*findings, *gaps][:MOST_FINDINGS]
        if tried
        else sorted([*gaps, *findings], key=lambda f: f.operator not in parameters)[:MOST_FINDINGS]
    )


def unexplained(shown: Shown, error: Exception) -> Finding:
    """Return the finding of a difference whose cause could not be looked for because of a fault of
    pitcheck itself.
    """
    return Finding(
        code="PIT100",
        verdict="mismatch",
        title=f"{shown.output!r} differs from the reference",
        output=shown.output,
        element=shown.element,
        reference_value=shown.reference_value,
        parallel_value=shown.parallel_value,
        cause=f"looking for the cause failed by a fault of pitcheck ({type(error).__name__}: "
        f"{error}); the output differs all the same; report both plans",
    )


def is_tried(finding: Finding) -> bool:
    """Whether the repair of a finding was tried, and not only concluded from what the
    values show.
    """
    return finding.tried is not None


def explained(
    evidence: Evidence, run: WholeRun, differing: list[int], *, of_stage: bool = False
) -> list[Explained]:
    """Findings: what was tried and makes all outputs right, else what the values show.
    ``of_stage``: of one of many.
    """
    seen = located(evidence, run, differing)
    operator = seen.operator(evidence)
    tried = tried_repairs(evidence, run, differing, operator)
    if not tried:
        return [explained_by(evidence, run, seen, differing)]
    effect = effect_of(evidence, run, tried, differing)
    return [
        _tried(
            evidence,
            run,
            each,
            differing,
            _said(run, each, effect, len(tried) > 1),
            seen,
            of_stage=of_stage,
        )
        for each in tried
    ]


def _tried(
    evidence: Evidence,
    run: WholeRun,
    tried: Tried,
    differing: list[int],
    effect: TriedRepair,
    seen: Located,
    *,
    of_stage: bool,
) -> Explained:
    """The finding of a repair that was tried. Where the values show the same cause at the same
    operator, they tell more of it, but for where.
    """
    own = at(
        evidence,
        tried.outputs[0],
        None,
        0 if tried.diagnosis.value is None else tried.diagnosis.value,
        tried.diagnosis,
    )
    told, operator = own, own.operator(evidence)
    if operator is not None and (seen.diagnosis.code, seen.operator(evidence)) == (
        own.diagnosis.code,
        operator,
    ):
        told = dataclasses.replace(
            seen, diagnosis=dataclasses.replace(seen.diagnosis, codes=own.diagnosis.codes)
        )
    others = [
        at(evidence, own.number, None, own.value if each.value is None else each.value, each)
        for each in tried.others
    ]
    everything = max(evidence.specification.total, len({c.target.name for c in run.comparisons}))
    words = messages.tried(
        effect, mended=not of_stage and len(tried.outputs) == len(differing), everything=everything
    )
    found = explained_by(evidence, run, told, list(tried.outputs), others)
    return dataclasses.replace(
        found,
        finding=replace(found.finding, repair=f"{found.finding.repair} {words}", tried=effect),
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


def _said(run: WholeRun, tried: Tried, effect: Effect, together: bool) -> TriedRepair:
    def names(numbers: Iterable[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.comparisons[n].target.name for n in numbers))

    return TriedRepair(
        right=names(tried.outputs),
        wrong=names(sorted(effect.wrong)),
        compared=len(names(effect.compared)),
        together=together,
    )


def _witnessed(
    evidence: Evidence,
    run: WholeRun,
    differing: list[int],
    finding: Finding,
    options: Options,
    seed: int,
) -> Finding:
    """The finding with a small witness, saved where the options say so."""
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


def located(evidence: Evidence, run: WholeRun, differing: list[int]) -> Located:
    """One finding: the first value, in the order of computation, from which an output goes wrong;
    if the values cannot be looked at, only that it does.
    """
    try:
        return _located(evidence, run, differing)
    except PitcheckError as error:
        number = min(
            differing, key=lambda n: evidence.second.depth(run.comparisons[n].target.cut.value)
        )
        return at(
            evidence,
            number,
            None,
            run.comparisons[number].target.cut.value,
            Diagnosis(messages.NOT_LOOKED_AT, {"error": error}),
        )


def _located(evidence: Evidence, run: WholeRun, differing: list[int]) -> Located:
    standing = Standing(evidence)
    rooted, sure = _rooted(standing, run, differing)
    if rooted is not None and (sure or standing.hinted):
        return rooted
    if not standing.hinted:
        cause = mended_by_a_reduction(evidence, run, differing)
        if cause is not None and cause.step is not None and cause.value is not None:
            first = min(
                differing, key=lambda n: evidence.second.depth(run.comparisons[n].target.cut.value)
            )
            return at(evidence, first, cause.step, cause.value, cause)
        # Every factor may be one that should not be there.
        again, sure = _rooted(Standing(evidence, unscaled=True), run, differing)
        if again is not None and sure:
            return again
    found = _along(evidence, run, differing)
    return rooted if rooted is not None and not found.diagnosis.explains else found


def _rooted(standing: Standing, run: WholeRun, differing: list[int]) -> tuple[Located | None, bool]:
    """The finding at the first wrong operator, and whether it is a cause that is seen before the
    outputs.
    """
    evidence = standing.evidence
    for n in sorted(
        differing, key=lambda n: evidence.second.depth(run.comparisons[n].target.cut.value)
    ):
        root = next(iter(standing.roots([run.comparisons[n].target.cut.value])), None)
        if root is not None:
            cause = cause_at(standing, root)
            value = root.value if cause.value is None else cause.value
            sure = cause.explains and value not in {c.target.cut.value for c in run.comparisons}
            return at(evidence, n, root.step, root.value, cause), sure
    return None, False


def _along(evidence: Evidence, run: WholeRun, differing: list[int]) -> Located:
    """One finding from what the values on the way to the outputs show, and then the outputs
    themselves.
    """
    number = min(
        differing, key=lambda n: evidence.second.depth(run.comparisons[n].target.cut.value)
    )
    chains = [_chain(evidence, run.comparisons[n].target.cut.value) for n in differing]
    suspects = _suspects(evidence, run, chains)
    # A value that a collective reduces is looked at last: what is wrong may only come after that
    # reduction.
    for step, value in sorted(suspects, key=lambda s: bool(evidence.reductions_of(s[1]))):
        cause = _cause_inside(evidence, run, value)
        if cause is not None and (not cause.reduced or not _explained(evidence, run, differing)):
            return at(evidence, number, step, value, cause)
    return _at_output(evidence, run, number, differing)


def _explained(evidence: Evidence, run: WholeRun, differing: list[int]) -> bool:
    """Whether the outputs themselves show a cause."""
    return any(_cause_of_output(evidence, run, n) is not None for n in differing)


def _chain(evidence: Evidence, value: int) -> set[int]:
    """The values through which an output goes wrong: back from it through values that are not known
    to be right.
    """
    chain = {value}
    stack = [value]
    while stack:
        for step in evidence.writers.get(stack.pop(), []):
            for source in evidence.inputs(step):
                if (
                    source not in chain
                    and not evidence.is_true(source)
                    and source not in evidence.unused(step)
                ):
                    chain.add(source)
                    stack.append(source)
    return chain


def _suspects(evidence: Evidence, run: WholeRun, chains: list[set[int]]) -> list[tuple[Step, int]]:
    """Values to look at, in the order of computation: those right parts that are doubled, then the
    members of the chains.
    """
    members = set().union(*chains)
    needed = {
        source
        for value in members
        for step in evidence.writers.get(value, [])
        for source in evidence.inputs(step)
    }
    stack = [value for value in needed if value not in members]
    while stack:  # parts that do not tile their tensor: where did that begin?
        for source in (
            s for step in evidence.writers.get(stack.pop(), []) for s in evidence.inputs(step)
        ):
            if (
                source not in needed
                and source in evidence.cuts
                and _cause_inside(evidence, run, source) is not None
            ):
                needed.add(source)
                stack.append(source)
    ordered: list[tuple[Step, int]] = []
    seen: set[int] = set()
    for step in evidence.batch.steps:
        for output in step.outputs:
            if (
                output is not None
                and output not in seen
                and (output in members or output in needed)
            ):
                seen.add(output)
                ordered.append((step, output))
    return ordered


def _cause_inside(evidence: Evidence, run: WholeRun, value: int) -> Diagnosis | None:
    outputs = {c.target.cut.value: c for c in run.comparisons}
    if value in evidence.cuts:
        cut = evidence.cuts[value]
        if value in outputs and outputs[value].target.cut.reference == cut.reference:
            return None
        if cut.scale == 1:
            return duplicated_part(evidence, value)
        return None
    if value in outputs:
        return None
    return forgotten_sum(evidence, value, None)


def _at_output(evidence: Evidence, run: WholeRun, number: int, differing: list[int]) -> Located:
    """No cause on the way: test what the outputs themselves say; the first cause found wins."""
    given = _left_as_given(evidence, run, differing)
    if given is not None:
        return given
    origin = _first_wrong(evidence, run, number)
    if origin is not None:
        return origin
    for candidate in sorted(
        differing, key=lambda n: evidence.second.depth(run.comparisons[n].target.cut.value)
    ):
        cause = _cause_of_output(evidence, run, candidate)
        if cause is not None:
            value = run.comparisons[candidate].target.cut.value
            step = evidence.writers[value][-1] if value in evidence.writers else None
            return at(evidence, candidate, step, value, cause)
    step, where = _origin(evidence, run, number)
    if step is None and where in evidence.writers:
        step = evidence.writers[where][-1]
        cause = other_operator(evidence, step, evidence.holds)
        if cause is not None:
            return at(evidence, number, step, where, cause)
    return at(evidence, number, step, where, Diagnosis(messages.NOT_FOUND))


def _left_as_given(evidence: Evidence, run: WholeRun, differing: list[int]) -> Located | None:
    """Return outputs that should be computed and are what was given, as one mistake; None if some
    of those that differ are computed.
    """
    found = []
    for n in differing:
        target, first = run.comparisons[n].target, evidence.first
        step = next(
            (step for step in run.stage.reference.steps if target.cut.reference in step.outputs),
            None,
        )
        if target.cut.value in evidence.writers or step is None:
            return None
        node = first.nodes[step.node]
        facts = {
            "output": target.name,
            "result": evidence.name(target.cut.value),
            "left_out": node.operator,
            "function": node.kind,
        }
        found.append(
            at(evidence, n, None, target.cut.value, Diagnosis(messages.LEFT_AS_GIVEN, facts))
        )
    return dataclasses.replace(found[0], others=tuple(found[1:]))


def _origin(evidence: Evidence, run: WholeRun, number: int) -> tuple[Step | None, int]:
    """The first computed value on the way to an output that is no part of any reference value."""
    value = run.comparisons[number].target.cut.value
    wrong = [
        (s, v)
        for s, v in _suspects(evidence, run, [_chain(evidence, value)])
        if not evidence.is_true(v)
    ]
    return wrong[0] if wrong else (None, value)


def _first_wrong(evidence: Evidence, run: WholeRun, number: int) -> Located | None:
    """The finding that the first wrong operator is another than the reference's, if that can be
    seen.
    """
    step, value = _origin(evidence, run, number)
    cause = other_operator(evidence, step, evidence.holds) if step is not None else None
    cut = evidence.cuts.get(value)
    if (
        cause is None
        and step is not None
        and cut is not None
        and cut.scale != 1
        and value != run.comparisons[number].target.cut.value
    ):
        cause = ratio_cause(evidence, value, factor(evidence, cut.scale), evidence.codes(value))
    return None if cause is None else at(evidence, number, step, value, cause)


def _cause_of_output(evidence: Evidence, run: WholeRun, number: int) -> Diagnosis | None:
    comparison = run.comparisons[number]
    value = comparison.target.cut.value
    actual, wanted = _real(comparison.actual), _real(comparison.expected)
    ratio = constant_ratio(evidence, actual, wanted)
    if ratio is not None:
        return ratio_cause(
            evidence, value, ratio[1], _all_codes(evidence, comparison, comparison.codes)
        )
    found = evidence.cuts.get(value)
    if found is not None:
        part = other_part(evidence, value, comparison.target.cut, found)
        if part is not None:
            return part
    if comparison.target.cut.group_of is None:
        codes = comparison.target.codes
        rows = {int(r): i for i, r in enumerate(evidence.batch.rows[value][comparison.codes])}
        wanted_at = wanted[:, [rows.get(int(evidence.batch.rows[value][c]), 0) for c in codes]]
        cause = forgotten_sum(evidence, value, (wanted_at, codes))
        if cause is not None:
            return cause
    wrong = np.flatnonzero(
        (real_differences(comparison.actual, comparison.expected) > 1e-9).any(
            axis=tuple(i for i in range(actual.ndim) if i != 1)
        )
    )
    if 0 < len(wrong) < actual.shape[1]:
        partial = constant_ratio(evidence, actual[:, wrong], wanted[:, wrong])
        if partial is not None:
            return ratio_cause(
                evidence,
                value,
                partial[1],
                _all_codes(evidence, comparison, comparison.codes[wrong]),
            )
        return Diagnosis(
            messages.REPLICAS_DIFFER,
            {"result": evidence.name(value)},
            _all_codes(evidence, comparison, comparison.codes[wrong]),
        )
    return missing_term(evidence, actual, wanted)


def _all_codes(evidence: Evidence, comparison: Comparison, codes: Codes) -> Codes:
    """All codes compared that hold the same rows as ``codes``, of which only one per row
    is named.
    """
    rows = evidence.batch.rows[comparison.target.cut.value]
    every: Codes = comparison.target.codes[np.isin(rows[comparison.target.codes], rows[codes])]
    return every


def _real(value: object) -> Floats:
    data: Floats = np.asarray(getattr(value, "data"), dtype=np.float64)[0]  # noqa: B009
    return data


def at(evidence: Evidence, number: int, step: Step | None, value: int, found: Diagnosis) -> Located:
    """Return a diagnosis with all that it leaves open: the step and the value that were asked
    about, and the coordinates of that.
    """
    value = value if found.value is None else found.value
    codes = found.codes if found.codes is not None else evidence.codes(value)
    return Located(number, dataclasses.replace(found, codes=codes, step=found.step or step), value)


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
    further.pop((operator or "", evidence.name(found.value)), None)
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
        title=messages.title(diagnosis.code, output, evidence.name(found.value)),
        output=output,
        operator=f"{operator} ({record.kind})" if record is not None else None,
        source=(record.source or None) if record is not None else None,
        ranks=evidence.ranks_of(codes),
        microbatches=evidence.microbatches_of(found.value, codes),
        element=element,
        reference_value=values[0],
        parallel_value=values[1],
        cause=messages.said(diagnosis) + messages.places(list(further)),
        repair=messages.repair(diagnosis) or None,
    )


def shown(run: WholeRun, number: int) -> tuple[str, tuple[int, ...], tuple[str, str]]:
    """Of an output that differs: its name, the element that differs most, and what it is in the
    reference and in the parallel plan.
    """
    comparison = run.comparisons[number]
    differences = real_differences(comparison.actual, comparison.expected)
    place = np.unravel_index(
        int(np.argmax(np.where(comparison.judged[:1], differences, -1))), differences.shape
    )
    box = run.shaped.boxes[number][int(comparison.parts[int(place[1])])]
    element = tuple(
        global_place(int(i), intervals) for i, intervals in zip(place[2:], box, strict=True)
    )
    return comparison.target.name, element, _shown_apart(comparison, place)


def _shown_apart(comparison: Comparison, place: tuple[np.intp, ...]) -> tuple[str, str]:
    """Both values with as many digits as it takes to tell them apart; what only more digits than
    float64's tell apart is said so.
    """
    pair = [_element(value, place) for value in (comparison.expected, comparison.actual)]
    for digits in (9, 17):
        expected, actual = (f"{x:.{digits}g}" for x in pair)
        if expected != actual:
            return expected, actual
    return expected, f"{actual} (differs beyond the 17th digit)"


def _element(value: object, place: tuple[np.intp, ...]) -> float:
    data = _real(value)
    return float(data[tuple(min(int(i), n - 1) for i, n in zip(place, data.shape, strict=True))])
