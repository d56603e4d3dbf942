"""Communication between parallel regions, each with its derivative.

These are Megatron-LM's f, g and their sequence-parallel forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pitcheck.models.records import Hint, Hook
from pitcheck.models.tape import Tape
from pitcheck.programs.rank import Names, Rank

Written = Callable[[str], str]
"""A hand-written derivative: gradient of the output -> gradient of the input."""


def after(derivative: Written) -> Hook:
    """Return the derivative of a region with one output and one input."""

    def hook(gradients: Sequence[str | None]) -> Sequence[str | None]:
        return [derivative(gradient) if gradient is not None else None for gradient in gradients]

    return hook


def arriving(
    tape: Tape, tensor: str, kind: str, gradient: str, axes: Names | None, **attributes: Any
) -> str:
    """Record an operator that computes the next term of the gradient of ``tensor``.

    With ``axes`` it is a collective over them. The whole gradient carries its hint.
    """
    name = tape.gradient_name(tensor)
    hint = tape.gradient_hint(tensor) if name == f"grad:{tensor}" else None
    return tape.op(kind, gradient, name=name, group=axes, hint=hint, **attributes)


def copied(tape: Tape, x: str, axes: Names, name: str) -> str:
    """Record the start of different computations from ``x``, which all ranks of ``axes`` have.

    Its gradient is the sum of theirs.
    """
    if not axes:
        return x
    with tape.untracked():
        tape.op("identity", x, name=name, gradient=False)
    tape.region(
        [x], [name], after(lambda gradient: arriving(tape, x, "all_reduce", gradient, axes))
    )
    return name


def summed(tape: Tape, part: str, axes: Names, name: str, hint: Hint) -> str:
    """Record the sum of terms, the same on all ranks of ``axes``.

    Every term has the gradient of the sum.
    """
    with tape.untracked():
        tape.op("all_reduce", part, name=name, group=axes, hint=hint)
    tape.region([part], [name], lambda gradients: gradients)
    return name


def gathered(tape: Tape, x: str, axes: Names, axis: int, name: str, hint: Hint = None) -> str:
    """Record the parts of ``x`` joined, from which ranks compute different things.

    The gradient of a part is that part of the sum of their gradients.
    """
    if not axes:
        return x
    with tape.untracked():
        tape.op("all_gather", x, name=name, group=axes, axis=axis, hint=hint, gradient=False)
    tape.region(
        [x],
        [name],
        after(lambda gradient: arriving(tape, x, "reduce_scatter", gradient, axes, axis=axis)),
    )
    return name


def joined(rank: Rank, x: str, axis: int, name: str, hint: Hint) -> str:
    """Record the parts of ``x`` joined, with which all tensor-parallel ranks compute the same.

    The gradient of a part is that part of the whole gradient.
    """
    tape, axes = rank.tape, rank.axes.tensor
    how = {"axis": axis, "count": rank.axes.size(axes), "position": rank.position(axes)}
    with tape.untracked():
        tape.op("all_gather", x, name=name, group=axes, axis=axis, hint=hint)
    tape.region(
        [x], [name], after(lambda gradient: arriving(tape, x, "chunk", gradient, None, **how))
    )
    return name


def scattered(tape: Tape, part: str, axes: Names, axis: int, name: str, hint: Hint) -> str:
    """Record a rank's part of the sum of terms; every term has the whole gradient."""
    with tape.untracked():
        tape.op("reduce_scatter", part, name=name, group=axes, axis=axis, hint=hint)
    tape.region(
        [part],
        [name],
        after(lambda gradient: arriving(tape, part, "all_gather", gradient, axes, axis=axis)),
    )
    return name


def exchanged(tape: Tape, x: str, axes: Names, split: int, join: int, name: str, hint: Hint) -> str:
    """Record an all-to-all: ``x`` is cut along ``split`` instead of along ``join``.

    The gradient goes back the same way.
    """
    with tape.untracked():
        tape.op(
            "all_to_all", x, name=name, group=axes, split_axis=split, concat_axis=join, hint=hint
        )
    tape.region(
        [x],
        [name],
        after(
            lambda gradient: arriving(
                tape, x, "all_to_all", gradient, axes, split_axis=join, concat_axis=split
            )
        ),
    )
    return name


def enter(rank: Rank, x: str) -> str:
    """Record the residual stream at the start of a tensor-parallel region.

    There all of its ranks have the same whole sequences.
    """
    axes, name = rank.axes.tensor, f"{x}:entered"
    if rank.layout.sequence_parallel:
        return gathered(rank.tape, x, axes, 1, name, _whole(rank, x))
    return copied(rank.tape, x, axes, name)


def leave(rank: Rank, part: str, name: str, hint: Hint) -> str:
    """Record the residual stream at the end of a tensor-parallel region, from terms of a sum."""
    if rank.layout.sequence_parallel:
        return scattered(rank.tape, part, rank.axes.tensor, 1, name, hint)
    return summed(rank.tape, part, rank.axes.tensor, name, hint)


def cut(rank: Rank, x: str, name: str, hint: Hint) -> str:
    """Record a rank's part of a sequence that all tensor-parallel ranks hold.

    This enters sequence parallelism without a sum; the gradient is gathered.
    """
    tape, axes = rank.tape, rank.axes.tensor
    count = rank.axes.size(axes)
    with tape.untracked():
        tape.op("chunk", x, name=name, axis=1, count=count, position=rank.position(axes), hint=hint)
    tape.region(
        [x], [name], after(lambda gradient: arriving(tape, x, "all_gather", gradient, axes, axis=1))
    )
    return name


def _whole(rank: Rank, x: str) -> Hint:
    """Return the hint of a gathered tensor: that of its part, of whole sequences."""
    known = rank.tape.tensors[x].lineage
    return None if known is None else rank.hint(known.reference, rank.tokens)
