"""The outputs that show a wrong value at least cost: both plans run no further than to these."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pitcheck.algebra.interface import Kind
from pitcheck.claims.specification import Expected
from pitcheck.graph.graph import Graph, sources_of

KINDS: tuple[tuple[Kind, ...], ...] = ("field",), ("field", "int", "bool")
"""The kinds of values on the way to an output, the first choice first."""
CANDIDATES = 8
"""The number of outputs of which the cheapest is found: those that come first in the program after
a value. All outputs that are single numbers count besides.
"""


def nearest_outputs(
    graph: Graph, expected: Sequence[Expected], values: Iterable[int]
) -> list[Expected]:
    """Return for every one of some values an output that few operators compute from it.

    One output may serve several values. A value that reaches an output through integers alone, such
    as a choice of experts, shows there in few draws: other outputs come first.
    """
    readers = _readers(graph)
    chosen: list[Expected] = []
    for value in values:
        smoothly, anyhow = (_reached(graph, readers, value, kinds) for kinds in KINDS)
        reached = smoothly if any(e.cut.value in smoothly for e in expected) else anyhow
        after = sorted(
            (e for e in expected if e.cut.value in reached), key=lambda e: graph.depth(e.cut.value)
        )
        if after and not any(e.cut.value in reached for e in chosen):
            single = [e for e in after[CANDIDATES:] if not graph.values[e.cut.value].shape]
            chosen.append(
                min([*after[:CANDIDATES], *single], key=lambda e: _cost(graph, e.cut.value))
            )
    return chosen


def _readers(graph: Graph) -> Mapping[int, list[int]]:
    """Return the nodes that read each value."""
    result: dict[int, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        for source in (s for operand in node.inputs for s in sources_of(operand)):
            result.setdefault(source.value, []).append(number)
    return result


def _reached(
    graph: Graph, readers: Mapping[int, list[int]], value: int, kinds: Collection[Kind]
) -> set[int]:
    """Return the value and all that is computed from it through values of some kinds."""
    reached, left = {value}, [value]
    while left:
        for number in readers.get(left.pop(), ()):
            more = {
                output
                for output in graph.nodes[number].outputs
                if output is not None and graph.values[output].kind in kinds
            } - reached
            reached |= more
            left.extend(more)
    return reached


def _cost(graph: Graph, value: int) -> int:
    """Return the number of nodes from which a value is computed."""
    needed: set[int] = set()
    left = list(graph.values[value].writers)
    while left:
        number = left.pop()
        if number not in needed:
            needed.add(number)
            left.extend(
                w
                for operand in graph.nodes[number].inputs
                for s in sources_of(operand)
                for w in graph.values[s.value].writers
                if w not in needed
            )
    return len(needed)
