"""The destinations of reports: ``FORMAT[:FILE]`` options, files, and the console.

Files are written whole or not at all.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from pitcheck.errors import UsageError
from pitcheck.report import github, html, json, sarif
from pitcheck.report.report import Report
from pitcheck.report.text import WIDTH, Line, render

STDOUT = "-"


@dataclass(frozen=True)
class Form:
    """The form in which a report is written.

    ``plans`` are the checked files, the reference first; ``quiet`` and ``verbose`` apply to text
    alone.
    """

    quiet: bool = False
    verbose: bool = False
    plans: tuple[str, ...] = ()


def _text(report: Report, form: Form) -> bytes:
    return "".join(
        f"{line.text}\n" for line in render(report, quiet=form.quiet, verbose=form.verbose)
    ).encode("utf-8")


FORMATS: Mapping[str, Callable[[Report, Form], bytes]] = {
    "text": _text,
    "json": lambda report, _: json.encode(report),
    "html": lambda report, form: html.encode(report, form.plans),
    "sarif": lambda report, form: sarif.encode(report, form.plans),
    "github": lambda report, form: github.encode(report, form.plans),
}


@dataclass(frozen=True)
class Destination:
    """A format and the file that takes it; ``-`` is standard output."""

    format: str
    file: str


def parse_destination(text: str) -> Destination:
    """Return the destination of ``FORMAT:FILE``, or of ``FORMAT`` for standard output.

    Raises UsageError for an unknown format or a missing file.
    """
    format_, colon, file = text.partition(":")
    if format_ not in FORMATS:
        raise UsageError(
            f"output {text!r}: unknown format {format_!r}; the formats are {', '.join(FORMATS)} "
            f"(as in json:report.json)"
        )
    if colon and not file:
        raise UsageError(
            f"output {text!r}: no file; write {format_}:FILE, or {format_} for standard output"
        )
    return Destination(format_, file or STDOUT)


def check_destinations(destinations: Sequence[Destination]) -> None:
    """Raise UsageError, before any work, for destinations that collide or cannot be written."""
    files = [
        STDOUT if each.file == STDOUT else os.path.realpath(each.file) for each in destinations
    ]
    for i, file in enumerate(files):
        if file in files[:i]:
            shared = "standard output" if file == STDOUT else destinations[i].file
            raise UsageError(f"two outputs go to {shared}; give each a file of its own")
        if file == STDOUT:
            continue
        path = Path(file)
        if path.is_dir():
            raise UsageError(f"output {destinations[i].file} is a directory; name a file")
        if not path.parent.is_dir():
            raise UsageError(
                f"output {destinations[i].file}: directory {path.parent} does not exist; create "
                f"it first"
            )
        target = path if path.exists() else path.parent
        if not os.access(target, os.W_OK):
            raise UsageError(f"output {destinations[i].file}: no permission to write {target}")


def write_report(report: Report, destinations: Sequence[Destination], form: Form = Form()) -> None:
    """Write the report to every destination, by default as text to standard output.

    Every destination is tried; then UsageError is raised for those that failed. A standard output
    that nobody reads any more is not a failure.
    """

    def encode(each: Destination) -> bytes:
        if each == Destination("text", STDOUT) and sys.stdout.isatty():
            width = shutil.get_terminal_size((WIDTH, 0)).columns
            return _coloured(
                render(report, quiet=form.quiet, verbose=form.verbose, width=width), sys.stdout
            )
        return FORMATS[each.format](report, form)

    write_everywhere(destinations, encode)


def write_everywhere(
    destinations: Sequence[Destination], encode: Callable[[Destination], bytes]
) -> None:
    """Write what ``encode`` gives to every destination, by default as text to standard output.

    Every destination is tried; then UsageError is raised for those that failed.
    """
    failures = []
    for each in destinations:
        if each.file == STDOUT:
            continue
        try:
            write_whole(Path(each.file), encode(each))
        except UsageError as error:
            failures.append(f"cannot write {each.file}: {error}")
        except OSError as error:
            failures.append(f"cannot write {each.file}: {error.strerror or error}")
    on_stdout = next((each for each in destinations if each.file == STDOUT), None)
    print_bytes(encode(on_stdout or Destination("text", STDOUT)))
    if failures:
        raise UsageError("; ".join(failures))


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` so that the file is never half-written.

    It is written beside the file first, then moved into its place. Devices and pipes, which cannot
    be replaced, are written to. Raises OSError.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    beside = path.with_name(f".{path.name[:200]}.{os.getpid()}.part")
    try:
        with beside.open("xb") as file:
            file.write(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def print_bytes(data: bytes) -> None:
    """Print UTF-8 bytes whatever the locale's encoding.

    A reader that has gone is not a failure; raises UsageError for any other.
    """
    buffer = getattr(sys.stdout, "buffer", None)
    try:
        if buffer is None:
            sys.stdout.write(data.decode("utf-8"))
        else:
            sys.stdout.flush()
            buffer.write(data)
        sys.stdout.flush()
    except OSError as error:
        # The rest of the buffer has no reader either: without this the interpreter complains when
        # it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise UsageError(
                f"cannot write to standard output: {error.strerror or error}"
            ) from None


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
    }
    console = Console(file=stream, soft_wrap=True, highlight=False)
    with console.capture() as captured:
        console.print(Text("\n").join(Text(line.text, style=styles[line.style]) for line in lines))
    return captured.get().encode("utf-8")
