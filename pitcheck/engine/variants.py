"""One report on several variants of a specification, each of which has a check of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from pitcheck.algebra.bound.degree_bounds import log2_sum
from pitcheck.report.fingerprint import fingerprint
from pitcheck.report.report import (
    Finding,
    OperatorCounts,
    OutputCounts,
    Report,
    Seconds,
    StageCounts,
    VariantVerdict,
    Verdict,
)

WORST: tuple[Verdict, ...] = (
    "mismatch",
    "invalid",
    "inconclusive",
    "nothing-checked",
    "equivalent",
)
"""Verdicts, the worst first: a mismatch is shown and stands, whatever else is wrong."""

_Counts = TypeVar("_Counts", OperatorCounts, OutputCounts, StageCounts, Seconds)


def over_variants(parts: Sequence[tuple[str, Report]], not_covered: Sequence[str] = ()) -> Report:
    """Return one report on all variants, given as pairs of a name and the report of its check.

    The verdict is the worst. The error bound is the sum of all bounds, since a wrong answer about
    any variant makes the whole answer wrong. A sentence or a finding that not all variants share
    names those that have it. ``not_covered`` are further limits of an equivalent verdict.
    """
    reports = [report for _, report in parts]
    worst = min(reports, key=lambda report: WORST.index(report.verdict))
    widest = max(reports, key=lambda report: report.ranks)
    proven = worst.verdict == "equivalent"
    return replace(
        worst,
        exceptions=_sentences(parts, lambda report: report.exceptions),
        error_bound_log2=_summed(reports) if proven else 0.0,
        mesh=widest.mesh,
        ranks=widest.ranks,
        microbatches=widest.microbatches,
        primes=tuple(sorted({prime for report in reports for prime in report.primes})),
        trials=max(report.trials for report in reports),
        operators=_added([report.operators for report in reports]),
        outputs=_added([report.outputs for report in reports]),
        stages=_added([report.stages for report in reports]),
        remembered=sum(report.remembered for report in reports),
        seconds=_added([report.seconds for report in reports]),
        peak_memory_mb=max(report.peak_memory_mb for report in reports),
        assumptions=_sentences(parts, lambda report: report.assumptions),
        discrete_cases=_sentences(parts, lambda report: report.discrete_cases),
        routing=tuple(routed for report in reports for routed in report.routing),
        reductions=_sentences(parts, lambda report: report.reductions),
        heuristic=_sentences(parts, lambda report: report.heuristic),
        not_covered=(*not_covered, *_sentences(parts, lambda report: report.not_covered))
        if proven
        else (),
        dead_operators=_sentences(parts, lambda report: report.dead_operators),
        differing=_union(report.differing for report in reports),
        unproven=_union(report.unproven for report in reports),
        variants=tuple(
            VariantVerdict(
                name=name,
                verdict=report.verdict,
                outputs=report.outputs,
                error_bound_log2=report.error_bound_log2,
            )
            for name, report in parts
        ),
        findings=_findings(parts),
    )


def _summed(reports: Sequence[Report]) -> float:
    """Return the base-2 logarithm of the sum of all bounds, at most 0."""
    return min(0.0, log2_sum(report.error_bound_log2 for report in reports))


def _added(counts: Sequence[_Counts]) -> _Counts:
    first = counts[0]
    sums = {
        field: sum(getattr(each, field) for each in counts) for field in first.__struct_fields__
    }
    return msgspec.convert(sums, type(first))


def _union(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for texts in lists for each in texts))


def _sentences(
    parts: Sequence[tuple[str, Report]], of: Callable[[Report], tuple[str, ...]]
) -> tuple[str, ...]:
    """Return the sentences of all variants, each one once, with the variants unless all say it."""
    said: dict[str, list[str]] = {}
    for name, report in parts:
        for sentence in dict.fromkeys(of(report)):
            said.setdefault(sentence, []).append(name)
    return tuple(
        sentence if len(names) == len(parts) else f"{'; '.join(names)}: {sentence}"
        for sentence, names in said.items()
    )


def _findings(parts: Sequence[tuple[str, Report]]) -> tuple[Finding, ...]:
    """Return the findings of all variants, those of the worst verdicts first.

    Findings of one fingerprint are told once, as the first variant has them.
    """
    told: dict[str, list[tuple[str, Finding]]] = {}
    for name, report in sorted(parts, key=lambda part: WORST.index(part[1].verdict)):
        for finding in report.findings:
            fault = fingerprint(finding, report.mesh, report.microbatches)
            told.setdefault(fault, []).append((name, finding))
    return tuple(
        replace(same[0][1], variants=tuple(dict.fromkeys(name for name, _ in same)))
        for same in told.values()
    )
