"""The share of mistakes that is caught: mutants of right plans, and right configurations.

An executor that knows nothing of the check judges the mutants. No right configuration may be
blamed.

``python bench/detection.py FILE [--mutants N] [--right N] [--bugs] [--seconds S] [--jobs J]``
appends one JSON line to FILE per mutant and per right configuration, until there are so many, and
per configuration of the known bugs of ``tests/bugs``. Called again, it goes on where it stopped.
``--write`` writes ``docs/detection.md`` from FILE; ``--causes`` prints what is named wrongly. It
needs a clone and the test extra.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.errors import PitcheckError
from pitcheck.forks import Forks
from pitcheck.mutation.causes import RIGHT_CODES
from pitcheck.mutation.kinds import KINDS
from pitcheck.mutation.mutants import Mutant, mutants
from pitcheck.mutation.outcomes import Outcome
from pitcheck.mutation.summary import HEADINGS, cells, of_status, reasons, row, rows
from pitcheck.mutation.trial import outcomes, trial
from pitcheck.plan.model import Plan

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from detection_cases import (  # noqa: E402
    MUTATED,
    RANDOM_MUTATED,
    RIGHT,
    SMALL_PLAN,
    SMALL_PLANS,
    plans_of,
    random_mutated,
    random_right,
)


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mutant (with ``outcome``), a right configuration, or a known bug (with ``verdict``).

    ``error`` says what stopped a whole task. For a known bug, ``bug`` is its name, ``codes`` name
    it rightly, and ``shows`` is True if it shows in the configuration.
    """

    case: str
    seed: int = 0
    outcome: Outcome | None = None
    verdict: str = ""
    code: str = ""
    title: str = ""
    bug: str = ""
    codes: tuple[str, ...] = ()
    shows: bool = False
    error: str = ""
    seconds: float = 0.0


Task = tuple[str, str, int]
"""("mutants", "right" or "bugs", the case, the seed)."""
TURNS = 3
"""The number of seeds that go through all kinds."""


def mutant_tasks(only: str = "") -> Iterator[Task]:
    """Yield tasks for every case, some random layouts and every small plan, seed by seed.

    Only cases whose names begin with ``only`` are taken.
    """
    for seed in itertools.count():
        layouts = (
            random_mutated(seed * RANDOM_MUTATED + number) for number in range(RANDOM_MUTATED)
        )
        cases = [*MUTATED, *layouts, *SMALL_PLANS]
        random.Random(seed).shuffle(cases)
        yield from (("mutants", case, seed) for case in cases if case.startswith(only))


def mutants_of(parallel: Plan, seed: int) -> list[Mutant]:
    """Return the mutants of a task: one of every third kind, or more if the plan has few kinds."""
    kinds = KINDS[seed % TURNS :: TURNS]
    return list(mutants(parallel, len(kinds), seed, kinds))


def right_tasks() -> Iterator[Task]:
    """Yield the degenerate configurations, then random ones."""
    for case in RIGHT:
        yield "right", case, 0
    for number in itertools.count():
        yield "right", random_right(number), 0


def bug_tasks() -> Iterator[Task]:
    """Yield every configuration of every known bug."""
    from bugs.table import BUGS  # noqa: PLC0415  records PyTorch programs; only this part needs it

    for name, bug in BUGS.items():
        for where in (*bug.shows, *bug.silent):
            yield "bugs", f"{name}: {where}", 0


def known_bug(case: str, seed: int) -> Line:
    """Return what the check says of a known bug in one configuration."""
    from bugs.table import BUGS, first_of  # noqa: PLC0415

    name, _, where = case.partition(": ")
    bug = BUGS[name]
    reference, parallel = (bug.shows.get(where) or bug.silent[where]).wrong()
    report = checked([lambda: [reference], lambda: [parallel]], Options(seed=seed, jobs=1))
    first = first_of(report)
    code, title = (first.code, first.title) if first else ("", "")
    return Line(
        case=case,
        bug=name,
        codes=bug.codes,
        shows=where in bug.shows,
        verdict=report.verdict,
        code=code,
        title=title,
    )


def work(task: Task) -> list[Line]:
    """Return the lines of a task."""
    what, case, seed = task
    start = time.process_time()
    try:
        if what == "bugs":
            return [known_bug(case, seed)]
        reference, parallel = plans_of(case)
        options = Options(seed=seed, jobs=1)

        def check(plan: Plan):
            return checked([lambda: [reference], lambda: [plan]], options)

        if what == "right":
            report = check(parallel)
            first = report.findings[0] if report.findings else None
            code, title = (first.code, first.title) if first else ("", "")
            return [
                Line(
                    case=case,
                    verdict=report.verdict,
                    code=code,
                    title=title,
                    seconds=round(time.process_time() - start, 2),
                )
            ]
        judged = trial(reference, parallel, check)
        return [
            Line(case=case, seed=seed, outcome=outcome)
            for outcome in outcomes(judged, mutants_of(parallel, seed), 1)
        ]
    except PitcheckError as error:
        return [Line(case=case, seed=seed, error=f"{what}: {error}")]


def read(file: Path) -> list[Line]:
    """Return the lines that a file has already, with the codes that are right today."""
    lines = (
        [msgspec.json.decode(line, type=Line) for line in file.read_bytes().splitlines()]
        if file.exists()
        else []
    )
    return [
        line
        if line.outcome is None
        else replace(line, outcome=replace(line.outcome, codes=RIGHT_CODES[line.outcome.kind]))
        for line in lines
    ]


def measure(
    file: Path,
    count: int,
    tasks: Iterator[Task],
    counted: Callable[[Line], bool],
    jobs: int,
    deadline: float,
) -> None:
    """Run tasks until there are so many lines that count, or the time is up."""
    lines = read(file)
    done = {(_what(line), line.case, line.seed) for line in lines}
    have = sum(map(counted, lines))
    forks: Forks[Task] = Forks()
    try:
        while True:
            while have < count and time.monotonic() < deadline and len(forks.running) < jobs:
                task = next((task for task in tasks if task not in done), None)
                if task is None:
                    break
                done.add(task)
                forks.start(task, work, task)
            if not forks.running:
                return
            for process in forks.ended():
                found = process.answer or [
                    Line(
                        case=process.key[1],
                        seed=process.key[2],
                        error=f"{process.key[0]}: ended with code {process.code}",
                    )
                ]
                have += sum(map(counted, found))
                with file.open("ab") as stream:
                    stream.writelines(msgspec.json.encode(line) + b"\n" for line in found)
                print(
                    f"{have}/{count} {process.key[0]} {process.key[1]} {process.key[2]}: "
                    f"{_said(found)}",
                    flush=True,
                )
    finally:
        forks.stop()


def _what(line: Line) -> str:
    if line.error:
        return line.error.partition(":")[0]
    return "bugs" if line.bug else "right" if line.outcome is None else "mutants"


def _said(lines: list[Line]) -> str:
    told = [line.outcome for line in lines if line.outcome is not None]
    if not told:
        return lines[0].error or lines[0].verdict
    return " ".join(
        (
            *cells(row("", told)),
            *(
                f"{o.status.upper()} {o.name}"
                for o in of_status(told, "survivor", "alarm", "failed")
            ),
        )
    )


# --- the page

COLUMNS = 100
HEAD = """# Detection rates

This page measures how many mistakes a check catches, and how many right plans it proves. `python
bench/detection.py FILE --mutants N --right N` measures the numbers of this page. Called again, it
goes on where it stopped; with `--write` it writes the page. [`pitcheck mutate`](mutation.md) does
the same for any plan.

## Mutants

A mutant is a right plan with one mistake, at all coordinates or at some. There are {kinds} kinds of
mistakes, equally frequent; a seed chooses. A mutant is executed next to the reference, rank by rank
in float64 at full shapes, in up to 12 draws, by code that shares nothing with the checker. That
says whether it changes an output. Independently it is checked.

- {mutants} mutants were made of {cases} plans.
- {invalid} are refused by validation (shapes, deadlock, who meets whom).
- {changing} others change an output: {caught} are caught with an input that shows it,
  {survivors} called equivalent, {open} left open.
- The code of the first finding names the mistake rightly for {right} of those caught
  ({right_share}). The finding names the changed record for {placed} ({placed_share}); if a
  reduction is left out, it names the records around it.
- {unchanging} change no output: {proven} are proven, {unproven} left open.
- For {alarms} the check shows a difference that the executor did not.

"""


def table(headings: tuple[str, ...], body: Iterator[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [headings, tuple("---" for _ in headings), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page(lines: list[Line]) -> str:
    """Return the whole page."""
    told = _distinct(lines)
    everything = [outcome for _, outcome in told]
    all_ = row("all", everything)
    share = f"{100 * all_.cause_right / max(all_.caught, 1):.1f} %"
    placed = f"{100 * all_.place_right / max(all_.caught, 1):.1f} %"
    text = HEAD.format(
        kinds=len(KINDS),
        mutants=all_.mutants,
        cases=len({case for case, _ in told}),
        invalid=all_.invalid + all_.refused,
        changing=all_.changing,
        caught=all_.caught,
        survivors=all_.survivors,
        open=all_.open,
        right=all_.cause_right,
        right_share=share,
        placed=all_.place_right,
        placed_share=placed,
        unchanging=all_.unchanging,
        proven=all_.proven,
        unproven=all_.unproven,
        alarms=all_.alarms,
    )
    text += table(HEADINGS, map(cells, rows(everything)))
    text += "\n" + _by_plan(told)
    for heading, statuses in LISTS.items():
        text += f"\n## {heading}\n\n" + _listed(of_status(everything, *statuses))
    return text + "\n" + _right(lines) + _bugs(lines)


LISTS = {
    "Mutants that change an output and are called equivalent": ("survivor",),
    "Mutants that change an output and are not decided": ("open",),
    "Mutants that change nothing and are not called equivalent": ("unproven", "alarm", "failed"),
}


def _distinct(lines: list[Line]) -> list[tuple[str, Outcome]]:
    found = {
        (line.case, line.outcome.name): line.outcome for line in lines if line.outcome is not None
    }
    return [(case, outcome) for (case, _), outcome in found.items()]


def _by_plan(told: list[tuple[str, Outcome]]) -> str:
    by_case: dict[str, list[Outcome]] = defaultdict(list)
    for case, outcome in told:
        by_case[
            case
            if case in MUTATED
            else "small plans"
            if case.startswith(SMALL_PLAN)
            else "random layouts"
        ].append(outcome)
    return table(
        ("plan", *HEADINGS[1:]), (cells(row(case, some)) for case, some in by_case.items())
    )


def _listed(some: list[Outcome]) -> str:
    if not some:
        return "None.\n"
    body = (
        (f"{number}", code, first.reason, f"`{first.name}`")
        for code, number, first in reasons(some)
    )
    return table(("mutants", "code", "first reason", "first mutant"), body)


def _right(lines: list[Line]) -> str:
    told = [line for line in lines if _what(line) == "right"]
    degenerate = [line for line in told if line.case in RIGHT]
    wrong = [line for line in told if line.verdict != "equivalent"]
    alarms = [line for line in told if line.verdict in ("mismatch", "invalid")]
    said = (
        f"{len(told)} right configurations were checked: {len(told) - len(wrong)} are proven, "
        f"{len(alarms)} called wrong, {len(wrong) - len(alarms)} left open. {len(degenerate)} are "
        "degenerate ones written by hand: groups of one rank, one layer, one micro-batch, layers "
        "that do not divide, more tensor-parallel ranks than key-value heads, batches of one "
        "sequence, uneven shards, experts without tokens. The others are random layouts."
    )
    text = f"## Right configurations\n\n{textwrap.fill(said, COLUMNS)}\n"
    if wrong:
        text += "\n" + table(
            ("configuration", "verdict", "code", "reason"),
            ((f"`{w.case}`", w.verdict, w.code, w.title) for w in wrong),
        )
    return text


def _bugs(lines: list[Line]) -> str:
    told = [line for line in lines if line.bug]
    if not told:
        return ""
    shown, silent = [line for line in told if line.shows], [line for line in told if not line.shows]
    bugs = {line.bug for line in told}
    wrong = {line.bug for line in shown if line.code not in line.codes}
    missed = [line for line in shown if line.verdict not in ("mismatch", "invalid")]
    alarms = [line for line in silent if line.verdict != "equivalent"]
    said = (
        f"{len(bugs)} bugs of public projects and their classes ([tests/bugs](../tests/bugs)) were "
        f"checked in {len(shown)} configurations in which they show, and in {len(silent)} in which "
        f"the same code is right: {len(shown) - len(missed)} are caught, "
        f"{len(silent) - len(alarms)} proven. For {len(bugs) - len(wrong)} bugs the first finding "
        "names the cause in all configurations in which they show."
    )
    text = f"\n## Known bugs\n\n{textwrap.fill(said, COLUMNS)}\n"
    bad = [
        line
        for line in told
        if line in missed or line in alarms or (line.shows and line.code not in line.codes)
    ]
    if bad:
        text += "\n" + table(
            ("bug", "verdict", "named", "wanted"),
            (
                (f"`{b.case}`", b.verdict, b.code, ", ".join(b.codes) if b.shows else "nothing")
                for b in bad
            ),
        )
    return text


def print_causes(lines: list[Line]) -> None:
    """Print what is caught and named wrongly, by kind and given code, with the first of each."""
    found: dict[tuple[str, str], list[tuple[Line, Outcome]]] = defaultdict(list)
    for line in lines:
        if (
            line.outcome is not None
            and line.outcome.status == "caught"
            and not line.outcome.cause_right
        ):
            found[line.outcome.kind, line.outcome.code].append((line, line.outcome))
    for (kind, code), some in sorted(found.items(), key=lambda item: -len(item[1])):
        line, first = some[0]
        said = f"{first.name} -> {first.at}: {first.reason}: {first.cause}"
        print(
            f"{len(some)} {kind} ({', '.join(first.codes)}) named {code}: {line.case} --seed "
            f"{line.seed}: {said}"
        )


def main() -> None:
    """Measure, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--mutants", type=int, default=0, help="until there are so many")
    parser.add_argument(
        "--right", type=int, default=0, help="until there are so many right configurations"
    )
    parser.add_argument("--bugs", action="store_true", help="all known bugs")
    parser.add_argument("--only", default="", help="mutants of plans whose names begin so")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="start nothing more after so long"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write docs/detection.md")
    parser.add_argument("--causes", action="store_true", help="print what is named wrongly")
    given = parser.parse_args()
    deadline = time.monotonic() + given.seconds
    if given.bugs:
        tasks = list(bug_tasks())
        measure(
            given.file, len(tasks), iter(tasks), lambda line: bool(line.bug), given.jobs, deadline
        )
    measure(
        given.file,
        given.right,
        right_tasks(),
        lambda line: _what(line) == "right" and not line.error,
        given.jobs,
        deadline,
    )
    measure(
        given.file,
        given.mutants,
        mutant_tasks(given.only),
        lambda line: line.outcome is not None,
        given.jobs,
        deadline,
    )
    if given.causes:
        print_causes(read(given.file))
    if given.write:
        (ROOT / "docs" / "detection.md").write_text(page(read(given.file)), encoding="utf-8")


if __name__ == "__main__":
    main()
