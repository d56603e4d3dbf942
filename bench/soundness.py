"""Random formulas with a rewriting that is right, and one that is wrong in one place.

It measures whether a check tells them. ``python bench/soundness.py [--pairs N] [--seed S] [--jobs
J] [--write]`` makes N formulas. Each is checked against a formula that is rewritten in several
places by rules that are right, and against the same with one mistake. Mistakes show at the full
size only, or at rare numbers: a place beyond every reduced size, another threshold, another count,
another domain. Whether a mistake changes a value is judged by running both formulas on float64 at
full size, by code that the check does not use. ``--write`` writes the page ``docs/soundness.md``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from formulas.growth import grown
from formulas.mistakes import mistaken
from formulas.rewritings import rewritten
from formulas.term import GIVEN, Term, at, plan_of, walk
from formulas.truth import differ

from pitcheck.base.options import Options
from pitcheck.engine.check import check

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "soundness.md"
REWRITINGS = 4
"""The places that are rewritten at most."""


@dataclass(frozen=True)
class Outcome:
    """One checked pair: the seed that makes it, its mistake ("" for none), and what was found.

    ``differs`` says that the judge saw unequal values. ``seconds`` are processor seconds.
    """

    seed: int
    mistake: str
    differs: bool
    verdict: str
    code: str
    title: str
    seconds: float

    @property
    def wrong(self) -> str:
        """What is wrong with the verdict, "" if nothing is."""
        if self.verdict == "equivalent" and self.differs:
            return "unequal, called equivalent"
        if not self.mistake and self.differs:
            return "the judge or a rewriting is wrong"
        if not self.mistake and self.verdict == "mismatch":
            return "equal, called a mismatch"
        if self.verdict == "invalid" or self.code == "PIT900":
            return "not checked"
        return ""


Hints = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Case:
    """A formula of ``given``, the same rewritten, and a wrong one.

    ``wrong`` is None if no mistake applies; ``mistake`` names it, and ``hints`` has the numbers at
    which it shows.
    """

    given: tuple[Term, ...]
    formula: Term
    right: Term
    wrong: Term | None = None
    mistake: str = ""
    hints: Hints = field(default_factory=dict)


def case_of(seed: int) -> Case:
    """Return the case of a seed."""
    rng = random.Random(seed)
    formula, growth = grown(rng)
    given = tuple(growth.inputs.values())
    right = formula
    for _ in range(rng.randrange(1, REWRITINGS + 1)):
        right = _at_some_term(right, rng)
    found = mistaken(right, rng, growth.rows)
    if found is not None:
        name, place, wrong = found
        return Case(given, formula, right, at(right, place, wrong.term), name, wrong.hints)
    return Case(given, formula, right)


def _at_some_term(formula: Term, rng: random.Random) -> Term:
    places = [term for term in walk(formula) if term.kind != GIVEN]
    for place in rng.sample(places, len(places)):
        new = rewritten(place, rng)
        if new is not None:
            return at(formula, place, new)
    return formula


def outcomes(seed: int) -> list[Outcome]:
    """Check the right and the wrong formula of a seed."""
    case = case_of(seed)
    found = [_outcome(seed, case, case.right, "")]
    if case.wrong is not None:
        found.append(_outcome(seed, case, case.wrong, case.mistake))
    return found


def _outcome(seed: int, case: Case, other: Term, mistake: str) -> Outcome:
    differs = differ(case.formula, other, case.given, case.hints if mistake else {}, seed)
    reference = plan_of(case.formula, case.given)
    parallel = plan_of(other, case.given, 2 if seed % 3 == 0 else 1)
    start = time.process_time()
    report = check(reference, parallel, Options(seed=seed, witness_directory=None))
    seconds = time.process_time() - start
    finding = report.findings[0] if report.findings else None
    code, title = (finding.code, finding.title) if finding else ("", "")
    return Outcome(seed, mistake, differs, report.verdict, code, title, seconds)


def table(found: list[Outcome]) -> Iterator[str]:
    """Yield the lines of the table: one for each mistake, and one for none."""
    yield "| mistake | pairs | unequal | mismatch | open | equivalent | no effect seen |"
    yield "|---|---|---|---|---|---|---|"
    for mistake in sorted({each.mistake for each in found}):
        own = [each for each in found if each.mistake == mistake]
        unequal = [each for each in own if each.differs]
        verdicts = Counter(each.verdict for each in (unequal if mistake else own))
        yield (
            f"| {mistake or 'none (right)'} | {len(own)} | {len(unequal)} | "
            f"{verdicts['mismatch']} | {verdicts['inconclusive']} | {verdicts['equivalent']} | "
            f"{len(own) - len(unequal)} |"
        )


def main() -> int:
    """Check pairs, print what went wrong and the table; return 1 if something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.pairs)
    found: list[Outcome] = []
    bad = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for each in pool.map(outcomes, seeds, chunksize=8):
            found.extend(each)
            for outcome in each:
                if outcome.wrong:
                    bad += 1
                    print(f"{outcome.wrong}: {outcome}", flush=True)
    right = [each for each in found if not each.mistake]
    unproven = Counter(f"{e.code} {e.title[:90]}" for e in right if e.verdict == "inconclusive")
    for reason, count in unproven.most_common(20):
        print(f"open: {count} {reason}")
    lines = list(table(found))
    print("\n".join(lines))
    print(f"{sum(e.seconds for e in found):.0f} processor seconds, {bad} wrong")
    if options.write:
        PAGE.write_text(page(lines, options.pairs), encoding="utf-8")
    return 1 if bad else 0


def page(lines: list[str], pairs: int) -> str:
    """Return the page of a run."""
    return "\n".join(
        [
            "# Soundness, measured on random formulas",
            "",
            *(__doc__ or "").strip().splitlines()[2:],
            "",
            f"The last run had {pairs} formulas.",
            "",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
