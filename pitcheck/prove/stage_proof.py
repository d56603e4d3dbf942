"""Proving one stage: complete redraws over residues until the bound is met, at two sets
of sizes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as OneOf

import numpy as np

from pitcheck.algebra.bound.degree_bounds import DrawError
from pitcheck.algebra.dimensions.size_choice import LEAST, Sizes
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import DrawnPrimes, Family, PrimeSource
from pitcheck.algebra.residues.weights import UnweighedError, WeightedAlgebra
from pitcheck.errors import BudgetError, PitcheckError, UnsupportedError
from pitcheck.graph.grids import Codes
from pitcheck.ops.axis_templates import Templates
from pitcheck.prove.coverage import Outcomes
from pitcheck.prove.error_budget import Attempts
from pitcheck.prove.guards import unguarded
from pitcheck.prove.legendre_symbols import Characters
from pitcheck.prove.redraws import MOST_REJECTED, Redraws
from pitcheck.prove.routing import Coverage, joined
from pitcheck.prove.stage_degrees import StageDegrees
from pitcheck.stage.evaluate import (
    Comparison,
    Evaluated,
    check_memory,
    compare_target,
    evaluate_stage,
    untested,
)
from pitcheck.stage.reductions.free_variables import undecided
from pitcheck.stage.reductions.pipeline import STAGE_REDUCTIONS, Reductions, measured, reduced
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.reductions.sizes import Measured
from pitcheck.stage.run_batch import StepError
from pitcheck.stage.shapes import SymbolicPair, symbolic_pair
from pitcheck.stage.size_assignment import check_shapes
from pitcheck.stage.stage import ShapedStage, Stage, shape_stage

Outcome = OneOf["proven", "failed", "inconclusive"]
MOST_TRIALS = 256
MOST_ELEMENTS = 1 << 19
"""Elements of the largest value, over trials that are evaluated together: more do not fit caches,
and fewer calls save little then.
"""
REAL_NUMBERS = 4
"""How many times as many trials are evaluated together on real numbers, which have no levels."""
BUDGET = "PIT203"
FIRST_WITH_ROOTS = 4
"""Draws of a stage with roots that are made first: of fewer, hardly one counts for every root."""
VARIANTS = (0, 1)
FULL = "full shapes, where smaller sizes left a stage open"
WEIGHTED = 1
"""The set of sizes with which places have weights."""
LARGER = (2, 3)
"""Sets of sizes for what has no weights."""
FULL_SIZES = 4
"""Stands for full sizes among the sets of sizes, so that other numbers are drawn."""
SMALL = 1 << 18
"""Elements of a stage at full sizes up to which these are tried where places have no weights."""
LENGTHS = (3, 4)
MOST_FREE = 2
"""Steps of a stage, and all that compute the same, for which any numbers are tried."""


@dataclass
class Allowance:
    """How many elements may still be evaluated, those of one draw of every stage counted. It is
    shared by stages, and used up in the order of their proofs.
    """

    left: int

    def take(self, elements: int) -> None:
        """Take what a stage needs. Raises BudgetError where it is more than is left."""
        if elements > self.left:
            raise BudgetError(
                f"a draw has {elements} elements, more than are tried where nobody asks for "
                f"larger sizes; --shapes full tries them"
            )
        self.left -= elements


@dataclass(frozen=True)
class Settings:
    """How stages are evaluated: array module, run seed, accepted error per obligation (log2), least
    trials, full or reduced shapes, memory in bytes.
    """

    xp: Any
    seed: int
    target_log2: float
    least_trials: int
    full_shapes: bool
    max_memory: int
    primes: PrimeSource = field(init=False)
    """Where the primes of redraws come from: drawn by the run's seed."""
    given_primes: PrimeSource | None = None
    """Others to use instead."""
    templates: Templates | None = None
    """What operators do to dimensions, shared between stages."""
    most_trials: int = MOST_TRIALS
    """Redraws after which a stage is given up."""
    full_coordinates: bool = False
    """Whether every coordinate is evaluated, symmetric or not."""
    formal_roots: bool = True
    """Whether the square of a root is its argument
    (:mod:`pitcheck.algebra.residues.formal_roots`).
    """
    least: int = LEAST
    """Elements of a unit at reduced shapes, at least."""
    attempt: int = 0
    """How often stages were tried at other sizes before: every attempt draws other numbers."""
    allowance: Allowance | None = None
    """What an attempt may cost that nobody asked for."""
    reductions: Reductions = STAGE_REDUCTIONS
    """The reductions that make stages smaller, in this order."""

    def __post_init__(self) -> None:
        # Kept over changes of other settings, and by all stages: the primes of a draw are found
        # once.
        given = self.given_primes or DrawnPrimes(self.seed)
        object.__setattr__(self, "given_primes", given)
        object.__setattr__(self, "primes", given)

    def phases(self) -> frozenset[Phase]:
        """Return the phases whose reductions may act on every stage."""
        of_coordinates = (
            set()
            if self.full_coordinates
            else {Phase.ROWS}
            if self.full_shapes
            else {Phase.ROWS, Phase.COORDINATES}
        )
        return frozenset(of_coordinates | (set() if self.full_shapes else {Phase.SIZES}))


@dataclass
class Proof:
    """What became of a stage. ``error_log2``: bound on the probability that it was called proven
    although it is false.
    """

    outcome: Outcome
    error_log2: float = 0.0
    trials: int = 0
    attempts: int = 0
    primes: tuple[int, ...] = ()
    heuristic: bool = False
    code: str = ""
    reason: str = ""
    reductions: tuple[str, ...] = ()
    discrete: tuple[str, ...] = ()
    squared_roots: bool = False
    """Whether a formal root was squared in the last evaluation."""
    routing: Coverage | None = None
    """Where tokens went, in a stage that routes any."""
    differing: Codes | None = None
    """A code of every compared row at which the sides of a stage that failed differ."""
    undecided: int | None = None
    """The node of a parallel step of which an outcome was not seen, and whose result may
    be drawn.
    """


def prove_stage(
    stage: Stage, keys: dict[int, str], settings: Settings, statement: str = ""
) -> Proof:
    """Prove a stage or say why not. Errors of operators become an inconclusive proof; nothing but a
    program error is raised.

    ``statement`` names what is to be proven: attempts at different ones draw different numbers. The
    error of the proof is that of all attempts made.
    """
    attempts = Attempts(statement, settings.target_log2)
    proof = _apart_or_whole(stage, keys, settings, attempts)
    return replace(proof, error_log2=attempts.spent_log2, attempts=attempts.count)


def _apart_or_whole(
    stage: Stage, keys: dict[int, str], settings: Settings, attempts: Attempts
) -> Proof:
    apart = _apart(stage, settings) if Phase.ROWS in settings.phases() else stage
    first = (
        None
        if apart is stage
        else _proof_of(_Statement(apart, keys, settings, attempts, "parts apart, "))
    )
    if first is not None and first.outcome == "proven":
        return first
    # What is wrong, or could not be decided, is looked at as the plan has it, unless that is too
    # large where parts apart have already failed.
    proof = _proof_of(_Statement(stage, keys, settings, attempts))
    return (
        first if first is not None and first.outcome == "failed" and proof.code == BUDGET else proof
    )


@dataclass(frozen=True)
class _Statement:
    """A stage, how it is looked at, and the attempts at it. ``kind`` begins the names of those;
    ``free``: nodes that give any numbers.
    """

    stage: Stage
    keys: dict[int, str]
    settings: Settings
    attempts: Attempts
    kind: str = ""
    free: tuple[int, ...] = ()


def _apart(stage: Stage, settings: Settings) -> Stage:
    """The stage with more rows, of less each; the stage itself where that cannot be done."""
    try:
        return reduced(stage, Phase.ROWS, Context(settings.templates), settings.reductions)
    except (PitcheckError, MemoryError):
        return stage


def _proof_of(statement: _Statement) -> Proof:
    """What becomes of a stage, errors included."""
    try:
        return _whatever_is_decided(statement)
    except StepError as error:
        return _refused(error.cause, str(error))
    except (UnsupportedError, BudgetError) as error:
        return _refused(error, str(error))
    except MemoryError as error:
        return _refused(BudgetError("memory"), f"a stage does not fit into memory: {error}")


def _whatever_is_decided(statement: _Statement) -> Proof:
    """The stage as it is, or, where steps do not decide both ways, with any numbers for what they
    give. That others differ then refutes nothing.
    """
    proof = last = _either_way(statement)
    free: list[int] = []
    while last.undecided is not None and last.undecided not in free and len(free) < MOST_FREE:
        free.append(last.undecided)
        try:
            last = _either_way(
                replace(statement, free=tuple(free), kind=f"{statement.kind}{len(free)} free, ")
            )
        except (PitcheckError, MemoryError):
            return proof
    return proof if last.outcome != "proven" else last


def _either_way(statement: _Statement) -> Proof:
    """With formal roots, or, where these are squared and nothing is proven with them, without: each
    is a proof for itself.
    """
    proof = _prove_variants(statement)
    if proof.outcome == "proven" or not proof.squared_roots:
        return proof
    settings = replace(statement.settings, formal_roots=False)
    plain = _prove_variants(
        replace(statement, settings=settings, kind=f"{statement.kind}roots as residues, ")
    )
    return proof if plain.outcome != "proven" else plain


def _refused(error: PitcheckError, text: str) -> Proof:
    code = (
        "PIT200"
        if isinstance(error, UnsupportedError)
        else BUDGET
        if isinstance(error, BudgetError)
        else "PIT003"
    )
    return Proof("inconclusive", code=code, reason=text)


def _prove_variants(statement: _Statement) -> Proof:
    stage, settings = statement.stage, statement.settings
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), settings.templates)
    proofs: list[Proof] = []
    seen: set[tuple[int, ...]] = set()
    for variant in VARIANTS:
        shaped, symbols, sizes = _shaped(statement, _measured(stage, symbolic, variant, settings))
        signature = tuple(n for fresh in shaped.fresh.values() for n in fresh.shape)
        if proofs and signature in seen:
            continue
        seen.add(signature)
        at_once = _at_once(symbols, sizes, settings)
        weighted, weighed = (
            _prove_weighted(statement, shaped, at_once)
            if variant == WEIGHTED
            else (None, frozenset[int]())
        )
        proven = weighted is not None and weighted.outcome == "proven"
        proof = (
            weighted
            if weighted is not None and proven
            else _prove_shaped(statement, shaped, variant, at_once)
        )
        proof.reductions = _described(sizes, settings)
        if proof.outcome != "proven":
            return proof
        proofs.append(proof)
        if (
            variant == WEIGHTED
            and not settings.full_shapes
            and _few_places(symbols, sizes, weighed)
        ):
            larger = _prove_larger(statement, symbolic, weighted)
            if larger[-1].outcome != "proven":
                return larger[-1]
            proofs += larger
        if settings.full_shapes:
            break
    last = proofs[-1]
    last.trials = max(p.trials for p in proofs)
    last.heuristic = any(p.heuristic for p in proofs)
    last.reductions = proofs[0].reductions
    last.routing = joined([p.routing for p in proofs])
    return last


def _described(sizes: Sizes, settings: Settings) -> tuple[str, ...]:
    """The sizes in sentences; that they are larger than those of other stages is said."""
    if not settings.attempt:
        return tuple(sizes.describe())
    if sizes.identity:
        return (FULL,)
    return tuple(f"{line}, where smaller sizes left a stage open" for line in sizes.describe())


def _measured(stage: Stage, symbolic: SymbolicPair, variant: int, settings: Settings) -> Measured:
    """The stage at full or reduced shapes; at reduced ones with one (then two) coordinates of every
    symmetric class.

    Raises UnsupportedError where a stage that shows a few coordinates does not stand for all.
    """
    return measured(
        stage,
        symbolic,
        settings.phases(),
        Context(settings.templates, variant, settings.least),
        settings.reductions,
    )


def _shaped(statement: _Statement, found: Measured) -> tuple[ShapedStage, SymbolicPair, Sizes]:
    """(the stage at definite sizes, with any numbers for what the free steps give; its dimensions;
    the sizes).
    """
    shaped = shape_stage(found.stage, found.symbolic, found.sizes, statement.keys)
    shaped = reduced(
        shaped, Phase.STEPS, Context(free=statement.free), statement.settings.reductions
    )
    if statement.free and not shaped.free:
        raise UnsupportedError("no step is freed of those that are not decided")
    return shaped, found.symbolic, found.sizes


def _at_once(symbolic: SymbolicPair, sizes: Sizes, settings: Settings) -> int:
    """How many trials are evaluated together. Raises BudgetError where one trial needs more memory
    than there may be, or more elements than are allowed.
    """
    most = settings.max_memory
    largest = max(symbolic.reference.largest(sizes), symbolic.parallel.largest(sizes), 1)
    read = max(symbolic.reference.largest_read(sizes), symbolic.parallel.largest_read(sizes))
    if 8 * LENGTHS[0] * read > most:
        raise BudgetError(
            f"a stage reads {read} elements at once, more than --max-memory allows ({most >> 20} "
            f"MiB)"
        )
    held = symbolic.reference.held(sizes) + symbolic.parallel.held(sizes)
    if 8 * LENGTHS[0] * held > most:
        raise BudgetError(
            f"a draw of a stage has {held} elements, more than --max-memory allows ({most >> 20} "
            f"MiB)"
        )
    if settings.allowance is not None:
        settings.allowance.take(held)
    return max(1, MOST_ELEMENTS // largest)


def _few_places(symbolic: SymbolicPair, sizes: Sizes, weighed: Collection[int]) -> bool:
    """Whether places along an axis that is reduced, and has no weights, are combined: that it has
    few of them may be why both sides agree.
    """
    return any(
        own.mixed and number not in weighed and sizes.unit(number) is not None
        for number, own in symbolic.system.classes()
    )


def _prove_larger(
    statement: _Statement, symbolic: SymbolicPair, weighted: Proof | None
) -> list[Proof]:
    """Proofs at full sizes where they are small, and else at more reduced ones; the last is none
    where a proof is lacking.

    What both sides give for ``weighted`` places differs where that failed: then reduced sizes,
    however many, are no proof.
    """
    full = symbolic.system.full()
    small = symbolic.reference.held(full) + symbolic.parallel.held(full) <= SMALL
    if not small and weighted is not None and weighted.outcome == "failed":
        return [
            replace(
                weighted,
                reason="both plans agree at some sizes, but not where every place along an axis "
                "that is reduced has a weight",
            )
        ]
    proofs: list[Proof] = []
    for variant in (FULL_SIZES,) if small else LARGER:
        found = (
            Measured(statement.stage, symbolic)
            if small
            else _measured(statement.stage, symbolic, variant, statement.settings)
        )
        shaped, symbols, sizes = _shaped(statement, found)
        proofs.append(
            _prove_shaped(statement, shaped, variant, _at_once(symbols, sizes, statement.settings))
        )
        if proofs[-1].outcome != "proven":
            break
    return proofs


def _prove_weighted(
    statement: _Statement, shaped: ShapedStage, at_once: int
) -> tuple[Proof | None, frozenset[int]]:
    """(what becomes of the stage with a weight for every place of its reduced axes, the classes
    that have weights, where it is proven).

    None where it cannot be tried. A failure refutes nothing: the real places have all the weight 1.
    """
    context = Context()
    while (
        weighted := reduced(shaped, Phase.WEIGHTS, context, statement.settings.reductions)
    ).weights:
        try:
            proof = _prove_shaped(statement, weighted, VARIANTS[1], at_once)
        except StepError as error:
            if not isinstance(error.cause, UnweighedError):
                break
            context = replace(context, unweighed=context.unweighed | {error.cause.size})
        except PitcheckError:
            break
        else:
            classes = (number for pattern in weighted.weights.values() for number, _, _ in pattern)
            return proof, frozenset(classes if proof.outcome == "proven" else ())
    return None, frozenset()


def _prove_shaped(statement: _Statement, shaped: ShapedStage, variant: int, at_once: int) -> Proof:
    """Try primes without exponentials, or chains with more and more levels, until both sides of
    every target have one in common.
    """
    settings = statement.settings
    check_memory(shaped, 16, settings.max_memory)
    degrees = StageDegrees.of(shaped)
    sizes = (
        f"{statement.kind}sizes "
        f"{settings.attempt}.{variant}{', weighted' if shaped.weights else ''}"
    )
    attempt = statement.attempts.reserve(sizes)
    settings = replace(settings, seed=attempt.seed(settings.seed))
    for family in degrees.families(LENGTHS):
        trials = _Trials(shaped, family, degrees, settings, at_once, refutes=variant == VARIANTS[0])
        try:
            proof = _judged(trials)
        except StepError:
            if not trials.number:
                statement.attempts.settle(attempt, -math.inf)
            raise
        if proof is not None:
            if proof.outcome == "proven":
                statement.attempts.settle(attempt, proof.error_log2)
            return proof
    return Proof(
        "inconclusive",
        code="PIT205",
        reason="exponentials of exponentials go deeper than exact arithmetic follows them",
    )


def _judged(trials: _Trials) -> Proof | None:
    """Redraw a stage until it is decided. Return None if the chains of the family are too short."""
    while trials.number < trials.most:
        algebra = trials.redrawn()
        compared = _compared(trials.shaped, algebra)
        if compared is None:
            return None
        proof = trials.judged(algebra, *compared)
        if proof is not None:
            return proof
    return trials.given_up()


class _Trials:
    """Redraws of a stage over primes of one family, and what they have shown so far: ``number`` of
    them, at ``most`` so many.

    ``refutes``: whether real numbers are tried as well.
    """

    def __init__(
        self,
        shaped: ShapedStage,
        family: Family,
        degrees: StageDegrees,
        settings: Settings,
        at_once: int,
        *,
        refutes: bool,
    ) -> None:
        self.number = 0
        self.most = settings.most_trials
        self.shaped = shaped
        self._refutes = refutes
        self._at_once = at_once
        self._family = family
        self._degrees = degrees
        self._settings = settings
        self._wanted = max(settings.least_trials, FIRST_WITH_ROOTS if degrees.has_roots else 1)
        self._redraws = Redraws()
        self._counts_voids = False
        self._one: DrawError | None = None
        self._primes: set[int] = set()
        self._lacking = ""
        self._undecided: int | None = None
        self._squared_roots = False
        self._outcomes = Outcomes(shaped, settings.seed, REAL_NUMBERS * at_once)
        self._characters = Characters()
        self._squares = [value for value, fresh in shaped.fresh.items() if fresh.domain == "square"]

    def redrawn(self) -> ResidueAlgebra:
        """The algebra of the next redraws, which have primes of their own."""
        chain = self._settings.primes.chain(self._family, len(self._redraws.agreed))
        self._primes.update(chain.primes)
        numbers = range(self.number, min(self._wanted, self.number + self._at_once, self.most))
        return self._algebra(chain, list(numbers))

    def _algebra(self, chain: Chain, redraws: Sequence[int]) -> ResidueAlgebra:
        given = self._settings.xp, chain, self._settings.seed, redraws
        if self.shaped.weights:
            return WeightedAlgebra(
                self.shaped.weights, *given, formal_roots=self._settings.formal_roots
            )
        return ResidueAlgebra(*given, formal_roots=self._settings.formal_roots)

    def judged(
        self, algebra: ResidueAlgebra, evaluated: Evaluated, comparisons: Sequence[Comparison]
    ) -> Proof | None:
        """Take in an evaluation: a proof, a refutation, or None where more redraws are needed."""
        good = ~np.asarray(algebra.void)
        self._squared_roots = algebra.squared_roots
        self.number += len(algebra.trials)
        for comparison in comparisons:
            if np.broadcast_to(comparison.differs, (len(good), *comparison.differs.shape[1:]))[
                good
            ].any():
                return self._refuted("over numbers modulo a prime both plans differ", comparison)
        self._outcomes.route(evaluated, good)
        one = self._one
        if one is None:
            heights = self._settings.primes.heights(self._family, self._degrees.irrational)
            one, rejected = self._degrees.error(evaluated, comparisons, algebra.chain, heights)
            self._counts_voids = rejected > MOST_REJECTED
            if not self._counts_voids:
                one = one._replace(
                    levels=tuple(level - math.log2(1 - rejected) for level in one.levels)
                )
            if max(one.levels) >= 0:
                return self._open(
                    BUDGET,
                    "the degree bound is vacuous: the stage is too large for primes below 2^31",
                )
            if one.agreeing(math.inf) >= 0:
                return self._open(
                    BUDGET,
                    "the numbers of the stage are so large that too many primes below 2^31 may "
                    "divide them",
                )
            self._one = one
            undefined = unguarded(algebra, self._degrees.algebra.guards)
            discrete = any(fresh.kind != "field" for fresh in self.shaped.fresh.values())
            reals = self._degrees.decides or discrete or bool(algebra.decisions) or undefined.any
            different = self._outcomes.try_reals(undefined.any) if self._refutes and reals else None
            if different is not None:
                return self._refuted("real numbers differ", different)
            if undefined.quotient and self._depends(algebra, undefined.places, good):
                return self._open("PIT202", undefined.quotient)
        self._redraws.add(good)
        self._lacking = self._left_open(algebra, evaluated, good, self._enough(one))
        return self._concluded(one)

    def _depends(self, algebra: ResidueAlgebra, places: Mapping[int, Any], good: Any) -> bool:
        """Return True if anything that is compared is undefined once operands are so at ``places``;
        the redraws of ``algebra`` are evaluated again.
        """
        again = self._algebra(algebra.chain, algebra.trials)
        again.undefined = places
        compared = _compared(self.shaped, again)
        if compared is None or again.left_behind:
            return True
        # Where all redraws are void none says that nothing depends on it.
        seen = good if good.any() else ~good
        return any(
            np.broadcast_to(each.differs, (len(seen), *each.differs.shape[1:]))[seen].any()
            for each in compared[1]
        )

    def _left_open(
        self, algebra: ResidueAlgebra, evaluated: Evaluated, good: Any, enough: int
    ) -> str:
        """What the redraws so far leave open, or ""."""
        last = algebra.trials[-1] + 1
        unseen = self._outcomes.observe(algebra, good, enough)
        self._characters.observe(algebra, [evaluated.drawn[value] for value in self._squares], good)
        square = self._characters.unproven(enough)
        case = untested(self.shaped, self._settings.seed, range(last - self.number, last))
        self._undecided = undecided(self.shaped, unseen)
        if unseen:
            return f"an outcome was not seen often enough: {unseen}"
        if case:
            return f"a discrete case was not tried: {case}"
        return "the argument of a square root may still be a square" if square else ""

    def _concluded(self, one: DrawError) -> Proof | None:
        target, error = self._settings.target_log2, self._error(one)
        if error <= target and self.number >= self._settings.least_trials and not self._lacking:
            self._lacking, different = self._outcomes.unseen()
            if different is not None:
                return self._refuted("real numbers differ", different)
            if not self._lacking:
                said = _discrete(self.shaped, self._outcomes)
                seen = self._outcomes.coverage
                return Proof(
                    "proven",
                    error,
                    self.number,
                    1,
                    tuple(sorted(self._primes)),
                    one.heuristic,
                    discrete=said,
                    routing=seen,
                )
        self._wanted = self.number + self._missing(one, error)
        return None

    def _missing(self, one: DrawError, error: float) -> int:
        """How many redraws are made next."""
        target, most = self._settings.target_log2, self._settings.most_trials
        if error <= target:
            return max(2, self.number // 2)
        useful = self._redraws.at_once(one)
        if useful:
            target = max(target, one.log2 * useful)
            rooted = self._characters.draws(one.log2, target, self._enough(one), most)
            return max(
                2 if self._lacking else 1,
                min(math.ceil((target - error) / one.log2), useful),
                rooted,
            )
        missing = max(2 if self._lacking else 1, math.ceil((target - error) / one.log2))
        return max(
            missing,
            self._characters.draws(one.log2, target, self._enough(one), most)
            - sum(self._redraws.agreed),
        )

    def _error(self, one: DrawError) -> float:
        """log2 of the probability that a false target agrees in all redraws so far that were not
        void.
        """
        counted = self._characters.counted(self._enough(one))
        return self._redraws.error(
            one, self._counts_voids, counted, self._characters.of_counted(one.log2)
        )

    def _enough(self, one: DrawError) -> int:
        """In how many draws everything must be seen."""
        return math.ceil(self._settings.target_log2 / one.log2)

    def given_up(self) -> Proof:
        """What is said after the most redraws."""
        if self._one is not None and self._error(self._one) <= self._settings.target_log2:
            return replace(
                self._open("PIT204", f"after {self.number} draws {self._lacking}"),
                undecided=self._undecided,
            )
        return self._open(BUDGET, f"the error bound was not reached after {self.number} draws")

    def _open(self, code: str, reason: str) -> Proof:
        return Proof("inconclusive", code=code, reason=reason, squared_roots=self._squared_roots)

    def _refuted(self, reason: str, comparison: Comparison) -> Proof:
        squared = self._squared_roots
        return Proof(
            "failed",
            primes=tuple(sorted(self._primes)),
            trials=self.number,
            reason=reason,
            squared_roots=squared,
            differing=comparison.differing(),
        )


def _compared(
    shaped: ShapedStage, algebra: ResidueAlgebra
) -> tuple[Evaluated, list[Comparison]] | None:
    """The stage evaluated and its targets compared; None where the chain of primes is too short for
    its exponentials.
    """
    try:
        evaluated = evaluate_stage(shaped, algebra)
        check_shapes(algebra, evaluated.reference, shaped.shapes[0], "reference")
        check_shapes(algebra, evaluated.parallel, shaped.shapes[1], "parallel")
        return evaluated, [
            compare_target(shaped, evaluated, n) for n in range(len(shaped.stage.targets))
        ]
    except StepError as failure:
        if isinstance(failure.cause, BudgetError):
            return None
        raise
    except BudgetError:
        return None


def _discrete(shaped: ShapedStage, outcomes: Outcomes) -> tuple[str, ...]:
    said = [
        f"{f.key}: integers in [{f.bounds[0]}, {f.bounds[1]}) with {', '.join(map(str, f.marks))} "
        f"among them"
        for f in shaped.fresh.values()
        if f.bounds
    ]
    if outcomes.decisions:
        said.append(
            f"{len(outcomes.decisions)} decisions, each seen with both outcomes on every shard"
        )
    return tuple(said)
