"""The number of operators that a folded plan stands for."""

from __future__ import annotations

from math import prod

import numpy as np

from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Box, Plan
from pitcheck.plan.schedule.run_order import runs_per_microbatch, where_key


def count_instances(plan: Plan) -> int:
    """Return the number of single operators of all ranks and micro-batches.

    A record counts once per rank if it runs once, else once per rank and micro-batch.

    Raises:
        PlanError: if boxes do not fit the mesh.
    """
    coordinates = Coordinates.of(plan)
    microbatched = {tensor.name: tensor.microbatched for tensor in plan.tensors}
    counts: dict[tuple[object, bool], int] = {}
    shared: dict[tuple[int, bool], int] = {}
    total = 0
    for operator in plan.operators:
        per_microbatch = runs_per_microbatch(operator, microbatched)
        # Records that were made together have the same boxes as one object, which the plan keeps.
        number = shared.get((id(operator.where), per_microbatch))
        if number is None:
            key = (where_key(operator.where), per_microbatch)
            if key not in counts:
                counts[key] = _count(coordinates, operator.where, per_microbatch)
            number = shared[id(operator.where), per_microbatch] = counts[key]
        total += number
    return total


def _count(coordinates: Coordinates, where: tuple[Box, ...], per_microbatch: bool) -> int:
    mask = coordinates.mask_grid(where)
    sizes = coordinates.shape
    if not per_microbatch:
        mask, sizes = np.asarray(mask.any(axis=-1, keepdims=True)), (*sizes[:-1], 1)
    # An entry of size 1 along an axis stands for all its coordinates.
    return int(mask.sum()) * prod(
        size for size, own in zip(sizes, mask.shape, strict=True) if own == 1
    )
