"""Mixtures of experts on a rank: tokens go to the experts that they chose and come back.

Shared experts are a dense feed-forward part.
"""

from __future__ import annotations

from fractions import Fraction

from pitcheck.models.config import Experts
from pitcheck.programs.layers.dispatch import Sent, combine, dispatch
from pitcheck.programs.layers.feed_forward import feed_forward, gated
from pitcheck.programs.layers.router import route
from pitcheck.programs.layers.tensor_parallel import parameter
from pitcheck.programs.rank import Names, Rank, Sharing


def mixture_of_experts(rank: Rank, x: str, name: str, experts: Experts) -> str:
    """Record the weighted results of the experts that each token chose, plus the shared experts'.

    ``x`` is (sequences, length, hidden); the result, of the same shape, is called ``name``.
    """
    routed = f"{name}.routed" if experts.shared else name
    tokens = rank.tape.op("identity", x, name=f"{name}.tokens", hint=rank.residual)
    sent = dispatch(rank, tokens, route(rank, x, name, experts), name, experts)
    combine(rank, _computed(rank, sent, f"{name}.experts", experts), sent, routed)
    if experts.shared:
        rank.tape.op(
            "add",
            routed,
            feed_forward(rank, x, f"{name}.shared", experts.shared * experts.ffn),
            name=name,
            hint=rank.residual,
        )
    return name


def _computed(rank: Rank, sent: Sent, name: str, experts: Experts) -> str:
    """Record the results of a rank's experts on their tokens, weighted and added up per token.

    They are terms of a sum if an expert's width is cut. (senders, sequences, places, ...) become
    (senders, sequences, experts, places, ...).
    """
    tape = rank.tape
    chosen, weights = (
        tape.op("unsqueeze", tape.op("transpose", part, dim0=2, dim1=3), axis=4)
        for part in (sent.chosen, sent.weights)
    )
    own = tape.op("mul", tape.op("unsqueeze", sent.tokens, axis=2), chosen, name=f"{name}.tokens")
    if experts.scaled_input:
        own = tape.op("mul", own, weights, name=f"{name}.scaled")
    gate, up = (_applied(rank, own, f"{name}.{part}", experts, 1) for part in ("gate", "up"))
    middle = gated(rank, gate, up, f"{name}.middle")
    each = _applied(rank, middle, f"{name}.down", experts, 2)
    if not experts.scaled_input:
        each = tape.op("mul", each, weights)
    return tape.op("sum", each, name=f"{name}.weighted", axes=(2,))


def _applied(rank: Rank, x: str, name: str, experts: Experts, cut: int) -> str:
    """Record tokens (..., experts, places, inputs) times their expert's weight.

    Dimension ``cut`` of the weight is the expert's width.
    """
    tape = rank.tape
    with tape.every_microbatch():
        weight = tape.op("transpose", _weight(rank, f"{name}.weight", experts, cut), dim0=1, dim1=2)
    if not experts.bias:
        return tape.op("matmul", x, weight, name=name)
    added = _bias(rank, f"{name}.bias", experts, cut)
    return tape.op("add", tape.op("matmul", x, weight), added, name=name)


def _bias(rank: Rank, name: str, experts: Experts, cut: int) -> str:
    """Record the biases of the rank's experts, (experts, 1, outputs).

    With ``cut`` 2 the ranks that share an expert have terms of its results: each adds its part of
    the bias, so that the sum has it once, and the bias's gradients are terms of a sum over them.
    """
    tape, axes = rank.tape, rank.axes
    shape = (
        experts.routed // axes.size(axes.experts),
        experts.ffn // axes.size(axes.expert_tensor) if cut == 1 else rank.model.hidden,
    )
    spread = {0: axes.experts, 1: axes.expert_tensor if cut == 1 else ()}
    sharing = rank.expert()
    terms = axes.expert_tensor if cut == 2 else ()
    if terms:
        sharing = Sharing((*sharing.sums, terms), sharing.shards)
    bias = parameter(rank, name, shape, rank.spread(spread), sharing=sharing, decays=False)
    with tape.every_microbatch():
        if terms:
            part = Fraction(1, axes.size(terms))
            bias = tape.op("mul", bias, part, name=f"{name}:term", gradient=False)
        return tape.op("unsqueeze", bias, axis=1, gradient=False)


def _weight(rank: Rank, name: str, experts: Experts, cut: int) -> str:
    """Add the weights of the rank's experts as one tensor, experts first.

    Dimension ``cut``, 1 or 2, is the expert's width.
    """
    axes: dict[int, Names] = {0: rank.axes.experts, cut: rank.axes.expert_tensor}
    sizes = {0: experts.routed, cut: experts.ffn, 3 - cut: rank.model.hidden}
    shape = [sizes[dim] // rank.axes.size(axes.get(dim, ())) for dim in range(3)]
    return parameter(rank, name, shape, rank.spread(axes), sharing=rank.expert())
