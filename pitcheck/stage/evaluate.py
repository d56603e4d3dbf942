"""Evaluation of a stage at definite sizes in one algebra, and comparison of its targets.

>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.stage.shaped_stage import shape_reduced
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> shaped = shape_reduced(Problem.of(plan, plan).whole_stage())
>>> bool(compare_target(shaped, evaluate_stage(shaped, RealAlgebra(np, 1, [0])), 0).differs.any())
False
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import BudgetError
from pitcheck.graph.cuts import FREE, Box, Cut, length
from pitcheck.ops.registry import evaluate
from pitcheck.stage.drawn_inputs import Case, cases_of, derive, draw, scaled, take_box
from pitcheck.stage.inputs import Derived
from pitcheck.stage.run_batch import Evaluator, Observer, literal, run_batch
from pitcheck.stage.shaped_stage import ShapedStage
from pitcheck.stage.slabs.slab_sums import InSlabs, Slab, can_be_taken, sums_in_slabs
from pitcheck.stage.slabs.summed_inputs import is_large, slabs_of
from pitcheck.stage.stage import Target, compared_rows


@dataclass(frozen=True)
class Keeping:
    """The values of both sides, and the drawn ones, that are needed after an evaluation.

    ``draws_anew``: draw again for the parallel side what the reference has read, rather than hold
    it. ``in_slabs``: large inputs that are only summed are drawn and summed slab by slab; the
    algebra is one of residues.
    """

    reference: frozenset[int]
    parallel: frozenset[int]
    drawn: frozenset[int] = frozenset()
    draws_anew: bool = False
    in_slabs: bool = False

    @classmethod
    def targets(cls, shaped: ShapedStage) -> Keeping:
        """Return what is drawn and what is compared, and nothing else."""
        targets = shaped.stage.targets
        return cls(
            frozenset(target.cut.reference for target in targets),
            frozenset(target.cut.value for target in targets),
            frozenset(shaped.fresh),
        )


@dataclass
class Evaluated:
    """The values of both sides of a stage in one algebra that are kept, and what was drawn."""

    algebra: Any
    drawn: dict[int, Any]
    reference: dict[int, Any]
    parallel: dict[int, Any]


def evaluate_stage(
    shaped: ShapedStage,
    algebra: Any,
    drawn: Mapping[int, Any] | None = None,
    observe: Observer | None = None,
    *,
    keep: Keeping | None = None,
    evaluators: tuple[Evaluator, Evaluator] = (evaluate, evaluate),
) -> Evaluated:
    """Draw the inputs and run both sides.

    ``drawn``: inputs to use instead, by reference value. ``keep``: the values that are returned,
    None for all. Others are dropped after their last reader, and inputs are made when a step first
    reads them. ``evaluators`` stand in for the registry's, for the steps of the reference and of
    the parallel side.

    Raises:
        StepError: an operator raised an error.
    """
    stage = shaped.stage
    draws = _Draws(shaped, algebra, drawn, keep)
    constants = [
        {v: constant_value(algebra, *known) for v, known in side.items()}
        for side in shaped.constants
    ]
    given: dict[int, Any] = {}
    later = {v: partial(draws.reference, v) for v in stage.reference.inputs if v in draws}
    if keep is None:
        given, later = {value: make() for value, make in later.items()}, {}
    reference = run_batch(
        stage.reference,
        algebra,
        {**constants[0], **given},
        shaped.attributes[0],
        observe,
        "reference ",
        evaluators[0],
        keep=None if keep is None else keep.reference,
        later=later,
        elsewhere=sums_in_slabs(
            stage.reference,
            algebra,
            shaped.attributes[0],
            evaluators[0],
            frozenset() if keep is None else keep.reference,
            draws.reference_in_slabs(),
        ),
    )
    derived: dict[int, Any] = {}
    later = {value: partial(draws.parallel, value) for value in shaped.derived}
    if keep is None:
        derived, later = {value: make() for value, make in later.items()}, {}
    free = {
        number: algebra.fresh(key, shape, stage.parallel.steps[number].count)
        for number, (key, shape) in shaped.free.items()
    }
    parallel = run_batch(
        stage.parallel,
        algebra,
        {**constants[1], **derived},
        shaped.attributes[1],
        observe,
        "parallel ",
        evaluators[1],
        keep=None if keep is None else keep.parallel,
        free=free,
        later=later,
        elsewhere=sums_in_slabs(
            stage.parallel,
            algebra,
            shaped.attributes[1],
            evaluators[1],
            frozenset() if keep is None else keep.parallel,
            draws.parallel_in_slabs(),
        ),
    )
    return Evaluated(algebra, draws.kept(), reference, parallel)


class _Draws:
    """The inputs of one evaluation, each drawn when it is first asked for.

    Without a word on what to keep, all are drawn at once and held. A number is a function of its
    seed, key and trial, so one that is dropped can be drawn again.
    """

    def __init__(
        self,
        shaped: ShapedStage,
        algebra: Any,
        drawn: Mapping[int, Any] | None,
        keep: Keeping | None,
    ) -> None:
        self._shaped = shaped
        self._algebra = algebra
        self._keep = keep
        self.held: dict[int, Any] = dict(drawn or {})
        if drawn is None and keep is None:
            self.held = {value: draw(algebra, fresh) for value, fresh in shaped.fresh.items()}
        self._known = frozenset(shaped.fresh if drawn is None else drawn)
        self._users = Counter(derived.source for derived in shaped.derived.values())

    def __contains__(self, value: int) -> bool:
        return value in self._known

    def reference(self, value: int) -> Any:
        """Return an input of the reference."""
        found = self._drawn(value)
        self._drop(value, self._users[value])
        return found

    def parallel(self, value: int) -> Any:
        """Return an input of the parallel side, derived from one of the reference."""
        derived = self._shaped.derived[value]
        found = derive(self._algebra, derived, self._drawn(derived.source))
        self._users[derived.source] -= 1
        self._drop(derived.source, self._users[derived.source])
        return found

    def reference_in_slabs(self) -> list[InSlabs]:
        """Return the inputs of the reference that can be had in slabs."""
        return [
            InSlabs(value, len(fresh.shape), partial(self._slabs, value))
            for value, fresh in self._shaped.fresh.items()
            if self._has_slabs(value)
        ]

    def parallel_in_slabs(self) -> list[InSlabs]:
        """Return the inputs of the parallel side that can be had in slabs of the reference."""
        return [
            InSlabs(value, len(derived.boxes[0]), partial(self._slabs_for, derived.source), derived)
            for value, derived in self._shaped.derived.items()
            if self._has_slabs(derived.source) and can_be_taken(derived)
        ]

    def _has_slabs(self, value: int) -> bool:
        """Return True if an input of the reference is drawn in several slabs if possible."""
        fresh, keep = self._shaped.fresh.get(value), self._keep
        return (
            keep is not None
            and keep.in_slabs
            and value not in keep.drawn
            and not self._shaped.weights
            and not self._shaped.free
            and fresh is not None
            and fresh.kind == "field"
            and not fresh.numbers
            and is_large(fresh.shape)
        )

    def _slabs(self, value: int) -> Iterator[Slab]:
        """Yield the slabs of an input of the reference, each drawn when it is asked for."""
        fresh = self._shaped.fresh[value]
        for start, stop in slabs_of(fresh.shape):
            if value in self.held:
                slab = self._algebra.slice(self.held[value], 0, start, stop)
            else:
                rows = start, stop
                slab = self._algebra.fresh_rows(fresh.key, fresh.shape, rows, fresh.domain)
            yield start, stop, slab

    def _slabs_for(self, value: int) -> Iterator[Slab]:
        """Yield the same for the parallel side."""
        yield from self._slabs(value)
        self._users[value] -= 1
        self._drop(value, self._users[value])

    def kept(self) -> dict[int, Any]:
        """Return what is kept of the draws, by reference value."""
        keep = self._keep
        return self.held if keep is None else {value: self._drawn(value) for value in keep.drawn}

    def _drawn(self, value: int) -> Any:
        if value not in self.held:
            self.held[value] = draw(self._algebra, self._shaped.fresh[value])
        return self.held[value]

    def _drop(self, value: int, users: int) -> None:
        """Let go of what was drawn, unless it is kept, or held for others that will read it."""
        keep = self._keep
        if keep is not None and value not in keep.drawn and (keep.draws_anew or not users):
            self.held.pop(value, None)


def constant_value(algebra: Any, number: Any, shape: tuple[int, ...], kind: str) -> Any:
    """Return the constant ``number`` of a kind, in every element of a tensor."""
    value = literal(algebra, number)
    if kind != "field":
        value = algebra.cast(value, kind)
    return algebra.expand(value, shape)


@dataclass
class Comparison:
    """One target compared.

    ``differs`` has shape (trials, compared rows, *local shape). ``codes`` has a coordinate code for
    every compared row, ``parts`` the part that it must hold.
    """

    target: Target
    differs: NDArray[np.bool_]
    expected: Any
    actual: Any
    parts: NDArray[np.int64]
    codes: NDArray[np.int64]
    judged: NDArray[np.bool_]
    """False for free elements, on which nothing may depend; the shape of ``differs``."""

    def differing(self) -> NDArray[np.int64]:
        """Return the codes of the rows that differ, or of all rows if none is seen to."""
        wrong = np.asarray(self.differs).any(
            axis=tuple(d for d in range(self.differs.ndim) if d != 1)
        )
        chosen: NDArray[np.int64] = self.codes[wrong] if wrong.any() else self.codes
        return chosen


def compare_target(shaped: ShapedStage, evaluated: Evaluated, number: int) -> Comparison:
    """Compare every distinct row of target ``number`` with the part it must hold.

    Raises:
        BudgetError: both sides have no common level.
    """
    algebra = evaluated.algebra
    target = shaped.stage.targets[number]
    compared, sums, codes = compared_rows(target, shaped.stage.parallel)
    actual = evaluated.parallel[target.cut.value]
    if len(sums):
        parts = compared[0]
        actual = algebra.sum(algebra.stack(actual, sums), (0,))
    else:
        parts = compared[1]
        actual = algebra.gather(actual, compared[0])
    expected = expected_parts(
        algebra, shaped, number, evaluated.reference[target.cut.reference], parts
    )
    judged = judged_elements(shaped.boxes[number], parts, algebra.shape(actual))
    differs = algebra.differs(actual, expected)
    if not judged.all():
        differs = differs & judged
    return Comparison(
        target, differs, expected, actual, parts, codes, np.broadcast_to(judged, differs.shape)
    )


def judged_elements(
    boxes: Mapping[int, Box], parts: NDArray[np.int64], shape: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Return which elements of every row are judged: all but the free ones.

    The shape is (1, rows, *shape), or all ones.
    """
    if not any(
        interval[0] == FREE for box in boxes.values() for intervals in box for interval in intervals
    ):
        return np.ones((1,) * (2 + len(shape)), dtype=np.bool_)
    judged = np.ones((1, len(parts), *shape), dtype=np.bool_)
    for row, part in enumerate(parts):
        for dim, intervals in enumerate(boxes[int(part)]):
            position = 0
            for interval in intervals:
                if interval[0] == FREE:
                    np.moveaxis(judged[0, row], dim, 0)[position : position + interval[1]] = False
                position += length(interval)
    return judged


def expected_parts(
    algebra: Any, shaped: ShapedStage, number: int, whole: Any, parts: NDArray[np.int64]
) -> Any:
    """Return the reference's value for every compared row."""
    cut: Cut = shaped.stage.targets[number].cut
    distinct, which = np.unique(parts, return_inverse=True)
    boxes = Derived(
        "",
        cut.reference,
        tuple(shaped.boxes[number][int(p)] for p in distinct),
        tuple((n, 0, 1) for n in range(len(distinct))),
        cut.scale,
    )
    if len(distinct) > 1 and boxes.places is not None:
        return algebra.gather(derive(algebra, boxes, whole), which.reshape(-1))
    rows = [
        scaled(algebra, take_box(algebra, whole, shaped.boxes[number][int(p)], "free"), cut.scale)
        for p in distinct
    ]
    joined = rows[0] if len(rows) == 1 else algebra.join(rows)
    return algebra.gather(joined, which.reshape(-1))


def discrete_cases(shaped: ShapedStage, seed: int, most: int) -> list[Case]:
    """Return the discrete cases that draws of a stage must show on every shard.

    One that none of the first ``most`` draws shows needs ``most + 1``.
    """
    found: list[Case] = []
    for value, fresh in shaped.fresh.items():
        whole = tuple(((0, size),) for size in fresh.shape)
        boxes = [
            box
            for derived in shaped.derived.values()
            if derived.source == value
            for box in derived.boxes
        ]
        found += cases_of(fresh, boxes or [whole], seed, most)
    for derived in shaped.derived.values():
        padding = derived.padding
        if padding is not None and derived.is_padded:
            name = shaped.fresh[derived.source].key
            found += [
                Case(f"padding of {name} = {mark}", 2 * place)
                for place, mark in enumerate(padding.marks, start=1)
            ]
    return found


def check_memory(shaped: ShapedStage, copies: int, most: int) -> None:
    """Check that a stage's inputs alone need at most ``most`` bytes.

    ``copies``: levels times draws at once. Raises BudgetError.
    """
    cells = sum(prod(f.shape) for f in shaped.fresh.values())
    rows = sum(d.cells for d in shaped.derived.values())
    needed = 8 * copies * (cells + rows)
    if needed > most:
        raise BudgetError(
            f"a stage needs about {needed >> 20} MiB for its inputs alone, more than --max-memory "
            f"allows ({most >> 20} MiB)"
        )
