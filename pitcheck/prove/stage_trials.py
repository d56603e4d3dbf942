"""Redraws of one stage at definite sizes, until it is decided.

>>> import numpy as np
>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shaped = shape_reduced(Problem.of(plan, plan).whole_stage())
>>> degrees, settings = StageDegrees.of(shaped), Settings(np, 1, -64.0, 1, False, 1 << 30)
>>> family, cases = next(degrees.families([3])), Cases(shaped)
>>> trials = StageTrials(cases, family, degrees, settings, 8, refutes=True)
>>> algebra = trials.redrawn()
>>> trials.judged(algebra, *evaluate_targets(shaped, algebra)) is None  # one redraw is too few
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from pitcheck.algebra.bound.degree_bounds import DrawError
from pitcheck.algebra.residues.backend_residues import ResidueAlgebra
from pitcheck.algebra.residues.chains import Chain
from pitcheck.algebra.residues.drawn_primes import Family
from pitcheck.algebra.value import Value
from pitcheck.errors import BudgetError
from pitcheck.prove.bounds.draw_bounds import DrawBounds, vacuous
from pitcheck.prove.bounds.free_degrees import FreeStageDegrees
from pitcheck.prove.bounds.redraws import Redraws
from pitcheck.prove.bounds.stage_degrees import StageDegrees
from pitcheck.prove.bounds.supports import converted_values
from pitcheck.prove.coverage import Outcomes
from pitcheck.prove.domains.guards import Extent
from pitcheck.prove.draws.stage_algebras import StageAlgebras
from pitcheck.prove.draws.unshown import Unshown, differs_in
from pitcheck.prove.integers.cases import Cases
from pitcheck.prove.integers.rows_read import RowsRead
from pitcheck.prove.integers.together import Together
from pitcheck.prove.legendre_symbols import Characters
from pitcheck.prove.proof import BUDGET, Proof, Settings
from pitcheck.stage.batch import Argument, Step
from pitcheck.stage.evaluate import (
    Comparison,
    Evaluated,
    Keeping,
    compare_target,
    discrete_cases,
    evaluate_stage,
)
from pitcheck.stage.reductions.free_variables import undecided
from pitcheck.stage.run_batch import Observer, StepError
from pitcheck.stage.shaped_stage import ShapedStage
from pitcheck.stage.size_assignment import check_shapes

REAL_NUMBERS = 4
"""The factor by which more trials are evaluated together on real numbers, which have no levels."""
DEPENDS = "it depends on comparisons of numbers what is divided by, or under a root or logarithm"
"""The reason, in a message, why a stage is left open for its domains."""
TIES = (
    "both plans differ where numbers that are compared are equal, which no draw shows: one has > "
    "or < where the other has >= or <=, or == decides"
)
UNTRIED = "one plan alone multiplies conditions of several integers, and they hold in no draw"
FIRST_WITH_ROOTS = 4
"""The draws of a stage with roots that are made first. Of fewer, hardly one counts for every root.
"""

MOST_HELD = 1 << 24
"""The elements that are drawn for a stage up to which they are held for the parallel side. Larger
ones are drawn again.
"""

SAME_ORDER_LOG2 = -1.0
"""The log2 of the share of draws in which two orders that have nothing to do with each other may
be the same, as those of two numbers are.
"""

MOST_FOR_FIRST = 16
"""The draws of orders up to which more are made because an element never came first. Then real
numbers are asked for it.
"""


class StageTrials:
    """The redraws of a stage over primes of one family, and what they have shown so far.

    ``number`` of at most ``most`` redraws are made. ``refutes``: True if real numbers are tried as
    well. ``explores``: True if it is also looked for what single redraws do not show; False if
    that was done at other sizes. ``at_once``: the redraws that are evaluated together.
    """

    def __init__(
        self,
        cases: Cases,
        family: Family,
        degrees: StageDegrees | FreeStageDegrees,
        settings: Settings,
        at_once: int,
        *,
        refutes: bool,
        explores: bool = True,
    ) -> None:
        self.number = 0
        self.most = settings.most_trials
        self.shaped = shaped = cases.shaped
        self._integers_open = cases.open
        self._tested = None if cases.tested is None else cases.tested.anew()
        self._refutes = refutes
        self._explores = explores
        self._together = Together.of(shaped) if refutes else None
        self._at_once = at_once
        self._family = family
        self._degrees = degrees
        self._settings = settings
        self._algebras = StageAlgebras(shaped, settings, degrees)
        self._unshown = Unshown(self._algebras, self._compared, at_once)
        sorts = degrees.algebra.sorts
        telling = math.ceil(settings.target_log2 / SAME_ORDER_LOG2) if sorts else 0
        self._orders = telling if refutes else 0
        self._until_first = min(telling, MOST_FOR_FIRST)
        self._cases = discrete_cases(shaped, settings.seed, self.most) if explores else []
        self._wanted = max(
            settings.least_trials,
            self._orders,
            FIRST_WITH_ROOTS if degrees.has_roots else 1,
        )
        self._redraws = Redraws()
        self._rows = RowsRead()
        self._bounds = DrawBounds(shaped, degrees, family, settings.primes)
        self._primes: set[int] = set()
        self._lacking = ""
        self._undecided: int | None = None
        self._squared_roots = False
        self._undefined_part = Extent.NOTHING
        self._outcomes = Outcomes(shaped, settings.seed, REAL_NUMBERS * at_once)
        self._characters = Characters()
        self._squares = [value for value, fresh in shaped.fresh.items() if fresh.domain == "square"]
        self._keep = self._needed_later()

    def redrawn(self) -> ResidueAlgebra:
        """Return the algebra of the next redraws, which have primes of their own."""
        chain = self._next_chain()
        self._primes.update(chain.primes)
        numbers = range(self.number, min(self._wanted, self.number + self._at_once, self.most))
        algebra = self._algebras.plain(chain, list(numbers))
        algebra.indexed = []
        return algebra

    def evaluated(self, algebra: ResidueAlgebra) -> tuple[Evaluated, list[Comparison]] | None:
        """Evaluate the stage and compare its targets; None if levels do not suffice.

        Of the values only those are kept that are looked at afterwards.
        """
        return evaluate_targets(self.shaped, algebra, self._keep)

    def _needed_later(self) -> Keeping:
        """Return the values that are looked at after an evaluation, besides those compared."""
        shaped = self.shaped
        targets = Keeping.targets(shaped)
        reference, parallel = (set(side) for side in (targets.reference, targets.parallel))
        reference |= converted_values(shaped.stage.reference)
        parallel |= converted_values(shaped.stage.parallel) | self._outcomes.routed
        if self._together is not None:
            reference |= self._together.looked_at[0]
            parallel |= self._together.looked_at[1]
        drawn = sum(prod(fresh.shape) for fresh in shaped.fresh.values())
        return Keeping(
            frozenset(reference),
            frozenset(parallel),
            frozenset(self._squares),
            draws_anew=drawn > MOST_HELD,
            in_slabs=not self._explores,
        )

    def judged(
        self, algebra: ResidueAlgebra, evaluated: Evaluated, comparisons: Sequence[Comparison]
    ) -> Proof | None:
        """Take in an evaluation.

        Return a proof or a refutation, or None if more redraws are needed.
        """
        good = ~np.asarray(algebra.void)
        self._squared_roots = algebra.squared_roots
        self.number += len(algebra.trials)
        for comparison in comparisons:
            if differs_in(comparison, good):
                return self._refuted("over numbers modulo a prime both plans differ", comparison)
        look = self._explored if self._explores else self._compared_alone
        return look(algebra, evaluated, comparisons, good)

    def _explored(
        self,
        algebra: ResidueAlgebra,
        evaluated: Evaluated,
        comparisons: Sequence[Comparison],
        good: Any,
    ) -> Proof | None:
        """Take in an evaluation in which both sides agree, and look for what it does not show."""
        self._outcomes.route(evaluated, good)
        signless, first = self._unshown.signless(algebra), self._bounds.worst is None
        one = self._bounds.of(algebra.chain, evaluated, comparisons)
        if said := vacuous(one):
            return self._open(BUDGET, said)
        if first:
            found = self._unshown.domains(algebra.chain)
            depends = found.decided and self._algebras.has_masks
            lacking = DEPENDS if depends else found.lacking or signless
            self._undefined_part = found.undefined
            if any(not_finite(each.expected) for each in comparisons):
                self._undefined_part = Extent.SEEN
            discrete = any(fresh.kind != "field" for fresh in self.shaped.fresh.values())
            reals = not depends and (
                self._degrees.decides
                or discrete
                or bool(algebra.decisions)
                or bool(lacking)
                or found.decided
            )
            different = (
                self._outcomes.try_reals(bool(lacking) or found.decided or self._hides_infinity)
                if self._refutes and reals
                else None
            )
            if different is not None:
                return self._refuted("real numbers differ", different)
            if lacking:
                return self._open("PIT202", lacking)
        lacking = signless or self._unshown.unmatched(algebra)
        if lacking:
            return self._open("PIT202", lacking)
        self._redraws.add(good)
        self._rows.take(evaluated, good)
        if self._together is not None:
            self._together.take(evaluated, algebra.trials, good)
        self._lacking = self._left_open(algebra, evaluated, good, self._enough(one))
        return self._concluded(one)

    def _compared_alone(
        self,
        algebra: ResidueAlgebra,
        evaluated: Evaluated,
        comparisons: Sequence[Comparison],
        good: Any,
    ) -> Proof | None:
        """Take in an evaluation in which both sides agree, of a stage proven at other sizes."""
        one = self._bounds.of(algebra.chain, evaluated, comparisons)
        if said := vacuous(one):
            return self._open(BUDGET, said)
        self._redraws.add(good)
        self._lacking = self._open_roots(algebra, evaluated, good, self._enough(one))
        if self._error(one) <= self._settings.target_log2 and not self._lacking:
            return self._proven(one, self._error(one))
        self._wanted = self.number + self._missing(one, self._error(one))
        return None

    @property
    def _hides_infinity(self) -> bool:
        """Return True if drawn numbers may decide, and seldom do, where something is infinite."""
        return self._degrees.algebra.infinite and self._degrees.decides

    def _compared(self, algebra: ResidueAlgebra) -> Sequence[Comparison] | None:
        """Evaluate the stage and compare its targets; None if levels do not suffice."""
        compared = self.evaluated(algebra)
        return None if compared is None else compared[1]

    def _left_open(
        self, algebra: ResidueAlgebra, evaluated: Evaluated, good: Any, enough: int
    ) -> str:
        """Return what the redraws so far leave open, or ""."""
        unseen = self._outcomes.observe(algebra, good, enough)
        square = self._open_roots(algebra, evaluated, good, enough)
        case = next((case.said for case in self._cases if case.trials > self.number), "")
        tested = self._tested
        if tested is not None:
            seen = [trial for trial, counts in zip(algebra.trials, good, strict=True) if counts]
            tested.observe(seen, self._settings.seed)
        self._undecided = undecided(self.shaped, unseen)
        if self.number < self._until_first and (site := self._outcomes.never_first):
            return f"an element never came first: {self.shaped.stage.operator_at(site)}"
        if unseen:
            operator = self.shaped.stage.operator_at(unseen)
            return f"an outcome was not seen often enough: {operator}"
        if case:
            return f"a discrete case was not tried: {case}"
        if tested is not None and (lacking := tested.lacking()):
            return lacking
        return square

    def _open_roots(
        self, algebra: ResidueAlgebra, evaluated: Evaluated, good: Any, enough: int
    ) -> str:
        """Return that the argument of a root is not known to be no square, or ""."""
        self._characters.observe(algebra, [evaluated.drawn[value] for value in self._squares], good)
        square = self._characters.unproven(enough)
        return "the argument of a square root may still be a square" if square else ""

    def _concluded(self, one: DrawError) -> Proof | None:
        """Return the proof if the bound is met and nothing is open; else plan more redraws."""
        target, error = self._settings.target_log2, self._error(one)
        if sum(self._redraws.agreed) < self._orders:
            self._lacking = self._lacking or f"fewer than {self._orders} orders were drawn"
        if error <= target and self.number >= self._settings.least_trials and not self._lacking:
            self._lacking, different = self._outcomes.unseen()
            if different is not None:
                return self._refuted("real numbers differ", different)
            different = None if self._lacking else self._further_difference()
            if different is not None:
                return self._refuted("where integers decide together both plans differ", different)
            if not self._lacking and self._rows.wants_more:
                self._wanted = self._planned
                return None
            if not self._lacking:
                return self._settled(one, error)
        self._wanted = self.number + self._missing(one, error)
        return None

    def _settled(self, one: DrawError, error: float) -> Proof:
        """Return the proof of a stage whose bound is met, unless what no draw shows is open."""
        if self._refutes and self._unshown.differs_at_ties(self._next_chain, self.number):
            return self._open("PIT204", TIES)
        if self._integers_open:
            return self._open("PIT204", self._integers_open)
        together, untried = self._decides_together()
        if untried:
            return self._open("PIT204", f"{UNTRIED}: {together}")
        return self._proven(one, error, together)

    def _proven(self, one: DrawError, error: float, together: str = "") -> Proof:
        """Return the proof of a stage whose bound is met."""
        return Proof(
            "proven",
            error,
            self.number,
            1,
            tuple(sorted(self._primes)),
            one.heuristic,
            together=together,
            unread=self._unread,
            discrete=_discrete(self.shaped, self._outcomes),
            routing=self._outcomes.coverage,
            undefined=self._undefined_part,
        )

    @property
    def _unread(self) -> str:
        """The step that indexes an axis of which no draw read some row, in words, or ""."""
        site = self._rows.unread
        return self.shaped.stage.operator_at(site) if site else ""

    def _decides_together(self) -> tuple[str, bool]:
        """Return a decision of integers that draws do not settle, in words, or "".

        The second value is True if it was not tried at all.
        """
        return ("", False) if self._together is None else self._together.untold(self._settings.seed)

    def _further_difference(self) -> Comparison | None:
        """Return a difference where integers decide as they do in no redraw so far."""
        if not self._refutes:
            return None
        return self._unshown.further_difference(self._next_chain, self.number)

    def _next_chain(self) -> Chain:
        """Return the chain of primes of the next redraws."""
        return self._settings.primes.chain(self._family, len(self._redraws.agreed))

    def _missing(self, one: DrawError, error: float) -> int:
        """Return how many redraws are made next."""
        target, most = self._settings.target_log2, self._settings.most_trials
        if error <= target:
            return self._planned - self.number
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

    @property
    def _planned(self) -> int:
        """The number of redraws after the next ones: half more, and so on until all cases show."""
        needed = max((c.trials for c in self._cases if c.trials <= self.most), default=0)
        planned = self.number
        while planned == self.number or planned < needed:
            planned += max(2, planned // 2)
        return planned

    def _error(self, one: DrawError) -> float:
        """Return log2 of the probability that a false target agrees in all good redraws."""
        counted = self._characters.counted(self._enough(one))
        return self._redraws.error(
            one, self._bounds.counts_voids, counted, self._characters.of_counted(one.log2)
        )

    def _enough(self, one: DrawError) -> int:
        """Return the number of draws in which everything must be seen."""
        return math.ceil(self._settings.target_log2 / one.log2)

    def given_up(self) -> Proof:
        """Return the proof after the most redraws."""
        one = self._bounds.worst
        if one is not None and self._error(one) <= self._settings.target_log2:
            return replace(
                self._open("PIT204", f"after {self.number} draws {self._lacking}"),
                undecided=self._undecided,
            )
        return self._open(BUDGET, f"the error bound was not reached after {self.number} draws")

    def _open(self, code: str, reason: str) -> Proof:
        """Return an inconclusive proof."""
        return Proof("inconclusive", code=code, reason=reason, squared_roots=self._squared_roots)

    def _refuted(self, reason: str, comparison: Comparison) -> Proof:
        """Return the proof of a stage whose sides differ."""
        squared = self._squared_roots
        return Proof(
            "failed",
            primes=tuple(sorted(self._primes)),
            trials=self.number,
            reason=reason,
            squared_roots=squared,
            differing=comparison.differing(),
        )


def not_finite(a: Value) -> bool:
    """Return True if a value has elements that are NaN or infinite."""
    return a.special is not None and bool((a.special != 0).any())


def evaluate_targets(
    shaped: ShapedStage, algebra: ResidueAlgebra, keep: Keeping | None = None
) -> tuple[Evaluated, list[Comparison]] | None:
    """Evaluate a stage and compare its targets; ``keep``: the values that are kept, None for all.

    Return None if the chain of primes is too short for its exponentials.
    """
    try:
        evaluated = evaluate_stage(
            shaped, algebra, observe=_shape_checks(shaped, algebra), keep=keep
        )
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


def _shape_checks(shaped: ShapedStage, algebra: ResidueAlgebra) -> Observer:
    """Return what checks after every step that values have the shapes that dimensions give them."""

    def check(_: int, step: Step, given: Sequence[Any], results: Sequence[Any]) -> None:
        side = algebra.site.partition(" ")[0]
        shapes = shaped.shapes[side == "parallel"]
        read = {
            operand.value: value
            for operand, value in zip(step.inputs, given, strict=True)
            if isinstance(operand, Argument) and operand.rows.ndim == 1
        }
        made = {v: result for v, result in zip(step.outputs, results, strict=True) if v is not None}
        check_shapes(algebra, read, shapes, side)
        check_shapes(algebra, made, shapes, side)

    return check


def _discrete(shaped: ShapedStage, outcomes: Outcomes) -> tuple[str, ...]:
    """Return a sentence for every discrete case that was covered."""
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
