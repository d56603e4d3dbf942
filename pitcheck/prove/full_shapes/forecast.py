"""The forecast of a check at full shapes: what its distinct stages take, said before they run.

>>> from pitcheck.prove.full_shapes.demand import Demand
>>> work = Demand(held_at_peak=0, drawn=0, moved=100_000_000, multiplied=0)
>>> seconds_of(work, NUMPY) > 1
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pitcheck.errors import PitcheckError
from pitcheck.prove.full_shapes.demand import LEVELS, Demand
from pitcheck.prove.full_shapes.pieces import TOGETHER, Piece, pieces
from pitcheck.prove.proof import Settings
from pitcheck.stage.reductions.pipeline import measured, reduced
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Stage

EVALUATIONS = 4
"""The draws of a stage until it is proven, with those that look for what has no value."""
LEAST_SECONDS = 0.01
"""The seconds that the smallest stage takes: its degrees are bounded, and its steps called."""


@dataclass(frozen=True)
class Rates:
    """The elements that a backend draws, moves and multiplies in a second."""

    drawn: float
    moved: float
    multiplied: float


NUMPY = Rates(drawn=4e7, moved=1e8, multiplied=3e9)
"""Measured on one core of an x86-64 server at 2 to 3 GHz, NumPy 2, in November 2026."""
CUPY = Rates(drawn=2e8, moved=2e10, multiplied=5e12)
"""Not measured. Draws are assumed to be hashed on the host, elements to move at a sixteenth of 2.5
TB/s, and products of two parts to reach a quarter of 20 TFLOP/s of float64.
"""


@dataclass(frozen=True)
class Forecast:
    """What one stage takes: the bytes of its largest piece, seconds, and the number of pieces.

    ``refused``: why it does not fit; "" if it does.
    """

    bytes: int
    seconds: float
    pieces: int
    name: str
    refused: str = ""


def forecast(stage: Stage, settings: Settings) -> Forecast:
    """Return what a stage takes. What cannot be told before it is evaluated counts as nothing."""
    target = stage.targets[0]
    name = target.name or stage.parallel.graph.values[target.cut.value].name
    try:
        parts = _pieces(stage, settings)
    except PitcheckError as error:
        return Forecast(0, 0.0, 0, name, str(error))
    rates = NUMPY if settings.xp.__name__ == "numpy" else CUPY
    return Forecast(
        max(part.demand.bytes(TOGETHER) for part in parts),
        sum(seconds_of(part.demand, rates) for part in parts),
        len(parts),
        name,
    )


def _pieces(stage: Stage, settings: Settings) -> Sequence[Piece]:
    """Return the pieces in which a stage is compared."""
    context = Context(settings.templates)
    if Phase.ROWS in settings.phases():
        stage = reduced(stage, Phase.ROWS, context, settings.reductions)
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), settings.templates)
    found = measured(stage, symbolic, settings.phases(), context, settings.reductions)
    return pieces(found, settings.templates, settings.max_memory)


def seconds_of(demand: Demand, rates: Rates) -> float:
    """Return the seconds that the proof of a piece takes, roughly."""
    work = (
        demand.drawn / rates.drawn
        + demand.moved / rates.moved
        + demand.multiplied / rates.multiplied
    )
    return LEAST_SECONDS + EVALUATIONS * LEVELS * work


def said_of(found: Sequence[Forecast], allowed: int) -> str:
    """Return what all stages take, in a sentence for people."""
    largest = max(found, key=lambda each: each.bytes)
    apart = [each for each in found if each.pieces > 1]
    split = (
        f"{len(apart)} taken apart, {max(apart, key=lambda each: each.pieces).name!r} into most "
        f"pieces ({max(each.pieces for each in apart)})"
        if apart
        else "none taken apart"
    )
    left = [each for each in found if each.refused]
    return (
        f"full shapes: {len(found)} distinct stages, {split}; the largest, {largest.name!r}, takes "
        f"about {-(-largest.bytes >> 20)} MiB of {allowed >> 20}; about "
        f"{rounded(sum(each.seconds for each in found))} in all"
        + (f"; {len(left)} do not fit or cannot be told: {left[0].refused}" if left else "")
    )


def rounded(seconds: float) -> str:
    """Return a time in words, with one digit or two.

    >>> rounded(0.4), rounded(83), rounded(7000)
    ('1 s', '83 s', '2 h')
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 6000 else f"{round(seconds / 3600)} h"
