"""The repair of a broadcast or a scatter whose root does not have what the others need."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.rerun.changes import Draft, Read
from pitcheck.explain.rerun.site import Candidate, Site, by_code
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import operator_kind

OTHER_ROOT = Kind(
    "PIT119",
    "operator {operator!r} ({kind}) sends what rank {root} has of {called}, where it should send "
    "what rank {right} has",
    "let place {place} of the group over {over} be the root of {operator!r}",
    ("over",),
)


def other_root(site: Site) -> Iterator[Candidate]:
    """Let another member of the group be the root."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if not operator_kind(site.kind).reads_root or not isinstance(source, Source):
        return
    first = site.codes[:1]
    for grouping in site.evidence.groupings:
        groups = by_code(np.sort(grouping.table, axis=1), site.rerun.graph.codes)
        root = int(source.at(first).reshape(-1)[0])
        if groups.shape[1] != source.members or root not in groups[first]:
            continue
        for place, right in enumerate(groups[first[0]].tolist()):

            def sent(node: Node, codes: Codes, groups: Codes = groups, at: int = place) -> Draft:
                members = groups[codes][:, [at] * groups.shape[1]]
                value = node.inputs[0]
                read = [Read(value.value, members)] if isinstance(value, Source) else []
                return node.kind, site.rerun.attributes_of(node), read

            overrides = None if right == root else site.redone(sent)
            if overrides is not None:
                per_rank = site.rerun.graph.coordinates.microbatches
                facts = {
                    "called": site.evidence.called(source.value),
                    "root": root // per_rank,
                    "right": right // per_rank,
                    "place": place,
                    "over": grouping.name,
                }
                yield site.diagnosis(OTHER_ROOT, **facts), overrides
