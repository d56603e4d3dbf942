"""The formats of reports, and the writing of a report in all that are asked for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from pitcheck.errors import UsageError
from pitcheck.report import github, html, json, json_lines, sarif
from pitcheck.report.destinations import TEXT, Destination, write_everywhere
from pitcheck.report.lines import WIDTH, Line
from pitcheck.report.report import Report
from pitcheck.report.text import render


@dataclass(frozen=True)
class Form:
    """The form in which a report is written.

    ``plans`` are the checked files, the reference first; ``quiet`` and ``verbose`` apply to text
    alone. ``certify`` makes the certificate of the check that the report is of.
    """

    quiet: bool = False
    verbose: bool = False
    plans: tuple[str, ...] = ()
    certify: Callable[[Report], bytes] | None = None


def _text(report: Report, form: Form) -> bytes:
    return "".join(
        f"{line.text}\n" for line in render(report, quiet=form.quiet, verbose=form.verbose)
    ).encode("utf-8")


def _junit(report: Report, form: Form) -> bytes:
    from pitcheck.report import junit  # noqa: PLC0415  only who wants XML pays for it

    return junit.encode(report, form.plans)


def _certificate(report: Report, form: Form) -> bytes:
    if form.certify is None:
        raise UsageError("only a check that was just made has a certificate")
    return form.certify(report)


FORMATS: Mapping[str, Callable[[Report, Form], bytes]] = {
    "text": _text,
    "json": lambda report, _: json.encode(report),
    "html": lambda report, form: html.encode(report, form.plans),
    "jsonl": lambda report, form: json_lines.encode(report, form.plans),
    "junit": _junit,
    "sarif": lambda report, form: sarif.encode(report, form.plans),
    "github": lambda report, form: github.encode(report, form.plans),
    "certificate": _certificate,
}


def write_report(report: Report, destinations: Sequence[Destination], form: Form = Form()) -> None:
    """Write the report to every destination, by default as text to standard output.

    A terminal gets it in colour and as wide as it is; ``NO_COLOR`` and ``FORCE_COLOR`` are obeyed.
    Raises UsageError, after every destination was tried, for those that failed.
    """

    def encode(each: Destination) -> bytes:
        if each == TEXT and (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
            width = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else WIDTH
            return _coloured(
                render(report, quiet=form.quiet, verbose=form.verbose, width=width), sys.stdout
            )
        return FORMATS[each.format](report, form)

    write_everywhere(destinations, encode)


def _coloured(lines: Sequence[Line], stream: TextIO) -> bytes:
    """Return the lines with the escapes of the terminal behind ``stream``.

    They are captured and not printed: rich ends the process itself on a broken pipe.
    """
    from rich.console import Console  # noqa: PLC0415  only a terminal pays for rich
    from rich.text import Text  # noqa: PLC0415

    styles = {
        "plain": "",
        "strong": "bold",
        "good": "bold green",
        "bad": "bold red",
        "unsure": "bold yellow",
        "faint": "dim",
        "added": "green",
        "removed": "red",
    }
    console = Console(file=stream, soft_wrap=True, highlight=False)
    with console.capture() as captured:
        console.print(Text("\n").join(Text(line.text, style=styles[line.style]) for line in lines))
    return captured.get().encode("utf-8")
