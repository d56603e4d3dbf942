"""Compare the state that construction leaves, between ranks and with the reference."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.recording.generator_state import UNSEEDED
from pitcheck.frontends.torch.trace import Beginning, Trace

CLEAR = "clear the optimizer's state when the program is built"


def check_beginnings(reference: Trace, traces: Sequence[Trace]) -> None:
    """Raise an error for training that cannot begin with equal parameters and state.

    Copies of one element on several ranks must be equal: nothing brings them together later. The
    state of an optimizer must be zero, or what the reference's is. What cannot be compared, as
    draws of an unseeded generator, is assumed to be equal. A part of a parameter may be drawn on
    its own rank, as if a checkpoint had it.
    """
    theirs = {one.name: one for one in reference.beginnings}
    states = {given.name for given in reference.given if given.role == "optimizer_state"}
    states |= {number.name for number in reference.numbers}
    first: dict[tuple[object, ...], tuple[int, Beginning]] = {}
    for trace in traces:
        for own in trace.beginnings:
            there = theirs.get(own.name)
            if own.state and own.name in states:
                _check_state(trace.rank, own, there)
            placed = own.box or (there is not None and there.shape == own.shape)
            if not placed or not own.text or own.text.startswith(UNSEEDED):
                continue
            rank, other = first.setdefault((own.name, own.shape, own.box), (trace.rank, own))
            if other.text != own.text:
                raise PlanError(
                    f"construction leaves other numbers in {own.name!r} on rank {trace.rank}"
                    f"{_at(own)} than on rank {rank}{_at(other)}; they are copies of the same "
                    f"elements: seed both equally, or broadcast one of them"
                )


def _check_state(rank: int, own: Beginning, there: Beginning | None) -> None:
    """Raise for state of an optimizer that is neither zero nor the reference's.

    Raises:
        PlanError: if the numbers are known.
        UnsupportedError: if they depend on draws.
    """
    theirs, differ = "zeros", own.filled
    if there is not None and (there.filled or not there.constant):
        both = own.filled and there.filled and own.shape == there.shape
        theirs, differ = "others", both and own.text != there.text
    elif not own.constant:
        raise UnsupportedError(
            f"construction makes {own.name!r} of drawn numbers on rank {rank}{_at(own)}; in the "
            f"reference they are zeros, so that the first step may be another: {CLEAR}"
        )
    if differ:
        raise PlanError(
            f"construction leaves numbers in {own.name!r} on rank {rank}{_at(own)}, which are "
            f"{theirs} in the reference, so that the first step is another: {CLEAR}"
        )


def _at(one: Beginning) -> str:
    return f" at {one.source}" if one.source else ""
