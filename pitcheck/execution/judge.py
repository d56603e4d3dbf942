"""Inputs by lineage, and the comparison of all outputs of a pair of plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.execution.executor import Array, Instance, execute
from pitcheck.execution.places import (
    ExecutionError,
    at_table,
    rank_coordinates,
    runs_at,
    tensor_name,
)
from pitcheck.execution.rounding import allowed, distance, noise
from pitcheck.plan.model import Lineage, Plan, Tensor

TOLERANCE = 1e-9
"""The difference of an output that is rounding on any input, as a share of its largest element."""
MAGNITUDES = (1.0, 0.25, 3.0)
FREE, ZERO = -1, -2
Region = tuple[tuple[int, ...], ...]
"""The positions of the reference that are held, in order, per dimension.

FREE is a free element, ZERO a zero.
"""


@dataclass
class Judgement:
    """The comparison of a plan with the reference.

    ``different``: outputs with another value. ``missing``: outputs that are not there in full.
    ``error``: why the plan does not run. ``largest``: the largest difference of an output that is
    not different, as a share of its largest magnitude.
    """

    different: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    error: str = ""
    largest: float = 0.0

    @property
    def same(self) -> bool:
        """True if the plan runs and all outputs are there and equal."""
        return not (self.different or self.missing or self.error)


def written(plan: Plan) -> set[str]:
    """Return the names of the tensors that some operator writes."""
    return {name for operator in plan.operators for name in operator.outputs if name}


def initial_tensors(plan: Plan) -> list[Tensor]:
    """Return the tensors that exist before the first operator."""
    computed = written(plan)
    return [tensor for tensor in plan.tensors if tensor.name not in computed]


def draw(
    tensor: Tensor, shape: tuple[int, ...], generator: np.random.Generator, magnitude: float = 1.0
) -> Array:
    """Return a random value of ``shape``.

    Integers lie within their bounds, both ends among them; optimizer state is not negative; reals
    have both signs. Raises ExecutionError for integers without bounds.
    """
    if tensor.dtype == "bool":
        return generator.random(shape) < 0.6
    if tensor.dtype.startswith(("int", "uint")):
        if tensor.bounds is None:
            raise ExecutionError(f"{tensor.name}: integers without bounds")
        flat = generator.integers(*tensor.bounds, size=shape).reshape(-1)
        if len(flat) > 1:
            flat[generator.permutation(len(flat))[:2]] = (tensor.bounds[0], tensor.bounds[1] - 1)
        return flat.reshape(shape)
    values = magnitude * generator.normal(size=shape)
    return np.abs(values) if tensor.role == "optimizer_state" else values


def reference_inputs(plan: Plan, seed: int) -> dict[Instance, Array]:
    """Return random values of the reference's initial tensors, equal on all its ranks.

    Their magnitude changes with the seed, so that clamps are seen on both sides.
    """
    generator = np.random.default_rng([seed, 17])
    magnitude = MAGNITUDES[seed % len(MAGNITUDES)]
    ranks = len(rank_coordinates(plan))
    result: dict[Instance, Array] = {}
    for tensor in initial_tensors(plan):
        for microbatch in range(plan.microbatches if tensor.microbatched else 1):
            value = (
                np.full(tensor.shape, float(tensor.value))
                if tensor.value is not None
                else draw(tensor, tensor.shape, generator, magnitude)
            )
            for rank in range(ranks):
                result[tensor.name, rank, microbatch] = value
    return result


def region(
    plan: Plan, lineage: Lineage, shape: tuple[int, ...], rank: int, microbatch: int
) -> Region:
    """Return the part that a coordinate holds of a reference tensor of shape ``shape``.

    Raises ExecutionError for intervals outside of it, and for shards that do not divide it.
    """
    coordinate = rank_coordinates(plan)[rank]
    sizes = {axis.name: axis.size for axis in plan.mesh} | {"mb": plan.microbatches}
    place = {**coordinate, "mb": microbatch}
    held = [tuple(range(size)) for size in shape]
    for shard in lineage.shards:
        size = shape[shard.dim]
        if shard.intervals is not None:
            positions: list[int] = []
            for start, stop in at_table(plan, shard.intervals, coordinate, microbatch):
                if start >= 0 and not start <= stop <= size:
                    raise ExecutionError(f"interval ({start}, {stop}) is outside {size}")
                positions.extend([start] * stop if start < 0 else range(start, stop))
            held[shard.dim] = tuple(positions)
            continue
        count, number = 1, 0
        for axis in shard.by:
            count, number = count * sizes[axis], number * sizes[axis] + place[axis]
        if size % count:
            raise ExecutionError(f"{size} elements cannot be cut into {count}")
        step = size // count
        held[shard.dim] = tuple(range(number * step, (number + 1) * step))
    return tuple(held)


def term_of(
    plan: Plan, lineage: Lineage, rank: int, microbatch: int
) -> tuple[int, int, tuple[Any, ...]]:
    """Return (which term of a sum, of how many, which sum)."""
    coordinate = rank_coordinates(plan)[rank]
    place = {**coordinate, "mb": microbatch}
    sizes = {axis.name: axis.size for axis in plan.mesh} | {"mb": plan.microbatches}
    if lineage.partial_ranks:
        for ranks in lineage.partial_ranks:
            if rank in ranks:
                return ranks.index(rank), len(ranks), (ranks, microbatch)
        return 0, 1, (rank, microbatch)
    number, count = 0, 1
    for axis in lineage.partial:
        number, count = number * sizes[axis] + place[axis], count * sizes[axis]
    return (
        number,
        count,
        tuple((axis, value) for axis, value in place.items() if axis not in lineage.partial),
    )


def initial_values(
    reference_values: dict[Instance, Array], parallel: Plan, seed: int
) -> dict[Instance, Array]:
    """Return the parallel plan's initial tensors, cut from the reference's by their lineage.

    Terms of sums are random and add up; padding is random. Raises ExecutionError for lineage that
    does not fit.
    """
    generator = np.random.default_rng([seed, 23])
    result: dict[Instance, Array] = {}
    shares: dict[Any, list[Array]] = {}
    for tensor in initial_tensors(parallel):
        lineage = tensor.lineage or Lineage(tensor.name)
        for rank in range(len(rank_coordinates(parallel))):
            for microbatch in range(parallel.microbatches if tensor.microbatched else 1):
                if tensor.value is not None:
                    result[tensor.name, rank, microbatch] = np.full(
                        tensor.shape, float(tensor.value)
                    )
                    continue
                whole = reference_values.get((lineage.reference, 0, 0))
                if whole is None:
                    raise ExecutionError(f"{tensor.name}: the reference has no {lineage.reference}")
                held = region(parallel, lineage, whole.shape, rank, microbatch)
                value = _taken(whole, held, tensor, generator) * _scale(lineage, whole)
                term, terms, _ = term_of(parallel, lineage, rank, microbatch)
                if terms > 1:
                    key = (tensor.name, held)
                    if key not in shares:
                        free = [generator.normal(size=value.shape) for _ in range(terms - 1)]
                        shares[key] = [*free, value - sum(free, start=np.zeros(value.shape))]
                    value = shares[key][term]
                if value.shape != tensor.shape:
                    raise ExecutionError(
                        f"{tensor.name}: lineage gives {value.shape}, declared {tensor.shape}"
                    )
                result[tensor.name, rank, microbatch] = value
    return result


def _scale(lineage: Lineage, like: Array) -> Any:
    return float(Fraction(lineage.scale)) if lineage.scale != "1" else np.ones((), dtype=like.dtype)


def _taken(whole: Array, held: Region, tensor: Tensor, generator: np.random.Generator) -> Array:
    shape = tuple(len(positions) for positions in held)
    free = (
        draw(tensor, shape, generator)
        if any(FREE in positions for positions in held)
        else np.zeros(shape, dtype=whole.dtype)
    )
    if whole.ndim == 0:
        return whole.copy()
    index = np.ix_(*held)
    known, zero = np.ones(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for positions in index:
        known &= positions >= 0
        zero |= positions == ZERO
    return np.where(known, whole[index], np.where(zero, 0, free)).astype(whole.dtype)


class Judge:
    """A judge of plans against one reference plan, which it runs once per seed.

    Outputs are equal up to ``tolerance`` of their largest magnitude, or up to what rounding makes
    of them on that input.
    """

    def __init__(self, reference: Plan, tolerance: float = TOLERANCE) -> None:
        self._reference = reference
        self._tolerance = tolerance
        self._runs: dict[int, tuple[dict[Instance, Array], dict[Instance, Array]]] = {}
        self._noise: dict[int, dict[str, float]] = {}

    def of_tolerance(self, tolerance: float) -> Judge:
        """Return the same judge with another tolerance; both share what they have run."""
        other = Judge(self._reference, tolerance)
        other._runs, other._noise = self._runs, self._noise
        return other

    def once(self, parallel: Plan, seed: int) -> Judgement:
        """Run both plans on the same random inputs and compare every output of the reference.

        Raises ExecutionError if the reference does not run.
        """
        if seed not in self._runs:
            drawn = reference_inputs(self._reference, seed)
            self._runs[seed] = drawn, execute(self._reference, drawn, 2 * seed)
        return self._judged(parallel, *self._runs[seed], seed, self._noise)

    def at(self, parallel: Plan, point: Mapping[str, Array], seed: int) -> Judgement:
        """Run both plans at one point and compare every output of the reference.

        ``point`` has values of the reference's initial tensors by name, each of the tensor's shape,
        for all micro-batches. Other tensors, terms of sums, padding and memory that nobody has
        written to are drawn from ``seed``.

        Raises:
            ExecutionError: the reference does not run, or the point names none of its initial
                tensors or gives one another shape.
        """
        inputs = reference_inputs(self._reference, seed)
        for name, value in point.items():
            places = [key for key in inputs if key[0] == name]
            if not places or inputs[places[0]].shape != value.shape:
                raise ExecutionError(f"{name}: no initial tensor of shape {value.shape}")
            inputs.update(dict.fromkeys(places, value))
        expected = execute(self._reference, inputs, 2 * seed)
        return self._judged(parallel, inputs, expected, seed, {})

    def _judged(
        self,
        parallel: Plan,
        inputs: dict[Instance, Array],
        expected: dict[Instance, Array],
        seed: int,
        known: dict[int, dict[str, float]],
    ) -> Judgement:
        """Run a plan on the reference's ``inputs`` and compare it with what that computes.

        ``known`` has how far rounding moves the outputs, by seed. It is measured if they differ.
        """
        equal = {output.tensor: self._tolerance for output in self._reference.outputs}
        try:
            given = initial_values(inputs, parallel, seed)
            found = execute(parallel, given, 2 * seed + 1)
            result = _compare(self._reference, parallel, expected, found, equal)
            if not result.different:
                return result
            whole = {name: expected[name, 0, 0] for name in equal}
            if seed not in known:
                known[seed] = noise(self._reference, inputs, expected, (seed, 2 * seed), whole)
            names = {
                output.reference or output.tensor: output.tensor for output in parallel.outputs
            }
            scales = {names[name]: value for name, value in whole.items() if name in names}
            own = noise(parallel, given, found, (seed, 2 * seed + 1), scales)
            rounded = {
                name: max(tolerance, allowed(known[seed][name], own.get(names.get(name, ""), 0.0)))
                for name, tolerance in equal.items()
            }
            return _compare(self._reference, parallel, expected, found, rounded)
        except ExecutionError as error:
            return Judgement(error=str(error))

    def often(self, parallel: Plan, seeds: Sequence[int]) -> Judgement:
        """Return the first judgement that is not the same, or the last."""
        result = Judgement()
        for seed in seeds:
            result = self.once(parallel, seed)
            if not result.same:
                break
        return result


def judge(reference: Plan, parallel: Plan, seed: int) -> Judgement:
    """Run both plans on the same random inputs and compare every output of the reference."""
    return Judge(reference).once(parallel, seed)


def judge_often(reference: Plan, parallel: Plan, seeds: Sequence[int]) -> Judgement:
    """Return the first judgement that is not the same, or the last."""
    return Judge(reference).often(parallel, seeds)


def _compare(
    reference: Plan,
    parallel: Plan,
    expected: dict[Instance, Array],
    found: dict[Instance, Array],
    equal: Mapping[str, float],
) -> Judgement:
    result = Judgement()
    tensors = {tensor.name: tensor for tensor in parallel.tensors}
    offered = {output.reference or output.tensor: output for output in parallel.outputs}
    for wanted in reference.outputs:
        output = offered.get(wanted.tensor)
        if output is None or output.tensor not in tensors:
            result.missing.append(wanted.tensor)
            continue
        tensor = tensors[output.tensor]
        owner = tensor.gradient_of or tensor.updated
        lineage = output.lineage or Lineage(wanted.tensor)
        if output.lineage is None and owner is not None:
            lineage = tensors[owner].lineage or Lineage(owner)
        apart = _compare_one(parallel, tensor, lineage, expected[wanted.tensor, 0, 0], found)
        if apart is None or (
            owner is not None and not _everywhere(parallel, tensor.name, owner, found)
        ):
            result.missing.append(wanted.tensor)
        elif apart > equal[wanted.tensor]:
            result.different.append(wanted.tensor)
        else:
            result.largest = max(result.largest, apart)
    return result


def _everywhere(plan: Plan, name: str, owner: str, found: dict[Instance, Array]) -> bool:
    """Return True if every rank that uses a parameter has what must be computed for it."""
    readers = [
        operator
        for operator in plan.operators
        if any(tensor_name(o) == owner for o in operator.inputs)
    ]
    for rank, coordinate in enumerate(rank_coordinates(plan)):
        used = any(
            runs_at(operator, coordinate, m)
            for operator in readers
            for m in range(plan.microbatches)
        )
        if used and not any((name, rank, m) in found for m in range(plan.microbatches)):
            return False
    return True


def _compare_one(
    plan: Plan, tensor: Tensor, lineage: Lineage, whole: Array, found: dict[Instance, Array]
) -> float | None:
    """Return how far the output is from what it should be, None if a part of it is missing."""
    apart = 0.0
    covered = np.zeros(whole.shape, dtype=bool)
    sums: dict[Any, dict[int, Array]] = {}
    for rank in range(len(rank_coordinates(plan))):
        for microbatch in range(plan.microbatches if tensor.microbatched else 1):
            value = found.get((tensor.name, rank, microbatch))
            if value is None:
                continue
            held = region(plan, lineage, whole.shape, rank, microbatch)
            term, terms, which = term_of(plan, lineage, rank, microbatch)
            sums.setdefault((held, terms, which), {})[term] = value
    for (held, terms, _), present in sums.items():
        if len(present) < terms:
            return None
        total = sum(present.values(), start=np.zeros(()))
        if total.shape != tuple(len(positions) for positions in held):
            raise ExecutionError(
                f"{tensor.name}: has shape {total.shape}, its lineage says "
                f"{tuple(len(p) for p in held)}"
            )
        if whole.ndim == 0:
            apart = max(apart, distance(total, whole * _scale(lineage, whole), whole))
            covered[...] = True
            continue
        if any(
            total.take(np.flatnonzero(np.array(positions) == ZERO), axis).any()
            for axis, positions in enumerate(held)
        ):
            return math.inf
        real = np.ix_(*(np.flatnonzero(np.array(positions) >= 0) for positions in held))
        index = np.ix_(
            *(np.array([p for p in positions if p >= 0], dtype=int) for positions in held)
        )
        apart = max(apart, distance(total[real], whole[index] * _scale(lineage, whole), whole))
        covered[index] = True
    return apart if covered.all() else None
