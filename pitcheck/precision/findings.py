"""Broken precision rules as findings, one for every place of the program."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np

from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph, Node
from pitcheck.plan.model import Plan
from pitcheck.precision.rules import Broken, broken_rules
from pitcheck.precision.side import is_addition, is_exact
from pitcheck.report.report import Finding, FindingVerdict


def precision_findings(
    reference: Plan,
    graphs: tuple[Graph, Graph],
    given: Iterable[Cut],
    between: Iterable[Cut],
    outputs: Iterable[Cut],
    verdict: FindingVerdict,
) -> Iterator[Finding]:
    """Yield a finding of ``verdict`` for every operator that rounds more than the reference does.

    Operators at one source line that break one rule in the same way are one finding. ``graphs`` are
    those of the reference and the parallel plan. The cuts say which of their values are equal:
    those given, those in between, and outputs.
    """
    alike: dict[Hashable, list[Broken]] = {}
    for broken in broken_rules(reference, *graphs, given, between, outputs):
        node = graphs[1].nodes[broken.node]
        alike.setdefault(
            (broken.code, node.source or node.operator, node.kind, broken.dtype, broken.wanted), []
        ).append(broken)
    for group in alike.values():
        yield _finding(group, graphs, verdict)


def _finding(
    group: Sequence[Broken], graphs: tuple[Graph, Graph], verdict: FindingVerdict
) -> Finding:
    first = group[0]
    reference, parallel = graphs
    node = parallel.nodes[first.node]
    name = parallel.values[first.value].name
    operators = len({parallel.nodes[each.node].operator for each in group})
    more = (
        f"; {operators - 1} more {'operator' if operators == 2 else 'operators'} at this place "
        f"likewise"
        if operators > 1
        else ""
    )
    title, repair = _said(first, node, name)
    return Finding(
        code=first.code,
        verdict=verdict,
        title=title,
        operator=f"{node.operator} ({node.kind})",
        source=node.source or None,
        ranks=tuple(
            sorted({rank for each in group for rank in _ranks(parallel, parallel.nodes[each.node])})
        ),
        cause=f"{_theirs(reference, first)}{more}",
        repair=repair,
    )


def _said(broken: Broken, node: Node, name: str) -> tuple[str, str]:
    """Return the title and the repair."""
    narrow, wide = broken.dtype, broken.wanted
    if broken.code == "PIT301" and not is_addition(node):
        return (
            f"{name!r} is computed by {node.kind!r} in {narrow}; the reference computes it in "
            f"{wide}",
            f"cast the operands of {node.kind!r} to {wide}",
        )
    if broken.code == "PIT301":
        return (
            f"{name!r} is summed in {narrow}; the reference sums in {wide}",
            f"cast what is summed to {wide} before {node.kind!r}",
        )
    if broken.code == "PIT303":
        said = (
            f"terms of one gradient are accumulated in {narrow} in {name!r} and in {wide} elsewhere"
        )
        return said, f"accumulate all terms in {wide}"
    if is_exact(node):
        return (
            f"{name!r} is cast to {narrow} on a way on which the reference keeps {wide}",
            f"leave the cast to {narrow} out",
        )
    return (
        f"{name!r} is computed in {narrow}; the reference casts to {wide} first",
        f"cast the operands of {node.kind!r} to {wide}",
    )


def _theirs(graph: Graph, broken: Broken) -> str:
    """Return a sentence that says where the reference has the value."""
    nodes = [graph.nodes[number] for number in graph.values[broken.reference].writers]
    at = f" ({nodes[0].kind}{f' at {nodes[0].source}' if nodes[0].source else ''})" if nodes else ""
    return f"it is part of what the reference computes as {broken.name!r}{at}"


def _ranks(graph: Graph, node: Node) -> set[int]:
    return {graph.place(code)[0] for code in np.flatnonzero(node.mask).tolist()}
