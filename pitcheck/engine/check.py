"""A whole check: two plans in, a report out."""

from __future__ import annotations

import resource
import secrets
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any

import msgspec

from pitcheck.algebra.backend import array_module
from pitcheck.base.options import Options
from pitcheck.claims.hints import hinted_cuts
from pitcheck.claims.specification import Specification, specify
from pitcheck.errors import (
    BudgetError,
    ExplanationWarning,
    PitcheckError,
    PlanError,
    ReductionError,
    ShapeError,
    UnsupportedError,
    UsageError,
)
from pitcheck.explain.difference import explain_difference, gap_finding, unexplained
from pitcheck.explain.failed_stages import (
    Refused,
    explain_refused,
    first_refused,
    suspected,
    unproven,
)
from pitcheck.forks import usable_jobs
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import evaluate
from pitcheck.plan.instances import count_instances
from pitcheck.plan.model import Plan
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.validate import examine
from pitcheck.precision.findings import precision_findings
from pitcheck.precision.rules import in_one_dtype
from pitcheck.prove.narrow_integers import wrapping
from pitcheck.prove.prover import Ledger, Obligation, Prover
from pitcheck.prove.stage_proof import Settings
from pitcheck.refute.block_run import colourings, find_batch
from pitcheck.refute.judge import SecondLook, early_look, judge, look_on_blocks, second_look
from pitcheck.refute.larger_sizes import Retried, retried
from pitcheck.refute.nearest_outputs import nearest_outputs
from pitcheck.refute.uninitialised import CONTENTS, MOST_NAMED, Reached, blamed, filled, reached
from pitcheck.refute.whole_run import WholeRun, conjecture, run_whole
from pitcheck.report.report import (
    Finding,
    FindingVerdict,
    OperatorCounts,
    OutputCounts,
    Report,
    RoutedTokens,
    Seconds,
    Shown,
    StageCounts,
    Verdict,
)
from pitcheck.stage.equal_blocks import Batched
from pitcheck.stage.run_batch import StepError

Progress = Callable[[str, int, int], None]
MOST_NODES = 10_000
"""Nodes of the parallel plan times blocks of its batch up to which both plans are run with other
data at every coordinate.
"""
MOST_NODES_TOGETHER = 60_000
"""Up to so many that is done where an input of few different blocks shows nothing."""
MOST_REFUSED = 8
"""Different stages over hints that may fail before hints are not believed."""
SPARE_LOG2 = 12.0
"""Every obligation is proven to 2^-12 of the accepted error, so that a few thousand distinct ones
stay below it together; else all are proven again.
"""

OPEN = {
    "PIT202": "no real input shows a difference: the plans may be equal for real numbers alone, "
    "as |x| and sqrt(x * x) are; compute it as the reference does",
    "PIT203": "give --max-memory more, or check a smaller model of the same structure",
    "PIT205": "state the lineage of a tensor between the exponentials, so that they are proven "
    "apart",
}
"""What to do about an output that is neither proven nor refuted, by the code of its finding."""

LEAST_LOG2 = -1074.0
"""The least error that is claimed, the smallest float64 above 0: of outputs that nothing random
enters (integers, constants) the bound would be 0.
"""


@dataclass
class Clock:
    """Seconds per step of a check."""

    spent: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """Book the time since the last lap."""
        now = time.perf_counter()
        self.spent[name] = self.spent.get(name, 0.0) + now - self.last
        self.last = now

    def seconds(self, load: float) -> Seconds:
        """The volatile block of times."""
        rounded = {name: round(value, 4) for name, value in self.spent.items()}
        return Seconds(
            **rounded,
            load=round(load, 4),
            total=round(load + time.perf_counter() - self.started, 4),
        )


@dataclass
class _Check:
    """What is known while a check goes on."""

    reference: Plan
    parallel: Plan
    options: Options
    seed: int
    load_seconds: float
    clock: Clock = field(default_factory=Clock)
    findings: list[Finding] = field(default_factory=list)
    jobs: int = 1
    specification: Specification | None = None
    ledger: Ledger | None = None
    counts: OperatorCounts = field(default_factory=OperatorCounts)
    dead: tuple[str, ...] = ()
    templates: Templates = field(default_factory=lambda: Templates(evaluate))


def check(
    reference: Plan,
    parallel: Plan,
    options: Options,
    progress: Progress | None = None,
    load_seconds: float = 0.0,
) -> Report:
    """Decide whether ``parallel`` computes what ``reference`` computes.

    Bad plans give a report with verdict ``invalid``. Raises UsageError for wrong options, and
    nothing else on purpose.
    """
    seed = secrets.randbits(128) if options.seed is None else options.seed
    state = _Check(reference, parallel, options, seed, load_seconds)
    xp = array_module(options.backend)
    state.jobs = _jobs(options, xp)
    try:
        return _decide(state, xp, progress)
    except PlanError as error:
        state.findings.append(
            Finding(
                code="PIT008", verdict="invalid", title=error.message, operator=error.place or None
            )
        )
        return _report(state, "invalid", xp)
    except StepError as error:
        return _stopped(state, error, xp)
    except (UnsupportedError, BudgetError) as error:
        code = "PIT201" if isinstance(error, UnsupportedError) else "PIT203"
        state.findings.append(Finding(code=code, verdict="inconclusive", title=str(error)))
        return _report(state, "inconclusive", xp)


def _jobs(options: Options, xp: Any) -> int:
    """How many processes prove stages. Raises UsageError where more than one would need one GPU."""
    alone = xp.__name__ != "numpy"
    if options.jobs is None:
        return 1 if alone else usable_jobs()
    if alone and options.jobs > 1:
        raise UsageError("--jobs above 1 needs --backend numpy: a GPU is used by one process")
    return options.jobs


def _stopped(state: _Check, error: StepError, xp: object) -> Report:
    """An operator could not be evaluated: its shapes are wrong (invalid), or it has no meaning here
    (inconclusive).
    """
    invalid = isinstance(error.cause, PlanError)
    place = error.operator
    state.findings.append(
        Finding(
            code="PIT003" if invalid else "PIT200",
            verdict="invalid" if invalid else "inconclusive",
            title=str(error.cause),
            operator=place,
        )
    )
    return _report(state, "invalid" if invalid else "inconclusive", xp)


def _decide(state: _Check, xp: object, progress: Progress | None) -> Report:
    graphs = _validated(state)
    if graphs is None:
        return _report(state, "invalid", xp)
    first, second = graphs
    state.counts = _count(state)
    specification = state.specification = specify(state.reference, state.parallel, first, second)
    state.clock.lap("lineage")
    _missing_outputs(state, specification)
    state.findings += [
        *wrapping(state.reference, "reference"),
        *wrapping(state.parallel, "parallel"),
    ]
    if not specification.expected:
        code = "PIT500" if not specification.total else "PIT201"
        state.findings.append(
            Finding(code=code, verdict="nothing-checked", title="no output was compared")
        )
        return _report(state, "nothing-checked", xp)
    unwritten = reached(first, second, specification)
    return (
        _by_unwritten(state, unwritten, xp)
        if unwritten
        else _by_proof(state, graphs, specification, xp, progress)
    )


def _by_proof(
    state: _Check,
    graphs: tuple[Graph, Graph],
    specification: Specification,
    xp: object,
    progress: Progress | None,
) -> Report:
    """Proofs over hints; where these do not carry, a run on the reals, which shows a difference or
    what to cut at.
    """
    first, second = graphs
    batched = (
        None
        if state.options.shapes == "full"
        else _large_batch(first, second, specification, MOST_NODES)
    )
    prover = _prover(
        state,
        first,
        second,
        specification,
        xp,
        progress,
        patience=MOST_REFUSED if batched is not None else 0,
    )
    hints = hinted_cuts(first, second, specification)
    hinted = prover.hope(hints)
    state.clock.lap("evaluate")
    if hinted is not None:
        return _concluded(state, graphs, hinted, xp)
    if batched is not None and prover.refused:
        report = _by_refused(state, first, second, hints, batched, prover, xp)
        if report is not None:
            return report
    run = _run_whole(state, first, second, specification)
    cuts = conjecture(run, second, specification)
    state.clock.lap("lineage")
    judged = judge(run, cuts, run.suspects())
    if judged.shown is not None:
        return _mismatch(state, first, second, SecondLook(run, cuts, judged.real, judged.shown), xp)
    state.findings.extend(
        _unlike_draws(run.comparisons[n].target.name, why) for n, why in judged.draws.items()
    )
    return _prove(state, first, second, cuts, run, prover, xp)


def _by_unwritten(state: _Check, found: Sequence[Reached], xp: object) -> Report:
    """A mismatch where outputs differ with something definite in the memory that they depend on,
    else inconclusive.
    """
    for theirs, ours in CONTENTS if any(each.output for each in found) else ():
        plans = (
            filled(state.reference, theirs, "reference"),
            filled(state.parallel, ours, "parallel"),
        )
        report = _where_different(
            _Check(
                *plans,
                state.options,
                state.seed,
                state.load_seconds,
                state.clock,
                counts=state.counts,
            ),
            xp,
        )
        if report is not None:
            return msgspec.structs.replace(report, findings=tuple(blamed(report.findings, found)))
    state.findings.extend(each.finding() for each in found[:MOST_NAMED])
    return _report(state, "inconclusive", xp)


def _where_different(state: _Check, xp: object) -> Report | None:
    """The report of a mismatch, or None where a run of both plans shows no difference, or cannot
    be.
    """
    graphs = _validated(state)
    if graphs is None:
        return None
    try:
        specification = state.specification = specify(state.reference, state.parallel, *graphs)
        _missing_outputs(state, specification)
        run = _run_whole(state, *graphs, specification)
        cuts = conjecture(run, graphs[1], specification)
        judged = judge(run, cuts, run.suspects())
        if not judged.real or judged.shown is None:
            return None
        return _mismatch(state, *graphs, SecondLook(run, cuts, judged.real, judged.shown), xp)
    except PitcheckError:
        return None


def _large_batch(
    first: Graph, second: Graph, specification: Specification, least: int
) -> Batched | None:
    """The batch of a plan that is too large to be run with other data at every coordinate; None of
    a smaller one.
    """
    batched = find_batch(first, specification)
    return batched if batched is not None and batched.count * len(second.nodes) > least else None


def _by_refused(
    state: _Check,
    first: Graph,
    second: Graph,
    hints: dict[int, Cut],
    batched: Batched,
    prover: Prover,
    xp: object,
) -> Report | None:
    """Nearly all stages over hints are proven: look for an input of both plans on which an output
    differs, and explain it by the stages that do not hold.

    None where there is none, and the plans are small enough for something else. Of larger ones
    hints are taken for conjectures.
    """
    specification, options = prover.specification, state.options
    found, why = None, "no input that was tried shows a difference"
    try:
        blocks = colourings(
            second, specification, batched, suspected(second, prover.refused[0]), state.seed
        )
        tried = (
            blocks
            if any(o.proof.outcome == "failed" for o in prover.refused)
            else islice(blocks, 1)
        )
        near = nearest_outputs(
            second, specification.expected, first_refused(second, prover.refused)
        )
        found = look_on_blocks(
            first,
            second,
            specification,
            tried,
            near,
            state.seed,
            state.templates,
            options.max_memory,
        )
    except PitcheckError as error:
        why = f"no input was found on which they could be run together: {error}"
    state.clock.lap("lineage")
    if found is not None:
        return _mismatch(
            state, first, second, found, xp, Refused(found.run, found.real, prover.refused, hints)
        )
    if _large_batch(first, second, specification, MOST_NODES_TOGETHER) is None:
        return None
    ledger = prover.run(hints)
    state.clock.lap("evaluate")
    if _open(ledger):
        state.findings.extend(
            unproven(second, obligation, why) for obligation in prover.refused[:MOST_REFUSED]
        )
    return _concluded(state, (first, second), ledger, xp)


def _prover(
    state: _Check,
    first: Graph,
    second: Graph,
    specification: Specification,
    xp: object,
    progress: Progress | None,
    *,
    patience: int,
) -> Prover:
    options = state.options
    settings = Settings(
        xp,
        state.seed,
        options.error_bound_log2 - SPARE_LOG2,
        options.trials or 1,
        options.shapes == "full",
        options.max_memory,
        templates=state.templates,
        full_coordinates=options.coordinates == "full",
    )
    return Prover(
        first,
        second,
        specification,
        settings,
        progress,
        accepted_log2=options.error_bound_log2,
        jobs=state.jobs,
        patience=patience,
    )


def _run_whole(
    state: _Check, first: Graph, second: Graph, specification: Specification
) -> WholeRun:
    """Both plans on the reals: at reduced shapes, and at full ones where small ones do not fit
    together although the plans' own do.
    """
    full, memory = state.options.shapes == "full", state.options.max_memory
    try:
        return run_whole(
            first, second, specification, state.seed, full, state.templates, max_memory=memory
        )
    except (StepError, ReductionError) as error:
        if full or (
            isinstance(error, StepError)
            and not isinstance(error.cause, (ShapeError, ReductionError))
        ):
            raise
        return run_whole(
            first, second, specification, state.seed, True, state.templates, max_memory=memory
        )


def _mismatch(
    state: _Check,
    first: Graph,
    second: Graph,
    found: SecondLook,
    xp: object,
    refused: Refused | None = None,
) -> Report:
    """The one way to exit code 1: an input of both plans on which an output differs, which another
    arithmetic than float64 showed.

    Explained by the stages that are ``refused`` where there are such, else by that run.
    """
    specification, options = state.specification or Specification(), state.options
    try:
        if refused is not None:
            findings = explain_refused(
                first, second, specification, refused, options, state.seed, state.templates
            )
        else:
            findings = explain_difference(
                first, second, specification, found.run, found.cuts, found.real, options, state.seed
            )
    except Exception as error:
        # The difference is shown already: no fault in looking for its cause may take the verdict
        # away.
        warnings.warn(traceback.format_exc(), ExplanationWarning, stacklevel=2)
        findings = [unexplained(found.shown, error)]
    state.findings[:0] = findings
    state.clock.lap("explain")
    return _report(state, "mismatch", xp, found.shown)


def _unlike_draws(output: str, why: str) -> Finding:
    return Finding(
        code="PIT206",
        verdict="inconclusive",
        title=f"{output!r} depends on other random numbers than the reference's: {why}",
        output=output,
    )


def _validated(state: _Check) -> tuple[Graph, Graph] | None:
    """The graphs of both plans, or None when one of them is invalid."""
    graphs = []
    for plan, reference, side in (
        (state.reference, None, "reference"),
        (state.parallel, state.reference, "parallel"),
    ):
        violations, matching = examine(plan, reference)
        state.findings.extend(_violation(v, side, plan) for v in violations)
        if matching is None or any(v.severity == "error" for v in violations):
            state.clock.lap("validate")
            if not state.findings:
                state.findings.append(
                    Finding(
                        code="PIT005",
                        verdict="invalid",
                        title=f"the {side} plan's communication does not match",
                    )
                )
            return None
        state.clock.lap("validate")
        graphs.append(lower(plan, matching))
        state.clock.lap("stages")
    return graphs[0], graphs[1]


def _violation(violation: Violation, side: str, plan: Plan) -> Finding:
    operator = (
        next((o for o in plan.operators if o.id == violation.operator), None)
        if violation.operator
        else None
    )
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


def _missing_outputs(state: _Check, specification: Specification) -> None:
    for name, why in specification.missing:
        state.findings.append(
            Finding(
                code="PIT201",
                verdict="inconclusive",
                title=f"output {name!r} is not there to compare: {why}",
                output=name,
            )
        )
    for side, name, of in specification.changed:
        title = (
            f"{side} plan: {of!r} is changed and not compared: {name!r}, its new value, is no "
            f"output that both plans have; name it in 'outputs'"
        )
        state.findings.append(
            Finding(code="PIT201", verdict="inconclusive", title=title, output=name)
        )
    for gap in specification.gaps:
        if gap.output:
            state.findings.append(gap_finding(gap, "inconclusive"))


def _prove(
    state: _Check,
    first: Graph,
    second: Graph,
    cuts: dict[int, Cut],
    run: WholeRun,
    prover: Prover,
    xp: object,
) -> Report:
    full, memory = state.options.shapes == "full", state.options.max_memory
    if prover.failed:
        early = early_look(
            first,
            second,
            prover.specification,
            state.seed,
            state.templates,
            full_shapes=full,
            max_memory=memory,
        )
        state.clock.lap("lineage")
        if early is not None:
            return _mismatch(state, first, second, early, xp)
    ledger = prover.run(cuts)
    state.clock.lap("evaluate")
    failed = [o.output for o in _open(ledger) if o.proof.outcome == "failed"]
    again = None
    if failed:
        again = second_look(
            first,
            second,
            prover.specification,
            run,
            cuts,
            failed,
            state.seed,
            state.templates,
            full_shapes=full,
            max_memory=memory,
        )
    if again is not None:
        state.ledger = ledger
        return _mismatch(state, first, second, again, xp)
    after = retried(prover, ledger) if _open(ledger) else Retried(ledger)
    state.clock.lap("evaluate")
    return _concluded(state, (first, second), after.ledger, xp, after.tried)


def _open(ledger: Ledger) -> list[Obligation]:
    return [o for o in ledger.obligations if o.output and o.proof.outcome != "proven"]


def _concluded(
    state: _Check, graphs: tuple[Graph, Graph], ledger: Ledger, xp: object, tried: str = ""
) -> Report:
    """Equivalent where every output is proven, else what is left open and why; ``tried``: at which
    sizes, too, in vain.
    """
    state.ledger = ledger
    open_ones = _open(ledger)
    explained = {f.output for f in state.findings if f.code == "PIT206"}
    for obligation in (o for o in open_ones if o.output not in explained):
        proof = obligation.proof
        state.findings.append(
            Finding(
                code=proof.code or "PIT202",
                verdict="inconclusive",
                title=f"{obligation.output!r} could not be proven: "
                f"{proof.reason}{f'; nor at {tried}' if tried else ''}",
                output=obligation.output,
                stage=obligation.key[:12] or None,
                repair=OPEN.get(proof.code or "PIT202"),
            )
        )
    state.dead = _dead(graphs[1], ledger)
    state.findings.extend(_imprecise(state, graphs, ledger))
    inconclusive = open_ones or any(f.verdict == "inconclusive" for f in state.findings)
    return _report(state, "inconclusive" if inconclusive else "equivalent", xp)


def _imprecise(state: _Check, graphs: tuple[Graph, Graph], ledger: Ledger) -> Iterator[Finding]:
    """Broken precision rules, which say nothing of equality: of values that are given, or proven to
    be equal.
    """
    if (
        state.options.precision == "off"
        or state.specification is None
        or in_one_dtype((state.reference, state.parallel))
    ):
        return
    proven = [
        obligation for obligation in ledger.obligations if obligation.proof.outcome == "proven"
    ]
    outputs = [obligation.target.cut for obligation in proven if obligation.output]
    between = [
        obligation.target.cut for obligation in proven if not obligation.output
    ] or _looked_up(state, graphs)
    verdict: FindingVerdict = "imprecise" if state.options.precision == "error" else "warning"
    yield from precision_findings(
        state.reference, graphs, state.specification.initial.values(), between, outputs, verdict
    )


def _looked_up(state: _Check, graphs: tuple[Graph, Graph]) -> list[Cut]:
    """What values in between seem to be equal in plans so small that they were proven as one; none
    where they cannot be run.
    """
    specification = state.specification or Specification()
    try:
        return list(
            conjecture(_run_whole(state, *graphs, specification), graphs[1], specification).values()
        )
    except PitcheckError:
        return []


def _dead(graph: Graph, ledger: Ledger) -> tuple[str, ...]:
    live = {graph.nodes[n].operator for n in ledger.covered}
    return tuple(dict.fromkeys(node.operator for node in graph.nodes if node.operator not in live))


def _count(state: _Check) -> OperatorCounts:
    return OperatorCounts(
        reference=count_instances(state.reference),
        parallel=count_instances(state.parallel),
        records=len(state.reference.operators) + len(state.parallel.operators),
    )


def _report(state: _Check, verdict: Verdict, xp: object, shown: Shown | None = None) -> Report:
    specification = state.specification or Specification(total=len(state.reference.outputs))
    ledger = state.ledger or Ledger()
    used = {o.key: o.proof for o in ledger.obligations if o.key}
    proven = [o for o in ledger.obligations if o.output and o.proof.outcome == "proven"]
    error = min(0.0, max(LEAST_LOG2, ledger.budget.spent_log2)) if verdict == "equivalent" else 0.0
    primes = tuple(sorted({p for proof in used.values() for p in proof.primes}))
    return Report(
        verdict=verdict,
        exceptions=tuple(specification.exceptions),
        error_bound_log2=error,
        seed=state.seed,
        primes=primes,
        trials=max((p.trials for p in used.values()), default=0),
        backend=getattr(xp, "__name__", "numpy"),
        mesh={axis.name: axis.size for axis in state.parallel.mesh},
        ranks=prod(axis.size for axis in state.parallel.mesh),
        microbatches=state.parallel.microbatches,
        operators=state.counts,
        outputs=OutputCounts(total=specification.total, proven=len(proven)),
        stages=StageCounts(
            total=len(ledger.obligations),
            distinct=len(used),
            proven=sum(o.proof.outcome == "proven" for o in ledger.obligations),
            failed=sum(o.proof.outcome == "failed" for o in ledger.obligations),
            inconclusive=sum(o.proof.outcome == "inconclusive" for o in ledger.obligations),
            widened=sum(o.widened > 0 for o in ledger.obligations),
        ),
        seconds=state.clock.seconds(state.load_seconds),
        peak_memory_mb=_peak_memory(),
        assumptions=tuple(
            dict.fromkeys(
                [
                    *state.reference.assumptions,
                    *state.parallel.assumptions,
                    *specification.assumptions,
                ]
            )
        ),
        discrete_cases=tuple(dict.fromkeys(line for p in used.values() for line in p.discrete)),
        routing=_routed(ledger),
        reductions=tuple(dict.fromkeys(line for p in used.values() for line in p.reductions)),
        heuristic=("exponentials, roots, orders or keyed functions occur in a stage",)
        if any(p.heuristic for p in used.values())
        else (),
        not_covered=NOT_COVERED if verdict == "equivalent" else (),
        dead_operators=state.dead,
        shown=shown,
        findings=tuple(state.findings),
    )


def _routed(ledger: Ledger) -> tuple[RoutedTokens, ...]:
    """Where tokens went, once for every distinct stage that was proven, with the first tensor that
    it proves.
    """
    first: dict[str, Obligation] = {}
    for obligation in ledger.obligations:
        if obligation.key and obligation.proof.outcome == "proven":
            first.setdefault(obligation.key, obligation)
    return tuple(
        RoutedTokens(
            stage=key[:12],
            tensor=obligation.output or obligation.target.name,
            draws=seen.draws,
            tokens=seen.tokens,
            sender_receiver_pairs=seen.pairs,
            tokens_per_pair=seen.carried,
            source_expert_pairs=seen.choices,
            tokens_per_expert=seen.chosen,
            empty_experts=seen.empty,
            largest_share=round(seen.share, 3),
        )
        for key, obligation in first.items()
        if (seen := obligation.proof.routing) is not None
    )


NOT_COVERED = (
    "the discrete cases that were not tried",
    "the reduction of shapes to small sizes (--shapes full does without)",
    "the meanings of the operators, derived backward formulas among them",
    "the specification: lineage of inputs, parameters and outputs",
    "rounding: both plans are compared over exact numbers",
)


def _peak_memory() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 if sys.platform != "darwin" else 1 << 20), 1)
