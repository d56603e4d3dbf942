"""A check of texts, for a page in a browser: no files of a user, no processes, no galois.

The texts are written into the working directory under fixed names. So the report is the one that
``pitcheck check`` gives for files of these names. Only plans in JSON and configurations in TOML are
taken: reading them runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from pitcheck.base.nearest import shown
from pitcheck.base.options import Options
from pitcheck.base.seeds import SEEDS, seed_of
from pitcheck.commands.check import WITNESSES
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.checking.sources import sources
from pitcheck.commands.number_options import parse_probability_log2
from pitcheck.commands.progress import Progress
from pitcheck.commands.reading import pair_at, read, read_pair
from pitcheck.commands.text_places import fault_place, line_and_column
from pitcheck.errors import PitcheckError, PlanError, UsageError
from pitcheck.plan.model import Plan
from pitcheck.report import html, json
from pitcheck.report.ignoring import ignoring, without_ignored
from pitcheck.report.report import Report
from pitcheck.report.text import sentence

REFERENCE = "reference.plan.json"
PARALLEL = "parallel.plan.json"
CONFIGURATION = "configuration.toml"
KINDS: tuple[tuple[str, ...], ...] = ((REFERENCE, PARALLEL), (CONFIGURATION,))
"""The names of texts that can be checked together."""
MOST_MEMORY = 1 << 30
"""Bytes that a proof may take: a page has 4 GiB of addresses for all."""
MOST_FAULTS = 20
"""Faults that are listed; the report has all."""


class Fault(msgspec.Struct, frozen=True):
    """A fault of one text. ``line`` and ``column`` count from 1; both are 0 if it has no place."""

    file: str
    message: str
    line: int = 0
    column: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The answer of a check.

    ``said`` is the verdict in a sentence, ``page`` the report as a page, ``report`` the report as
    JSON, ``faults`` are the faults of the texts, and ``witness`` is the saved input of a mismatch
    as (name, text), if there is one.
    """

    verdict: str
    said: str
    page: str
    report: str
    faults: tuple[Fault, ...] = ()
    witness: tuple[str, str] | None = None


def check_texts(
    texts: Mapping[str, str], seed: str, error_bound: str, progress: Progress | None = None
) -> Answer:
    """Check a pair of plans, or a configuration, given as texts by name.

    ``seed`` and ``error_bound`` are what a user typed; an empty seed draws one. Raises UsageError
    for wrong ones, and for names other than ``KINDS``.
    """
    names = next((kind for kind in KINDS if set(kind) == texts.keys()), None)
    if names is None:
        raise UsageError(
            f"the texts {sorted(texts)} are no pair; give {REFERENCE} and {PARALLEL}, or "
            f"{CONFIGURATION} alone"
        )
    options = _options(seed, error_bound)
    for name in names:
        Path(name).write_text(texts[name], encoding="utf-8", newline="")
    again = None if len(names) > 1 else pair_at(names[0])
    files = sources(names[0], names[1] if len(names) > 1 else None, ())
    report = without_ignored(checked(files, options, progress, again), ignoring((), (), {}))
    return Answer(
        verdict=report.verdict,
        said=sentence(report),
        page=html.encode(report, names).decode("utf-8"),
        report=json.encode(report).decode("utf-8"),
        faults=tuple(_faults(texts, names))[:MOST_FAULTS] if report.verdict == "invalid" else (),
        witness=_witness(report),
    )


def answer_in_json(
    texts: str, seed: str, error_bound: str, progress: Callable[[str, int, int], None]
) -> str:
    """Return the answer of :func:`check_texts` in JSON, or ``{"error": ...}`` for a UsageError.

    ``texts`` is a JSON object of names and texts.
    """
    try:
        given = msgspec.json.decode(texts, type=dict[str, str])
        answer: object = check_texts(given, seed, error_bound, progress)
    except UsageError as error:
        answer = {"error": str(error)}
    return msgspec.json.encode(answer).decode("utf-8")


def _options(seed: str, error_bound: str) -> Options:
    """Return the options that ``pitcheck check`` has by default, but one process and no memory."""
    return Options(
        error_bound_log2=parse_probability_log2(error_bound),
        seed=_seed(seed),
        jobs=1,
        max_memory=MOST_MEMORY,
        witness_directory=WITNESSES,
    )


def _seed(text: str) -> int | None:
    digits = text.strip()
    if not digits:
        return None
    found = seed_of(digits)
    if found is None:
        raise UsageError(f"the seed {shown(text)} is not {SEEDS}")
    return found


def _faults(texts: Mapping[str, str], names: tuple[str, ...]) -> list[Fault]:
    """Return what is wrong in each text by itself, or in the parallel plan beside the reference."""
    faults: list[Fault] = []
    plans: list[Plan] = []
    for name in names:
        try:
            plans += [read(name)] if len(names) > 1 else read_pair(name)
        except PlanError as error:
            line, column = fault_place(texts[name], error) or (0, 0)
            faults.append(Fault(name, str(error), line, column))
        except PitcheckError as error:
            faults.append(Fault(name, str(error)))
    return faults if faults or len(names) == 1 else _broken_rules(texts, names, plans)


def _broken_rules(
    texts: Mapping[str, str], names: tuple[str, ...], plans: list[Plan]
) -> list[Fault]:
    """Return the rules of a valid plan that either plan breaks."""
    from pitcheck.plan.validate import validate  # noqa: PLC0415  heavy: most plans break no rule

    faults = []
    for name, plan, reference in zip(names, plans, (None, plans[0]), strict=True):
        for violation in validate(plan, reference):
            if violation.severity == "error":
                line, column = line_and_column(texts[name], violation.place) or (0, 0)
                message = f"{violation.code}: {violation.place}: {violation.message}"
                faults.append(Fault(name, message, line, column))
    return faults


def _witness(report: Report) -> tuple[str, str] | None:
    """Return name and text of the first witness that the report names."""
    path = next((Path(f.witness) for f in report.findings if f.witness), None)
    return None if path is None else (path.name, path.read_text(encoding="utf-8"))
