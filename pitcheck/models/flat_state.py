"""Flat buffers of parameters, gradients and moments on one device, as of a sharded optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from pitcheck.models.config import Optimizer
from pitcheck.models.optimizer import rates, stepped
from pitcheck.models.tape import Tape

Buffers = Sequence[Sequence[str]]
"""The parameters of every buffer, in order."""


def named(number: int) -> str:
    """Return the name of buffer ``number``."""
    return f"flat.{number}"


def join_gradients(tape: Tape, gradients: Mapping[str, str], buffers: Buffers) -> dict[str, str]:
    """Record the gradients of every buffer as one vector, an output; return buffer -> vector."""
    found = {}
    for number, names in enumerate(buffers):
        found[named(number)] = _joined(
            tape, [gradients[name] for name in names], f"grad:{named(number)}"
        )
        tape.output(found[named(number)])
    return found


def adamw_flat(
    tape: Tape, clipped: Mapping[str, str], settings: Optimizer, buffers: Buffers
) -> None:
    """Record AdamW over whole buffers: as ``adamw``, with moments first:B and second:B of buffer B.

    Every element decays as its parameter does.
    """
    rate, decay = rates(tape, settings)
    for number, names in enumerate(buffers):
        own = named(number)
        kept = tape.op(
            "mul",
            _joined(tape, names, own),
            tape.op("cat", *(_decays(tape, name, decay) for name in names), axis=0),
        )
        new = stepped(tape, own, clipped[own], rate, kept, settings)
        sizes = tuple(prod(tape.tensors[name].shape) for name in names)
        for name, part in zip(
            names,
            tape.several("split", new, names=("",) * len(names), axis=0, sizes=sizes),
            strict=True,
        ):
            tape.update(
                tape.op("reshape", part, name=f"new:{name}", sizes=tape.tensors[name].shape),
                of=name,
            )


def _decays(tape: Tape, name: str, decay: str) -> str:
    """Return a vector of the factors by which the elements of a parameter decay."""
    count = prod(tape.tensors[name].shape)
    return (
        tape.op("full", sizes=(count,), value=1)
        if name in tape.undecayed
        else tape.op("expand", decay, sizes=(count,))
    )


def _joined(tape: Tape, tensors: Sequence[str], name: str) -> str:
    """Record the elements of tensors as one vector: row-major, one tensor after the other."""
    parts = [
        tape.op("reshape", tensor, sizes=(prod(tape.tensors[tensor].shape),)) for tensor in tensors
    ]
    return tape.op("cat", *parts, name=name, axis=0)
