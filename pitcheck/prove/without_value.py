"""Tensors of the reference that inputs may leave without a value, from cut to cut.

What the reference lacks at a cut may be lacking in all that is computed from it. A proof over such
a cut holds where the parallel plan lacks no more than the reference does
(:mod:`pitcheck.prove.undefined_cuts`); if it may lack more, the cut is of no use.

>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> reference = Problem.of(plan, plan).reference
>>> sign_of(reference, 1) & ABOVE_ZERO == ABOVE_ZERO, sign_of(reference, 0) & ABOVE_ZERO
(False, <Sign: 0>)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from pitcheck.algebra.bound.degree_values import ABOVE_ZERO, UNKNOWN, Sign
from pitcheck.algebra.bound.degrees import DegreeAlgebra
from pitcheck.base.numbers import parse_number
from pitcheck.claims.problem import Problem
from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, sources_of
from pitcheck.graph.grids import Grid, Mask
from pitcheck.prove.guards import Extent
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.stage_proof import lacking_at_cuts, undefined_at_cuts
from pitcheck.stage.batch import extract
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.evaluate import constant_value
from pitcheck.stage.run_batch import run_batch
from pitcheck.stage.stage import Stage, Target, constant_mask

MOST_NODES = 12
"""The operators before a value that are looked at to see that it is positive."""


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
        self._positive: dict[int, bool] = {}
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
            chosen = {
                usable[value].reference
                for (value, _), sign in zip(claim.demands, positive, strict=True)
                if sign
            }
            self._own[form] = (
                part
                if stage is None or lacking_at_cuts(stage, _keys(stage), settings, chosen)
                else Extent.NOTHING
            )
        return self._own[form]

    def _is_positive(self, reference: int) -> bool:
        if reference not in self._positive:
            sign = sign_of(self._problem.reference, reference)
            self._positive[reference] = sign & ABOVE_ZERO == ABOVE_ZERO
        return self._positive[reference]

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


def sign_of(graph: Graph, value: int) -> Sign:
    """Return what is known of the sign of a reference value, from the operators right before it."""
    inner = _before(graph, value)
    everywhere: Grid = np.zeros(graph.anywhere, dtype=np.int64)

    def boundary(other: int) -> Grid | None:
        return None if other in inner else everywhere

    algebra = DegreeAlgebra()
    try:
        batch = extract(graph, {value: everywhere == 0}, boundary)
        if batch.missing:
            return UNKNOWN
        inputs = {}
        for other in batch.inputs:
            info = graph.values[other]
            if constant_mask(graph, other) is not None and info.tensor.value is not None:
                number = parse_number(info.tensor.value, f"tensors[{info.name}].value")
                inputs[other] = constant_value(algebra, number, info.shape, info.kind)
            else:
                inputs[other] = algebra.fresh(
                    info.name, info.shape, batch.count(other), "any", info.kind
                )
        sign: Sign = run_batch(batch, algebra, inputs)[value].sign
    except PitcheckError:
        return UNKNOWN
    return sign


def _before(graph: Graph, value: int) -> set[int]:
    """Return a value and the computed ones from which few operators compute it."""
    found: set[int] = set()
    nearest, nodes = [value], 0
    while nearest and nodes < MOST_NODES:
        following: list[int] = []
        for each in nearest:
            writers = graph.values[each].writers
            if each in found or len(writers) != 1:
                continue
            found.add(each)
            nodes += 1
            following += _read(graph, writers)
        nearest = following
    return found


def _read(graph: Graph, nodes: Iterable[int]) -> list[int]:
    return [
        source.value
        for node in nodes
        for operand in graph.nodes[node].inputs
        for source in sources_of(operand)
    ]
