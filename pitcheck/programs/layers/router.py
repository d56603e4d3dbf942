"""The router of a mixture of experts on a rank's tokens.

It chooses experts and their weights for each token, and has losses that balance them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pitcheck.models.config import Experts
from pitcheck.plan.model import Number
from pitcheck.programs.data_parallel.optimizer_step import total_of
from pitcheck.programs.layers.tensor_parallel import parameter, whole_bias
from pitcheck.programs.rank import Rank


@dataclass(frozen=True)
class Routing:
    """The choice of every token.

    ``chosen`` (sequences, length, routed): 1 where a token chose an expert, else 0, as integers.
    ``weights``, of the same shape: the token's weight for that expert, else 0.
    """

    chosen: str
    weights: str


def route(rank: Rank, x: str, name: str, experts: Experts) -> Routing:
    """Record the router on the tokens ``x`` (sequences, length, hidden).

    Its losses, and the load that moves its bias, are noted on the rank.
    """
    tape = rank.tape
    weight = parameter(
        rank, f"{name}.router.weight", (experts.routed, rank.model.hidden), {}, rank.sequence_terms
    )
    bias = (whole_bias(rank, f"{name}.router", experts.routed),) if experts.router_bias else ()
    logits = tape.op("linear", x, weight, *bias, name=f"{name}.router", hint=rank.residual)
    scores = _scores(rank, logits, name, experts)
    with tape.untracked():
        places = _choice(rank, scores, name, experts)
        zeros = tape.op("full_like", scores, value=0, dtype="int64")
        ones = tape.op("full_like", places, value=1)
        chosen = tape.op("scatter_add", zeros, places, ones, name=f"{name}.router.map", axis=2)
        if Fraction(experts.bias_rate):
            load = tape.op(
                "sum",
                tape.op("cast", chosen, dtype="float32"),
                name=f"{name}.router.load:own",
                axes=(0, 1),
            )
            rank.loads[f"{name}.router"] = load, rank.now[-1]
    best = tape.op("gather", scores, places, name=f"{name}.router.best_scores", axis=2)
    if experts.normalized:
        best = tape.op("div", best, tape.op("sum", best, axes=(2,), keepdim=True))
    if Fraction(experts.scale) != 1:
        best = tape.op("mul", best, Number(experts.scale))
    weights = tape.op(
        "scatter_add",
        tape.op("full_like", scores, value=0),
        places,
        best,
        name=f"{name}.router.probabilities",
        axis=2,
    )
    _balance(rank, scores, chosen, name, experts)
    _z(rank, logits, name, experts)
    return Routing(chosen, weights)


def _scores(rank: Rank, logits: str, name: str, experts: Experts) -> str:
    """Record a score in (0, 1) per expert, (sequences, length, routed)."""
    stem = f"{name}.router.scores"
    if experts.score == "sigmoid":
        return rank.tape.op("sigmoid", logits, name=stem, hint=rank.residual)
    return rank.tape.op("softmax", logits, name=stem, hint=rank.residual, axis=2)


def _choice(rank: Rank, scores: str, name: str, experts: Experts) -> str:
    """Record the numbers of the experts that a token chooses, best first.

    They are (sequences, length, chosen).
    """
    tape = rank.tape
    ranked = scores
    if Fraction(experts.bias_rate):
        bias = tape.state(f"{name}.router.correction", (experts.routed,), {})
        ranked = tape.op("add", scores, bias, name=f"{name}.router.steered")
    if experts.kept < experts.groups:
        ranked = tape.op(
            "masked_fill",
            ranked,
            _left_out(rank, ranked, name, experts),
            Number("-inf"),
            name=f"{name}.router.limited",
        )
    return tape.several(
        "topk", ranked, names=("", f"{name}.router.choice"), k=experts.chosen, axis=2
    )[1]


def _left_out(rank: Rank, ranked: str, name: str, experts: Experts) -> str:
    """Record a boolean per expert: True if it is in a group that the token does not keep."""
    tape, (rows, length, routed) = rank.tape, rank.tape.tensors[ranked].shape
    members = routed // experts.groups
    grouped = tape.op("reshape", ranked, sizes=(rows, length, experts.groups, members))
    if experts.group_score == "top2":
        value = tape.op(
            "sum", tape.several("topk", grouped, names=("", ""), k=2, axis=3)[0], axes=(3,)
        )
    else:
        value = tape.op("amax", grouped, axes=(3,))
    kept = tape.several("topk", value, names=("", f"{name}.router.groups"), k=experts.kept, axis=2)[
        1
    ]
    marks = tape.op("scatter_value", tape.op("full_like", value, value=1), kept, Number(0), axis=2)
    spread = tape.op(
        "expand", tape.op("unsqueeze", marks, axis=3), sizes=(rows, length, experts.groups, members)
    )
    return tape.op("cast", tape.op("reshape", spread, sizes=(rows, length, routed)), dtype="bool")


# --- losses


def _balance(rank: Rank, scores: str, chosen: str, name: str, experts: Experts) -> None:
    """Record a rank's term of the balance loss.

    Shares of tokens are those of the whole group, over all its ranks; mean scores are of the rank's
    tokens. The loss is linear in the scores, so the terms of all ranks add up to it. The shares
    have no gradient.
    """
    if not Fraction(experts.auxiliary):
        return
    tape, (rows, length, routed) = rank.tape, rank.tape.tensors[scores].shape
    parts = rank.layout.dp * rank.layout.microbatches
    groups = rank.batch.sequences if experts.auxiliary_over == "sequence" else rank.batch.groups
    own = groups // parts
    together = rank.together
    sizes = (own, rows // own, length, routed)
    with tape.untracked():
        counted = tape.op("cast", tape.op("reshape", chosen, sizes=sizes), dtype="float32")
        share = tape.op("mean", counted, name=f"{name}.router.share:own", axes=(1, 2))
        if together:
            share = tape.op(
                "all_reduce", share, name=f"{name}.router.share", group=together, reduction="avg"
            )
    mean = tape.op(
        "mean", tape.op("reshape", _shares(rank, scores, name, experts), sizes=sizes), axes=(1, 2)
    )
    factor = (
        Fraction(experts.auxiliary)
        * Fraction(routed, experts.chosen)
        / (groups * rank.axes.size(together))
    )
    each = tape.op("sum", tape.op("mul", share, mean), axes=(1,))
    loss = tape.op("mul", tape.op("sum", each), factor, name=f"{name}.router.auxiliary:term")
    rank.losses[f"{name}.router.auxiliary"] = loss, rank.now[-1]


def _shares(rank: Rank, scores: str, name: str, experts: Experts) -> str:
    """Record the scores whose mean the balance loss takes: they sum to 1."""
    stem, tape = f"{name}.router.shares", rank.tape
    if experts.score == "sigmoid":
        return tape.op(
            "div",
            scores,
            tape.op("sum", scores, axes=(2,), keepdim=True),
            name=stem,
            hint=rank.residual,
        )
    return tape.op("identity", scores, name=stem, hint=rank.residual)


def _z(rank: Rank, logits: str, name: str, experts: Experts) -> None:
    """Record a rank's term of coefficient * mean over all tokens of logsumexp(logits)^2."""
    if not Fraction(experts.z):
        return
    tape = rank.tape
    own = tape.op("identity", logits, name=f"{name}.router.z_logits", hint=rank.residual)
    total = tape.op(
        "sum", tape.op("mean", tape.op("square", tape.op("logsumexp", own, axis=2)), axes=(1,))
    )
    loss = tape.op(
        "mul",
        total,
        Fraction(experts.z) / (rank.batch.sequences * rank.axes.size(rank.together)),
        name=f"{name}.router.z:term",
    )
    rank.losses[f"{name}.router.z"] = loss, rank.now[-1]


# --- the end of a step


def balance(rank: Rank) -> str:
    """Record the sum of the routers' losses over micro-batches, ranks and layers, on every stage.

    Return "" if there are none.
    """
    tape, over = rank.tape, (*rank.axes.data, *rank.together)
    by_place: dict[int, list[str]] = {place: [] for place in range(rank.layout.pp)}
    for name, (term, stages) in rank.losses.items():
        with rank.at(*stages):
            total = tape.op(
                "accumulate", term, name=f"{name}:rank" if over else name, hint=None if over else {}
            )
            by_place[rank.pipeline_rank(stages[0])].append(
                tape.op("all_reduce", total, name=name, group=over, hint={}) if over else total
            )
    if not rank.losses:
        return ""
    for place, losses in by_place.items():
        with rank.at(place):
            total_of(tape, losses or [tape.constant("zero", 0)], "loss.routers:own")
    return (
        tape.op("all_reduce", "loss.routers:own", group=rank.axes.pipeline, name="loss.routers")
        if rank.axes.pipeline
        else "loss.routers:own"
    )


def move_biases(rank: Rank) -> None:
    """Record the biases that steer the choice after their step.

    A bias moves up for an expert with less than the mean load over all tokens of the step, and down
    for one with more.
    """
    tape, over = rank.tape, (*rank.axes.data, *rank.together)
    rate = rank.model.experts.bias_rate if rank.model.experts is not None else "0"
    for name, (own, stages) in rank.loads.items():
        bias = f"{name}.correction"
        with rank.at(*stages):
            load = tape.op(
                "accumulate",
                own,
                name=f"{name}.load:rank" if over else f"{name}.load",
                hint=None if over else {},
            )
            load = (
                tape.op("all_reduce", load, name=f"{name}.load", group=over, hint={})
                if over
                else load
            )
            short = tape.op(
                "sign", tape.op("sub", tape.op("mean", load, axes=(0,), keepdim=True), load)
            )
            tape.update(tape.op("add", bias, short, name=f"new:{bias}", alpha=rate), of=bias)
