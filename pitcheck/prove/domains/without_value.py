"""Tensors of the reference that inputs may leave without a value, from cut to cut.

What the reference lacks at a cut may be lacking in all that is computed from it. A proof over such
a cut holds where the parallel plan lacks no more than the reference does
(:mod:`pitcheck.prove.domains.undefined_cuts`); if it may lack more, the cut is of no use.

>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> problem = Problem.of(plan, plan)
>>> WithoutValue(problem).with_signs(problem.whole_stage()).positive
frozenset()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from pitcheck.algebra.bound.degree_values import ABOVE_ZERO
from pitcheck.claims.problem import Problem
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Mask
from pitcheck.prove.domains.guards import Extent
from pitcheck.prove.domains.reference_signs import Signs
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import undefined_at_cuts, undefined_by_itself
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.stage import Stage, Target


class Claim(Protocol):
    """An obligation: a target with its proof, the form of its stage, and the cuts it stands on."""

    @property
    def target(self) -> Target: ...
    @property
    def proof(self) -> Proof: ...
    @property
    def key(self) -> str: ...
    @property
    def demands(self) -> tuple[tuple[int, Mask], ...]: ...


class WithoutValue:
    """The parts of reference values that inputs may leave without a value, in one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._signs = Signs(problem.reference)
        self._own: dict[tuple[str, tuple[bool, ...]], Extent] = {}
        self._known: dict[tuple[str, tuple[Extent, ...]], Extent | None] = {}

    def useless(
        self, claims: Sequence[Claim], usable: Mapping[int, Cut], settings: Settings
    ) -> set[int]:
        """Return cuts that some proof must not stand on, as parallel values; none if all may.

        ``claims`` are proven, and come before those that they stand on.
        """
        lacking: dict[int, Extent] = {}
        for claim in reversed(claims):
            if claim.proof.outcome != "proven":
                continue
            part = self._by_itself(claim, usable, settings)
            given = {
                value: lacking[usable[value].reference]
                for value, _ in claim.demands
                if value in usable and lacking.get(usable[value].reference)
            }
            if given:
                more = self._over(claim, usable, given, settings)
                if more is None:
                    return set(given)
                part = max(part, more)
            reference = claim.target.cut.reference
            lacking[reference] = max(part, lacking.get(reference, part))
        return set()

    def _by_itself(self, claim: Claim, usable: Mapping[int, Cut], settings: Settings) -> Extent:
        """Return what a target lacks because of operations of its own stage."""
        part = Extent(claim.proof.undefined)
        if part in (Extent.NOTHING, Extent.SEEN):
            return part
        positive = [
            value in usable and self._is_positive(usable[value].reference)
            for value, _ in claim.demands
        ]
        if not any(positive):
            return part
        form = (claim.key, tuple(positive))
        if form not in self._own:
            stage = self._stage(claim, usable)
            if stage is not None:
                stage = self.with_signs(stage)
            self._own[form] = (
                part
                if stage is None
                else min(part, undefined_by_itself(stage, _keys(stage), settings))
            )
        return self._own[form]

    def with_signs(self, stage: Stage) -> Stage:
        """Return a stage that knows which of the numbers at its cuts are positive."""
        given = {cut.reference for cut in stage.cuts.values()}
        return replace(stage, positive=frozenset(v for v in given if self._is_positive(v)))

    def _is_positive(self, reference: int) -> bool:
        return self._signs.of(reference) & ABOVE_ZERO == ABOVE_ZERO

    def _over(
        self,
        claim: Claim,
        usable: Mapping[int, Cut],
        given: Mapping[int, Extent],
        settings: Settings,
    ) -> Extent | None:
        """Return what a target lacks where cuts lack a value, or None if it may be more than due.

        ``given`` says what is lacking, by parallel value.
        """
        form = (claim.key, tuple(given.get(value, Extent.NOTHING) for value, _ in claim.demands))
        if form not in self._known:
            parts: dict[int, Extent] = {}
            for value, part in given.items():
                reference = usable[value].reference
                parts[reference] = max(part, parts.get(reference, part))
            stage = self._stage(claim, usable)
            self._known[form] = (
                None if stage is None else undefined_at_cuts(stage, _keys(stage), settings, parts)
            )
        return self._known[form]

    def _stage(self, claim: Claim, usable: Mapping[int, Cut]) -> Stage | None:
        """Return the stage of a claim, or None if it cannot be cut out at all coordinates."""
        demanded = {value for value, _ in claim.demands}
        cuts = {value: cut for value, cut in usable.items() if value in demanded}
        initial = self._problem.specification.initial
        given = {**cuts, **initial}
        try:
            return build_stage(
                self._problem.reference, self._problem.parallel, given.get, [claim.target]
            )
        except UnsupportedError:
            return None


def _keys(stage: Stage) -> dict[int, str]:
    return canonical_form(stage)[1]
