"""The search for a small witness: a stage with small integers, as many zeros as possible.

The stage ends in a wrong output, and still differs on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.claims.real_numbers import real_differences
from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph
from pitcheck.report.report import Finding
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.drawn_inputs import discrete
from pitcheck.stage.evaluate import Comparison, compare_target, evaluate_stage
from pitcheck.stage.shaped_stage import ShapedStage, shape_stage
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Stage, Target, compared_rows
from pitcheck.witness.replay import (
    DIGITS,
    FLOAT64,
    Replayed,
    in_float64,
    replay_to_digits,
    stands_disturbed,
)
from pitcheck.witness.sound import check_witness
from pitcheck.witness.witness import Compared, Filled, Held, Witness, side_of

Inputs = dict[int, NDArray[np.int64]]
CLEAR = 1e-6
"""Relative difference that a witness shows at least."""
SMALL_ONES = (3, 6)
"""Candidates that are computed to many digits if float64 shows the difference in none.

These are the integers that are not all zeros and ones.
"""
MOST_STAGES = 3
"""Stages that are tried."""
MOST_EVALUATIONS = 120
"""Evaluations that shrinking may cost."""
MOST_WORK = 4000
"""Steps times evaluations that shrinking may cost."""
MOST_PRECISE_STEPS = 80
"""Steps up to which a stage is computed to many digits; larger ones would take minutes.

Those are confirmed in float64 alone, plain and with disturbed last digits.
"""


def find_witness(
    first: Graph,
    second: Graph,
    given: Mapping[int, Cut],
    targets: list[Target],
    finding: Finding,
    seed: int,
) -> Witness | None:
    """Return a witness for a stage that ends in one of ``targets``.

    The finding's output is tried first, then the smallest stages.

    Args:
        given: cuts at which parallel values may be taken as given.

    Returns:
        The witness; None if no small integers show the difference.
    """
    tried = 0
    for alike in (
        [t for t in targets if t.name == finding.output],
        [t for t in targets if t.name != finding.output],
    ):
        for stage in sorted((s for t in alike for s in _stage(first, second, given, t)), key=_work)[
            : MOST_STAGES - tried
        ]:
            tried += 1
            try:
                witness = _from_stage(stage, finding, seed)
            except PitcheckError:
                continue
            if witness is not None:
                return witness
    return None


def _work(stage: Stage) -> int:
    return len(stage.reference.steps) + len(stage.parallel.steps)


def _stage(first: Graph, second: Graph, given: Mapping[int, Cut], target: Target) -> list[Stage]:
    try:
        return [build_stage(first, second, given.get, [target])]
    except UnsupportedError:
        return []


def _from_stage(stage: Stage, finding: Finding, seed: int) -> Witness | None:
    _, keys = canonical_form(stage)
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts())
    return witness_of(shape_stage(stage, symbolic, symbolic.system.solve(0), keys), finding, seed)


def witness_of(shaped: ShapedStage, finding: Finding, seed: int) -> Witness | None:
    """Return a witness for one stage of one target; None if no small integers show the difference.

    Raises:
        PitcheckError: the stage cannot be evaluated.
    """
    search = _Search(shaped, seed)
    inputs = search.first()
    if inputs is not None:
        inputs = search.shrink(inputs)
        return _confirmed(
            _witness(shaped, inputs, search.compare(inputs), finding), _work(shaped.stage)
        )
    if _work(shaped.stage) > MOST_PRECISE_STEPS:
        return None
    # More digits may show a difference that float64 does not.
    small = (
        _confirmed(_witness(shaped, each, search.compare(each), finding), _work(shaped.stage))
        for each in islice(search.candidates(), *SMALL_ONES)
    )
    return next((witness for witness in small if witness is not None), None)


class _Search:
    """The search for inputs on which the stage differs, and for smaller ones."""

    def __init__(self, shaped: ShapedStage, seed: int) -> None:
        self.shaped = shaped
        self.seed = seed
        self.left = max(12, min(MOST_EVALUATIONS, MOST_WORK // max(_work(shaped.stage), 1)))

    def compare(self, inputs: Inputs) -> Comparison:
        """Return both sides on the reals."""
        algebra = RealAlgebra(np, self.seed, [0])
        drawn = {
            v: algebra.cast(algebra.integers(a[None, None]), self.shaped.fresh[v].kind)
            for v, a in inputs.items()
        }
        with np.errstate(all="ignore"):
            return compare_target(self.shaped, evaluate_stage(self.shaped, algebra, drawn), 0)

    def differs(self, inputs: Inputs) -> bool:
        """Return True if the inputs show a clear, finite difference."""
        self.left -= 1
        comparison = self.compare(inputs)
        found = real_differences(comparison.actual, comparison.expected)
        return bool(((found > CLEAR) & np.isfinite(found) & comparison.judged).any())

    def first(self) -> Inputs | None:
        """Return the first candidate that shows the difference; None if none does."""
        for candidate in self.candidates():
            if self.left <= 0:
                return None
            if self.differs(candidate):
                return candidate
        return None

    def candidates(self) -> Iterator[Inputs]:
        """Yield inputs that are tried: small integers, at first hardly more than zeros and ones."""
        generator = np.random.default_rng(self.seed)
        for low, high in (
            (0, 2),
            (0, 2),
            (0, 2),
            (1, 3),
            (-1, 3),
            (-3, 4),
            (1, 8),
            (-9, 10),
            (-9, 10),
        ):
            yield {v: self._draw(v, generator, low, high) for v in self.shaped.fresh}

    def _draw(
        self, value: int, generator: np.random.Generator, low: int, high: int
    ) -> NDArray[np.int64]:
        fresh = self.shaped.fresh[value]
        if fresh.numbers:
            if any(n.denominator != 1 for n in fresh.numbers):
                raise UnsupportedError("a witness has integers alone")
            return np.array([int(n) for n in fresh.numbers], dtype=np.int64).reshape(fresh.shape)
        if fresh.kind != "field":
            return np.asarray(discrete(fresh, self.seed, [0])[0, 0], dtype=np.int64)
        drawn = generator.integers(low, high, size=fresh.shape, dtype=np.int64)
        return drawn * drawn if fresh.domain == "square" else drawn

    def shrink(self, inputs: Inputs) -> Inputs:
        """Set whole tensors, then ever smaller blocks, to zero while the difference stays."""
        parts = {
            value: 1
            for value in inputs
            if self.shaped.fresh[value].kind == "field" and not self.shaped.fresh[value].numbers
        }
        while parts and self.left > 0:
            for value, count in parts.items():
                inputs = self._without_blocks(inputs, value, -(-inputs[value].size // count))
            parts = {
                value: 2 * count for value, count in parts.items() if count < inputs[value].size
            }
        return inputs

    def _without_blocks(self, inputs: Inputs, value: int, block: int) -> Inputs:
        """Return the inputs without those blocks of a tensor that the difference does not need.

        Blocks of zeros cost nothing.
        """
        for number in np.unique(np.flatnonzero(inputs[value]) // max(block, 1)).tolist():
            if self.left <= 0:
                break
            flat = inputs[value].reshape(-1).copy()
            flat[number * block : (number + 1) * block] = 0
            candidate = {**inputs, value: flat.reshape(inputs[value].shape)}
            if self.differs(candidate):
                inputs = candidate
        return inputs


def _witness(
    shaped: ShapedStage, inputs: Inputs, comparison: Comparison, finding: Finding
) -> Witness:
    stage = shaped.stage
    target = stage.targets[0]
    found = np.where(
        comparison.judged[:1], real_differences(comparison.actual, comparison.expected), -1
    )
    place = np.unravel_index(int(np.argmax(found)), found.shape)
    row = int(place[1])
    compared, sums, _ = compared_rows(target, stage.parallel)
    rows = sums[row].tolist() if len(sums) else [int(compared[0][row])]
    box = shaped.boxes[0][int(comparison.parts[row])]
    values = stage.reference.graph.values
    return Witness(
        code=finding.code,
        title=finding.title,
        output=target.name,
        ranks=list(finding.ranks),
        microbatches=list(finding.microbatches),
        reference=side_of(stage.reference, shaped.attributes[0], shaped.constants[0]),
        parallel=side_of(stage.parallel, shaped.attributes[1], shaped.constants[1]),
        inputs={
            v: Filled(
                values[v].name,
                list(a.shape),
                shaped.fresh[v].kind,
                [str(int(n)) for n in a.reshape(-1)],
            )
            for v, a in inputs.items()
        },
        held={
            v: Held(
                stage.parallel.graph.values[v].name,
                d.source,
                [[list(i) for i in b] for b in d.boxes],
                list(d.terms),
                str(d.scale),
            )
            for v, d in shaped.derived.items()
        },
        compared=Compared(
            target.cut.value,
            target.cut.reference,
            rows,
            [list(i) for i in box],
            str(target.cut.scale),
            [int(i) for i in place[2:]],
        ),
        reference_value="",
        parallel_value="",
        confirmed_by=[],
    )


def _confirmed(witness: Witness, steps: int) -> Witness | None:
    """Return the witness with both values, to as many digits as were computed.

    None if another arithmetic than float64 does not show the difference. Raises PlanError for a
    witness that is too large.
    """
    check_witness(witness)
    digits = _to_digits(witness) if steps <= MOST_PRECISE_STEPS else None
    if digits is not None and not digits.differs:
        return None
    try:
        plain = in_float64(witness)
        if digits is not None:
            return _shown(
                witness,
                digits,
                [FLOAT64, digits.arithmetic] if plain.differs else [digits.arithmetic],
            )
        return (
            _shown(witness, plain, [FLOAT64])
            if plain.differs and stands_disturbed(witness)
            else None
        )
    except PitcheckError:
        return None if digits is None else _shown(witness, digits, [digits.arithmetic])


def _to_digits(witness: Witness) -> Replayed | None:
    """Return both sides to many digits; None if an operator is not known to so many."""
    try:
        return replay_to_digits(witness, f"{DIGITS} digits")
    except PitcheckError:
        return None


def _shown(witness: Witness, result: Replayed, confirmed: list[str]) -> Witness:
    return replace(
        witness,
        reference_value=result.reference,
        parallel_value=result.parallel,
        confirmed_by=confirmed,
    )
