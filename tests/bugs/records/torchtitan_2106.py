"""A row-parallel layer adds its bias to the sum of the ranks' terms."""

from __future__ import annotations

from bugs.cases import gpt, llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.layers.regions import leave
from pitcheck.programs.layers.tensor_parallel import parameter
from pitcheck.programs.rank import Rank


def biased_terms(rank: Rank, x: str, name: str, outputs: int, bias: bool = False) -> str:
    """The sum of terms, to each of which the bias was added."""
    tape, axes = rank.tape, rank.axes.tensor
    operands = [
        x,
        parameter(
            rank, f"{name}.weight", (outputs, tape.tensors[x].shape[-1]), rank.spread({1: axes})
        ),
    ]
    if bias:
        operands.append(parameter(rank, f"{name}.bias", (outputs,), {}, rank.sequence_terms))
    if not axes:
        return tape.op("linear", *operands, name=name, hint=rank.residual)
    return leave(
        rank, tape.op("linear", *operands, name=f"{name}:term", gradient=False), name, rank.residual
    )


buggy = Patched({"layers.layers.row": biased_terms, "layers.feed_forward.row": biased_terms})

BUG = Bug(
    where="torchtitan PR 2106, Paddle PR 35186",
    should="the bias of a row-parallel layer is added once, after the reduction",
    was="to the term of every rank: tp times",
    codes=("PIT108", "PIT105"),
    says=("bias", "tp"),
    shows=each(
        buggy,
        two_ranks=spread(gpt(1), 2, tp=2),
        four_ranks=spread(gpt(1, 4), 2, tp=4),
        over_data_too=spread(gpt(1), 4, dp=2, tp=2),
    ),
    silent=each(
        buggy,
        one_rank=spread(gpt(1), 2, dp=2),
        no_bias=spread(llama(1), 2, tp=2),
    ),
)
