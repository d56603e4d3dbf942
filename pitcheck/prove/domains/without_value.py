"""Tensors of the reference that inputs may leave without a value, from cut to cut.

What the reference lacks at a cut may be lacking in all that is computed from it. A proof over such
a cut holds where the parallel plan lacks no more than the reference does
(:mod:`pitcheck.prove.domains.undefined_cuts`); if it may lack more, the cut is of no use.

>>> import numpy as np
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> problem = Problem.of(plan, plan)
>>> WithoutValue(problem).useless([], {}, Settings(np, 1, -64.0, 1, False, 1 << 30))
set()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pitcheck.claims.problem import Problem
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Mask
from pitcheck.prove.domains.guards import Extent
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import undefined_at_cuts
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
        self._known: dict[tuple[str, tuple[Extent, ...]], Extent | None] = {}

    def useless(
        self, claims: Sequence[Claim], usable: Mapping[int, Cut], settings: Settings
    ) -> set[int]:
        """Return cuts that some proof must not stand on, as parallel values; none if all may.

        ``claims`` are proven, and come before those that they stand on.
        """
        return self._followed(claims, usable, settings, {})[1]

    def returns(
        self,
        claims: Sequence[Claim],
        usable: Mapping[int, Cut],
        settings: Settings,
        states: Mapping[int, Sequence[int]],
    ) -> bool:
        """Return True if inputs may lack values where other values do, which are taken for them.

        Args:
            claims: the proven claims, those that they stand on behind them.
            usable: the cuts, by parallel value.
            settings: those of the proofs.
            states: by reference value that is an input, the reference values that it stands for.

        What an input lacks is what these lack, of which some are computed from it. So it is
        followed until nothing changes. False: the parallel plan may then lack more than the
        reference somewhere.
        """
        given = dict.fromkeys(states, Extent.NOTHING)
        while True:
            lacking, useless = self._followed(claims, usable, settings, given)
            if useless:
                return False
            after = {
                state: max([given[state], *(lacking.get(v, Extent.SEEN) for v in values)])
                for state, values in states.items()
            }
            if after == given:
                return True
            given = after

    def _followed(
        self,
        claims: Sequence[Claim],
        usable: Mapping[int, Cut],
        settings: Settings,
        states: Mapping[int, Extent],
    ) -> tuple[dict[int, Extent], set[int]]:
        """Return what reference values lack, and the cuts or inputs that a proof must not stand on.

        ``states``: what inputs lack, by reference value.
        """
        lacking = {value: part for value, part in states.items() if part}
        usable = {**self._problem.specification.initial, **usable} if lacking else usable
        for claim in reversed(claims):
            if claim.proof.outcome != "proven":
                continue
            part = Extent(claim.proof.undefined)
            given = {
                value: lacking[usable[value].reference]
                for value, _ in claim.demands
                if value in usable and lacking.get(usable[value].reference)
            }
            if given:
                more = self._over(claim, usable, given, settings)
                if more is None:
                    return lacking, set(given)
                part = max(part, more)
            reference = claim.target.cut.reference
            lacking[reference] = max(part, lacking.get(reference, part))
        return lacking, set()

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
