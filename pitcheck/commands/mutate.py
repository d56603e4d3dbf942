"""``pitcheck mutate``: mutants of a right plan, their effect, and what the check says of them."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.commands.checking.sources import sources
from pitcheck.commands.progress import watched
from pitcheck.errors import UsageError
from pitcheck.mutation.mutants import Mutant, chosen_kinds, mutants
from pitcheck.mutation.outcomes import Outcome
from pitcheck.mutation.summary import SCHEMA, Row, cells, rows
from pitcheck.plan.files import write_plan
from pitcheck.plan.model import Plan
from pitcheck.report.destinations import (
    check_destinations,
    exit_code_after,
    parse_destination,
    write_everywhere,
)
from pitcheck.report.lines import WIDTH, printable

Progress = Callable[[int, int], None]
"""(done, total): the progress of the trials."""
SURVIVED, FAILED = 1, 2
MOST_LISTED = 20
"""The number of mutants that are shown of each list; all are in the JSON document."""


def run(
    *,
    reference: str,
    parallel: str | None,
    assignments: Sequence[str],
    count: int,
    seed: int | None,
    kinds: Sequence[str],
    jobs: int,
    output: Sequence[str],
    keep: str | None,
    quiet: bool,
) -> int:
    """Make mutants of the parallel plan, judge and check them, print the outcomes.

    Return 1 if a mutant that changes an output is called equivalent, 2 if a check failed, else 0.
    Raises UsageError for a wrong option, for a plan that is not right or too large to be executed,
    and without PyTorch.
    """
    files = sources(reference, parallel, assignments)
    chosen = chosen_kinds([name for text in kinds for name in text.split(",") if name])
    destinations = [parse_destination(text, FORMATS) for text in output]
    check_destinations(destinations, [reference, *([] if parallel is None else [parallel])])
    folder = _folder(keep)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    plans = [plan for file in files for plan in file()]
    become = _trial(plans[0], plans[1], seed, jobs)
    made = list(mutants(plans[1], count, seed, chosen))
    if folder is not None:
        _write(folder, plans[0], made)
    with watched(shown=not quiet) as progress:
        progress.begins("check mutants")
        told = list(
            become(
                made,
                None if progress is None else lambda done, total: progress("mutants", done, total),
            )
        )
    document = Document.of(seed, chosen, told)
    return exit_code_after(
        _code(told),
        lambda: write_everywhere(destinations, lambda each: FORMATS[each.format](document)),
    )


def _folder(keep: str | None) -> Path | None:
    if keep is None:
        return None
    folder = Path(keep)
    if not folder.is_dir():
        raise UsageError(f"--keep {keep} is no directory; create it first")
    return folder


def _trial(
    reference: Plan, parallel: Plan, seed: int, jobs: int
) -> Callable[[Sequence[Mutant], Progress | None], Iterator[Outcome]]:
    """Return the function that gives the outcomes of mutants."""
    try:
        from pitcheck.mutation.trial import outcomes, trial  # noqa: PLC0415  PyTorch is an extra
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError("mutants are executed by PyTorch; install pitcheck[torch]") from None
    options = Options(seed=seed, jobs=1)
    of = trial(
        reference, parallel, lambda plan: checked([lambda: [reference], lambda: [plan]], options)
    )
    return lambda made, progress: outcomes(of, made, jobs, progress)


def _write(folder: Path, reference: Plan, made: Sequence[Mutant]) -> None:
    write_plan(reference, folder / "reference.plan.zst")
    for number, mutant in enumerate(made):
        write_plan(mutant.plan, folder / f"{_label(number, mutant.kind)}.plan.zst")


def _label(number: int, kind: str) -> str:
    """Return the name of a mutant in the output and of its file."""
    return f"{number + 1:04d}-{kind}"


def _code(told: Sequence[Outcome]) -> int:
    statuses = {outcome.status for outcome in told}
    return SURVIVED if "survivor" in statuses else FAILED if "failed" in statuses else 0


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of the mutants.

    ``rows`` are the counts; ``mutants`` has one entry for each, in the order in which they were
    made.
    """

    schema: str
    seed: int
    kinds: tuple[str, ...]
    rows: tuple[Row, ...]
    mutants: tuple[Outcome, ...]

    @classmethod
    def of(cls, seed: int, kinds: Sequence[str], told: Sequence[Outcome]) -> Document:
        """Return the document of some outcomes."""
        return cls(
            schema=SCHEMA,
            seed=seed,
            kinds=tuple(kinds),
            rows=tuple(rows(told)),
            mutants=tuple(told),
        )


# --- text

LISTS: Mapping[str, str] = {
    "survivor": "called equivalent, but an output changes",
    "failed": "the check itself failed",
    "alarm": "called a mismatch, but no draw of the executor shows a difference",
    "open": "an output changes, and the check does not decide",
    "unproven": "nothing changes, and the check does not decide",
    "refused": "nothing changes, and validation refuses it",
}
"""Statuses whose mutants are listed one by one, the most important first."""
HEADINGS = (
    "kind",
    "mutants",
    "invalid",
    "change",
    "caught",
    "survive",
    "open",
    "cause",
    "place",
    "same",
    "proven",
    "left",
)
LEGEND = (
    "invalid: refused by validation; change: of the others, those that change an output, and of "
    "these caught (a mismatch), survive (called equivalent), "
    "open (not decided); cause, place: of those caught, the first finding names the mistake, the "
    "changed record; same: change no output, of these proven, "
    "and left open"
)


def _text(document: Document) -> bytes:
    lines = [
        *_listed(document.mutants),
        *_table(document.rows),
        "",
        *textwrap.wrap(LEGEND, WIDTH),
        "",
        *_verdict(document),
    ]
    return "".join(f"{printable(line)}\n" for line in lines).encode("utf-8")


def _listed(told: Sequence[Outcome]) -> Iterator[str]:
    for status, what in LISTS.items():
        some = [
            (number, outcome) for number, outcome in enumerate(told) if outcome.status == status
        ]
        if not some:
            continue
        yield f"{'error' if status in ('survivor', 'failed') else 'note'}: {what}: {len(some)}"
        for number, outcome in some[:MOST_LISTED]:
            yield from textwrap.wrap(
                f"{_label(number, outcome.kind)} {_described(outcome)}",
                WIDTH,
                initial_indent="  ",
                subsequent_indent="      ",
            )
        if len(some) > MOST_LISTED:
            yield f"  and {len(some) - MOST_LISTED} more"
        yield ""


def _described(outcome: Outcome) -> str:
    where = ", ".join(f"{axis}={at}" for axis, at in outcome.place.items()) or "everywhere"
    effect = (
        f"does not run: {outcome.error}"
        if outcome.error
        else f"changes {', '.join(outcome.outputs[:3])}"
        if outcome.outputs
        else ""
    )
    said = f"{outcome.code} {outcome.reason}" if outcome.code else outcome.verdict
    return "; ".join(
        part for part in (f"{outcome.operator}: {outcome.label}, {where}", effect, said) if part
    )


def _table(counts: Sequence[Row]) -> Iterator[str]:
    body = [HEADINGS, *map(cells, counts)]
    widths = [max(len(line[column]) for line in body) for column in range(len(HEADINGS))]
    for line in body:
        yield "  ".join(
            text.ljust(width) if not column else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()


def _verdict(document: Document) -> Iterator[str]:
    all_ = document.rows[-1]
    yield f"seed {document.seed}"
    if all_.survivors:
        yield (
            f"{all_.survivors} of {all_.changing} mutants that change an output are called "
            f"equivalent: a bug of pitcheck, to be reported"
        )
    else:
        yield (
            f"{all_.caught} of {all_.changing} valid mutants that change an output are caught, "
            f"none is called equivalent"
        )


def _json(document: Document) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document)) + b"\n"


FORMATS: Mapping[str, Callable[[Document], bytes]] = {"text": _text, "json": _json}
