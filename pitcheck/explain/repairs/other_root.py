"""The repair of a broadcast or a scatter whose root does not have what the others need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.rerun.changes import Draft, Read
from pitcheck.explain.rerun.site import Candidate, Site, groups_of_mesh
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import operator_kind

OTHER_ROOT = Kind(
    "PIT119",
    "operator {operator!r} ({kind}) sends what rank {root} has of {called}, where it should send "
    "what rank {right} has",
    "let place {place} of the group over {over} be the root of {operator!r}",
    ("over",),
    edits=(
        "- {operator!r} ({kind}) from rank {root}",
        "+ {operator!r} ({kind}) from rank {right}, place {place} of the group over {over}",
    ),
)


def other_root(site: Site) -> Iterator[Candidate]:
    """Let another member of the group be the root."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if not operator_kind(site.kind).reads_root or not isinstance(source, Source):
        return
    first = site.codes[:1]
    root = int(source.at(first).reshape(-1)[0])
    for over, groups in groups_of_mesh(site):
        if groups.shape[1] != source.members or root not in groups[first]:
            continue
        for place, right in enumerate(groups[first[0]].tolist()):
            sent = partial(_sent, site, groups[:, [place] * groups.shape[1]])
            overrides = None if right == root else site.redone(sent)
            if overrides is not None:
                per_rank = site.rerun.graph.coordinates.microbatches
                facts = {
                    "called": site.evidence.called(source.value),
                    "root": root // per_rank,
                    "right": right // per_rank,
                    "place": place,
                    "over": over,
                }
                yield site.diagnosis(OTHER_ROOT, **facts), overrides


def _sent(site: Site, roots: Codes, node: Node, codes: Codes) -> Draft | None:
    """Return what a node does if all members of its group read ``roots``, by coordinate."""
    source = node.inputs[0]
    if not isinstance(source, Source):
        return None
    return node.kind, site.rerun.attributes_of(node), [Read(source.value, roots[codes])]
