"""The seconds that NumPy and CuPy are predicted to take for a stage.

>>> work = Demand(held_at_peak=0, drawn=0, moved=100_000_000, multiplied=0)
>>> seconds_of(work, NUMPY) > 1 > seconds_of(work, CUPY)
True
"""

from __future__ import annotations

from dataclasses import dataclass

from pitcheck.prove.full_shapes.demand import LEVELS, Demand

EVALUATIONS = 4
"""The draws of a stage until it is proven, with those that look for what has no value."""
LEAST_SECONDS = 0.01
"""The seconds that the smallest stage takes: its degrees are bounded, and its steps called."""


@dataclass(frozen=True)
class Rates:
    """The elements that a backend draws, moves and multiplies in a second.

    ``step`` has the seconds that calls and launches of one step of a stage take.
    """

    drawn: float
    moved: float
    multiplied: float
    step: float


NUMPY = Rates(drawn=4e7, moved=1e8, multiplied=3e9, step=3e-5)
"""Measured on one core of an x86-64 server at 2 to 3 GHz, NumPy 2, in November 2026."""
CUPY = Rates(drawn=5e10, moved=5e10, multiplied=2e13, step=2e-4)
"""Rounded down from what kernels reach on an H200 (docs/gpu.md): an operator is several of them."""


def seconds_of(demand: Demand, rates: Rates, draws: int = 1, steps: int = 0) -> float:
    """Return the seconds that the proof of a stage takes, roughly.

    ``draws`` are evaluated together, in so many ``steps``.
    """
    work = (
        demand.drawn / rates.drawn
        + demand.moved / rates.moved
        + demand.multiplied / rates.multiplied
    )
    return LEAST_SECONDS + EVALUATIONS * (LEVELS * draws * work + steps * rates.step)
