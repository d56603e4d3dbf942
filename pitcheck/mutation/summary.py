"""The outcomes of many mutants: counts per kind, and those that need a look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pitcheck.mutation.kinds import KINDS
from pitcheck.mutation.outcomes import Outcome, Status

SCHEMA = "pitcheck.mutants/1"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one kind, or of all kinds.

    ``mutants`` = ``invalid`` + ``refused`` + ``changing`` + ``unchanging`` + ``failed``.

    ``invalid``: refused by validation, and changes an output or does not run. ``changing``: not
    refused, and changes an output or does not run; of these ``caught`` are mismatches,
    ``survivors`` are called equivalent, ``open`` are not decided. ``cause_right``: of those caught,
    the code of the first finding names the mistake; ``place_right``: it names the record.
    ``unchanging``: changes no output; of these ``proven`` are equivalent, ``unproven`` not decided,
    and ``alarms`` are called a mismatch. ``refused``: changes no output, and validation refuses it.
    ``failed``: the check failed.
    """

    kind: str
    mutants: int
    invalid: int
    changing: int
    caught: int
    survivors: int
    open: int
    cause_right: int
    place_right: int
    unchanging: int
    proven: int
    unproven: int
    alarms: int
    refused: int
    failed: int


HEADINGS = (
    "kind",
    "mutants",
    "invalid",
    "change an output",
    "caught",
    "survivors",
    "open",
    "cause right",
    "place right",
    "change nothing",
    "proven",
    "left open",
)


def row(kind: str, outcomes: Sequence[Outcome]) -> Row:
    """Return the counts of some outcomes."""
    count: Counter[Status] = Counter(outcome.status for outcome in outcomes)
    return Row(
        kind=kind,
        mutants=len(outcomes),
        invalid=count["invalid"],
        changing=count["caught"] + count["survivor"] + count["open"],
        caught=count["caught"],
        survivors=count["survivor"],
        open=count["open"],
        cause_right=sum(outcome.cause_right for outcome in outcomes),
        place_right=sum(outcome.place_right for outcome in outcomes),
        unchanging=count["proven"] + count["unproven"] + count["alarm"],
        proven=count["proven"],
        unproven=count["unproven"],
        alarms=count["alarm"],
        refused=count["refused"],
        failed=count["failed"],
    )


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Return the counts of every kind that occurs, and of all."""
    by_kind = [(kind, [outcome for outcome in outcomes if outcome.kind == kind]) for kind in KINDS]
    return [*(row(kind, some) for kind, some in by_kind if some), row("all", outcomes)]


def cells(counts: Row) -> tuple[str, ...]:
    """Return a row of the table under ``HEADINGS``.

    Mutants that validation refuses count as invalid, whether they would have changed anything or
    not.
    """
    numbers = (
        counts.mutants,
        counts.invalid + counts.refused,
        counts.changing,
        counts.caught,
        counts.survivors,
        counts.open,
        counts.cause_right,
        counts.place_right,
        counts.unchanging,
        counts.proven,
        counts.unproven,
    )
    return (counts.kind, *map(str, numbers))


def of_status(outcomes: Iterable[Outcome], *statuses: Status) -> list[Outcome]:
    """Return the outcomes of some statuses, in their order."""
    return [outcome for outcome in outcomes if outcome.status in statuses]


def reasons(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, int, Outcome]]:
    """Yield (code, how many, the first) of outcomes that are left open, most frequent first."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.code, []).append(outcome)
    for code, some in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        yield code, len(some), some[0]
