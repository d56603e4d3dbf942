"""Gradients summed over micro-batches and over the ranks that hold the same parameter."""

from __future__ import annotations

from collections.abc import Mapping

from pitcheck.plan.model import Group
from pitcheck.programs.rank import Rank

LOCAL = "local:"
"""What the name of one micro-batch's gradient on one rank begins with."""


def reduced(rank: Rank, gradients: Mapping[str, str]) -> dict[str, str]:
    """parameter -> its complete gradient, summed over micro-batches, data- and context-parallel ranks, and what else its terms are spread over."""
    return {name: _sum(rank, name, gradient) for name, gradient in gradients.items()}


def _sum(rank: Rank, name: str, gradient: str) -> str:
    """First over the rank's micro-batches, then over data and context, tensor-parallel ranks, and the pipeline's ends, as Megatron-LM orders them."""
    tape = rank.tape
    over = [Group(axes=axes) for axes in ((*rank.axes.data, *rank.axes.context), rank.terms[name]) if axes]
    if len(rank.homes[name]) > 1:
        over.append(ends(rank))
    hint = rank.like(f"grad:{name}", name)
    with rank.at(*rank.homes[name]):
        total = tape.op("accumulate", gradient, name=f"accumulated:{name}" if over else f"grad:{name}", hint=None if over else hint)
        for number, group in enumerate(over):
            last = number == len(over) - 1
            total = tape.op("all_reduce", total, group=group, name=f"grad:{name}" if last else f"reduced{number}:{name}", hint=hint if last else None)
    return total


def ends(rank: Rank) -> Group:
    """The ranks of the first and the last stage in the same place, which share a tied embedding."""
    if rank.layout.pp == 2:
        return Group(axes=rank.axes.pipeline)
    inside = rank.layout.ranks // rank.layout.pp
    return Group(ranks=tuple((place, place + (rank.layout.pp - 1) * inside) for place in range(inside)))
