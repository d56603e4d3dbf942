"""Tokens sent to the ranks of the experts that they chose, and back.

This is expert parallelism (Lepikhin et al. 2020) without dropping (Gale et al. 2022). A rank sends
a token at most once to every rank of its expert-parallel group, as DeepEP does, together with which
of that rank's experts the token chose and with which weights. Only the chosen tokens go from one
rank to another, one after the other, preceded by their number. Shapes are fixed here, so a buffer
has as many places as the rank has tokens, and those behind the number are empty. Places are counted
per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from pitcheck.models.config import Experts
from pitcheck.programs.layers.regions import copied, exchanged, gathered, scattered, summed
from pitcheck.programs.layers.router import Routing
from pitcheck.programs.rank import Rank


@dataclass(frozen=True)
class Sent:
    """The tokens that a rank has received for its experts.

    ``tokens`` is (senders, sequences, places, hidden); ``chosen`` and ``weights`` are (senders,
    sequences, places, experts of the rank). ``slots`` (sequences, receivers, places, length) is 1
    where a token of the rank itself went; "" if all tokens stay.
    """

    tokens: str
    chosen: str
    weights: str
    slots: str


def dispatch(rank: Rank, x: str, routing: Routing, name: str, experts: Experts) -> Sent:
    """Record sending every token of ``x`` to the ranks that have experts it chose.

    ``x`` is (sequences, length, hidden).
    """
    if not rank.axes.experts:
        return _kept(rank, x, routing)
    tape, (rows, length, _) = rank.tape, rank.tape.tensors[x].shape
    count = rank.axes.size(rank.axes.experts)
    sizes = (rows, length, count, experts.routed // count)
    with tape.untracked():
        chosen = tape.op("reshape", routing.chosen, sizes=sizes)
        goes = tape.op("any", chosen, name=f"{name}.goes", axes=(3,))
        goes_by = tape.op("transpose", goes, dim0=1, dim1=2)
        taken = tape.op("cumsum", goes_by, name=f"{name}.taken", axis=2)
        places = _places(rank, taken, name)
        slots = _slots(rank, goes_by, taken, places, name)
        marks = _packed(
            rank,
            slots,
            tape.op("transpose", tape.op("cast", chosen, dtype="float32"), dim0=1, dim1=2),
            f"{name}.marks",
        )
        numbers = tape.op(
            "transpose",
            tape.op(
                "sum", tape.op("cast", goes_by, dtype="int64"), name=f"{name}.counts", axes=(2,)
            ),
            dim0=0,
            dim1=1,
        )
    packed = _packed(rank, slots, tape.op("unsqueeze", x, axis=1), f"{name}.packed")
    weights = tape.op("transpose", tape.op("reshape", routing.weights, sizes=sizes), dim0=1, dim1=2)
    shares = _packed(rank, slots, weights, f"{name}.shares")
    packed, shares = (_to_experts(rank, part) for part in (packed, shares))
    with tape.untracked():
        marks, numbers = (_to_experts(rank, part) for part in (marks, numbers))
        marks = _counted(rank, marks, numbers, places, name)
    return Sent(packed, marks, shares, slots)


def _kept(rank: Rank, x: str, routing: Routing) -> Sent:
    """Record the tokens of a rank that has all experts: every token stays."""
    tape = rank.tape
    tokens, weights = (
        _to_experts(rank, tape.op("unsqueeze", part, axis=0)) for part in (x, routing.weights)
    )
    with tape.untracked():
        chosen = tape.op("unsqueeze", tape.op("cast", routing.chosen, dtype="float32"), axis=0)
        return Sent(tokens, _to_experts(rank, chosen), weights, "")


def combine(rank: Rank, results: str, sent: Sent, name: str) -> str:
    """Record the experts' results, sent back to the ranks of their tokens and added up there.

    ``results`` is (senders, sequences, places, hidden), terms of a sum if an expert's width is cut.
    """
    tape, axes = rank.tape, rank.axes
    if axes.expert_tensor and rank.own_tokens:
        results = scattered(tape, results, axes.expert_tensor, 0, f"{results}:own", None)
    elif axes.expert_tensor:
        results = summed(tape, results, axes.expert_tensor, f"{results}:sum", None)
    if not sent.slots:
        return tape.op("squeeze", results, name=name, hint=rank.residual, axis=0)
    back = exchanged(tape, results, axes.experts, 0, 0, f"{results}:back", None)
    slots, results = (
        tape.op("transpose", sent.slots, dim0=2, dim1=3),
        tape.op("transpose", back, dim0=0, dim1=1),
    )
    return tape.op(
        "sum", tape.op("matmul", slots, results), name=name, hint=rank.residual, axes=(1,)
    )


def _places(rank: Rank, taken: str, name: str) -> str:
    """Record the numbers of a buffer's places, 1, 2, ... per sequence: (sequences, places)."""
    tape = rank.tape
    first = tape.op("cast", tape.op("select", taken, axis=1, index=0), dtype="float32")
    # Counted from the tokens, so that places are as many as tokens at reduced sizes, too.
    return tape.op("cumsum", tape.op("full_like", first, value=1), name=f"{name}.places", axis=1)


def _slots(rank: Rank, goes: str, taken: str, places: str, name: str) -> str:
    """Record 1 where a token takes a place of a receiver, else 0.

    The first token that goes to a receiver takes its first place, and so on. ``goes``, ``taken``
    (sequences, receivers, length): whether a token goes to a receiver, and as which one, counted
    from 1. The result is (sequences, receivers, places, length).
    """
    tape = rank.tape
    numbered = tape.op("unsqueeze", tape.op("unsqueeze", places, axis=1), axis=3)
    fits = tape.op(
        "logical_and",
        tape.op("eq", tape.op("unsqueeze", taken, axis=2), numbered),
        tape.op("unsqueeze", goes, axis=2),
    )
    return tape.op("cast", fits, name=f"{name}.slots", dtype="float32")


def _packed(rank: Rank, slots: str, x: str, name: str) -> str:
    """Record what tokens have at their places: (receivers, sequences, places, size).

    ``x`` is (sequences, receivers or 1, length, size).
    """
    return rank.tape.op("transpose", rank.tape.op("matmul", slots, x), name=name, dim0=0, dim1=1)


def _to_experts(rank: Rank, x: str) -> str:
    """Record (receivers, ...) as (senders, ...): an all-to-all.

    The ranks that share an expert then get the tokens of all of them.
    """
    tape, axes = rank.tape, rank.axes
    if axes.experts:
        x = exchanged(tape, x, axes.experts, 0, 0, f"{x}:there", None)
    if not axes.expert_tensor:
        return x
    return (
        gathered(tape, x, axes.expert_tensor, 0, f"{x}:all")
        if rank.own_tokens
        else copied(tape, x, axes.expert_tensor, f"{x}:copied")
    )


def _counted(rank: Rank, marks: str, numbers: str, places: str, name: str) -> str:
    """Record ``marks`` with zeros behind the ``numbers`` of tokens that were sent.

    ``marks`` is (senders, sequences, places, experts), ``numbers`` (senders, sequences).
    """
    filled = rank.tape.op("le", places, rank.tape.op("unsqueeze", numbers, axis=2))
    return rank.tape.op("mul", marks, rank.tape.op("unsqueeze", filled, axis=3), name=f"{name}.own")
