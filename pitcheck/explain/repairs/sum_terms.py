"""Repairs of sums: terms that every rank adds where one is due, micro-batches that count more than
once, parameters that a norm leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.base.numbers import Literal
from pitcheck.claims.conjecture import Floats
from pitcheck.explain import messages
from pitcheck.explain.evidence import MOVES, SAME
from pitcheck.explain.hypotheses import REDUCTIONS
from pitcheck.explain.repairs.missing_collective import ROOTS, of_norm
from pitcheck.explain.rerun import Draft, Override, Read
from pitcheck.explain.site import Candidate, Site, by_code
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Argument, Step

MOST_CHAINED = 400
"""Operators through which the terms of a sum over micro-batches are followed back."""
NEAR = 4
"""So many operators behind one a reduction of its result is looked for."""


# --- a term of every rank


def added_on_every_rank(site: Site) -> Iterator[Candidate]:
    """What is the same on all ranks and is added to their terms before these are summed: it is due
    on one of them.
    """
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
                    yield site.diagnosis(messages.ADDED_ON_EVERY_RANK, **facts), overrides


def _added(site: Site) -> tuple[int, ...]:
    """The places of operands that are added to the result."""
    if site.kind in ("add", "sub"):
        return tuple(range(len(site.step.inputs)))
    return (2,) if site.kind == "linear" and len(site.step.inputs) == 3 else ()


def _summed_over(site: Site) -> Iterator[tuple[str, Codes]]:
    """(name of the group, by code its members) of the sums that the result goes into."""
    evidence, values, seen = site.evidence, [site.value], {site.value}
    for _ in range(NEAR):
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
    """Whether an operand is the same on all members of every group."""
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
        return (
            (node.kind if node.kind == "linear" else "identity"),
            site.rerun.attributes_of(node) if node.kind == "linear" else {},
            rest,
        )

    return draft


# --- micro-batches


def weighted_microbatches(site: Site) -> Iterator[Candidate]:
    """A sum over micro-batches in which they count otherwise than once each."""
    graph = site.rerun.graph
    count = graph.coordinates.microbatches
    if count < 2 or graph.values[site.value].tensor.microbatched or site.kind not in LINEAR:
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
            yield site.diagnosis(messages.MICROBATCHES_WEIGHTED, **facts), overrides


LINEAR = frozenset({"add", "sub", "mul", "div", "identity", "accumulate"})


def _weights(site: Site, code: int) -> dict[tuple[int, int], Fraction] | None:
    """How often what micro-batches have is in the result at a code: (value, code) -> weight. None
    where it is no sum of such.
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
    """(value, code, factor) of what a linear operator adds up at a code."""
    if node.kind not in LINEAR:
        return None
    codes = np.array([code])
    reads = [
        (operand.value, operand.at(codes).reshape(-1))
        for operand in node.inputs
        if isinstance(operand, Source)
    ]
    if node.kind in ("mul", "div"):
        literals: list[Literal] = [o for o in node.inputs if isinstance(o, (int, Fraction))]
        if (
            len(reads) != 1
            or len(literals) != 1
            or not literals[0]
            or (node.kind == "div" and not isinstance(node.inputs[0], Source))
        ):
            return None
        factor = Fraction(literals[0])  # type: ignore[arg-type]
        return [(reads[0][0], int(reads[0][1][0]), factor if node.kind == "mul" else 1 / factor)]
    if len(reads) != len(node.inputs):
        return None
    signs = [Fraction(1), Fraction(-1 if node.kind == "sub" else 1)]
    return [
        (value, int(at), signs[min(place, 1)])
        for place, (value, places) in enumerate(reads)
        for at in places
    ]


# --- norms


def norm_of_all(site: Site) -> Iterator[Candidate]:
    """A sum of squares, or its root, that leaves out tensors of which the reference's sum has the
    squares.
    """
    if not (site.kind in ROOTS or of_norm(site.evidence, site.value)):
        return
    held, codes = site.rerun.held(site.value), site.rerun.codes(site.value)
    if held is None or held.value.data.shape[3:] not in ((), (1,)):
        return
    actual = site.rerun.numbers(site.rerun.algebra.gather(held.value, held.rows[codes]))
    power = 2 if site.kind in ROOTS else 1
    for due in _norms(site, actual):
        missing = (due**power - actual**power).reshape(len(actual), len(codes))
        for names, total in _left_out(site):
            # a draw in which no token counts is NaN
            told = np.isfinite(total) & np.isfinite(missing).all(axis=1)
            if told.any() and np.allclose(missing[told], total[told, None], rtol=SAME, atol=0.0):
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                diagnosis = site.diagnosis(
                    messages.NORM_WITHOUT, names=", ".join(map(repr, names[:3])) + more
                )
                yield diagnosis, [Override(site.value, codes, Value(held.value.kind, due[None]))]


def _norms(site: Site, actual: Floats) -> Iterator[Floats]:
    """What a norm may have to be, in the form of what it is: what is known of it, else the
    reference's roots.
    """
    known = site.rerun.due.get(site.value)
    if known is not None:
        if known.sums is None and known.data.shape == actual.shape:
            yield known.data
        return
    run = site.evidence.run
    for step in (
        s for s in run.stage.reference.steps if s.kind == site.kind and s.outputs[0] is not None
    ):
        data = np.asarray(run.evaluated.reference[step.outputs[0]].data, dtype=np.float64)[0]  # type: ignore[index]
        if data[0].size == 1:
            yield np.broadcast_to(data.reshape(-1, *[1] * (actual.ndim - 1)), actual.shape).copy()


def _left_out(site: Site) -> Iterator[tuple[list[str], Floats]]:
    """(names, sum for every trial) of the reference's sums of squares of tensors that the plan
    squares nowhere: all of them together, and each.
    """
    evidence = site.evidence
    squared = [step.arguments[0].value for step in evidence.batch.steps if _squares(step)]
    held = {
        evidence.alike(cut.reference)
        for value in squared
        if (cut := evidence.cuts.get(value)) is not None
    }
    steps, found = evidence.run.stage.reference.steps, dict[str, Floats]()
    for square in (
        step
        for step in steps
        if _squares(step) and evidence.alike(step.arguments[0].value) not in held
    ):
        for total in (
            s
            for s in steps
            if s.kind == "sum" and s.arguments and s.arguments[0].value in square.outputs
        ):
            data = (
                None
                if total.outputs[0] is None
                else np.asarray(
                    evidence.run.evaluated.reference[total.outputs[0]].data, dtype=np.float64
                )[0]
            )
            if data is not None and data[0].size == 1:
                found[evidence.first.values[square.arguments[0].value].name] = data.reshape(
                    len(data)
                )
    if len(found) > 1:
        yield list(found), np.sum(list(found.values()), axis=0)
    yield from (([name], total) for name, total in found.items())


def _squares(step: Step) -> bool:
    alike = step.kind == "mul" and len(step.inputs) == 2 and step.inputs[0] == step.inputs[1]
    return (step.kind == "square" or alike) and isinstance(step.inputs[0], Argument)
