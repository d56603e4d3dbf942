"""The report as console text: the verdict first, then findings, the bound and what it rests on.

It is plain text; a terminal says how wide it is, and lays colour over it.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Literal as OneOf
from typing import NamedTuple

from pitcheck.report.coordinate_names import describe_microbatches, describe_ranks
from pitcheck.report.excerpts import excerpt
from pitcheck.report.report import IMPRECISE, Baseline, Finding, Report, RoutedTokens

WIDTH = 100
"""The columns of a text that no terminal shows."""
LEAST_WIDTH = 40
"""The columns of a narrower terminal, which breaks lines itself."""
FINDING_LINES = 24
"""The most lines of a finding; the JSON report has what does not fit."""

_MOST_FINDINGS = 20
_LABEL = 13

Style = OneOf["plain", "strong", "good", "bad", "unsure", "faint"]

_SHORT = 20
_DECIMAL = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,200})?(e[+-]?[0-9]{1,4})?")

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


def render(
    report: Report, *, quiet: bool = False, verbose: bool = False, width: int = WIDTH
) -> list[Line]:
    """Return the report's lines, of ``width`` columns at most where there is space to break them.

    ``quiet`` leaves the verdict alone; ``verbose`` shows every list whole and adds how it was
    reached. Control characters and lone surrogates (a plan may hold any text) are shown escaped, so
    that no plan can steer a terminal.
    """
    if quiet:
        return [Line(sentence(report), _VERDICT_STYLE[report.verdict])]
    page = _Page(max(width, LEAST_WIDTH))
    lines = page.wrapped("", sentence(report) + _cost(report), _VERDICT_STYLE[report.verdict])
    lines += page.bulleted("exception", grouped(report.exceptions))
    lines.append(Line(""))
    # New findings come first: known ones must not push them out of the page.
    findings = sorted(report.findings, key=lambda finding: finding.known)
    shown = findings if verbose else findings[:_MOST_FINDINGS]
    for finding in shown:
        lines += [*page.finding(finding, report), Line("")]
    if len(shown) < len(report.findings):
        lines += [
            Line(f"and {len(report.findings) - len(shown)} more findings (--verbose shows them)"),
            Line(""),
        ]
    lines += page.summary(report, verbose)
    while lines[-1] == Line(""):
        del lines[-1]
    return lines


def grouped(exceptions: Sequence[str]) -> list[str]:
    """Return the exceptions, those that say the same of several outputs as one sentence.

    An exception names its output before a colon. One that names none stands by itself.
    """
    alike: dict[str, list[str]] = {}
    for said in dict.fromkeys(exceptions):
        _, colon, what = said.partition(": ")
        alike.setdefault(what if colon else said, []).append(said)
    return [
        all_of[0]
        if len(all_of) == 1
        else f"{len(all_of)} outputs, {all_of[0].removesuffix(f': {what}')} first: {what}"
        for what, all_of in alike.items()
    ]


def printable(text: str) -> str:
    """Return ``text`` with escapes for what a terminal would obey or UTF-8 cannot hold."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


# --- findings


def _headline(finding: Finding) -> Line:
    head = _HEAD[finding.verdict]
    text = printable(f"{head}[{finding.code}]: {finding.title}")
    return Line(f"known {text}", "faint") if finding.known else Line(text, _HEAD_STYLE[head])


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
        reference, parallel = told_apart(
            finding.reference_value or "-", finding.parallel_value or "-"
        )
        yield "reference", f"{reference}     parallel: {parallel}"
    if finding.cause:
        yield "cause", finding.cause


def told_apart(reference: str, parallel: str) -> tuple[str, str]:
    """Return two values with as many digits as tell them apart.

    They stay as they are if they are not plain decimals, or differ beyond the 17th digit only.
    """
    values = _whole(reference), _whole(parallel)
    if max(map(len, values)) <= _SHORT or not all(map(_DECIMAL.fullmatch, values)):
        return values
    for digits in (9, 17):
        short = f"{float(reference):.{digits}g}", f"{float(parallel):.{digits}g}"
        if short[0] != short[1]:
            return short
    return values


def _whole(value: str) -> str:
    """Return a decimal without zeros behind its point; 0 is 0, however it is written."""
    if not _DECIMAL.fullmatch(value):
        return value
    if not value.partition("e")[0].strip("-0."):
        return "0"
    return re.sub(r"\.0+$", "", value)


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


class _Page(NamedTuple):
    """A page of ``width`` columns."""

    width: int

    def finding(self, finding: Finding, report: Report) -> list[Line]:
        """Return the finding in at most FINDING_LINES lines.

        It is cut short in the middle, so that help and witness stay.
        """
        headline = _headline(finding)
        rows = textwrap.wrap(headline.text, self.width, subsequent_indent="  ")
        first = [Line(text, headline.style) for text in rows]
        place = _place(finding, report)
        if place:
            first += self.wrapped("  --> ", place, "strong")
        first = first[: FINDING_LINES // 3]
        first += [Line(f"   {printable(row)}"[: self.width]) for row in excerpt(finding.source)]
        last = self._noted(endings(finding))[: FINDING_LINES // 3]
        body = self._noted(details(finding))
        room = FINDING_LINES - len(first) - len(last)
        if len(body) > room:
            body = [*body[: room - 1], Line("   = ... (the JSON report has it whole)", "faint")]
        return [*first, *body, *last]

    def _noted(self, notes: Iterable[tuple[str, str]]) -> list[Line]:
        return [line for label, text in notes for line in self.wrapped("   = ", f"{label}: {text}")]

    def summary(self, report: Report, verbose: bool) -> list[Line]:
        """Return the bound, what it rests on, and with ``verbose`` how it was reached."""
        lines = [*self.left_out(report), *self.bound(report)]
        if report.operators.records:
            lines += self.labelled("checked", _checked(report))
        if report.remembered:
            lines += self.labelled("remembered", _remembered(report))
        if verbose:
            lines += self.reached(report)
        lines += self.counted("assuming", report.assumptions, verbose)
        return lines + self.bulleted("not covered", report.not_covered)

    def left_out(self, report: Report) -> list[Line]:
        """Return the number of ignored warnings, and what a baseline has and has not."""
        said = []
        if report.ignored:
            codes = ", ".join(f"{number} {code}" for code, number in report.ignored.items())
            said.append(f"{count(sum(report.ignored.values()), 'warning')} ignored ({codes})")
        if report.baseline is not None:
            said += against(report.baseline)
        return [line for text in said for line in self.wrapped("", text)]

    def bound(self, report: Report) -> list[Line]:
        """Return the bound, and which part of it is an estimate; nothing if there is none."""
        if report.verdict != "equivalent" and report.error_bound_log2 == 0:
            return []
        lines = self.wrapped("", bound(report))
        return lines + self.bulleted("heuristic", report.heuristic)

    def reached(self, report: Report) -> list[Line]:
        """Return how the verdict was reached; nothing if no plan came as far as that."""
        if not report.operators.records:
            return []
        stages, seconds = report.stages, report.seconds
        steps = ("load", "validate", "lineage", "stages", "evaluate", "explain")
        lines = self.labelled(
            "stages",
            f"{stages.proven} proven ({stages.every_size} for every size), {stages.failed} failed, "
            f"{stages.inconclusive} inconclusive, {stages.widened} widened",
        )
        lines += self.labelled("trials", f"{report.trials}, {report.backend}")
        lines += self.labelled("primes", ", ".join(map(str, report.primes)) or "none")
        lines += self.labelled(
            "seconds", ", ".join(f"{step} {getattr(seconds, step):.2f}" for step in steps)
        )
        lines += self.labelled("memory", f"{report.peak_memory_mb:.0f} MB at the peak")
        routes = tuple(dict.fromkeys(map(spell_routing, report.routing)))
        for label, sentences in (
            ("tried", report.discrete_cases),
            ("routing", routes),
            ("reduced", report.reductions),
            ("dead", report.dead_operators),
        ):
            lines += self.bulleted(label, sentences)
        return lines

    def counted(self, label: str, sentences: Sequence[str], whole: bool) -> list[Line]:
        """Return the sentences beside one label; unless ``whole``, how many they are."""
        if whole or len(sentences) <= 1:
            return self.bulleted(label, sentences)
        return self.labelled(label, f"{len(sentences)} statements (--verbose lists them)")

    def labelled(self, label: str, text: str) -> list[Line]:
        """Return a text beside its label."""
        return self.wrapped(f"{label:<{_LABEL}}", text)

    def bulleted(self, label: str, sentences: Sequence[str]) -> list[Line]:
        """Return the sentences beside one label."""
        return [
            line
            for i, sentence in enumerate(sentences)
            for line in self.labelled(label if i == 0 else "", sentence)
        ]

    def wrapped(self, prefix: str, text: str, style: Style = "plain") -> list[Line]:
        """Return ``text`` behind ``prefix``, later lines indented as far.

        Runs of spaces inside a line are kept.
        """
        rows = textwrap.wrap(printable(text), self.width - len(prefix), break_on_hyphens=False) or [
            ""
        ]
        return [
            Line((prefix if i == 0 else " " * len(prefix)) + row, style)
            for i, row in enumerate(rows)
        ]


def _cost(report: Report) -> str:
    """Return the ranks that were checked and the seconds; nothing if no plan came as far."""
    if not report.operators.records:
        return ""
    return f" ({count(report.ranks, 'rank')}, {report.seconds.total:.2f} s)"


def against(baseline: Baseline) -> list[str]:
    """Return what a baseline says of a report, one sentence each."""
    said = [f"{count(baseline.known, 'known finding')} of baseline {baseline.file}"]
    if baseline.gone:
        one = len(baseline.gone) == 1
        said.append(
            f"{count(len(baseline.gone), 'entry', 'entries')} of it {'is' if one else 'are'} no "
            f"longer found ({baseline.gone[0]}{'' if one else ' first'}); write it anew"
        )
    if baseline.new_outputs:
        number = len(baseline.new_outputs)
        said.append(
            f"{count(number, 'output')} {'is' if number == 1 else 'are'} not proven, and nothing "
            f"that is known explains it: {baseline.new_outputs[0]}{'' if number == 1 else ' first'}"
        )
    return said


def _checked(report: Report) -> str:
    """Return what was checked, in one sentence."""
    counts, stages = report.operators, report.stages
    mesh = " ".join(f"{axis}={size}" for axis, size in report.mesh.items()) or "one device"
    said = [
        f"{mesh}, {count(report.microbatches, 'micro-batch', 'micro-batches')}",
        f"{counts.reference} reference and {counts.parallel} parallel operators",
    ]
    if stages.total:
        said.append(f"{count(stages.total, 'stage')}, {stages.distinct} distinct")
    return "; ".join([*said, f"seed {report.seed}"])


def _remembered(report: Report) -> str:
    """Return how many proofs are those of earlier runs, in one sentence."""
    proofs = count(report.remembered, "distinct stage")
    return f"the proofs of {proofs}, made by earlier runs (--no-cache proves them again)"


def spell_routing(routed: RoutedTokens) -> str:
    """Return the ways of tokens in one sentence."""
    said = [f"{count(routed.draws, 'draw')}, at least {count(routed.tokens, 'token')} a rank"]
    if routed.sender_receiver_pairs:
        said.append(
            f"{count(routed.sender_receiver_pairs, 'sender-receiver pair')}, at least "
            f"{count(routed.tokens_per_pair, 'token')} each"
        )
    said.append(
        f"{count(routed.source_expert_pairs, 'source-expert pair')}, at least "
        f"{routed.tokens_per_expert}"
    )
    if routed.largest_share:
        said.append(
            f"one draw with {count(routed.empty_experts, 'expert')} empty and one with "
            f"{routed.largest_share:.1f} times its share"
        )
    return "; ".join(said)


def sentence(report: Report) -> str:
    """Return the verdict and what it means."""
    internal = any(finding.code == "PIT900" for finding in report.findings)
    proven = f"{report.outputs.proven} of {count(report.outputs.total, 'output')} proven"
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
    known = (
        f"; all of that is known ({count(report.baseline.known, 'finding')}, exit code 0)"
        if report.baseline is not None and report.all_known and report.baseline.known
        else ""
    )
    return f"{report.verdict}: {meaning}{imprecise}{known}"


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


def count(number: int, one: str, many: str = "") -> str:
    """Return a number and the word for what is counted; ``many``: its plural, else with an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"
