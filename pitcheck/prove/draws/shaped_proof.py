"""The proof of a stage at definite sizes: redraws until it is decided.

>>> import numpy as np
>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.prove.error_budget import Attempts
>>> from pitcheck.prove.proof import Settings
>>> from pitcheck.prove.stage_sizes import FIRST
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> settings = Settings(np, 1, -64.0, 1, False, 1 << 30)
>>> statement = Statement(stage, {0: "x"}, settings, Attempts("", -64.0))
>>> prove_shaped(statement, shape_reduced(stage), FIRST, at_once=8).outcome
'proven'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pitcheck.prove.bounds.free_degrees import FreeStageDegrees
from pitcheck.prove.bounds.stage_degrees import StageDegrees
from pitcheck.prove.error_budget import Attempt, Attempts
from pitcheck.prove.integers.cases import Cases, with_cases
from pitcheck.prove.proof import Proof
from pitcheck.prove.routing_counts import joined
from pitcheck.prove.stage_sizes import (
    FIRST,
    FULL_SIZES,
    LARGER,
    WEIGHTED,
    WHOLE,
    Statement,
)
from pitcheck.prove.stage_trials import StageTrials
from pitcheck.stage.evaluate import check_memory
from pitcheck.stage.run_batch import StepError
from pitcheck.stage.shaped_stage import ShapedStage

LENGTHS = (3, 4)
"""The lengths of chains of primes that are tried."""
ORDERED = "numbers are rounded, or outcomes of comparisons counted"
DIFFERENT = "a law of a function is needed that tables of random residues do not have"
FREED = "any numbers stand in for steps that did not decide both ways"
"""The reasons for the estimate of a stage; the last one is that of a stage with free steps."""
TRIED = {
    FIRST: "small sizes",
    WEIGHTED: "small sizes, each place with a weight",
    **dict.fromkeys(LARGER, "larger reduced sizes"),
    FULL_SIZES: "the sizes of the plans",
    WHOLE: "the sizes of the plans",
}
"""The attempt at a stage, in words, by the set of sizes."""


def prove_shaped(statement: Statement, shaped: ShapedStage, variant: int, at_once: int) -> Proof:
    """Return the proof of a stage at definite sizes, on the array module of the settings."""
    proof = _proof_at(statement, shaped, variant, at_once)
    return replace(proof, on_gpu=statement.settings.xp is not np)


def _proof_at(statement: Statement, shaped: ShapedStage, variant: int, at_once: int) -> Proof:
    """Return the proof of a stage at definite sizes.

    Functions are taken as tables first, which gives a theorem. Then primes without exponentials are
    tried, or chains with more and more levels, until both sides of every target have a level in
    common.
    """
    settings = statement.settings
    if not settings.in_pieces:
        check_memory(shaped, 16, settings.max_memory)
    degrees = StageDegrees.of(shaped)
    # At reduced sizes each integer was looked at, and all that it decides.
    cases = Cases(shaped) if variant == WHOLE else with_cases(shaped, degrees.algebra.divided)
    sizes = (
        f"{statement.kind}sizes "
        f"{settings.attempt}.{variant}{', weighted' if shaped.weights else ''}"
    )
    settings.work.tries(f"{statement.kind}{TRIED[variant]}")
    free = (
        _prove_free(statement, cases, sizes, variant, at_once)
        if settings.free_functions and degrees.has_functions and not shaped.free
        else Proof("inconclusive", reason=FREED if shaped.free else "")
    )
    if free.outcome == "proven":
        return free
    attempt = statement.attempts.reserve(sizes)
    settings = replace(settings, seed=attempt.seed(settings.seed))
    for family in degrees.families(LENGTHS):
        trials = StageTrials(
            cases,
            family,
            degrees,
            settings,
            at_once,
            refutes=variant == FIRST,
            explores=variant != WHOLE,
        )
        proof = _settled(statement.attempts, attempt, trials)
        if proof is not None:
            return replace(proof, no_tables=free.reason)
    return Proof(
        "inconclusive",
        code="PIT205",
        reason="exponentials of exponentials go deeper than exact arithmetic follows them",
    )


def _prove_free(
    statement: Statement, cases: Cases, sizes: str, variant: int, at_once: int
) -> Proof:
    """Return the proof of a stage with tables in place of functions; it refutes nothing.

    Its reason says why it is none.
    """
    settings, attempts = statement.settings, statement.attempts
    try:
        degrees = FreeStageDegrees.of(cases.shaped)
        if degrees.algebra.ordered:
            return Proof("inconclusive", reason=ORDERED)
        attempt = attempts.reserve(f"functions as tables, {sizes}", settings.free_margin_log2)
        settings = replace(
            settings,
            seed=attempt.seed(settings.seed),
            target_log2=settings.target_log2 - settings.free_margin_log2,
        )
        trials = StageTrials(
            cases,
            degrees.family,
            degrees,
            settings,
            at_once,
            refutes=variant == FIRST,
            explores=variant != WHOLE,
        )
        proof = _settled(attempts, attempt, trials)
    except StepError as error:
        return Proof("inconclusive", reason=str(error.cause))
    if proof is None or proof.outcome == "failed":
        return Proof("inconclusive", reason=DIFFERENT)
    return proof


def _settled(attempts: Attempts, attempt: Attempt, trials: StageTrials) -> Proof | None:
    """Return what redraws decide, and enter what they spent.

    Return None if the chains of the family are too short. Raises StepError.
    """
    try:
        proof = decide(trials)
    except StepError:
        if not trials.number:
            attempts.settle(attempt, -math.inf)
        raise
    if proof is not None and proof.outcome == "proven":
        attempts.settle(attempt, proof.error_log2)
    return proof


def decide(trials: StageTrials) -> Proof | None:
    """Redraw a stage until it is decided. Return None if the chains of the family are too short."""
    while trials.number < trials.most:
        algebra = trials.redrawn()
        compared = trials.evaluated(algebra)
        if compared is None:
            return None
        proof = trials.judged(algebra, *compared)
        if proof is not None:
            return proof
    return trials.given_up()


def joined_proof(proofs: Sequence[Proof]) -> Proof:
    """Return the proof of a stage of which all these are proven."""
    last = proofs[-1]
    last.trials = max(p.trials for p in proofs)
    last.on_gpu = any(p.on_gpu for p in proofs)
    last.heuristic = any(p.heuristic for p in proofs)
    last.together = next((p.together for p in proofs if p.together), "")
    last.unread = next((p.unread for p in proofs if p.unread), "")
    last.undefined = max(p.undefined for p in proofs)
    last.no_tables = next((p.no_tables for p in proofs if p.no_tables), "")
    last.reductions = proofs[0].reductions
    last.routing = joined([p.routing for p in proofs])
    return last
