"""The forecast of a check at full shapes: what its distinct stages take, said before they run.

>>> said_of([Forecast(bytes=1 << 20, seconds=83.0, pieces=1, name="loss")], allowed=1 << 30)[:31]
'full shapes: 1 distinct stages,'
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from pitcheck.errors import PitcheckError
from pitcheck.prove.full_shapes.pieces import TOGETHER, Piece, number_of, pieces
from pitcheck.prove.full_shapes.rates import CUPY, NUMPY, seconds_of
from pitcheck.prove.proof import Settings
from pitcheck.stage.reductions.pipeline import measured, reduced
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.shapes import symbolic_pair
from pitcheck.stage.stage import Stage


@dataclass(frozen=True)
class Forecast:
    """A forecast of one stage: the bytes of its largest piece, seconds, and the number of pieces.

    ``refused``: why it does not fit; "" if it does.
    """

    bytes: int
    seconds: float
    pieces: int
    name: str
    refused: str = ""


def forecast(stage: Stage, settings: Settings) -> Forecast:
    """Return what a stage takes. What cannot be told before it is evaluated counts as nothing.

    Pieces that are the same statement are proven once, and take the time of one.
    """
    name = stage.name
    try:
        parts = _pieces(stage, settings)
    except PitcheckError as error:
        return Forecast(0, 0.0, 0, name, str(error))
    rates = NUMPY if settings.xp is np else CUPY
    return Forecast(
        max(part.demand.bytes(TOGETHER) for part in parts),
        sum(seconds_of(part.demand, rates) for part in parts),
        number_of(parts),
        name,
    )


def _pieces(stage: Stage, settings: Settings) -> Sequence[Piece]:
    """Return the distinct pieces in which a stage is compared."""
    context = Context(settings.templates, seed=settings.seed)
    if Phase.ROWS in settings.phases():
        stage = reduced(stage, Phase.ROWS, context, settings.reductions)
    symbolic = symbolic_pair(stage.reference, stage.parallel, stage.all_cuts(), settings.templates)
    found = measured(stage, symbolic, settings.phases(), context, settings.reductions)
    return pieces(found, settings.templates, settings.max_memory, in_slabs=True)


def shared(seconds: Collection[float], processes: int) -> float:
    """Return about how long so many processes take for stages, one of which is not shared.

    >>> shared([1.0, 2.0, 9.0], 2), shared([4.0, 4.0, 4.0], 2), shared([], 2)
    (9.0, 6.0, 0.0)
    """
    return max(sum(seconds) / processes, max(seconds, default=0.0))


def said_of(found: Sequence[Forecast], allowed: int, processes: int = 1) -> str:
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
        f"{rounded(shared([each.seconds for each in found], processes))} in all"
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
