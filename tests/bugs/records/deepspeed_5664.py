"""DeepSpeed-Ulysses: an all-to-all gives every rank a part of all heads' tokens back."""

from __future__ import annotations

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.models.records import Hint
from pitcheck.models.tape import Tape
from pitcheck.programs.layers.regions import exchanged
from pitcheck.programs.rank import Names


def of_one_sequence(
    tape: Tape, x: str, axes: Names, split: int, join: int, name: str, hint: Hint
) -> str:
    """The all-to-all; on the way back (sequences, length, heads, size) is cut as if all sequences
    were one.
    """
    if not name.endswith(".back"):
        return exchanged(tape, x, axes, split, join, name, hint)
    rows, length, heads, size = tape.tensors[x].shape
    flat = tape.op("reshape", x, sizes=(1, rows * length, heads, size))
    back = exchanged(tape, flat, axes, split, join, f"{name}:flat", hint)
    ranks = tape.sizes["cp"]
    return tape.op("reshape", back, name=name, sizes=(rows, length // ranks, heads * ranks, size))


buggy = Patched({"layers.context_attention.exchanged": of_one_sequence})

BUG = Bug(
    where="DeepSpeed PR 5664, #5808",
    should="the all-to-all of Ulysses gives back tokens and heads in their order",
    was="with more than one sequence a rank gets other tokens",
    codes=("PIT107",),
    says=("(reshape)",),
    shows=each(
        buggy,
        two_sequences=spread(llama(1), 2, cp=2, context="ulysses"),
        in_zigzag=spread(llama(1), 4, 8, dp=2, cp=2, context="ulysses", zigzag=True),
    ),
    silent=each(
        buggy,
        one_sequence=spread(llama(1), 1, cp=2, context="ulysses"),
        one_sequence_a_microbatch=spread(llama(1), 2, cp=2, context="ulysses", microbatches=2),
        one_rank=spread(llama(1), 2, context="ulysses"),
    ),
)
