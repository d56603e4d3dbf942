"""The strategies of a check: each decides it and returns the report, or passes it on.

They act in the order of ``STRATEGIES``, from what is cheap and final to what is dear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from pitcheck.base.options import Options
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import specify
from pitcheck.engine.decisions import concluded, mismatch
from pitcheck.engine.reporting import make_report
from pitcheck.engine.state import MOST_REFUSED, Check
from pitcheck.errors import BudgetError, PitcheckError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.lowering import lower
from pitcheck.plan.instances import count_instances
from pitcheck.plan.model import PairAt, Plan
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.validate import examine
from pitcheck.prove.narrow_integers import wrapping
from pitcheck.prove.prover import MOST_UNCUT
from pitcheck.refute.block_run import colourings
from pitcheck.refute.larger_sizes import retried
from pitcheck.refute.misused_draws import misused
from pitcheck.refute.nearest_outputs import nearest_outputs
from pitcheck.refute.placed_draws import drops_alike, has_own_draws, with_places, without_drops
from pitcheck.refute.uninitialised import CONTENTS, MOST_NAMED, blamed, filled, reached
from pitcheck.refute.whole_run import WholeRun, conjecture, run_few, run_whole
from pitcheck.report.report import Finding, OperatorCounts, Report
from pitcheck.stage.equal_blocks import Batched

if TYPE_CHECKING:
    from pitcheck.refute.counted_differences import SecondLook
    from pitcheck.refute.random_streams import Unlike

KEPT = "masks of dropout that cannot be compared keep every element: that is a draw like any other"
"""An assumption of the report of a difference that shows only if nothing is dropped."""
Strategy = Callable[[Check], Report | None]
"""A step of a check: it returns the report if it decides the check, else None."""
MOST_NODES_TOGETHER = 60_000
"""The same limit as ``state.MOST_NODES``, if inputs of few different blocks have shown nothing."""


def validate(check: Check) -> Report | None:
    """Reject plans that break a rule; lower the others to graphs."""
    graphs = []
    sides = (check.reference, None, "reference"), (check.parallel, check.reference, "parallel")
    for plan, reference, side in sides:
        violations, matching = examine(plan, reference)
        check.findings.extend(_violation(v, side, plan) for v in violations)
        check.clock.lap("validate")
        if matching is None or any(v.severity == "error" for v in violations):
            if not check.findings:
                title = f"the {side} plan's communication does not match"
                check.findings.append(Finding(code="PIT005", verdict="invalid", title=title))
            return make_report(check, "invalid")
        graphs.append(lower(plan, matching))
        check.clock.lap("stages")
    check.graphs = graphs[0], graphs[1]
    return None


def _violation(violation: Violation, side: str, plan: Plan) -> Finding:
    """Return the finding of a broken rule of the plan of one side."""
    found = (o for o in plan.operators if o.id == violation.operator)
    operator = next(found, None) if violation.operator else None
    return Finding(
        code=violation.code,
        verdict="invalid" if violation.severity == "error" else "warning",
        title=f"{side} plan: {violation.message}",
        operator=violation.operator or violation.place or None,
        source=operator.source or operator.module or None if operator is not None else None,
        output=violation.tensor or None,
        ranks=violation.ranks,
        microbatches=violation.microbatches,
    )


def place_draws(check: Check) -> Report | None:
    """Give ranks that draw masks of their own elements the places of these in the reference's."""
    if not has_own_draws(check.parallel):
        return None
    placed = with_places(check.reference, check.parallel, check.seed, check.options)
    check.parallel = placed.plan
    if placed.misuses and _is_right(check, placed.meant):
        check.causes = misused(placed.misuses)
    if check.again is not None:
        check.again = partial(_placed_again, check.again, check.seed, check.options)
    return validate(check)


def _placed_again(
    again: PairAt, seed: int, options: Options, mesh: Mapping[str, int]
) -> Sequence[Plan]:
    """Return a pair of plans at another mesh, whose own draws have their places."""
    reference, parallel = again(mesh)
    if not has_own_draws(parallel):
        return reference, parallel
    return reference, with_places(reference, parallel, seed, options).plan


def _is_right(check: Check, parallel: Plan) -> bool:
    """Return True if both plans run, and no output differs in a run."""
    try:
        problem = Problem.of(check.reference, parallel, options=check.options, seed=check.seed)
        return not run_whole(problem).suspects()
    except PitcheckError:
        return False


def state_problem(check: Check) -> Report | None:
    """Read off both plans what is given and what must come out.

    Report ``nothing-checked`` if no output can be compared.
    """
    check.counts = OperatorCounts(
        reference=count_instances(check.reference),
        parallel=count_instances(check.parallel),
        records=len(check.reference.operators) + len(check.parallel.operators),
    )
    _specify(check)
    check.findings += [
        *wrapping(check.reference, "reference"),
        *wrapping(check.parallel, "parallel"),
    ]
    if check.specification.expected:
        return None
    code = "PIT500" if not check.specification.total else "PIT201"
    title = "no output was compared"
    check.findings.append(Finding(code=code, verdict="nothing-checked", title=title))
    return make_report(check, "nothing-checked")


def _specify(check: Check) -> None:
    """Set the problem of a check, and note the outputs that cannot be compared."""
    specification = specify(check.reference, check.parallel, *check.graphs)
    check.specification = specification
    check.problem = Problem(*check.graphs, specification, check.options, check.seed)
    check.clock.lap("lineage")
    missing = [
        (name, f"output {name!r} is not there to compare: {why}")
        for name, why in specification.missing
    ]
    changed = [
        (
            name,
            f"{side} plan: {of!r} is changed and not compared: {name!r}, its new value, is no "
            f"output that both plans have; name it in 'outputs'",
        )
        for side, name, of in specification.changed
    ]
    check.findings += [
        Finding(code="PIT201", verdict="inconclusive", title=title, output=name)
        for name, title in (*missing, *changed)
    ]
    gaps = [gap for gap in specification.gaps if gap.output]
    if gaps:
        from pitcheck.explain.difference import gap_finding  # noqa: PLC0415

        check.findings += [gap_finding(gap, "inconclusive") for gap in gaps]


def expose_unwritten_memory(check: Check) -> Report | None:
    """Decide plans whose outputs may depend on memory that nobody has written to.

    A mismatch if outputs differ with definite contents in that memory, else inconclusive.
    """
    found = reached(check.problem)
    if not found:
        return None
    undecided = [each.finding() for each in found[:MOST_NAMED]]
    for theirs, ours in CONTENTS if any(each.output for each in found) else ():
        plans = (
            filled(check.reference, theirs, "reference"),
            filled(check.parallel, ours, "parallel"),
        )
        report = _difference_of(check, *plans)
        if report is not None:
            findings = blamed(report.findings, found)
            # Whatever else differs, a baseline must not hide what no run decides.
            findings += undecided if check.options.prove_rest else []
            return msgspec.structs.replace(report, findings=tuple(findings))
    check.findings.extend(undecided)
    return make_report(check, "inconclusive")


def _difference_if_any(check: Check) -> Report | None:
    """Return the report of a mismatch; None if a run shows no difference or is not possible."""
    if validate(check) is not None:
        return None
    try:
        _specify(check)
        return run_on_reals(check)
    except PitcheckError:
        return None


def prove_over_hints(check: Check) -> Report | None:
    """Prove all outputs over the cuts that the parallel plan states itself."""
    ledger = check.prover.hope(check.hints)
    check.clock.lap("evaluate")
    if ledger is None:
        return None
    check.ledger = ledger
    return concluded(check)


def refute_failed_stages(check: Check) -> Report | None:
    """Decide large plans in which few stages over hints fail.

    Look for an input of both plans on which an output differs, and explain it by these stages. If
    there is none, the largest plans take hints for conjectures; smaller ones are passed on.
    """
    prover, parallel = check.prover, check.problem.parallel
    batch = check.large_batch
    if batch is None or not prover.refused:
        return None
    from pitcheck.explain.failed_stages import Refused, unproven  # noqa: PLC0415

    why = "no input that was tried shows a difference"
    try:
        found = _look_on_blocks(check, batch)
    except PitcheckError as error:
        found, why = None, f"no input was found on which they could be run together: {error}"
    check.clock.lap("lineage")
    if found is not None:
        return mismatch(check, found, Refused(found.run, found.real, prover.refused, check.hints))
    if check.batch_above(MOST_NODES_TOGETHER) is None:
        return None
    check.ledger = prover.run(check.hints)
    check.clock.lap("evaluate")
    if check.ledger.open_outputs:
        refused = prover.refused[:MOST_REFUSED]
        check.findings.extend(unproven(parallel, obligation, why) for obligation in refused)
    return concluded(check)


def _look_on_blocks(check: Check, batch: Batched) -> SecondLook | None:
    """Return a run on few different blocks of data in which an output differs; None without one."""
    from pitcheck.explain.failed_stages import first_refused, suspected  # noqa: PLC0415
    from pitcheck.refute.counted_differences import look_on_blocks  # noqa: PLC0415

    refused, problem = check.prover.refused, check.problem
    blocks = colourings(problem, batch, suspected(problem.parallel, refused[0]))
    differs = any(o.proof.outcome == "failed" for o in refused)
    nearest = nearest_outputs(
        problem.parallel, problem.specification.expected, first_refused(problem.parallel, refused)
    )
    return look_on_blocks(problem, blocks if differs else islice(blocks, 1), nearest)


def try_few_draws(check: Check) -> Report | None:
    """Decide large plans without hints that would need many draws, if a few are enough.

    They are enough if an output differs in them, or if the cuts that they suggest carry proofs of
    all outputs. If not, stages that were proven are not proven again.
    """
    if check.hints or check.problem.nodes <= MOST_UNCUT:
        return None
    try:
        run = run_few(check.problem)
        cuts = conjecture(check.problem, run) if run is not None else {}
    except BudgetError as error:
        check.too_large = str(error)
        return None
    except PitcheckError:  # the run of all draws says what is to be done about it
        return None
    check.clock.lap("lineage")
    if run is None:
        return None
    suspects = run.suspects()
    found = _counted(run, cuts)[0] if suspects else None
    if found is not None:
        return mismatch(check, found)
    return None if suspects else _proven_over(check, cuts)


def _counted(run: WholeRun, cuts: dict[int, Cut]) -> tuple[SecondLook | None, Mapping[int, Unlike]]:
    """Look at the outputs that differ in a run.

    Returns:
        What shows a difference that counts, or None; by number, why outputs have other draws.
    """
    from pitcheck.refute.counted_differences import SecondLook, count_differences  # noqa: PLC0415

    judged = count_differences(run, cuts, run.suspects())
    shown = judged.shown
    found = None if shown is None else SecondLook(run, cuts, judged.real, shown)
    return found, judged.draws


def _proven_over(check: Check, cuts: dict[int, Cut]) -> Report | None:
    """Prove all outputs over cuts that a run suggests; return None if some are left open."""
    ledger = check.prover.run(cuts)
    check.clock.lap("evaluate")
    if ledger.open_outputs:
        return None
    check.ledger = ledger
    return concluded(check)


def run_on_reals(check: Check) -> Report | None:
    """Run both plans on float64: report outputs that differ, and note those with other draws.

    Raises BudgetError if they do not fit: at full shapes, of the stage that did not fit before.
    """
    try:
        run, cuts = check.run, check.cuts
    except BudgetError:
        if check.problem.full_shapes and check.prover.over_budget:
            raise BudgetError(check.prover.over_budget) from None
        if check.too_large:
            raise BudgetError(check.too_large) from None
        raise
    check.clock.lap("lineage")
    found, draws = _counted(run, cuts)
    if found is not None:
        return mismatch(check, found)
    if draws and drops_alike(check.reference, check.parallel):
        report = _differ_without_drops(check)
        if report is not None:
            return report
    _note_draws(check, {run.comparisons[n].target.name: unlike for n, unlike in draws.items()})
    if check.drawn.issuperset(expected.name for expected in check.specification.expected):
        return concluded(check)
    return None


def _differ_without_drops(check: Check) -> Report | None:
    """Return the report of a mismatch that shows where no mask drops anything, None without one.

    Masks that cannot be compared may all be that one, which both plans draw at times.
    """
    assumed = (*check.parallel.assumptions, KEPT)
    parallel = msgspec.structs.replace(check.parallel, assumptions=assumed)
    return _difference_of(check, without_drops(check.reference), without_drops(parallel))


def _difference_of(check: Check, reference: Plan, parallel: Plan) -> Report | None:
    """Return the report of a mismatch of two other plans than those of a check, None without one.

    Nothing is proven of them, as it would say nothing of the plans of the check.
    """
    inner = Check(
        reference,
        parallel,
        replace(check.options, prove_rest=False),
        check.seed,
        check.xp,
        load_seconds=check.load_seconds,
        clock=check.clock,
        counts=check.counts,
    )
    return _difference_if_any(inner)


def _note_draws(check: Check, draws: Mapping[str, Unlike]) -> None:
    """Note the outputs that depend on draws that the reference does not take, by why they do."""
    check.drawn |= draws.keys()
    reasons: dict[str, list[str]] = {}
    for output, unlike in draws.items():
        reasons.setdefault(unlike.why, []).append(output)
    by_why = {unlike.why: unlike for unlike in draws.values()}
    check.findings += [_other_draws(by_why[why], outputs) for why, outputs in reasons.items()]


def _other_draws(unlike: Unlike, outputs: Sequence[str]) -> Finding:
    """Return the finding of outputs that depend on draws that the reference does not take."""
    first, node = outputs[0], unlike.node
    more = f" and {len(outputs) - 1} more outputs depend" if len(outputs) > 1 else " depends"
    if node is None:
        title = f"{first!r}{more} on other random numbers than the reference's: {unlike.why}"
        return Finding(code="PIT206", verdict="inconclusive", title=title, output=first)
    return Finding(
        code="PIT206",
        verdict="inconclusive",
        title=f"{unlike.why}; {first!r}{more} on it",
        output=first,
        operator=f"{node.operator} ({node.kind})",
        source=node.source,
        repair=unlike.advice,
    )


def look_early(check: Check) -> Report | None:
    """Look at further draws if a stage over hints differs: that costs less than proofs in vain."""
    if not check.prover.failed:
        return None
    from pitcheck.refute.counted_differences import early_look  # noqa: PLC0415

    found = early_look(check.problem)
    check.clock.lap("lineage")
    return None if found is None else mismatch(check, found)


def prove_over_conjectures(check: Check) -> Report | None:
    """Prove all outputs over the cuts that the run suggests.

    If that fails, proofs of whole outputs stand, if there are any.
    """
    check.ledger = check.prover.run(check.cuts)
    check.clock.lap("evaluate")
    whole = check.prover.uncut
    if check.ledger.open_outputs and whole is not None and whole.budget.holds:
        check.ledger = whole
    return None if check.ledger.open_outputs else concluded(check)


def look_again(check: Check) -> Report | None:
    """Look at the outputs whose stages differ: with more digits and on many other inputs."""
    failed = [o.output for o in check.ledger.open_outputs if o.proof.outcome == "failed"]
    if not failed:
        return None
    from pitcheck.refute.counted_differences import second_look  # noqa: PLC0415

    found = second_look(check.problem, check.run, check.cuts, failed)
    return None if found is None else mismatch(check, found)


def prove_at_larger_sizes(check: Check) -> Report | None:
    """Prove open outputs at larger sizes and full shapes, and conclude with what is left."""
    after = retried(check.prover, check.ledger)
    check.ledger, check.tried = after.ledger, after.tried
    check.clock.lap("evaluate")
    _note_other_draws(check)
    return concluded(check)


def _note_other_draws(check: Check) -> None:
    """Note the open outputs with other draws that by chance are equal on real numbers.

    Two random permutations of four rows are the same in one draw of 24.
    """
    from pitcheck.refute.counted_differences import incomparable  # noqa: PLC0415

    left = check.ledger.open_outputs
    names = {o.output for o in left if (o.proof.code or "PIT202") == "PIT202"} - check.drawn
    compared = ((c.target.name, n) for n, c in enumerate(check.run.comparisons))
    unlike = {name: incomparable(check.run, n) for name, n in compared if name in names}
    _note_draws(check, {name: each for name, each in unlike.items() if each is not None})


STRATEGIES: tuple[Strategy, ...] = (
    validate,
    place_draws,
    state_problem,
    expose_unwritten_memory,
    prove_over_hints,
    refute_failed_stages,
    try_few_draws,
    run_on_reals,
    look_early,
    prove_over_conjectures,
    look_again,
    prove_at_larger_sizes,
)
"""Every strategy in the order in which they act. The last one always decides."""
