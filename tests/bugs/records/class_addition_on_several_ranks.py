"""The residual stream is added to the sum of the ranks' terms, once."""

from __future__ import annotations

from bugs.cases import llama, spread
from bugs.record import Bug, Patched, each

from pitcheck.programs.layers.context_attention import Placed
from pitcheck.programs.layers.feed_forward import feed_forward
from pitcheck.programs.layers.layers import _attended
from pitcheck.programs.layers.regions import leave
from pitcheck.programs.layers.tensor_parallel import norm, parameter
from pitcheck.programs.rank import Rank


def added_to_terms(rank: Rank, x: str, name: str, outputs: int, bias: bool = False) -> str:
    """The last matrix of a layer; every rank adds what came into the feed-forward part to
    its term.
    """
    assert not bias
    tape, axes = rank.tape, rank.axes.tensor
    weight = parameter(
        rank, f"{name}.weight", (outputs, tape.tensors[x].shape[-1]), rank.spread({1: axes})
    )
    product = tape.op("linear", x, weight, name=f"{name}:product")
    layer = name.removesuffix(".mlp.down")
    if not axes:
        return tape.op(
            "add", f"{layer}.middle", product, name=f"{layer}.output", hint=rank.residual
        )
    return leave(
        rank,
        tape.op("add", f"{layer}.middle", product, name=f"{name}:term"),
        f"{layer}.output",
        rank.residual,
    )


def layer(rank: Rank, x: str, name: str, placed: Placed, mixture: bool) -> str:
    """A layer whose feed-forward part adds the residual stream itself."""
    assert not mixture
    with rank.tape.module(name):
        normed = norm(rank, x, f"{name}.attention_norm")
        mixed = _attended(rank, normed, f"{name}.attention", placed)
        x = rank.tape.op("add", x, mixed, name=f"{name}.middle", hint=rank.residual)
        return feed_forward(rank, norm(rank, x, f"{name}.mlp_norm"), f"{name}.mlp", rank.model.ffn)


buggy = Patched({"parallel_plan.layer": layer, "layers.feed_forward.row": added_to_terms})

BUG = Bug(
    where="TrainVerify, synthetic: an addition on several ranks",
    should="the residual stream is added once, to the sum",
    was="on every rank, before the all-reduce: tp times",
    codes=("PIT108", "PIT105"),
    says=("layers.0", "tp"),
    shows=each(buggy, two_ranks=spread(llama(1), 2, tp=2), four_ranks=spread(llama(1), 2, tp=4)),
    silent=each(
        buggy,
        one_rank=spread(llama(1), 2, dp=2),
        two_layers_on_one_rank=spread(llama(2), 2, microbatches=2),
    ),
)
