"""Stages for the differential test of reductions: of the zoo and of pairs to which every reduction
applies, right and with near misses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from zoo.builder import Builder, lineage
from zoo.mutations import mutants
from zoo.pairs import Pair, builders, pair

from pitcheck.claims.hints import hinted_cuts
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import specify
from pitcheck.errors import PitcheckError, PlanError
from pitcheck.graph.graph import Graph
from pitcheck.graph.lowering import lower
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import evaluate
from pitcheck.plan.model import Number, Plan
from pitcheck.plan.schedule.matching import match
from pitcheck.prove.proof import Settings
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.reductions.pipeline import Reductions, measured, reduced
from pitcheck.stage.reductions.protocol import Context, Phase, StageReduction
from pitcheck.stage.reductions.sizes import ReduceSizes
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Stage, Target

RANKS = 6
DRAWS = 10
TEMPLATES = Templates(evaluate)
MOST_STEPS = 90
"""Steps of a stage at its full coordinates and sizes, at most: larger ones are for other tests."""


@dataclass(frozen=True)
class Case:
    """A stage as both plans have it, without any reduction."""

    name: str
    stage: Stage

    def reduced(self, reduction: StageReduction[Any]) -> tuple[Stage, Reductions] | None:
        """Return the stage that a reduction leaves and the reductions with which that is decided;
        None if it changes nothing, or refuses the stage.

        What acts once dimensions are known acts inside the proof.
        """
        context = Context(TEMPLATES)
        try:
            if reduction.phase in (Phase.CUT_OUT, Phase.ROWS):
                left = reduced(self.stage, reduction.phase, context, (reduction,))
                return None if left is self.stage else (left, ())
            if reduction.phase in (Phase.COORDINATES, Phase.SIZES):
                symbolic = symbolic_pair(
                    self.stage.reference, self.stage.parallel, self.stage.all_cuts(), TEMPLATES
                )
                found = measured(self.stage, symbolic, {reduction.phase}, context, (reduction,))
                return None if found.sizes.identity else (self.stage, (reduction,))
        except PitcheckError:
            return None
        return self.stage, (ReduceSizes(), reduction)

    def stays(self, stage: Stage, reductions: Reductions, outcome: str) -> bool:
        """Return True if other draws decide a stage in the same way. One that float64 can represent
        for some numbers only may fail in a few of them.
        """
        return all(self.outcome(stage, reductions, draw) == outcome for draw in range(1, DRAWS))

    def outcome(self, stage: Stage, reductions: Reductions, draw: int = 0) -> str:
        """Return what becomes of the stage, or of another one in its place, with these reductions;
        "invalid" if its shapes do not fit.
        """
        settings = Settings(
            np,
            5,
            -40.0,
            1,
            False,
            1 << 28,
            templates=TEMPLATES,
            most_trials=64,
            reductions=reductions,
        )
        try:
            return prove_stage(
                stage, canonical_form(self.stage)[1], settings, f"{self.name}, {draw}"
            ).outcome
        except PlanError:
            return "invalid"


ODD = 3
"""A rank in the middle: what keeps the first and the last ones does not see it."""


def _batch(odd: bool = False) -> Pair:
    """Rows spread over ranks: what is computed of them, and the gradient of a weight, complete and
    as a term on every rank.

    ``odd``: one rank has another activation, and half of its term.
    """

    def layer(b: Builder, rows: int, parallel: bool) -> tuple[str, str]:
        spec = {0: "dp"} if parallel else None
        x, w, dy = (
            b.input("x", (rows, 3), spec),
            b.parameter("w", (2, 3), {} if parallel else None),
            b.input("dy", (rows, 2), spec),
        )
        h = b.op("linear", x, w)
        b.back("linear", [x, w], h, dy, ["", "term"])
        if not (parallel and odd):
            return str(b.op("silu", h, out="y")), "term"
        others, alone = {"dp": tuple(rank for rank in range(RANKS) if rank != ODD)}, {"dp": (ODD,)}
        b.op("identity", "term", out="own", where=others)
        b.op("mul", "term", Number("1/2"), out="own", where=alone)
        b.op("silu", h, out="y", where=others)
        b.op("relu", h, out="y", where=alone)
        return "y", "own"

    r, b = Builder("reference"), Builder("parallel", {"dp": RANKS})
    y, term = layer(r, 2 * RANKS, False)
    r.output(y)
    r.output(r.op("identity", term, out="dw"))
    r.output(r.op("identity", term, out="dw2"))
    y, term = layer(b, 2, True)
    b.output(y, spec=lineage("y", {0: "dp"}))
    b.op("mul", term, b.constant("one", 1), out="dw")
    b.output("dw", spec=lineage("dw", partial=("dp",)))
    b.output(b.op("identity", b.op("all_reduce", term, group="dp"), out="dw2"))
    return r.plan(), b.plan()


def _buffers() -> Pair:
    """Sums over ranks of several tensors, moved as one buffer."""
    r, b = Builder("reference"), Builder("parallel", {"dp": 2})

    def sums(b: Builder, rows: int, spec: dict[int, str] | None) -> list[str]:
        return [
            str(b.op("sum", b.op("square", b.input(f"x{n}", (rows, 3), spec)), axes=(0,)))
            for n in range(3)
        ]

    for n, one in enumerate(sums(r, 4, None)):
        r.output(r.op("identity", one, out=f"y{n}"))
    whole = b.op("all_reduce", b.op("cat", *sums(b, 2, {0: "dp"}), axis=0), group="dp")
    b.op("split", whole, out=[f"y{n}" for n in range(3)], axis=0, sizes=(3, 3, 3))
    for n in range(3):
        b.output(f"y{n}")
    return r.plan(), b.plan()


def _exchange() -> Pair:
    """Parts of every rank's rows, computed on other ranks and sent back."""
    r, b = Builder("reference"), Builder("parallel", {"ep": RANKS})
    r.output(r.op("silu", r.input("x", (RANKS * RANKS, 3)), out="y"))
    own = b.op("reshape", b.input("x", (RANKS, 3), {0: "ep"}), sizes=(RANKS, 1, 3))
    there = b.op("all_to_all", own, group=("ep",), split_axis=0, concat_axis=0)
    back = b.op("all_to_all", b.op("silu", there), group=("ep",), split_axis=0, concat_axis=0)
    b.op("reshape", back, sizes=(RANKS, 3), out="y")
    b.output("y", spec=lineage("y", {0: "ep"}))
    return r.plan(), b.plan()


OWN: dict[str, Callable[[], Pair]] = {
    "batch": _batch,
    "one rank": partial(_batch, odd=True),
    "buffers": _buffers,
    "exchange": _exchange,
}


def cases(name: str, misses: int) -> Iterator[Case]:
    """Yield the stages of a pair by name, and those of ``misses`` near misses of it, the first and
    last kinds among them.
    """
    reference, parallel = OWN[name]() if name in OWN else pair(name)
    yield from _of(name, reference, parallel)
    wrong = list(mutants(parallel))
    chosen = (
        wrong
        if len(wrong) <= misses
        else [wrong[n * (len(wrong) - 1) // max(misses - 1, 1)] for n in range(misses)]
    )
    for what, plan in chosen:
        yield from islice(_of(f"{name}, {what}", reference, plan), 3)


def _of(name: str, reference: Plan, parallel: Plan) -> Iterator[Case]:
    """Yield the stage of every output, from the nearest stated lineage; none of a plan that is
    refused as a whole.
    """
    try:
        first, second = _graph(reference), _graph(parallel)
        specification = specify(reference, parallel, first, second)
    except PitcheckError:
        return
    cuts = {**hinted_cuts(Problem(first, second, specification)), **specification.initial}
    for number, expected in enumerate(specification.expected):
        target = Target.at(expected.cut, expected.where, second, expected.name)
        try:
            stage = build_stage(first, second, cuts.get, [target], reductions=())
        except PitcheckError:
            continue
        if (
            sum(step.count for step in (*stage.parallel.steps, *stage.reference.steps))
            <= MOST_STEPS
        ):
            yield Case(f"{name}: {number}", stage)


def _graph(plan: Plan) -> Graph:
    matching, violations = match(plan)
    if matching is None:
        raise PitcheckError(str(violations))
    return lower(plan, matching)


def names() -> list[str]:
    """Return the names of all pairs, those in this file first."""
    return [*OWN, *builders()]
