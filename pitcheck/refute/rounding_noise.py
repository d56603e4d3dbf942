"""The rounding noise of a run: the same run with every result disturbed in its last digits.

This is Monte Carlo arithmetic (Parker: Monte Carlo Arithmetic, UCLA CSD-970002, 1997): what cancels
or overflows in float64 shows as a large change of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pitcheck.algebra.reals.noisy import DISTURBANCE, Noise
from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import real_differences
from pitcheck.errors import PitcheckError
from pitcheck.refute.whole_run import WholeRun
from pitcheck.stage.evaluate import Comparison, Keeping, compare_target, evaluate_stage

CLEAR = 1e4
"""The factor by which a difference must exceed the change by rounding."""


class NoisyAlgebra(Noise):
    """The disturbed algebra with the fresh values of ``plain``."""

    def __init__(self, plain: RealAlgebra) -> None:
        super().__init__(np, plain.seed, plain.trials, plain.tolerance, plain.scale)
        self.generator = np.random.default_rng([plain.seed, 1])


def standing_out(run: WholeRun, numbers: Sequence[int]) -> list[int]:
    """Return those of the outputs ``numbers`` that differ by far more than rounding.

    Only elements that are finite on both sides count.
    """
    if not numbers:
        return []
    try:
        with np.errstate(all="ignore"):
            disturbed = evaluate_stage(
                run.shaped,
                NoisyAlgebra(run.evaluated.algebra),
                run.evaluated.drawn,
                keep=Keeping.targets(run.shaped) if run.targets_only else None,
            )
            return [
                n
                for n in numbers
                if _stands_out(run.comparisons[n], compare_target(run.shaped, disturbed, n))
            ]
    except PitcheckError:
        return []


def disturbed_reference(run: WholeRun) -> dict[int, Value]:
    """Return the reference's values on the run's inputs with every result disturbed.

    They move as far as rounding may move them, however small they are.

    Raises:
        PitcheckError: an operator cannot be run.
    """
    with np.errstate(all="ignore"):
        return evaluate_stage(
            run.shaped, NoisyAlgebra(run.evaluated.algebra), run.evaluated.drawn
        ).reference


def finite_difference(comparison: Comparison) -> float:
    """Return the largest relative difference of elements that are finite on both sides.

    That other elements are NaN does not make it smaller.
    """
    differences = real_differences(comparison.actual, comparison.expected)
    return _largest(differences, comparison.judged[:1] & np.isfinite(differences))


def magnitude(comparison: Comparison) -> float:
    """Return the largest finite magnitude of either side."""
    return max(_largest_finite(comparison.actual.data), _largest_finite(comparison.expected.data))


def largest_input(run: WholeRun) -> float:
    """Return the largest finite magnitude that both plans were given."""
    return max(
        (
            _largest_finite(value.data)
            for value in run.evaluated.drawn.values()
            if value.kind == "field"
        ),
        default=0.0,
    )


def _largest_finite(data: Any) -> float:
    """Return the largest finite magnitude in an array."""
    array = np.asarray(data, dtype=np.float64)
    return float(np.max(np.abs(array), where=np.isfinite(array), initial=0.0))


def finite_on_one_side(comparison: Comparison) -> bool:
    """Return True if an element is finite on one side alone.

    Overflow may be the reason, or a result that is truly infinite or undefined.
    """
    actual, expected, judged = np.broadcast_arrays(
        comparison.actual.data[0], comparison.expected.data[0], comparison.judged[:1]
    )
    return comparison.actual.kind == "field" and bool(
        (np.isfinite(actual) != np.isfinite(expected))[judged].any()
    )


def _stands_out(before: Comparison, after: Comparison) -> bool:
    """Return True if finite elements differ by far more than disturbing moves either side."""
    differences = real_differences(before.actual, before.expected)
    looked_at = before.judged[:1] & np.isfinite(differences)
    moved = max(
        _largest(real_differences(a, b), looked_at)
        for a, b in ((before.actual, after.actual), (before.expected, after.expected))
    )
    return _largest(differences, looked_at) > CLEAR * max(moved, DISTURBANCE)


def _largest(differences: Any, looked_at: Any) -> float:
    """Return the largest of the differences that are looked at."""
    return float(np.max(differences, where=looked_at, initial=0.0))
