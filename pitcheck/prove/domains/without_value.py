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
from typing import NamedTuple, Protocol, TypeAlias

from pitcheck.algebra.residues.backend_residues import Logarithms
from pitcheck.claims.problem import Problem
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Mask
from pitcheck.prove.domains.claims_in_turn import Answers, Waiting
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


_Form: TypeAlias = tuple[str, tuple[Extent, ...]]
"""The form of a claim's stage, and what each value that it takes as given lacks."""


class _Given(NamedTuple):
    """The parts that are lacking of the values that a claim takes as given, by parallel value."""

    claim: int
    parts: dict[int, Extent]

    def form(self, claim: Claim) -> _Form:
        """Return that which the answer depends on."""
        return claim.key, tuple(self.parts.get(v, Extent.NOTHING) for v, _ in claim.demands)


class _Lacking:
    """The parts that claims lack, as far as they are known.

    ``claims`` come behind those that they stand on. ``states``: what inputs lack, by reference
    value.

    Attributes:
        before: for each claim those that it stands on.
        useless: the cuts that the first claim for which they are of no use stands on.
        first_useless: this claim; of those behind it nothing need be known.
    """

    def __init__(
        self, claims: Sequence[Claim], usable: Mapping[int, Cut], states: Mapping[int, Extent]
    ) -> None:
        self._claims = claims
        self._usable = usable
        self._states = states
        self._parts: dict[int, Extent] = {}
        self._shown: dict[int, list[int]] = {}
        """The claims of each reference value."""
        self.before: list[set[int]] = []
        self.useless: set[int] = set()
        self.first_useless = len(claims)
        for number, claim in enumerate(claims):
            demanded = {usable[v].reference for v, _ in claim.demands if v in usable}
            self.before.append({n for value in demanded for n in self._shown.get(value, ())})
            self._shown.setdefault(claim.target.cut.reference, []).append(number)

    def given(self, claim: int) -> _Given:
        """Return what is lacking of what a claim stands on."""
        found = {}
        for value, _ in self._claims[claim].demands:
            if value in self._usable:
                part = self._part(self._usable[value].reference, claim)
                if part:
                    found[value] = part
        return _Given(claim, found)

    def _part(self, reference: int, before: int) -> Extent:
        """Return what a reference value lacks by the claims before a claim."""
        parts = [self._parts[n] for n in self._shown.get(reference, ()) if n < before]
        return max([*parts, self._states.get(reference, Extent.NOTHING)])

    def enter(self, given: _Given, more: Extent | None) -> None:
        """Enter what a claim lacks because of what is given; None: more than the reference does."""
        if more is None:
            if given.claim < self.first_useless:
                self.first_useless, self.useless = given.claim, set(given.parts)
            return
        self._parts[given.claim] = max(Extent(self._claims[given.claim].proof.undefined), more)

    @property
    def found(self) -> dict[int, Extent]:
        """The part that each reference value lacks."""
        parts = {n: p for n, p in self._parts.items() if n < self.first_useless}
        found = {value: part for value, part in self._states.items() if part}
        for number, part in parts.items():
            reference = self._claims[number].target.cut.reference
            found[reference] = max(part, found.get(reference, part))
        return found


class WithoutValue:
    """The parts of reference values that inputs may leave without a value, in one problem.

    ``jobs``: the processes that look at several claims at a time.
    """

    def __init__(self, problem: Problem, jobs: int = 1) -> None:
        self._problem = problem
        self._jobs = jobs
        self._known: dict[_Form, Extent | None] = {}
        self._logarithms = Logarithms()

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
        if any(states.values()):
            usable = {**self._problem.specification.initial, **usable}
        order = [claim for claim in reversed(claims) if claim.proof.outcome == "proven"]
        lacking = _Lacking(order, usable, states)
        waiting = Waiting(lacking.before)
        answers: Answers[_Form, _Given, Extent | None] = Answers(
            lambda given: self._over(order[given.claim], usable, given.parts, settings), self._jobs
        )
        asked: dict[_Form, list[_Given]] = {}
        try:
            while True:
                while (task := waiting.take()) is not None and task < lacking.first_useless:
                    given = lacking.given(task)
                    form = given.form(order[task])
                    if not given.parts or form in self._known:
                        lacking.enter(given, self._known.get(form, Extent.NOTHING))
                        waiting.done(task)
                    else:
                        if form not in asked:
                            answers.ask(form, given)
                        asked.setdefault(form, []).append(given)
                if not asked:
                    return lacking.found, lacking.useless
                for form, answer in answers.given():
                    self._known[form] = answer
                    for given in asked.pop(form):
                        lacking.enter(given, answer)
                        waiting.done(given.claim)
        finally:
            answers.stop()

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
        parts: dict[int, Extent] = {}
        for value, part in given.items():
            reference = usable[value].reference
            parts[reference] = max(part, parts.get(reference, part))
        stage = self._stage(claim, usable)
        if stage is None:
            return None
        return undefined_at_cuts(stage, _keys(stage), settings, parts, self._logarithms)

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
