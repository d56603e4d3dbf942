"""The report as one HTML page that loads nothing (``docs/html-report.md``).

A plan may hold any text. It is escaped by the template engine, control characters and marks of
direction are shown as in the text report, and a policy in the page allows its own style and script
alone.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from pitcheck import __version__
from pitcheck.report.codes import SEVERITIES
from pitcheck.report.findings.excerpts import excerpt
from pitcheck.report.findings.text import coordinates
from pitcheck.report.findings.values import told_apart
from pitcheck.report.lines import printable
from pitcheck.report.mesh_picture import mesh_picture
from pitcheck.report.report import Finding, Report, Seconds
from pitcheck.report.text import bound, count, grouped, sentence, spell_routing

MOST_FINDINGS = 200
"""The most findings that become cards; the JSON report has all."""
MOST_CHARACTERS = 1000
"""The length from which on a text of a plan is cut short; the JSON report has it whole."""

_FOLDER = Path(__file__).parent / "page"


class Card(NamedTuple):
    """A finding as the page shows it. ``where`` has the ranks and the micro-batches in words."""

    number: int
    finding: Finding
    severity: str
    source: tuple[str, ...]
    where: str
    values: tuple[str, str] | None


class Phase(NamedTuple):
    """A step of the check: when it began and how long it took, in seconds and in percent."""

    name: str
    seconds: float
    start: float
    share: float


class Sentences(NamedTuple):
    """Sentences of the report under one heading."""

    heading: str
    said: tuple[str, ...]


def encode(report: Report, plans: Sequence[str] = ()) -> bytes:
    """Return the page in UTF-8: equal reports give equal bytes.

    ``plans``: the checked files, the reference first.
    """
    return _page(report, plans).encode("utf-8")


def notebook(report: Report) -> str:
    """Return the page as a frame, for a notebook.

    A frame has its own document: its style does not reach the notebook, and the notebook's does not
    reach it.
    """
    return (
        f'<iframe title="pitcheck report: {report.verdict}" sandbox="allow-scripts" '
        f'style="width:100%;height:40rem;border:0" srcdoc="{escape(_page(report, ()))}"></iframe>'
    )


def _page(report: Report, plans: Sequence[str]) -> str:
    return rendered(_FOLDER, _content(report, plans))


def rendered(folder: Path, content: Mapping[str, Any]) -> str:
    """Return a page that loads nothing, from the template, the style and the script in a folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  only a page pays for it
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(
        autoescape=True,
        finalize=lambda value: _shown(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=FileSystemLoader(folder),
    )
    style, script = _inline(folder)
    allowed_style, allowed_script = _digest(style), _digest(script)
    return environment.get_template("page.html").render(
        **content,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src '{allowed_style}'; script-src '{allowed_script}'",
    )


def policy_digests() -> tuple[str, str]:
    """Return the digests by which a policy allows the style and the script of a page.

    A page that shows a report in a frame needs them: the frame takes over its policy.
    """
    style, script = _inline(_FOLDER)
    return _digest(style), _digest(script)


def _inline(folder: Path) -> tuple[str, str]:
    """Return the style and the script of a page, from its folder."""
    return (folder / "style.css").read_text("utf-8"), (folder / "filter.js").read_text("utf-8")


def _digest(text: str) -> str:
    """Return the digest by which a policy allows an inline element with this text."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def _shown(text: str) -> str:
    """Return a text without what would steer its reader's display, and not too long."""
    cut = text[:MOST_CHARACTERS]
    left = len(text) - len(cut)
    return printable(cut) + (f" … ({left} more characters)" if left else "")


def _content(report: Report, plans: Sequence[str]) -> dict[str, Any]:
    """Return what the template names."""
    cards = tuple(
        _card(number, finding, report)
        for number, finding in enumerate(report.findings[:MOST_FINDINGS], 1)
    )
    claims = report.verdict == "equivalent" or report.error_bound_log2 < 0
    return {
        "report": report,
        "plans": plans,
        "version": __version__,
        "said": sentence(report),
        "facts": tuple(_facts(report)),
        "cards": cards,
        "left_out": len(report.findings) - len(cards),
        "codes": sorted({card.finding.code for card in cards}),
        "severities": sorted({card.severity for card in cards}),
        "mesh": mesh_picture(report),
        "bound": bound(report) if claims else None,
        "sentences": tuple(each for each in _sentences(report) if each.said),
        "phases": tuple(_phases(report.seconds)),
    }


def _card(number: int, finding: Finding, report: Report) -> Card:
    held = finding.reference_value, finding.parallel_value
    severity = "warning" if finding.verdict == "warning" else SEVERITIES[finding.verdict]
    return Card(
        number=number,
        finding=finding,
        severity="unproven" if finding.verdict == "inconclusive" else severity,
        source=tuple(excerpt(finding.source)),
        where=", ".join(part for part in coordinates(finding, report) if part),
        values=told_apart(held[0] or "-", held[1] or "-") if any(held) else None,
    )


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for what was checked; only the seed if no plan came as far."""
    counts, stages = report.operators, report.stages
    if counts.records:
        mesh = " ".join(f"{axis}={size}" for axis, size in report.mesh.items()) or "one device"
        yield "mesh", f"{mesh} ({count(report.ranks, 'rank')})"
        yield "micro-batches", str(report.microbatches)
        yield "operators", f"{counts.reference} reference, {counts.parallel} parallel"
        yield "outputs", f"{report.outputs.proven} of {report.outputs.total} proven"
    if stages.total:
        yield (
            "stages",
            f"{stages.proven} proven ({stages.every_size} for every size), {stages.failed} failed, "
            f"{stages.inconclusive} inconclusive; {stages.distinct} distinct",
        )
    if report.primes:
        yield "trials", f"{report.trials}, {report.backend}"
        yield "primes", ", ".join(map(str, report.primes))
    if counts.records:
        yield "memory", f"{report.peak_memory_mb:.0f} MB at the peak"
    yield "seed", str(report.seed)


def _sentences(report: Report) -> Iterable[Sentences]:
    return (
        Sentences("Exceptions", tuple(grouped(report.exceptions))),
        Sentences("Estimated", report.heuristic),
        Sentences("Assumptions", report.assumptions),
        Sentences("Not covered", report.not_covered),
        Sentences("Discrete cases tried", report.discrete_cases),
        Sentences("Routing", tuple(dict.fromkeys(map(spell_routing, report.routing)))),
        Sentences("Reduced", report.reductions),
        Sentences("Operators that no output needs", report.dead_operators),
    )


def _phases(seconds: Seconds) -> Iterator[Phase]:
    """Yield the steps that took time, and what of the total is in none of them."""
    taken = {
        name: getattr(seconds, name)
        for name in ("load", "validate", "lineage", "stages", "evaluate", "explain")
    }
    taken["other"] = max(0.0, seconds.total - sum(taken.values()))
    whole, start = sum(taken.values()), 0.0
    for name, spent in taken.items():
        if spent >= 0.005:
            share = 100 * spent / whole
            yield Phase(name, spent, round(start, 2), round(share, 2))
            start += share
