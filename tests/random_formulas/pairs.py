"""Pairs of random formulas by seed: rewritten rightly, or with a mistake, and their verdicts."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from random_formulas.growth import grown
from random_formulas.mistakes import mistaken
from random_formulas.rewritings import rewritten
from random_formulas.term import GIVEN, Term, at, plan_of, walk
from random_formulas.truth import differ

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
    estimate: bool = False
    """True if the report calls its bound an estimate."""

    @property
    def wrong(self) -> str:
        """What is wrong with the verdict, "" if nothing is."""
        if self.verdict == "equivalent" and self.differs:
            return "unequal, called equivalent"
        if not self.mistake and self.differs:
            return "the judge or a rewriting is wrong"
        if not self.mistake and self.verdict == "mismatch":
            return "equal, called a mismatch"
        if (self.verdict == "invalid" and not self.differs) or self.code == "PIT900":
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
    unequal = differ(case.formula, case.right, case.given, {}, seed, ties=False)
    found = [_outcome(seed, case, case.right, "", unequal)]
    if case.wrong is not None:
        # Rounding may decide a comparison of equal numbers otherwise than in the formula that was
        # rewritten; a mistake also differs from what it was made in.
        unequal = all(
            differ(each, case.wrong, case.given, case.hints, seed)
            for each in (case.formula, case.right)
        )
        found.append(_outcome(seed, case, case.wrong, case.mistake, unequal))
    return found


def _outcome(seed: int, case: Case, other: Term, mistake: str, differs: bool) -> Outcome:
    reference = plan_of(case.formula, case.given)
    parallel = plan_of(other, case.given, 2 if seed % 3 == 0 else 1)
    start = time.process_time()
    report = check(reference, parallel, Options(seed=seed, witness_directory=None, explain=False))
    seconds = time.process_time() - start
    finding = report.findings[0] if report.findings else None
    code, title = (finding.code, finding.title) if finding else ("", "")
    estimate = report.verdict == "equivalent" and bool(report.heuristic)
    return Outcome(seed, mistake, differs, report.verdict, code, title, seconds, estimate)
