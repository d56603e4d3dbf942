"""Differences that are never plus infinity: numbers less what bounds them from above.

The gradient of attention takes exp(s - logsumexp(s)), where a mask makes scores s minus infinity,
and perhaps all along an axis. No score is greater than the logarithm of the sum of all their
exponentials, nor than the maximum. So the difference is at most 0, or minus infinity, if it has a
value: minus infinity less itself has none. The scores are often computed once more for the
gradient; then the bound is of numbers that are computed in the same way from the same ones.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("sub", [(2, 3), (2, 1)], (2, 3))
>>> problem = Problem.of(plan, plan)
>>> fingerprints = Fingerprints(problem.reference, problem.parallel, {})
>>> is_less_its_bound(problem.reference, fingerprints, 2)
False
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pitcheck.graph.graph import Graph, Node, Source, sources_of
from pitcheck.ops.axis_attributes import reduced_dimensions
from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.fingerprint import Fingerprints

MOST_PAIRS = 64
"""The pairs of values that are compared before two values are taken for different ones."""


def is_less_its_bound(graph: Graph, fingerprints: Fingerprints, value: int) -> bool:
    """Return True if a value is a number less an upper bound of it, element by element.

    ``graph`` is the first one of ``fingerprints``.
    """
    node = _writer(graph, value)
    if node is None or len(node.inputs) != 2:
        return False
    number, bound = node.inputs
    return (
        has_trait(node.kind, Trait.SUBTRACTS, node.attributes)
        and isinstance(number, Source)
        and isinstance(bound, Source)
        and _bounds(graph, bound, number, _Same(graph, fingerprints))
    )


def _bounds(graph: Graph, bound: Source, number: Source, same: _Same) -> bool:
    """Return True if ``bound`` bounds ``number`` where the two are broadcast together."""
    shape = graph.values[bound.value].shape
    reduced = bound
    while (node := _writer(graph, reduced.value)) is not None and reduced.read is None:
        first = node.inputs[0] if node.inputs else None
        if not isinstance(first, Source):
            return False
        if has_trait(node.kind, Trait.BOUNDS_ABOVE, node.attributes):
            of = graph.values[first.value].shape
            return (
                node.outputs[0] == reduced.value
                and shape == _kept(of, node.attributes)
                and of == graph.values[number.value].shape
                and same.sources(first, number)
            )
        if not has_trait(node.kind, Trait.KEEPS_ORDER, node.attributes):
            return False
        reduced = first
    return False


def _kept(shape: tuple[int, ...], attributes: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape in which the reduced dimensions have one index."""
    axes = attributes.get("axes", attributes.get("axis"))
    gone = reduced_dimensions({"axes": axes}, len(shape))
    return tuple(1 if axis in gone else size for axis, size in enumerate(shape))


def _writer(graph: Graph, value: int) -> Node | None:
    """Return the only node that writes a value, or None."""
    writers = graph.values[value].writers
    return graph.nodes[writers[0]] if len(writers) == 1 else None


class _Same:
    """The values that are computed by equal operators from the same values."""

    def __init__(self, graph: Graph, fingerprints: Fingerprints) -> None:
        self._graph = graph
        self._fingerprints = fingerprints
        self._pairs = 0

    def sources(self, a: Source, b: Source) -> bool:
        """Return True if both read the same numbers, as far as ``MOST_PAIRS`` values tell."""
        self._pairs += 1
        return (
            self._pairs <= MOST_PAIRS
            and a.key == b.key
            and (a.value == b.value or self._values(a.value, b.value))
        )

    def _values(self, a: int, b: int) -> bool:
        writers = self._graph.values[a].writers, self._graph.values[b].writers
        if [len(found) for found in writers] != [1, 1]:
            return False
        (one,), (other,) = writers
        first, second = self._graph.nodes[one], self._graph.nodes[other]
        read = _sources(first), _sources(second)
        return (
            self._fingerprints.node(0, one) == self._fingerprints.node(0, other)
            and first.outputs.index(a) == second.outputs.index(b)
            and first.home == second.home
            and np.array_equal(first.where, second.where)
            and len(read[0]) == len(read[1]) > 0
            and all(map(self.sources, *read))
        )


def _sources(node: Node) -> list[Source]:
    """Return all that an operator reads, in order."""
    return [source for operand in node.inputs for source in sources_of(operand)]
