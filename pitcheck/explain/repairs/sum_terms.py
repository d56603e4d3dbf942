"""Repairs of sums: addends of every rank, and micro-batches that do not count alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from fractions import Fraction

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.base.numbers import Literal
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.families import (
    ADDITIONS,
    COMBINATIONS,
    DIFFERENCES,
    MOVES,
    PRODUCTS,
    QUOTIENTS,
    REDUCTIONS,
    SCALINGS,
    WITH_BIAS,
)
from pitcheck.explain.rerun.changes import Draft, Override, Read
from pitcheck.explain.rerun.site import Candidate, Site, by_code
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Argument

MICROBATCHES_WEIGHTED = Kind(
    "PIT108",
    "{result!r} has {called} of micro-batches 0 to {last} times {weights}, where each should "
    "count {right}",
    "add up all micro-batches, each once",
    edits=(
        "- {result!r}: {called} of micro-batches 0 to {last} times {weights}",
        "+ {result!r}: {called} of every micro-batch, each {right}",
    ),
)
ADDED_ON_EVERY_RANK = Kind(
    "PIT108",
    "operator {operator!r} adds {called} on every rank over {over}, and the results are summed "
    "after that: it counts {count} times",
    "add {called} to the sum, or on one of the {count} ranks",
    ("count",),
    edits=(
        "- {operator!r} ({kind}) adds {called} on every rank over {over}",
        "+ {operator!r} ({kind}) adds {called} on one of the {count} ranks",
    ),
)


BIAS = 2
"""The place of the operand that an affine map adds."""
MOST_CHAINED = 400
"""Operators through which the addends of a sum over micro-batches are followed back."""
NEAR = 4
"""Operators behind one within which a reduction of its result is looked for."""


# --- a term of every rank


def added_on_every_rank(site: Site) -> Iterator[Candidate]:
    """Add on one rank what is the same on all ranks and is added to their addends."""
    for place in _added(site):
        operand = site.step.inputs[place]
        for over, groups in _summed_over(site) if isinstance(operand, Argument) else ():
            if _alike_in(site, place, groups):
                overrides = site.redone(
                    _without(site, place, groups),
                    (groups.min(axis=1) != np.arange(len(groups))).astype(np.int64),
                )
                if overrides is not None and isinstance(operand, Argument):
                    facts = {
                        "called": site.evidence.called(operand.value),
                        "over": over,
                        "count": groups.shape[1],
                    }
                    yield site.diagnosis(ADDED_ON_EVERY_RANK, **facts), overrides


def _added(site: Site) -> tuple[int, ...]:
    """Return the places of the operands that are added to the result."""
    if site.kind in ADDITIONS:
        return tuple(range(len(site.step.inputs)))
    return (BIAS,) if site.kind in WITH_BIAS and len(site.step.inputs) > BIAS else ()


def _summed_over(site: Site) -> Iterator[tuple[str, Codes]]:
    """Yield the groups over which the result is summed near by.

    Yields:
        The name of the group, and by coordinate its members.
    """
    evidence, values, seen = site.evidence, [site.value], {site.value}
    for _ in range(NEAR):
        yield from (
            (_called(site, table), by_code(table, site.rerun.graph.codes))
            for table in _compared_sums(site, values)
        )
        steps = [step for value in values for step in evidence.readers.get(value, [])]
        for step in steps:
            source = evidence.second.nodes[step.node].inputs[0]
            if (
                step.kind in REDUCTIONS
                and step.attributes.get("reduction", "sum") == "sum"
                and isinstance(source, Source)
            ):
                table = source.at(np.flatnonzero(evidence.second.nodes[step.node].mask))
                yield (
                    _called(site, table),
                    by_code(np.unique(np.sort(table, axis=1), axis=0), site.rerun.graph.codes),
                )
        values = [
            o
            for step in steps
            if step.kind in MOVES
            for o in evidence.outputs(step)
            if o not in seen
        ]
        seen.update(values)


def _compared_sums(site: Site, values: Collection[int]) -> Iterator[Codes]:
    """Yield the groups over which values are outputs whose sums are compared.

    The shape is (groups, members), members in the order of their codes.
    """
    for target in (comparison.target for comparison in site.evidence.run.comparisons):
        groups = target.cut.group_of
        if target.cut.value in values and groups is not None:
            codes = np.sort(target.codes)
            counts = np.unique(groups[codes], return_counts=True)[1]
            if counts.min() == counts.max() > 1:
                order = np.argsort(groups[codes], kind="stable")
                yield codes[order].reshape(len(counts), -1)


def _called(site: Site, table: Codes) -> str:
    rows = {tuple(row) for row in np.sort(table, axis=1).tolist()}
    named = (
        grouping.name
        for grouping in site.evidence.groupings
        if rows <= {tuple(row) for row in np.sort(grouping.table, axis=1).tolist()}
    )
    per_rank = site.rerun.graph.coordinates.microbatches
    return next(named, f"ranks {[int(code) // per_rank for code in sorted(min(rows))]}")


def _alike_in(site: Site, place: int, groups: Codes) -> bool:
    """Return True if an operand is the same on all members of every group."""
    for node in site.nodes:
        codes = np.flatnonzero(node.mask & (site.evidence.batch.rows[site.value] >= 0))
        source = node.inputs[place]
        if (
            not isinstance(source, Source)
            or source.members
            or (groups[codes] < 0).any()
            or not node.mask[groups[codes]].all()
        ):
            return False
        held = site.rerun.held(source.value)
        own, first = source.at(codes), source.at(groups[codes].min(axis=1))
        if held is None or (held.rows[own] < 0).any() or (held.rows[first] < 0).any():
            return False
        numbers = site.rerun.numbers(
            site.rerun.algebra.gather(
                held.value, np.concatenate([held.rows[own], held.rows[first]])
            )
        )
        if not np.array_equal(numbers[:, : len(codes)], numbers[:, len(codes) :], equal_nan=True):
            return False
    return True


def _without(site: Site, place: int, groups: Codes) -> Callable[[Node, Codes], Draft | None]:
    def draft(node: Node, codes: Codes) -> Draft | None:
        given = site.rerun.reads(node, codes)
        if groups[codes[0]].min() == codes[0]:
            return node.kind, site.rerun.attributes_of(node), given
        rest = [*given[:place], *given[place + 1 :]]
        if node.kind in WITH_BIAS:
            return node.kind, site.rerun.attributes_of(node), rest
        return "identity", {}, rest

    return draft


# --- micro-batches


def weighted_microbatches(site: Site) -> Iterator[Candidate]:
    """Count every micro-batch of a sum once, or as one part of their mean."""
    graph = site.rerun.graph
    count = graph.coordinates.microbatches
    if count < 2 or graph.values[site.value].tensor.microbatched or site.kind not in COMBINATIONS:
        return
    weights = [_weights(site, int(code)) for code in site.codes]
    values = {value for each in weights for value, _ in each or {}}
    if None in weights or len(values) != 1:
        return
    (value,) = values
    members = (site.codes // count * count)[:, None] + np.arange(count)
    counted = [
        (each or {}).get((value, int(m)), Fraction(0))
        for each, row in zip(weights, members, strict=True)
        for m in row
    ]
    if any(
        len(each or {}) > count or {code for _, code in each or {}} - set(row.tolist())
        for each, row in zip(weights, members, strict=True)
    ):
        return
    total = site.rerun.one("accumulate", {}, [Read(value, members)], len(site.codes))
    for factor in (Fraction(1), Fraction(1, count)):
        if total is None or all(weight == factor for weight in counted):
            return
        result = Value(total.kind, total.data * float(factor))
        overrides = [Override(site.value, site.codes, result)]
        if site.changes(overrides):
            shown = ", ".join(str(weight) for weight in counted[:count])
            facts = {
                "called": site.evidence.called(value),
                "last": count - 1,
                "weights": shown,
                "right": "once" if factor == 1 else f"{factor} times",
            }
            yield site.diagnosis(MICROBATCHES_WEIGHTED, **facts), overrides


def _weights(site: Site, code: int) -> dict[tuple[int, int], Fraction] | None:
    """Return how often each addend is in the result at a coordinate: (value, coordinate) to weight.

    None if the result is no such sum.
    """
    graph = site.rerun.graph
    found: dict[tuple[int, int], Fraction] = {}
    stack = [(site.value, code, Fraction(1))]
    for _ in range(MOST_CHAINED):
        if not stack:
            return found
        value, at, weight = stack.pop()
        node = next(
            (graph.nodes[w] for w in graph.values[value].writers if graph.nodes[w].mask[at]), None
        )
        terms = (
            None if graph.values[value].tensor.microbatched or node is None else _terms(node, at)
        )
        if terms is None:
            if not graph.values[value].tensor.microbatched:
                return None
            found[value, at] = found.get((value, at), Fraction(0)) + weight
        else:
            stack.extend((source, place, weight * times) for source, place, times in terms)
    return None


def _terms(node: Node, code: int) -> list[tuple[int, int, Fraction]] | None:
    """Return what a linear operator adds up at a coordinate: value, coordinate, factor.

    None if the operator is not linear.
    """
    if node.kind not in COMBINATIONS:
        return None
    codes = np.array([code])
    reads = [
        (operand.value, operand.at(codes).reshape(-1))
        for operand in node.inputs
        if isinstance(operand, Source)
    ]
    if node.kind in SCALINGS:
        literals: list[Literal] = [o for o in node.inputs if isinstance(o, (int, Fraction))]
        if (
            len(reads) != 1
            or len(literals) != 1
            or not literals[0]
            or (node.kind in QUOTIENTS and not isinstance(node.inputs[0], Source))
        ):
            return None
        factor = Fraction(literals[0])  # type: ignore[arg-type]
        return [(reads[0][0], int(reads[0][1][0]), factor if node.kind in PRODUCTS else 1 / factor)]
    if len(reads) != len(node.inputs):
        return None
    signs = [Fraction(1), Fraction(-1 if node.kind in DIFFERENCES else 1)]
    return [
        (value, int(at), signs[min(place, 1)])
        for place, (value, places) in enumerate(reads)
        for at in places
    ]
