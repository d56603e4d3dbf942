"""The words for tensors of a user's program that a recorder had to name.

A plan recorded from a program calls a gradient ``grad:w``, and ``div#5`` on its way there. Its
author knows the parameter: ``the gradient of w``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pitcheck.graph.graph import Graph, GraphValue, Node, sources_of
from pitcheck.ops.registry import (
    BACKWARD,
    collective_kinds,
    kinds_that_may,
    kinds_with,
    operator_kind,
)
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Tensor

OF_GRADIENT = "the gradient of "
_MOVES = kinds_with(Trait.SHOWS_ALL) | kinds_that_may(Trait.CONVERTS)
_ADDS = kinds_with(Trait.ADDS_TERMS)
_SCALES = kinds_with(Trait.SCALES) | kinds_with(Trait.DIVIDES)
_REDUCES = frozenset(k for k in collective_kinds() if "reduction" in operator_kind(k).attributes)
_ROOTS, _SQUARES = kinds_that_may(Trait.TAKES_ROOT), kinds_that_may(Trait.SQUARES)
OF_NORM = "the sum of squares of the gradients"


class Spoken(str):
    """A tensor's name whose representation is what its author calls the tensor."""

    words: str

    def __new__(cls, name: str, words: str) -> Spoken:
        """Return the name with its words."""
        made = super().__new__(cls, name)
        made.words = words
        return made

    def __repr__(self) -> str:
        return self.words


def spoken_names(graph: Graph) -> dict[int, str]:
    """Return the words for gradients, states and updated parameters, by value.

    What is only scaled, summed or reduced on its way to a gradient is called by the same words,
    unless the plan has a name of its own for it.
    """
    found = {
        value: words
        for value, held in enumerate(graph.values)
        if (words := _of_parameter(held.tensor)) is not None
    }
    left = [value for value, words in found.items() if words.startswith(OF_GRADIENT)]
    while left:
        value = left.pop()
        for number in graph.values[value].writers:
            for source in _terms(graph, graph.nodes[number], value):
                if source not in found and is_generated(graph, graph.values[source]):
                    found[source] = found[value]
                    left.append(source)
    return {**found, **_norms(graph, found)}


def _norms(graph: Graph, words: Mapping[int, str]) -> dict[int, str]:
    """Return the words for single numbers of which a root is taken, sums of squares of gradients.

    ``words`` are those for gradients.
    """
    found: dict[int, str] = {}
    for root in (node for node in graph.nodes if node.kind in _ROOTS):
        left, seen, squared = _reads(root), set[int](), False
        while left:
            value = left.pop()
            seen.add(value)
            for number in graph.values[value].writers:
                node = graph.nodes[number]
                squared |= node.kind in _SQUARES and any(
                    words.get(source.value, "").startswith(OF_GRADIENT)
                    for operand in node.inputs
                    for source in sources_of(operand)
                )
                if node.kind in _REDUCES | _ADDS:
                    left += [v for v in _reads(node) if v not in seen]
        if squared:
            generated = (v for v in seen if is_generated(graph, graph.values[v]))
            found.update((v, OF_NORM) for v in generated if graph.values[v].shape in ((), (1,)))
    return found


def _reads(node: Node) -> list[int]:
    """Return the values that a node reads."""
    return [source.value for operand in node.inputs for source in sources_of(operand)]


def is_generated(graph: Graph, held: GraphValue) -> bool:
    """Return True if a value is called after the kind of operator that writes it."""
    stem = held.name.partition("#")[0].partition("@")[0].removesuffix(BACKWARD)
    kinds = {graph.nodes[number].kind.removesuffix(BACKWARD) for number in held.writers}
    return "#" in held.name or stem in kinds


def _of_parameter(tensor: Tensor) -> str | None:
    """Return the words for what is named after a parameter; None for other tensors."""
    if tensor.gradient_of and tensor.name == f"grad:{tensor.gradient_of}":
        return f"{OF_GRADIENT}{tensor.gradient_of}"
    updated = tensor.updated if tensor.updated and tensor.name == f"new:{tensor.updated}" else None
    state, colon, parameter = (updated or tensor.name).partition(":")
    if colon and parameter and (updated or tensor.role == "optimizer_state"):
        return f"{state} of {parameter}{' after the step' if updated else ''}"
    return f"{updated} after the step" if updated else None


def _terms(graph: Graph, node: Node, value: int) -> Iterator[int]:
    """Yield the operands that a node only views, adds up, scales or reduces to make a value."""
    shape = graph.values[value].shape
    operands = [[source.value for source in sources_of(o)] for o in node.inputs]
    anyhow = node.kind in _REDUCES | _MOVES
    if anyhow or node.kind in _ADDS:
        kept = [v for of in operands for v in of]
    elif node.kind in _SCALES and all(
        not of or graph.values[of[0]].shape in ((), (1,)) for of in operands[1:]
    ):
        kept = operands[0]
    else:
        kept = []
    for each in kept:
        if anyhow or graph.values[each].shape == shape:
            yield each
