"""Cuts from the lineage that a plan states of its intermediate tensors.

A hint costs nothing to look up, however deep the model is, and nobody has to believe it: every cut
is proven as a stage before anything rests on it. If hints do not carry a proof of every output,
both plans are run, and the cuts are found by what the operators compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pitcheck.claims.conjecture import VIEWS
from pitcheck.claims.problem import Problem
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.graph.cuts import Cut, resolve
from pitcheck.graph.graph import Graph, Node, Operand, sources_of
from pitcheck.ops.registry import BACKWARD, collective_kinds, has_trait
from pitcheck.ops.traits import Trait


def hinted_cuts(problem: Problem) -> dict[int, Cut]:
    """Return cuts of computed floating-point values whose lineage names one reference value.

    The reference value may be scaled. Terms of a sum are cut where they are scattered or put into a
    buffer; elsewhere the sum is cut instead. Three kinds are left out. Views of values that are cut
    already would save nothing. Cuts of values that depend on discrete data alone would forget that
    zero has a meaning there. Hints may not fit.
    """
    first, second = problem.reference, problem.parallel
    numbers = _of_numbers(second)
    joined = _joined(second)
    found: dict[int, Cut] = {}
    for value, info in enumerate(second.values):
        lineage = info.tensor.lineage
        if (
            lineage is None
            or value in problem.specification.initial
            or value not in numbers
            or ((lineage.partial or lineage.partial_ranks) and value not in joined)
        ):
            continue
        reference = first.number.get(lineage.reference)
        if reference is None or info.kind != "field" or first.values[reference].kind != "field":
            continue
        try:
            found[value] = _apart(
                resolve(
                    lineage,
                    value,
                    second,
                    reference,
                    first.values[reference].shape,
                    f"tensors[{info.name}].lineage",
                )
            )
        except (PlanError, UnsupportedError):
            continue
    views = [value for value in found if _shows(second, value, found)]
    return {value: cut for value, cut in found.items() if value not in views}


def _joined(graph: Graph) -> frozenset[int]:
    """Return the values that are put into a buffer, as they are or through views."""
    found: set[int] = set()
    for number in reversed(graph.order):
        node = graph.nodes[number]
        if _fills_buffer(node) or (
            node.kind in VIEWS and any(output in found for output in node.outputs)
        ):
            found.update(source.value for operand in node.inputs for source in sources_of(operand))
    return frozenset(found)


def _fills_buffer(node: Node) -> bool:
    """Return True if a node puts terms of sums into a buffer, or reduces a buffer in parts."""
    adds = (
        has_trait(node.kind, Trait.ADDS_TERMS, node.attributes) and node.kind in collective_kinds()
    )
    return has_trait(node.kind, Trait.EXTENDS, node.attributes) or (
        adds and not has_trait(node.kind, Trait.KEEPS_SIZES, node.attributes)
    )


def _apart(cut: Cut) -> Cut:
    """Return a cut in which the terms of different sums are different parts.

    That each sum is right does not say that the terms of one are not those of another.
    """
    if cut.groups is None:
        return cut
    parts, groups = np.broadcast_arrays(cut.grid, cut.groups)
    pairs, which = np.unique(
        np.stack([parts.reshape(-1), groups.reshape(-1)], axis=1), axis=0, return_inverse=True
    )
    return replace(
        cut, parts=cut.parts.owned(pairs[:, 0], pairs[:, 1]), grid=which.reshape(parts.shape)
    )


def _shows(graph: Graph, value: int, cuts: Mapping[int, Cut]) -> bool:
    """Return True if a value is a view of one that is cut itself."""
    writers = [graph.nodes[writer] for writer in graph.values[value].writers]
    sources = [
        source.value
        for node in writers
        for operand in _viewed(node)
        for source in sources_of(operand)
    ]
    return all(node.kind.removesuffix(BACKWARD) in VIEWS for node in writers) and any(
        source in cuts for source in sources
    )


def _viewed(node: Node) -> Sequence[Operand]:
    """Return the operands that a view shows; for a derivative, the gradients that it is given."""
    return (
        node.inputs[-len(node.attributes.get("gradients", (0,))) :]
        if node.kind.endswith(BACKWARD)
        else node.inputs
    )


def _of_numbers(graph: Graph) -> Mapping[int, None]:
    """Return the values that nodes compute from floating-point numbers given from outside."""
    found = {
        v: None
        for v, info in enumerate(graph.values)
        if not info.writers and info.kind == "field" and info.tensor.value is None
    }
    computed: dict[int, None] = {}
    for number in graph.order:
        node = graph.nodes[number]
        if any(
            source.value in found or source.value in computed
            for operand in node.inputs
            for source in sources_of(operand)
        ):
            computed.update((output, None) for output in node.outputs if output is not None)
    return computed
