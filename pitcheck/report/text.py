"""The report as console text: findings first, the verdict last.

It is plain text of 100 columns; a terminal lays colour over it.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal as OneOf
from typing import NamedTuple

from pitcheck.report.coordinate_names import describe_microbatches, describe_ranks
from pitcheck.report.report import IMPRECISE, Finding, Report, RoutedTokens

WIDTH = 100
FINDING_LINES = 24
"""The most lines of a finding; the JSON report has what does not fit."""

_MOST_FINDINGS = 20
_LIST_LINES = 4
_LABEL = 13

Style = OneOf["plain", "strong", "good", "bad", "unsure", "faint"]

_SHORT = 20
_DECIMAL = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,200})?(e[+-]?[0-9]{1,2})?")

_HEAD = {
    "mismatch": "error",
    "invalid": "error",
    "inconclusive": "unproven",
    "nothing-checked": "unproven",
    "warning": "warning",
    "imprecise": "error",
}
_HEAD_STYLE: dict[str, Style] = {"error": "bad", "unproven": "unsure", "warning": "unsure"}
_VERDICT_STYLE: dict[str, Style] = {
    "equivalent": "good",
    "mismatch": "bad",
    "invalid": "bad",
    "inconclusive": "unsure",
    "nothing-checked": "unsure",
}


class Line(NamedTuple):
    """One line of output and how a terminal shows it."""

    text: str
    style: Style = "plain"


def render(report: Report, *, quiet: bool = False, verbose: bool = False) -> list[Line]:
    """Return the report's lines.

    ``quiet`` leaves the headline of every finding and the verdict; ``verbose`` shows every list
    whole and adds the times. Control characters and lone surrogates (a plan may hold any text) are
    shown escaped, so that no plan can steer a terminal.
    """
    if quiet:
        return [*(_headline(finding) for finding in report.findings), *_verdict(report)]
    lines = [*_bulleted("exception", report.exceptions, whole=True)]
    if lines:
        lines.append(Line(""))
    shown = report.findings if verbose else report.findings[:_MOST_FINDINGS]
    for finding in shown:
        lines += [*_finding(finding, report), Line("")]
    if len(shown) < len(report.findings):
        lines += [
            Line(f"and {len(report.findings) - len(shown)} more findings (--verbose shows them)"),
            Line(""),
        ]
    summary = _summary(report, verbose)
    if summary:
        lines += [*summary, Line("")]
    lines += [
        *_verdict(report),
        *_bound(report),
        *_bulleted("not covered", report.not_covered, whole=True),
    ]
    return lines


def printable(text: str) -> str:
    """Return ``text`` with escapes for what a terminal would obey or UTF-8 cannot hold."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


# --- findings


def _headline(finding: Finding) -> Line:
    head = _HEAD[finding.verdict]
    return Line(printable(f"{head}[{finding.code}]: {finding.title}"), _HEAD_STYLE[head])


def _finding(finding: Finding, report: Report) -> list[Line]:
    """Return the finding in at most FINDING_LINES lines.

    It is cut short in the middle, so that help and witness stay.
    """
    head = _headline(finding)
    first = [
        Line(text, head.style) for text in textwrap.wrap(head.text, WIDTH, subsequent_indent="  ")
    ]
    place = _place(finding, report)
    if place:
        first += _wrapped("  --> ", place, "strong")
    last = [
        line for label, text in endings(finding) for line in _wrapped("   = ", f"{label}: {text}")
    ]
    body = [
        line for label, text in details(finding) for line in _wrapped("   = ", f"{label}: {text}")
    ]
    first, last = first[: FINDING_LINES // 3], last[: FINDING_LINES // 3]
    room = FINDING_LINES - len(first) - len(last)
    if len(body) > room:
        body = [*body[: room - 1], Line("   = ... (the JSON report has it whole)", "faint")]
    return [*first, *body, *last]


def _place(finding: Finding, report: Report) -> str:
    where = (
        f"{finding.source}  ({finding.operator})"
        if finding.source and finding.operator
        else finding.source or finding.operator
    )
    return "   ".join(part for part in (where, *coordinates(finding, report)) if part)


def coordinates(finding: Finding, report: Report) -> tuple[str, str]:
    """Return the ranks and the micro-batches of a finding, "" for none in particular."""
    return describe_ranks(finding.ranks, report.mesh), describe_microbatches(
        finding.microbatches, report.microbatches
    )


def details(finding: Finding) -> Iterable[tuple[str, str]]:
    """Yield (label, text) for what is known of a finding."""
    if finding.stage:
        yield "stage", finding.stage
    if finding.output:
        yield (
            "output",
            finding.output
            + (f" at {list(finding.element)}" if finding.element is not None else ""),
        )
    if finding.reference_value is not None or finding.parallel_value is not None:
        reference, parallel = _told_apart(
            finding.reference_value or "-", finding.parallel_value or "-"
        )
        yield "reference", f"{reference}     parallel: {parallel}"
    if finding.cause:
        yield "cause", finding.cause


def _told_apart(reference: str, parallel: str) -> tuple[str, str]:
    """Return two values with as many digits as tell them apart.

    They stay as they are if they are not plain decimals, or differ beyond the 17th digit only.
    """
    values = reference, parallel
    if max(map(len, values)) <= _SHORT or not all(map(_DECIMAL.fullmatch, values)):
        return values
    for digits in (9, 17):
        short = f"{float(reference):.{digits}g}", f"{float(parallel):.{digits}g}"
        if short[0] != short[1]:
            return short
    return values


def endings(finding: Finding) -> Iterable[tuple[str, str]]:
    """Yield (label, text) for what to do about a finding."""
    if finding.repair:
        yield "help", finding.repair
    if finding.witness:
        yield "witness", f"pitcheck replay {finding.witness}"
    if finding.unsaved:
        yield "note", f"the witness could not be written: {finding.unsaved}"
    yield "more", f"pitcheck explain {finding.code}"


# --- the rest


def _summary(report: Report, verbose: bool) -> list[Line]:
    """Return what was checked and how; nothing if no plan came as far as that."""
    if not report.operators.records:
        return []
    counts, stages = report.operators, report.stages
    mesh = " ".join(f"{axis}={size}" for axis, size in report.mesh.items()) or "one device"
    lines = _labelled(
        "mesh",
        f"{mesh} ({_count(report.ranks, 'rank')}), "
        f"{_count(report.microbatches, 'micro-batch', 'micro-batches')}",
    )
    lines += _labelled(
        "operators",
        f"{counts.reference} reference, {counts.parallel} parallel, in "
        f"{_count(counts.records, 'record')}",
    )
    lines += _labelled("outputs", f"{report.outputs.proven} of {report.outputs.total} proven")
    if stages.total:
        proven = (
            f"{stages.proven} proven ({stages.every_size} for every size), {stages.failed} failed, "
            f"{stages.inconclusive} inconclusive, {stages.widened} widened"
        )
        lines += _labelled("stages", f"{stages.total} ({stages.distinct} distinct): {proven}")
    lines += _labelled(
        "run",
        f"seed {report.seed}, {_count(report.trials, 'trial')}, {report.backend}, "
        f"{report.seconds.total:.2f} s",
    )
    if verbose:
        lines += _verbose(report)
    lines += _bulleted("assuming", report.assumptions, verbose)
    lines += _bulleted("tried", report.discrete_cases, verbose)
    lines += _bulleted(
        "routing", tuple(dict.fromkeys(_routed(routed) for routed in report.routing)), verbose
    )
    lines += _bulleted("reduced", report.reductions, verbose)
    lines += _bulleted("dead", report.dead_operators, verbose)
    return lines


def _routed(routed: RoutedTokens) -> str:
    """Return the ways of tokens in one sentence."""
    said = [f"{_count(routed.draws, 'draw')}, at least {_count(routed.tokens, 'token')} a rank"]
    if routed.sender_receiver_pairs:
        said.append(
            f"{_count(routed.sender_receiver_pairs, 'sender-receiver pair')}, at least "
            f"{_count(routed.tokens_per_pair, 'token')} each"
        )
    said.append(
        f"{_count(routed.source_expert_pairs, 'source-expert pair')}, at least "
        f"{routed.tokens_per_expert}"
    )
    if routed.largest_share:
        said.append(
            f"one draw with {_count(routed.empty_experts, 'expert')} empty and one with "
            f"{routed.largest_share:.1f} times its share"
        )
    return "; ".join(said)


def _verbose(report: Report) -> list[Line]:
    seconds = report.seconds
    steps = ("load", "validate", "lineage", "stages", "evaluate", "explain")
    lines = _labelled("primes", ", ".join(map(str, report.primes)) or "none")
    lines += _labelled(
        "seconds", ", ".join(f"{step} {getattr(seconds, step):.2f}" for step in steps)
    )
    return lines + _labelled("memory", f"{report.peak_memory_mb:.0f} MB at the peak")


def _verdict(report: Report) -> list[Line]:
    return [Line(sentence(report), _VERDICT_STYLE[report.verdict])]


def sentence(report: Report) -> str:
    """Return the verdict and what it means."""
    internal = any(finding.code == "PIT900" for finding in report.findings)
    proven = f"{report.outputs.proven} of {_count(report.outputs.total, 'output')} proven"
    meaning = {
        "equivalent": proven,
        "mismatch": "the parallel plan computes something else, and an input shows it",
        "invalid": "internal error; nothing is said about the plans"
        if internal
        else "a plan is malformed or cannot run",
        "inconclusive": f"{proven}; the rest is neither proven nor refuted"
        if report.outputs.proven < report.outputs.total
        else f"{proven}, and not all that was asked for",
        "nothing-checked": "no output was compared; this is not a success",
    }[report.verdict]
    imprecise = (
        ", but a precision rule is broken (exit code 4)" if report.exit_code == IMPRECISE else ""
    )
    return f"{report.verdict}: {meaning}{imprecise}"


def _bound(report: Report) -> list[Line]:
    if report.verdict != "equivalent" and report.error_bound_log2 == 0:
        return []
    return _wrapped("", bound(report)) + _bulleted("heuristic", report.heuristic, whole=True)


def bound(report: Report) -> str:
    """Return the bound on the probability of error, in words; it is a theorem or an estimate."""
    claim = (
        "this verdict is wrong"
        if report.verdict == "equivalent"
        else "what is called proven here is not"
    )
    # Rounded up: the printed bound must not claim more than was computed.
    rounded = math.ceil(report.error_bound_log2 * 10) / 10
    proven = " (a theorem)" if report.verdict == "equivalent" and not report.heuristic else ""
    return f"error bound: {claim} with probability at most 2^{rounded:.1f}{proven}"


def _labelled(label: str, text: str) -> list[Line]:
    return _wrapped(f"{label:<{_LABEL}}", text)


def _bulleted(label: str, sentences: Sequence[str], whole: bool) -> list[Line]:
    """Return the sentences beside one label; unless ``whole``, the first ones and a count."""
    shown = sentences if whole or len(sentences) <= _LIST_LINES else sentences[: _LIST_LINES - 1]
    lines = [
        line
        for i, sentence in enumerate(shown)
        for line in _labelled(label if i == 0 else "", sentence)
    ]
    if len(shown) < len(sentences):
        lines += _labelled("", f"and {len(sentences) - len(shown)} more (--verbose)")
    return lines


def _wrapped(prefix: str, text: str, style: Style = "plain") -> list[Line]:
    """Return ``text`` at WIDTH columns behind ``prefix``, later lines indented as far.

    Runs of spaces inside a line are kept.
    """
    rows = textwrap.wrap(printable(text), WIDTH - len(prefix), break_on_hyphens=False) or [""]
    return [
        Line((prefix if i == 0 else " " * len(prefix)) + row, style) for i, row in enumerate(rows)
    ]


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
