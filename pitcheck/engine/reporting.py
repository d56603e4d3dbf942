"""The report of a check: what was decided, with the evidence and the counts behind it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from math import prod
from typing import Any

import msgspec
import numpy as np

from pitcheck.engine.state import Check
from pitcheck.plan.model import Plan
from pitcheck.prove.proof import Proof
from pitcheck.prove.prover import Ledger, Obligation
from pitcheck.report.report import (
    OutputCounts,
    Report,
    RoutedTokens,
    Shown,
    StageCounts,
    Verdict,
)

LEAST_LOG2 = -1074.0
"""The least error that is claimed, that of the smallest float64 above 0. The bound would be 0 for
outputs that nothing random enters (integers, constants).
"""
UNTRIED = "the discrete cases that were not tried"
UNREAD = "no draw read some row of a table that drawn integers index"
TOGETHER = "what integers of several choices decide together was tried and not proven"
"""The reason for an estimate of a stage in which tokens share an expert, for example."""
NOT_COVERED = (
    "the meanings of the operators, derived backward formulas among them",
    "the specification: lineage of inputs, parameters and outputs",
    "rounding: both plans are compared over exact numbers",
)
"""The limits of what an equivalent verdict says, besides the sizes that were tried."""


def _backend(xp: Any, proofs: Collection[Proof]) -> str:
    """Return the array module by name, and how many distinct stages another one proved."""
    name: str = xp.__name__
    moved = sum(proof.on_gpu for proof in proofs) if xp is np else 0
    return name if not moved else f"{name}, cupy for {moved} of {len(proofs)} distinct stages"


def left_out(plan: Plan) -> tuple[str, ...]:
    """Return the sentences on what a plan leaves out of its program."""
    return () if plan.left_out is msgspec.UNSET else plan.left_out


def make_report(check: Check, verdict: Verdict, shown: Shown | None = None) -> Report:
    """Return the report of a check that is decided. ``shown``: the difference behind a mismatch."""
    specification, ledger = check.specification, check.ledger
    used = {o.key: o.proof for o in ledger.obligations if o.key}
    proven = [o for o in ledger.obligations if o.output and o.proof.outcome == "proven"]
    error = min(0.0, max(LEAST_LOG2, ledger.budget.spent_log2)) if verdict == "equivalent" else 0.0
    primes = tuple(sorted({p for proof in used.values() for p in proof.primes}))
    return Report(
        verdict=verdict,
        exceptions=(
            *left_out(check.reference),
            *left_out(check.parallel),
            *specification.exceptions,
        ),
        error_bound_log2=error,
        seed=check.seed,
        primes=primes,
        trials=max((p.trials for p in used.values()), default=0),
        backend=_backend(check.xp, used.values()),
        mesh={axis.name: axis.size for axis in check.parallel.mesh},
        ranks=prod(axis.size for axis in check.parallel.mesh),
        microbatches=check.parallel.microbatches,
        operators=check.counts,
        outputs=OutputCounts(total=specification.total, proven=len(proven)),
        stages=StageCounts(
            total=len(ledger.obligations),
            distinct=len(used),
            proven=sum(o.proof.outcome == "proven" for o in ledger.obligations),
            failed=sum(o.proof.outcome == "failed" for o in ledger.obligations),
            inconclusive=sum(o.proof.outcome == "inconclusive" for o in ledger.obligations),
            widened=sum(o.widened > 0 for o in ledger.obligations),
            every_size=sum(
                o.proof.outcome == "proven" and not o.proof.sizes for o in ledger.obligations
            ),
        ),
        remembered=0
        if check.remembered is None
        else sum(form in check.remembered.found for form in used),
        seconds=check.clock.seconds(check.load_seconds),
        peak_memory_mb=_peak_memory(),
        assumptions=tuple(
            dict.fromkeys(
                [
                    *check.reference.assumptions,
                    *check.parallel.assumptions,
                    *specification.assumptions,
                ]
            )
        ),
        discrete_cases=tuple(dict.fromkeys(line for p in used.values() for line in p.discrete)),
        routing=_routed(ledger),
        reductions=tuple(dict.fromkeys(line for p in used.values() for line in p.reductions)),
        heuristic=estimates(ledger),
        not_covered=(UNTRIED, *_sizes(ledger, len(used)), *NOT_COVERED)
        if verdict == "equivalent"
        else (),
        dead_operators=check.dead,
        shown=shown,
        differing=check.differing,
        unproven=unproven(check) if verdict == "inconclusive" or check.options.prove_rest else (),
        findings=tuple(check.findings),
    )


def unproven(check: Check) -> tuple[str, ...]:
    """Return the outputs of the reference of which some part is not proven."""
    obligations = [o for o in check.ledger.obligations if o.output]
    proven = {o.output for o in obligations} - {o.output for o in check.ledger.open_outputs}
    return tuple(o.tensor for o in check.reference.outputs if o.tensor not in proven)


def estimates(ledger: Ledger) -> tuple[str, ...]:
    """Return a sentence for every reason why the bounds of some distinct stages are estimates.

    All decisions of integers are one reason, told with the first of them.
    """

    distinct = len({o.key for o in ledger.obligations if o.key})

    def reason(proof: Proof) -> str:
        told = proof.no_tables or "exponentials, roots, orders or keyed functions occur"
        return told if proof.heuristic else ""

    decisions = (o.proof.together for o in ledger.obligations if o.proof.together)
    together = f"{TOGETHER}, first {next(decisions, '')}"
    tables = (o.proof.unread for o in ledger.obligations if o.proof.unread)
    unread = f"{UNREAD}, first {next(tables, '')}"
    reasons = [
        *_by_reason(ledger, reason),
        *_by_reason(ledger, lambda proof: together if proof.together else ""),
        *_by_reason(ledger, lambda p: unread if p.unread and not p.together else ""),
    ]
    return tuple(
        f"the bounds of {stages} of {distinct} distinct stages, the first that of {first!r}, are "
        f"estimates: {why}"
        for why, stages, first in reasons
    )


def _sizes(ledger: Ledger, distinct: int) -> tuple[str, ...]:
    """Return a sentence for every reason why some distinct stages may not hold at every size."""
    return tuple(
        f"the reduction of shapes to small sizes (--shapes full does without) in {stages} of "
        f"{distinct} distinct stages, the first that of {first!r}: {why}"
        for why, stages, first in _by_reason(ledger, lambda proof: proof.sizes)
    )


def _by_reason(ledger: Ledger, reason: Callable[[Proof], str]) -> Iterator[tuple[str, int, str]]:
    """Yield every reason that holds of proofs, but "", in the order of the obligations.

    With it come the number of distinct stages, and the name of the first one.
    """
    keys: dict[str, set[str]] = {}
    first: dict[str, str] = {}
    for obligation in ledger.obligations:
        if obligation.key and (why := reason(obligation.proof)):
            keys.setdefault(why, set()).add(obligation.key)
            first.setdefault(why, obligation.output or obligation.target.name)
    for why, own in keys.items():
        yield why, len(own), first[why]


def _routed(ledger: Ledger) -> tuple[RoutedTokens, ...]:
    """Return where tokens went, once for every distinct proven stage.

    Each is told with the first tensor that it proves.
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


def _peak_memory() -> float:
    """Return the largest memory of the process so far, in MiB; 0 where no system counts it."""
    try:
        import resource  # noqa: PLC0415  a browser has no such module
    except ImportError:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 if sys.platform != "darwin" else 1 << 20), 1)
