"""A topological order of a graph's nodes.

Records that feed themselves over coordinates are split until they do not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.graph.graph import Graph, Node
from pitcheck.graph.grids import Home, Mask, focus

if TYPE_CHECKING:
    import networkx as nx


def order_nodes(graph: Graph) -> None:
    """Set ``graph.order``, in which everything is written before it is read, and ``graph.rank``.

    A folded record may depend on itself at other coordinates (a pipeline in one record): the nodes
    of such a cycle are split into one node per coordinate, in ``graph`` itself.

    Raises:
        PlanError: single coordinates still wait for themselves.
    """
    order = _topological(graph)
    if order is None:
        _split_cycles(graph)
        order = _topological(graph)
    if order is None:
        cycle = _one_cycle(graph)
        raise PlanError(f"values depend on themselves: {' -> '.join(cycle)}", "operators")
    homes: dict[int, Home] = {}
    for value in graph.values:
        value.home = (
            _home(graph.nodes[value.writers[0]].where, homes) if len(value.writers) == 1 else ()
        )
    graph.order = order
    graph.rank = [0] * len(order)
    for place, number in enumerate(order):
        graph.rank[number] = place


def _home(where: Mask, known: dict[int, Home]) -> Home:
    """Return the home of a mask, found once for the many nodes that share it as one object."""
    if id(where) not in known:
        known[id(where)] = focus(where)
    return known[id(where)]


def _edges(graph: Graph) -> list[list[int]]:
    """Return for every node the nodes that read what it writes, at a coordinate that it writes."""
    after: list[list[int]] = [[] for _ in graph.nodes]
    for number, node in enumerate(graph.nodes):
        seen: set[int] = set()
        for source, read in node.reads:
            writers = graph.values[source.value].writers
            if len(writers) == 1:
                seen.add(writers[0])
            else:
                seen.update(
                    writer for writer in writers if (graph.nodes[writer].where & read).any()
                )
        for writer in seen:
            after[writer].append(number)
    return after


def _topological(graph: Graph) -> list[int] | None:
    """Return the nodes in topological order; None if there is a cycle."""
    after = _edges(graph)
    waiting = [0] * len(graph.nodes)
    for readers in after:
        for reader in readers:
            waiting[reader] += 1
    ready = [number for number, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    for number in ready:
        order.append(number)
        for reader in after[number]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    return order if len(order) == len(graph.nodes) else None


def _digraph(graph: Graph) -> nx.DiGraph:
    """Return the graph of the dependences of nodes."""
    import networkx as nx  # noqa: PLC0415 - most plans have no cycle, and the import takes as long as the check of a small pair

    result = nx.DiGraph()
    result.add_nodes_from(range(len(graph.nodes)))
    result.add_edges_from(
        (writer, reader) for writer, readers in enumerate(_edges(graph)) for reader in readers
    )
    return result


def _split_cycles(graph: Graph) -> None:
    """Split the nodes of cycles into one node per coordinate."""
    import networkx as nx  # noqa: PLC0415

    dependences = _digraph(graph)
    cyclic: set[int] = set()
    for component in nx.strongly_connected_components(dependences):
        if len(component) > 1 or any(dependences.has_edge(n, n) for n in component):
            cyclic |= component
    nodes: list[Node] = []
    for number, node in enumerate(graph.nodes):
        if number not in cyclic:
            nodes.append(node)
            continue
        for code in np.flatnonzero(node.mask):
            mask = np.zeros_like(node.mask)
            mask[code] = True
            nodes.append(replace(node, where=node.lattice.grid(mask)))
    graph.nodes[:] = nodes
    for value in graph.values:
        value.writers.clear()
    for number, node in enumerate(graph.nodes):
        for output in node.outputs:
            if output is not None:
                graph.values[output].writers.append(number)


def _one_cycle(graph: Graph) -> list[str]:
    """Return the operators of one cycle, the first one again at the end."""
    import networkx as nx  # noqa: PLC0415

    found = nx.find_cycle(_digraph(graph))
    return [graph.nodes[edge[0]].operator for edge in found] + [graph.nodes[found[0][0]].operator]
