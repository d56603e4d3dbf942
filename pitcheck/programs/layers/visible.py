"""The tokens that a token sees: causal, and in local layers within a window or a chunk.

Places are those in the whole sequence, wherever a rank's part of it begins.
"""

from __future__ import annotations

from collections.abc import Callable

from pitcheck.models.config import Attention
from pitcheck.programs.rank import Rank

Places = Callable[[int], str]
"""A function that records the places of the columns, (length,), with a number added to each."""


def seen(rank: Rank, rows: str, columns: Places, name: str, local: bool) -> str:
    """Record True where a row's token may attend to a column's.

    ``rows`` are places, (length, 1). With ``local`` a column must also be in the row's window or
    chunk.
    """
    tape = rank.tape
    across = tape.op("unsqueeze", columns(0), axis=0)
    if not local:
        return tape.op("ge", rows, across, name=name)
    near = _near(rank, rows, across, columns, f"{name}.near")
    return tape.op("logical_and", tape.op("ge", rows, across), near, name=name)


def _near(rank: Rank, rows: str, across: str, columns: Places, name: str) -> str:
    tape, sizes = rank.tape, rank.model.attention
    window, chunk = (sizes.window, sizes.chunk) if isinstance(sizes, Attention) else (0, 0)
    if window:
        return tape.op("lt", rows, tape.op("unsqueeze", columns(window), axis=0), name=name)
    every = tape.op("full_like", across, value=chunk)
    numbers = [tape.op("floor_divide", at, every) for at in (rows, across)]
    return tape.op("eq", *numbers, name=name)
