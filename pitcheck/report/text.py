"""The report as console text: the verdict first, then findings, the bound and what it rests on.

It is plain text; a terminal says how wide it is, and lays colour over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pitcheck.report.findings.text import finding_lines
from pitcheck.report.lines import LEAST_WIDTH, WIDTH, Line, Style, wrapped
from pitcheck.report.report import IMPRECISE, Baseline, Report, RoutedTokens

UNREAD = "PIT001"
"""The code of a plan that cannot be read."""
_MOST_FINDINGS = 20
_LABEL = 13

_VERDICT_STYLE: dict[str, Style] = {
    "equivalent": "good",
    "mismatch": "bad",
    "invalid": "bad",
    "inconclusive": "unsure",
    "nothing-checked": "unsure",
}


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
    if unread := _unread(report):
        said = page.wrapped("", f"error[{UNREAD}]: {unread}; nothing was checked", "bad")
        return [*said, *page.wrapped("   = ", f"more: pitcheck explain {UNREAD}")]
    lines = page.wrapped("", sentence(report) + _cost(report), _VERDICT_STYLE[report.verdict])
    lines += page.bulleted("note", grouped(report.exceptions))
    lines.append(Line(""))
    # New findings come first: known ones must not push them out of the page.
    findings = sorted(report.findings, key=lambda finding: finding.known)
    shown = findings if verbose else findings[:_MOST_FINDINGS]
    for finding in shown:
        lines += [*finding_lines(finding, report, page.width, complete=verbose), Line("")]
    if left := len(report.findings) - len(shown):
        lines += [
            *page.wrapped("", f"and {left} more findings (--verbose shows them)"),
            Line(""),
        ]
    lines += page.summary(report, verbose)
    while lines[-1] == Line(""):
        del lines[-1]
    if shown:
        # The first line may have left the terminal by now.
        lines += [
            Line(""),
            *page.wrapped("", sentence(report), _VERDICT_STYLE[report.verdict]),
        ]
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
        else f"{_number_of(all_of)}, {all_of[0].removesuffix(f': {what}')} first: {what}"
        for what, all_of in alike.items()
    ]


def _number_of(exceptions: Sequence[str]) -> str:
    gradients = all(said.startswith("grad:") for said in exceptions)
    return f"{len(exceptions)} {'gradients' if gradients else 'outputs'}"


class _Page(NamedTuple):
    """A page of ``width`` columns."""

    width: int

    def summary(self, report: Report, verbose: bool) -> list[Line]:
        """Return the bound, what it rests on, and with ``verbose`` how it was reached."""
        lines = [*self.left_out(report), *self.bound(report)]
        if report.operators.records:
            lines += self.labelled("checked", _checked(report))
        lines += self.bulleted(
            "variants", [f"{each.name}: {each.verdict}" for each in report.variants]
        )
        if report.remembered:
            lines += self.labelled("remembered", _remembered(report))
        if verbose:
            lines += self.reached(report)
        lines += self.counted("assuming", report.assumptions, verbose)
        return lines + self.counted("not covered", report.not_covered, verbose)

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
        """Return a text behind ``prefix``, later lines indented as far."""
        return wrapped(prefix, text, self.width, style)


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


def _unread(report: Report) -> str:
    """Return why the plans could not be read; "" if they were, or if there is more to say of it."""
    said = [
        finding.title
        for finding in report.findings
        if finding.code == UNREAD and not (finding.operator or finding.source or finding.ranks)
    ]
    return "; ".join(said) if len(said) == len(report.findings) else ""


def sentence(report: Report) -> str:
    """Return the verdict and what it means."""
    internal = any(finding.code == "PIT900" for finding in report.findings)
    proven = f"{report.outputs.proven} of {count(report.outputs.total, 'output')} proven"
    meaning = {
        "equivalent": proven,
        "mismatch": f"{_differing(report)}, and an input shows it"
        + (f"; {proven}" if report.outputs.proven and report.differing else ""),
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


def _differing(report: Report) -> str:
    """Return how many outputs differ, in words."""
    number, total = len(report.differing), report.outputs.total
    if not number or number > total:
        return "the parallel plan computes something else"
    return f"{number} of {count(total, 'output')} differ{'s' if number == 1 else ''}"


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
