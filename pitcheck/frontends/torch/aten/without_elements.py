"""Operators of which an operand has no elements, such as the tokens of an expert without any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor

Meaning = Callable[[Emitter, Mapping[str, Any]], Tensor]


def _zeros(e: Emitter, _: Mapping[str, Any]) -> Tensor:
    """Return zeros: sums without terms."""
    return e.full(e.shape, 0)


def _itself(_: Emitter, given: Mapping[str, Any]) -> Tensor:
    """Return what nothing is written or added to."""
    found: Tensor = given["self"]
    return found


def _scaled(e: Emitter, given: Mapping[str, Any]) -> Tensor:
    """Return beta * self, to which a product without terms is added."""
    x, beta = given["self"], given["beta"]
    if beta == 0:
        return e.full(e.shape, 0)
    return e.expand(x if beta == 1 else e.map("mul", x, beta), e.shape)


TABLE: Mapping[str, Meaning] = {
    **{
        f"{name}.default": _zeros
        for name in ("mm", "bmm", "mv", "dot", "matmul", "sum", "embedding_dense_backward")
    },
    "sum.dim_IntList": _zeros,
    **{f"{name}.default": _scaled for name in ("addmm", "baddbmm", "addbmm", "addmv")},
    **{
        f"{name}.default": _itself
        for name in ("index_add", "index_put", "_unsafe_index_put", "scatter_add")
    },
    "scatter.src": _itself,
    "scatter.value": _itself,
    "scatter_reduce.two": _itself,
}
"""The meanings by overload, for operands without elements and a result that has some."""


def result_without(
    e: Emitter, operator: str, parameters: Sequence[str], arguments: Sequence[Any]
) -> Tensor | None:
    """Return the result of an operator that reads a tensor without elements.

    Returns None if it reads none, or if the operator itself knows what to do.
    """
    meaning = TABLE.get(operator)
    if meaning is None or not any(map(_is_empty, arguments)):
        return None
    return meaning(e, dict(zip(parameters, arguments, strict=True)))


def _is_empty(argument: Any) -> bool:
    if isinstance(argument, Tensor):
        return argument.is_empty
    return isinstance(argument, tuple) and any(map(_is_empty, argument))
