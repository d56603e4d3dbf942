"""The decisions of a check: how each verdict is reached, and the findings that go with it.

What explains a difference, or looks for one, is imported when first used: most checks prove their
pair and never need it, and it is a fifth of all that would be imported.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from pitcheck.engine.reporting import estimates, make_report
from pitcheck.engine.state import Check
from pitcheck.errors import BudgetError, ExplanationWarning, PitcheckError, PlanError
from pitcheck.graph.cuts import Cut
from pitcheck.precision.findings import precision_findings
from pitcheck.precision.rules import in_one_dtype
from pitcheck.prove.prover import Ledger
from pitcheck.report.findings.cut_short import cut_short
from pitcheck.report.report import Finding, FindingVerdict, Report, StageCounts
from pitcheck.stage.run_batch import StepError

if TYPE_CHECKING:
    from pitcheck.explain.failed_stages import Refused
    from pitcheck.refute.counted_differences import SecondLook

ADVICE = {
    "PIT202": "no real input shows a difference: the plans may be equal for real numbers alone, "
    "as |x| and sqrt(x * x) are; compute it as the reference does",
    "PIT203": "give --max-memory more, or check a smaller model of the same structure",
    "PIT205": "state the lineage of a tensor between the exponentials, so that they are proven "
    "apart",
    "PIT208": "--estimates accept takes such a bound; else decide by the reference's steps",
}
"""The advice on an output that is neither proven nor refuted, by the code of its finding."""
WRITE_ALIKE = (
    "the plans differ by no more than the rounding of their literals explains (1/3 in float32 is "
    "0.333333343): write such a number in the same way in both, or compute it by operators"
)
"""The advice on an output whose difference may be the rounding of literals."""
NOT_EXPLAINED = "it was not looked for, as --no-explain asks; the output differs all the same"
"""The cause in the finding of a difference that nobody asked to explain."""


def stopped(check: Check, error: PitcheckError) -> Report:
    """Return the report of a check that an error ended: wrong plans are invalid."""
    finding = _stop(error)
    check.findings.append(finding)
    return make_report(check, "invalid" if finding.verdict == "invalid" else "inconclusive")


def interrupted(check: Check, why: str) -> Report:
    """Return the report of a check that ends before its verdict, since ``why``.

    A difference that is shown is a mismatch, explained or not. Of outputs none is called proven: a
    proof of one stands on the stages that are still open.
    """
    if check.shown is not None:
        if not any(finding.verdict == "mismatch" for finding in check.findings):
            from pitcheck.explain.difference import unexplained  # noqa: PLC0415

            said = f"{why} before the cause was found; the output differs all the same"
            check.findings.insert(0, unexplained(check.shown, said))
        return make_report(check, "mismatch", check.shown)
    made = [proof for proof in check.proofs_so_far.values() if proof.attempts]
    proven = sum(proof.outcome == "proven" for proof in made)
    check.findings.append(cut_short(check.work, why, proven))
    check.ledger = Ledger()
    stages = StageCounts(
        total=max(check.work.total, len(made)),
        distinct=len(made),
        proven=proven,
        failed=sum(proof.outcome == "failed" for proof in made),
        inconclusive=sum(proof.outcome == "inconclusive" for proof in made),
    )
    return replace(make_report(check, "inconclusive"), stages=stages)


def _stop(error: PitcheckError) -> Finding:
    """Return the finding of an error that ended a check, or a part of it."""
    wrong = isinstance(error, PlanError)
    code, place, title = ("PIT008" if wrong else "PIT201"), None, str(error)
    if isinstance(error, PlanError):
        place, title = error.place or None, error.message
    elif isinstance(error, StepError):
        wrong = isinstance(error.cause, PlanError)
        code, place, title = "PIT003" if wrong else "PIT200", error.operator, str(error.cause)
    elif isinstance(error, BudgetError):
        code = "PIT203"
    verdict: Literal["invalid", "inconclusive"] = "invalid" if wrong else "inconclusive"
    return Finding(code=code, verdict=verdict, title=title, operator=place)


def mismatch(check: Check, found: SecondLook, refused: Refused | None = None) -> Report:
    """Return the report of a mismatch: this is the only way to exit code 1.

    ``found``: an input of both plans on which an output differs, as an arithmetic other than
    float64 showed. It is explained by the stages that are ``refused``, if given, else by that run.
    """
    if check.options.explain and refused is None and not check.causes:
        from pitcheck.refute.counted_differences import both_ways  # noqa: PLC0415

        check.shown = found.shown
        found = both_ways(check.problem, found)
    names = (found.run.comparisons[number].target.name for number in found.real)
    check.shown = found.shown
    check.differing = tuple(dict.fromkeys((found.shown.output, *names)))
    check.findings[:0] = _explained(check, found, refused)
    check.clock.lap("explain")
    if check.options.prove_rest:
        _prove_rest(check, {**found.cuts} if refused is None else check.hints)
    return make_report(check, "mismatch", found.shown)


def _prove_rest(check: Check, cuts: dict[int, Cut]) -> None:
    """Prove the outputs that do not differ over ``cuts``, unless a strategy did, and note the rest.

    Outputs that differ modulo a prime count with those that differ in the run: a large plan's run
    has few outputs. What stops the proofs is a finding more: the mismatch stands.
    """
    try:
        if not check.ledger.obligations:
            check.ledger = check.prover.run(cuts)
        failed = (o.output for o in check.ledger.open_outputs if o.proof.outcome == "failed")
        check.differing = tuple(dict.fromkeys((*check.differing, *failed)))
        _note_open(check)
    except PitcheckError as error:
        check.findings.append(_stop(error))
    except Exception as error:
        warnings.warn(traceback.format_exc(), ExplanationWarning, stacklevel=2)
        title = f"internal error: {type(error).__name__}: {error}, after the mismatch was found"
        check.findings.append(Finding(code="PIT900", verdict="invalid", title=title))
    check.clock.lap("evaluate")


def _explained(check: Check, found: SecondLook, refused: Refused | None) -> list[Finding]:
    """Return the findings of a difference, with its causes as far as they are found."""
    from pitcheck.explain.difference import (  # noqa: PLC0415
        explain_by_causes,
        explain_difference,
        unexplained,
    )
    from pitcheck.explain.failed_stages import explain_refused  # noqa: PLC0415

    if not check.options.explain:
        return [unexplained(found.shown, NOT_EXPLAINED)]
    try:
        if check.causes:
            return explain_by_causes(check.problem, found, check.causes)
        return (
            explain_refused(check.problem, refused)
            if refused is not None
            else explain_difference(check.problem, found.run, found.cuts, found.real, check.again)
        )
    except Exception as error:
        # The difference is shown already: a fault in the search for its cause must not hide it.
        warnings.warn(traceback.format_exc(), ExplanationWarning, stacklevel=2)
        why = (
            f"looking for the cause failed by a fault of pitcheck ({type(error).__name__}: "
            f"{error}); the output differs all the same; report both plans"
        )
        return [unexplained(found.shown, why)]


def concluded(check: Check) -> Report:
    """Return the report of a check that showed no difference.

    It is equivalent if every output is proven and nothing else is open; else it says what is open.
    """
    _note_open(check)
    left = check.ledger.open_outputs
    inconclusive = left or any(f.verdict == "inconclusive" for f in check.findings)
    return make_report(check, "inconclusive" if inconclusive else "equivalent")


def _note_open(check: Check) -> None:
    """Note every output that is neither proven nor known to differ, and broken precision rules."""
    explained = check.drawn.union(check.differing)
    rounded = _rounded(check)
    for obligation in (o for o in check.ledger.open_outputs if o.output not in explained):
        proof, tried = obligation.proof, f"; nor at {check.tried}" if check.tried else ""
        code = proof.code or "PIT202"
        value = obligation.target.cut.value
        operator, source = check.problem.parallel.last_operator(value)
        check.findings.append(
            Finding(
                code=code,
                verdict="inconclusive",
                title=f"{obligation.output!r} could not be proven: {proof.reason}{tried}",
                output=obligation.output,
                stage=obligation.key[:12] or None,
                operator=operator or None,
                source=source or None,
                repair=WRITE_ALIKE if obligation.output in rounded else ADVICE.get(code),
            )
        )
    # No verdict rests on the order of strategies: an output without an obligation is open, too.
    attempted = {obligation.output for obligation in check.ledger.obligations}
    for name in dict.fromkeys(e.name for e in check.specification.expected):
        if name not in attempted and name not in explained:
            title = f"{name!r} could not be proven: no stage ends in it"
            check.findings.append(
                Finding(code="PIT201", verdict="inconclusive", title=title, output=name)
            )
    if check.options.prove_rest and not check.ledger.budget.holds:
        title = "the proofs of some outputs may together err more often than --error-bound accepts"
        check.findings.append(Finding(code="PIT203", verdict="inconclusive", title=title))
    if check.options.estimates == "refuse":
        check.findings.extend(
            Finding(code="PIT208", verdict="inconclusive", title=why, repair=ADVICE["PIT208"])
            for why in estimates(check.ledger)
        )
    nodes = check.problem.parallel.nodes
    live = {nodes[n].operator for n in check.ledger.covered}
    check.dead = tuple(dict.fromkeys(n.operator for n in nodes if n.operator not in live))
    check.findings.extend(_imprecise(check))


def _rounded(check: Check) -> set[str]:
    """Return the open outputs that differ by what the rounding of literals explains."""
    failed = {o.output for o in check.ledger.open_outputs if o.proof.outcome == "failed"}
    if not failed:
        return set()
    from pitcheck.refute.literal_rounding import explained  # noqa: PLC0415

    try:
        names = [comparison.target.name for comparison in check.run.comparisons]
        numbers = [n for n, name in enumerate(names) if name in failed]
        return {names[n] for n in explained(check.run, numbers)}
    except PitcheckError:  # the plans are too large to run, or an operator cannot be
        return set()


def _imprecise(check: Check) -> Iterator[Finding]:
    """Yield a finding for every broken precision rule, along values that are given or proven equal.

    These findings say nothing of equality.
    """
    plans = check.reference, check.parallel
    if check.options.precision == "off" or in_one_dtype(plans):
        return
    proven = [o for o in check.ledger.obligations if o.proof.outcome == "proven"]
    outputs = [obligation.target.cut for obligation in proven if obligation.output]
    between = [o.target.cut for o in proven if not o.output] or _looked_up(check)
    graphs = check.problem.reference, check.problem.parallel
    verdict: FindingVerdict = "imprecise" if check.options.precision == "error" else "warning"
    given = check.specification.initial.values()
    yield from precision_findings(check.reference, graphs, given, between, outputs, verdict)


def _looked_up(check: Check) -> list[Cut]:
    """Return the cuts that a run suggests in plans so small that they were proven as one stage.

    Return none if the plans cannot be run.
    """
    try:
        return list(check.cuts.values())
    except PitcheckError:
        return []
