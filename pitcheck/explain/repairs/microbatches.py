"""Repairs of what is read or added up of micro-batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.families import ACCUMULATIONS
from pitcheck.explain.rerun.changes import Draft, Read
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes

READS_OTHER_MICROBATCH = Kind(
    "PIT108",
    "operator {operator!r} reads {called} of micro-batch {batch} where it should read {right}",
    "let each micro-batch be read where it should be",
    edits=(
        "- {operator!r} ({kind}) reads {called} of micro-batch {batch}",
        "+ {operator!r} ({kind}) reads {called} of {whose}",
    ),
)
NOT_EVERY_MICROBATCH = Kind(
    "PIT108",
    "operator {operator!r} does not add up every micro-batch once",
    "add up all micro-batches",
    edits=(
        "- {operator!r} ({kind}) adds up some micro-batches",
        "+ {operator!r} ({kind}) adds up each micro-batch once",
    ),
)


def all_microbatches(site: Site) -> Iterator[Candidate]:
    """Add up all micro-batches where some are added up."""
    count = site.rerun.graph.coordinates.microbatches
    if site.kind not in ACCUMULATIONS or count < 2:
        return

    def all_of(node: Node, codes: Codes) -> Draft | None:
        source = node.inputs[0]
        if not isinstance(source, Source):
            return None
        members = (codes // count * count)[:, None] + np.arange(count)
        return node.kind, {}, [Read(source.value, members)]

    overrides = site.redone(all_of)
    if overrides is not None:
        yield site.diagnosis(NOT_EVERY_MICROBATCH), overrides


def own_microbatch(site: Site) -> Iterator[Candidate]:
    """Read an operand of the same micro-batch, or of another given one."""
    count = site.rerun.graph.coordinates.microbatches
    if count < 2 or site.collective or site.kind in ACCUMULATIONS:
        return
    for place, operand in enumerate(site.nodes[0].inputs):
        if (
            not isinstance(operand, Source)
            or operand.members
            or not site.rerun.graph.values[operand.value].tensor.microbatched
        ):
            continue
        read = operand.at(site.codes) % count
        several = site.rerun.graph.values[site.value].tensor.microbatched
        if (several and (read == site.codes % count).all()) or (
            not several and operand.read is None
        ):
            continue
        for other in (None,) if several else range(count):

            def of_it(
                node: Node, codes: Codes, place: int = place, other: int | None = other
            ) -> Draft | None:
                given = site.rerun.reads(node, codes)
                if not isinstance(given[place], Read):
                    return None
                value = given[place].value  # type: ignore[union-attr]
                own = codes if other is None else codes // count * count + other
                return (
                    node.kind,
                    site.rerun.attributes_of(node),
                    [*given[:place], Read(value, own), *given[place + 1 :]],
                )

            overrides = site.redone(of_it)
            if overrides is not None:
                right = "that of the same micro-batch" if other is None else f"micro-batch {other}"
                whose = "the same micro-batch" if other is None else right
                facts = {
                    "called": site.evidence.called(operand.value),
                    "batch": int(read[0]),
                    "right": right,
                    "whose": whose,
                }
                yield site.diagnosis(READS_OTHER_MICROBATCH, **facts), overrides
