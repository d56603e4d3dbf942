"""Mixtures of experts on one device: the router, its losses, and the experts.

Every expert is applied to every token, with the token's weight for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pitcheck.models.config import Experts
from pitcheck.models.dense import feed_forward, gated
from pitcheck.models.layers import Context, linear, parameter
from pitcheck.plan.model import Number


@dataclass(frozen=True)
class Routed:
    """The results of a mixture layer.

    Its output, its auxiliary losses (scalars, coefficient included), the bias that is to be moved
    ("" without one), and ``chosen``: 1 where a token chose an expert, (sequences, length, routed).
    """

    output: str
    losses: tuple[str, ...]
    bias: str
    chosen: str


def mixture(context: Context, x: str, name: str, experts: Experts) -> Routed:
    """Record the experts' outputs for ``x`` (sequences, length, hidden), weighted and added up.

    An expert that a token did not choose has weight 0 for it, which is the same as not sending the
    token there. The output of shared experts is added with weight 1.
    """
    tape = context.tape
    scores = linear(tape, x, f"{name}.router", experts.routed, experts.router_bias)
    scored = _scored(context, scores, name, experts)
    bias = (
        tape.state(f"{name}.router.correction", (experts.routed,))
        if Fraction(experts.bias_rate)
        else ""
    )
    chosen = _chosen(context, scored, bias, name, experts)
    weights = _weights(context, scored, chosen, name, experts)
    tokens = tape.op("identity", x, name=f"{name}.tokens")
    output = _experts(context, tokens, weights, name, experts)
    if experts.shared:
        output = tape.op(
            "add",
            output,
            feed_forward(context, x, f"{name}.shared", experts.shared * experts.ffn),
            name=name,
        )
    losses = _balance(context, scored, chosen, name, experts), _z(context, scores, name, experts)
    return Routed(output, tuple(filter(None, losses)), bias, chosen)


def _scored(context: Context, scores: str, name: str, experts: Experts) -> str:
    """Record a score in (0, 1) per expert, (sequences, length, routed)."""
    scored = f"{name}.router.scores"
    if experts.score == "sigmoid":
        return context.tape.op("sigmoid", scores, name=scored)
    return context.tape.op("softmax", scores, name=scored, axis=-1)


def _chosen(context: Context, scored: str, bias: str, name: str, experts: Experts) -> str:
    """Record 1 where a token chose an expert, else 0, (sequences, length, routed), floating-point.

    The choice itself has no gradient.
    """
    tape = context.tape
    with tape.untracked():
        ranked = tape.op("add", scored, bias, name=f"{name}.router.biased") if bias else scored
        if experts.kept < experts.groups:
            ranked = tape.op(
                "where",
                _eligible(context, ranked, name, experts),
                ranked,
                Number("-inf"),
                name=f"{name}.router.eligible",
            )
        _, places = tape.several(
            "topk",
            ranked,
            names=(f"{name}.router.best", f"{name}.router.places"),
            k=experts.chosen,
            axis=-1,
        )
        hits = tape.op(
            "sum",
            tape.op("one_hot", places, classes=experts.routed),
            name=f"{name}.router.hits",
            axes=(2,),
        )
        return tape.op("cast", hits, name=f"{name}.router.chosen", dtype="float32")


def _eligible(context: Context, ranked: str, name: str, experts: Experts) -> str:
    """Record a boolean per expert: True if it is in one of the groups that the token keeps."""
    tape, (rows, length, routed) = context.tape, context.tape.tensors[ranked].shape
    grouped = tape.op(
        "reshape", ranked, sizes=(rows, length, experts.groups, routed // experts.groups)
    )
    if experts.group_score == "top2":
        best, _ = tape.several("topk", grouped, names=("", ""), k=2, axis=-1)
        value = tape.op("sum", best, name=f"{name}.router.groups", axes=(3,))
    else:
        value = tape.op("amax", grouped, name=f"{name}.router.groups", axes=(3,))
    _, kept = tape.several(
        "topk", value, names=("", f"{name}.router.kept"), k=experts.kept, axis=-1
    )
    hits = tape.op("sum", tape.op("one_hot", kept, classes=experts.groups), axes=(2,))
    return tape.op(
        "cast",
        tape.op("repeat_interleave", hits, axis=2, count=routed // experts.groups),
        dtype="bool",
    )


def _weights(context: Context, scored: str, chosen: str, name: str, experts: Experts) -> str:
    """Record the weight of every expert for every token, 0 if it was not chosen."""
    tape = context.tape
    weights = tape.op("mul", scored, chosen, name=f"{name}.router.kept_scores")
    if experts.normalized:
        weights = tape.op(
            "div",
            weights,
            tape.op("sum", weights, axes=(2,), keepdim=True),
            name=f"{name}.router.normalized",
        )
    if Fraction(experts.scale) != 1:
        weights = tape.op("mul", weights, Number(experts.scale), name=f"{name}.router.weights")
    return weights


def _experts(context: Context, x: str, weights: str, name: str, experts: Experts) -> str:
    """Record every expert's gated feed-forward part on every token, weighted and added up.

    The experts are the first dimension of their weights. Sequences and experts remain dimensions,
    (sequences, experts, length, ...), so that the check sees that all sequences are treated
    equally.
    """
    tape, count, hidden = context.tape, experts.routed, context.model.hidden
    stem, each_token = f"{name}.experts", tape.op("unsqueeze", x, axis=1)
    share = tape.op("unsqueeze", tape.op("transpose", weights, dim0=1, dim1=2), axis=3)

    def applied(to: str, part: str, outputs: int, inputs: int) -> str:
        weight = parameter(tape, f"{stem}.{part}.weight", count, outputs, inputs)
        turned = tape.op("transpose", weight, dim0=1, dim1=2)
        if not experts.bias:
            return tape.op("matmul", to, turned, name=f"{stem}.{part}")
        bias = parameter(tape, f"{stem}.{part}.bias", count, outputs, decays=False)
        return tape.op(
            "add",
            tape.op("matmul", to, turned),
            tape.op("unsqueeze", bias, axis=1),
            name=f"{stem}.{part}",
        )

    if experts.scaled_input:
        each_token = tape.op("mul", each_token, share)
    gate, up = (applied(each_token, part, experts.ffn, hidden) for part in ("gate", "up"))
    each = applied(gated(context, gate, up, f"{stem}.middle"), "down", hidden, experts.ffn)
    return tape.op(
        "sum",
        each if experts.scaled_input else tape.op("mul", each, share),
        name=f"{name}.routed" if experts.shared else name,
        axes=(1,),
    )


def _balance(context: Context, scored: str, chosen: str, name: str, experts: Experts) -> str:
    """Record the load balancing loss; return "" without one.

    It is coefficient * mean over groups of tokens of the sum over experts of (routed / chosen) *
    share of tokens * mean score.
    """
    if not Fraction(experts.auxiliary):
        return ""
    tape, (rows, length, routed) = context.tape, context.tape.tensors[scored].shape
    if experts.score == "sigmoid":
        shares = tape.op(
            "div",
            scored,
            tape.op("sum", scored, axes=(2,), keepdim=True),
            name=f"{name}.router.shares",
        )
    else:
        shares = tape.op("identity", scored, name=f"{name}.router.shares")
    groups = rows if experts.auxiliary_over == "sequence" else context.batch.groups
    sizes = (groups, rows // groups, length, routed)
    load, mean = (
        tape.op("mean", tape.op("reshape", t, sizes=sizes), name=f"{t}.mean", axes=(1, 2))
        for t in (chosen, shares)
    )
    each = tape.op("sum", tape.op("mul", load, mean), name=f"{name}.router.balance", axes=(1,))
    factor = Fraction(experts.auxiliary) * Fraction(experts.routed, experts.chosen) / groups
    return tape.op("mul", tape.op("sum", each), factor, name=f"{name}.router.auxiliary")


def _z(context: Context, scores: str, name: str, experts: Experts) -> str:
    """Record coefficient * mean over tokens of logsumexp(logits)^2; return "" without this loss."""
    if not Fraction(experts.z):
        return ""
    tape = context.tape
    own = tape.op("identity", scores, name=f"{name}.router.z_logits")
    squared = tape.op("square", tape.op("logsumexp", own, name=f"{name}.router.lse", axis=-1))
    rows = tape.tensors[own].shape[0]
    return tape.op(
        "mul",
        tape.op("sum", tape.op("mean", squared, axes=(1,))),
        Fraction(experts.z) / rows,
        name=f"{name}.router.z",
    )


def move_bias(context: Context, routed: Routed, name: str, experts: Experts) -> None:
    """Record the bias that steers the choice after its step (Wang et al. 2024).

    It moves up for an expert with less than the mean load, and down for one with more.
    """
    tape = context.tape
    load = tape.op("sum", routed.chosen, name=f"{name}.router.load", axes=(0, 1))
    short = tape.op("sign", tape.op("sub", tape.op("mean", load, axes=(0,), keepdim=True), load))
    new = tape.op("add", routed.bias, short, name=f"new:{routed.bias}", alpha=experts.bias_rate)
    tape.update(new, of=routed.bias)
