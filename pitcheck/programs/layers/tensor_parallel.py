"""Layers cut over tensor-parallel ranks (Shoeybi et al. 2019).

These are linear layers by columns and by rows, norms, and the vocabulary's two ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.models.records import Spread, held
from pitcheck.plan.model import MICROBATCH_AXIS, Number, Table
from pitcheck.programs.layers.regions import after, cut, enter, leave, summed
from pitcheck.programs.rank import Names, Rank, Sharing

WHOLE = ":whole"
"""The ending of the name of a parameter that is gathered from shards."""


def parameter(
    rank: Rank,
    name: str,
    shape: Sequence[int],
    spread: Spread,
    terms: Names = (),
    sharing: Sharing | None = None,
    decays: bool = True,
) -> str:
    """Add a rank's part of a parameter unless it exists already; return its name.

    ``terms``: tensor-parallel axes over whose ranks gradients are terms of a sum, besides those of
    data and context. ``sharing``: the whole sharing, if it is not that of a dense parameter.
    ``decays``: False for norms, biases and sinks.
    """
    rank.homes[name] = tuple(sorted({*rank.homes.get(name, ()), *rank.now[-1]}))
    whole = f"{name}{WHOLE}"
    if whole in rank.tape.tensors:
        return whole
    if name in rank.tape.tensors:
        return name
    own = rank.sharing[name] = sharing or rank.dense(terms)
    # Gradients that share a buffer need hints before they are joined.
    buffered = rank.layout.zero == 2 and own.shards
    gradient = (
        rank.term(name, held(name, spread), (*own.axes, MICROBATCH_AXIS)) if buffered else None
    )
    return rank.tape.parameter(name, shape, spread, gradient=gradient or False, decays=decays)


def column(
    rank: Rank, x: str, name: str, outputs: int, axes: Names, bias: bool = False, blocks: int = 1
) -> str:
    """Record ``x`` times a rank's rows of the weight.

    ``x`` (..., k) is the same on all tensor-parallel ranks; ``outputs`` counts those of all ranks.
    ``blocks``: the weight joins as many equal blocks, and the rank has a part of each.
    """
    tape, count = rank.tape, rank.axes.size(axes)
    spread = rank.spread({0: axes if blocks == 1 else _of_each(axes, count, outputs, blocks)})
    terms = rank.axes.copies if axes != rank.axes.tensor else ()
    operands = [
        x,
        parameter(
            rank, f"{name}.weight", (outputs // count, tape.tensors[x].shape[-1]), spread, terms
        ),
    ]
    if bias:
        operands.append(
            parameter(rank, f"{name}.bias", (outputs // count,), spread, terms, decays=False)
        )
    how = rank.spread({0: rank.by_batch, 1: rank.sequence(), 2: axes}) if blocks == 1 else None
    return tape.op("linear", *operands, name=name, hint=how, gradient=not terms)


def replicated(rank: Rank, x: str, name: str, outputs: int) -> str:
    """Record ``x`` of the residual stream times a weight that every tensor-parallel rank has.

    With sequence parallelism the weight's gradient is a term of a sum.
    """
    weight = parameter(
        rank, f"{name}.weight", (outputs, rank.tape.tensors[x].shape[-1]), {}, rank.sequence_terms
    )
    return rank.tape.op("linear", x, weight, name=name, hint=rank.residual)


def _of_each(axes: Names, count: int, outputs: int, blocks: int) -> Names | Table:
    size = outputs // blocks
    part = size // count
    return (
        Table(
            axes,
            tuple(
                tuple((b * size + i * part, b * size + (i + 1) * part) for b in range(blocks))
                for i in range(count)
            ),
        )
        if axes
        else ()
    )


def row(rank: Rank, x: str, name: str, outputs: int, bias: bool = False) -> str:
    """Record ``x`` (..., k), cut along k, times a rank's columns of the weight, summed over ranks.

    The result belongs to the residual stream; the bias is added to the sum.
    """
    tape, axes = rank.tape, rank.axes.tensor
    weight = parameter(
        rank, f"{name}.weight", (outputs, tape.tensors[x].shape[-1]), rank.spread({1: axes})
    )
    added = (whole_bias(rank, name, outputs),) if bias else ()
    if not axes:
        return tape.op("linear", x, weight, *added, name=name, hint=rank.residual)
    part = tape.op("linear", x, weight, name=f"{name}:term", gradient=False)
    if not added:
        return leave(rank, part, name, rank.residual)
    return tape.op(
        "add", leave(rank, part, f"{name}:sum", None), *added, name=name, hint=rank.residual
    )


def whole_bias(rank: Rank, name: str, outputs: int) -> str:
    """Add the bias of a matrix whose outputs all ranks have; return its name."""
    return parameter(rank, f"{name}.bias", (outputs,), {}, rank.sequence_terms, decays=False)


def norm(rank: Rank, x: str, name: str) -> str:
    """Record the model's norm of the residual stream."""
    tape, model = rank.tape, rank.model
    size, terms = (tape.tensors[x].shape[-1],), rank.sequence_terms
    weight = parameter(rank, f"{name}.weight", size, {}, terms, decays=False)
    if model.norm == "rms":
        return tape.op("rms_norm", x, weight, name=name, hint=rank.residual, eps=model.norm_eps)
    return tape.op(
        "layer_norm",
        x,
        weight,
        parameter(rank, f"{name}.bias", size, {}, terms, decays=False),
        name=name,
        hint=rank.residual,
        eps=model.norm_eps,
    )


def vocabulary_weight(rank: Rank, name: str) -> str:
    """Add the embedding or output projection, its rows cut over tensor-parallel ranks.

    Return its name.
    """
    axes, model = rank.axes.tensor, rank.model
    return parameter(
        rank,
        name,
        (model.embedding_rows // rank.axes.size(axes), model.hidden),
        rank.spread({0: axes}),
    )


def _own(rank: Rank, ids: str, weight: str, name: str) -> tuple[str, str]:
    """Record ids as rows of the rank's part of the vocabulary.

    Returns: the rows, 0 for ids of another rank, and a boolean per id: True for those of another
    rank.
    """
    tape, axes = rank.tape, rank.axes.tensor
    rows = tape.tensors[weight].shape[0]
    with tape.untracked(), tape.every_microbatch():
        begins, ends = (
            Table(axes, tuple(rows * (i + after) for i in range(rank.axes.size(axes))))
            for after in (0, 1)
        )
        first = tape.op("boundary", weight, name=f"{name}.rows.begin", axis=0, offset=begins)
        end = tape.op("boundary", weight, name=f"{name}.rows.end", axis=0, offset=ends)
    kept = tape.op("logical_and", tape.op("ge", ids, first), tape.op("lt", ids, end))
    away = tape.op("logical_not", kept, name=f"{name}.away")
    return tape.op(
        "masked_fill", tape.op("sub", ids, first), away, Number(0), name=f"{name}.row"
    ), away


def embed(rank: Rank, tokens: str, name: str) -> str:
    """Record the rows of the embedding at ``tokens``, plus learned positions.

    The result belongs to the residual stream.
    """
    tape, model, axes = rank.tape, rank.model, rank.axes.tensor
    weight = vocabulary_weight(rank, "embedding.weight")
    words = f"{name}.words" if model.positions else name
    if axes:
        rows, away = _own(rank, tokens, weight, words)
        found = tape.op("embedding", rows, weight)
        part = tape.op(
            "masked_fill",
            found,
            tape.op("unsqueeze", away, axis=2),
            Number(0),
            name=f"{words}:term",
            gradient=False,
        )
        found = (
            summed(tape, part, axes, words, rank.tokens)
            if model.positions
            else leave(rank, part, words, rank.residual)
        )
    else:
        found = tape.op("embedding", tokens, weight, name=words, hint=rank.tokens)
    if not model.positions:
        return found
    if not rank.layout.sequence_parallel:
        return tape.op(
            "add", found, _positions(rank, f"{name}.positions"), name=name, hint=rank.residual
        )
    return cut(
        rank,
        tape.op(
            "add",
            found,
            _positions(rank, f"{name}.positions"),
            name=f"{name}:whole",
            hint=held(name, rank.tokens),
        ),
        name,
        rank.residual,
    )


def _positions(rank: Rank, name: str) -> str:
    """Record the rows of the learned positions at the rank's places."""
    tape, model, runs = rank.tape, rank.model, rank.runs()
    weight = parameter(rank, "embedding.positions.weight", (model.positions, model.hidden), {})
    names = [name] if len(runs) == 1 else ["" for _ in runs]
    with tape.every_microbatch():
        parts = [
            tape.op("slice", weight, name=own, axis=0, start=start, stop=stop, gradient=False)
            for own, (start, stop) in zip(names, runs, strict=True)
        ]
    return parts[0] if len(parts) == 1 else tape.op("cat", *parts, name=name, axis=0)


def logits(rank: Rank, x: str, name: str) -> str:
    """Record scores of the rank's rows of the vocabulary, (sequences, length, rows)."""
    weight = vocabulary_weight(rank, head_weight(rank))
    return rank.tape.op("linear", enter(rank, x), weight, name=name, hint=rank.wide)


def head_weight(rank: Rank) -> str:
    """Return the name of the output projection's weight."""
    return "embedding.weight" if rank.model.tied else "head.weight"


def token_losses(rank: Rank, scores: str, labels: str, name: str) -> str:
    """Record the cross-entropy of every token from scores that are cut over the vocabulary."""
    tape, axes = rank.tape, rank.axes.tensor
    lse = _logsumexp(rank, scores, f"{name}.lse")
    rows, away = (
        _own(rank, labels, vocabulary_weight(rank, head_weight(rank)), name)
        if axes
        else (labels, "")
    )
    name_found, hint = ("", None) if axes else (f"{name}.picked", rank.tokens)
    found = tape.op("gather", scores, tape.op("unsqueeze", rows, axis=2), axis=2)
    found = tape.op("squeeze", found, name=name_found, hint=hint, axis=2)
    if axes:
        part = tape.op(
            "masked_fill", found, away, Number(0), name=f"{name}.picked:term", gradient=False
        )
        found = summed(tape, part, axes, f"{name}.picked", rank.tokens)
    return tape.op("sub", lse, found, name=f"{name}.tokens", hint=rank.tokens)


def _logsumexp(rank: Rank, scores: str, name: str) -> str:
    """Record log sum exp over all ranks' scores, less their maximum first.

    Its derivative is the softmax.
    """
    tape, axes = rank.tape, rank.axes.tensor
    if not axes:
        return tape.op("logsumexp", scores, name=name, axis=-1, hint=rank.tokens)
    with tape.untracked():
        top = tape.op(
            "all_reduce",
            tape.op("amax", scores, axes=(2,), keepdim=True),
            group=axes,
            reduction="max",
            name=f"{name}.top",
        )
        powers = tape.op("exp", tape.op("sub", scores, top), name=f"{name}.powers")
        total = tape.op(
            "all_reduce",
            tape.op("sum", powers, axes=(2,), keepdim=True),
            group=axes,
            name=f"{name}.total",
        )
        flat = [tape.op("squeeze", part, axis=2) for part in (total, top)]
        tape.op("add", tape.op("log", flat[0]), flat[1], name=name, hint=rank.tokens)

    def back(gradient: str) -> str:
        share = tape.op("div", powers, total, name=f"{name}.softmax")
        return tape.op(
            "mul", share, tape.op("unsqueeze", gradient, axis=2), name=tape.gradient_name(scores)
        )

    tape.region([scores], [name], after(back))
    return name
