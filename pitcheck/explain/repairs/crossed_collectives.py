"""The repair of collectives that ranks call in another order.

Their members then meet each other's tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.rerun.changes import Draft, Read, Redo
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.graph import Node, Source, Stacked
from pitcheck.graph.grids import Codes

CROSSED_CALLS = Kind(
    "PIT116",
    "{operators} ({kind}) are called in another order on some ranks than on others: tensors of "
    "one meet the other's",
    "call them in one order on all ranks",
    edits=(
        "- {operators} ({kind}) in another order on some ranks",
        "+ {operators} ({kind}) in one order on every rank",
    ),
)


def crossed_calls(site: Site) -> Iterator[Candidate]:
    """Run every collective on the tensor of its own record at all its members."""
    if not site.collective or not any(_stacked(node) for node in site.nodes):
        return
    graph = site.rerun.graph
    met = {source.value for node in site.nodes for source in _stacked(node)}
    crossed = [
        n
        for n in site.rerun.steps
        if graph.nodes[n].kind == site.kind
        and met & {source.value for source in _stacked(graph.nodes[n])}
    ]
    names = list(dict.fromkeys(graph.nodes[n].operator for n in crossed))
    if len(names) > 1:
        diagnosis = site.diagnosis(CROSSED_CALLS, operators=" and ".join(map(repr, names)))
        yield diagnosis, [Redo(number, _on_its_own) for number in crossed]


def _stacked(node: Node) -> tuple[Source, ...]:
    return next((operand.members for operand in node.inputs if isinstance(operand, Stacked)), ())


def _on_its_own(node: Node, codes: Codes) -> Draft | None:
    """Return the collective on the one tensor that it reads at its own coordinates.

    None if it reads several there.
    """
    members = np.stack([source.at(codes) for source in _stacked(node)], axis=1)
    own = {_stacked(node)[int(place)].value for place in (members == codes[:, None]).argmax(axis=1)}
    return (
        (node.kind, node.attributes, [Read(own.pop(), members)])
        if len(own) == 1 and (members == codes[:, None]).any(axis=1).all()
        else None
    )
