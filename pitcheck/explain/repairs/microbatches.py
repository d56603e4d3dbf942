"""Repairs of what is read or added up of micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.claims.conjecture import Floats
from pitcheck.explain.diagnosis import Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.expected_values import far
from pitcheck.explain.families import ACCUMULATIONS, PRODUCTS, QUOTIENTS
from pitcheck.explain.rerun.changes import Draft, Override, Read
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Argument, Step

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
MEAN_OF_MEANS = Kind(
    "PIT112",
    "operator {operator!r} ({kind}) divides the sum of a micro-batch by {called}, the count of "
    "that micro-batch, as others do by {others}; the mean of such means is not the mean of all",
    "divide the sum of all micro-batches by the count of all, {total!r} of the reference",
    ("total",),
    edits=(
        "- {operator!r} ({kind}) by {called}",
        "+ {operator!r} ({kind}) by the count of all micro-batches, and no share behind it",
    ),
)
FEWEST, MOST = 2, 64
"""Counts of micro-batches that may add up to one of the reference."""


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


# --- micro-batches that a program unrolls


def mean_of_means(site: Site) -> Iterator[Candidate]:
    """Divide sums of micro-batches by the count of all, where the program divides by each one's."""
    evidence, own = site.evidence, _divisor(site.step)
    if own is None or not site.leads:
        return
    for total, whole in _reference_divisors(evidence):
        counts = _adding_up(evidence, whole)
        if own not in counts or own != counts[0]:
            continue
        others = ", ".join(evidence.called(value) for value in counts[1:])
        facts = {"called": evidence.called(own), "others": others, "total": total}
        for shares in _shares(evidence, counts):
            overrides = [
                _count(site, value, whole, share)
                for value, share in zip(counts, shares, strict=True)
            ]
            if site.changes(overrides):
                yield site.diagnosis(MEAN_OF_MEANS, **facts), overrides


def _divisor(step: Step) -> int | None:
    """Return the value by which a step divides another; None for other steps."""
    if step.kind not in QUOTIENTS or len(step.inputs) < 2:
        return None
    own = step.inputs[1]
    return own.value if isinstance(own, Argument) else None


def _reference_divisors(evidence: Evidence) -> Iterator[tuple[str, Floats]]:
    """Yield the numbers by which the reference divides: their name, shape (trials, 1, *shape)."""
    seen = set[int]()
    for step in evidence.run.stage.reference.steps:
        value = _divisor(step)
        if value is not None and value not in seen:
            seen.add(value)
            held = evidence.run.evaluated.reference[value]
            yield evidence.first.values[value].name, np.asarray(held.data, dtype=np.float64)[0]


def _adding_up(evidence: Evidence, whole: Floats) -> list[int]:
    """Return the divisors of the plan that add up to one of the reference; none if they do not."""
    divisors = (_divisor(step) for step in evidence.batch.steps)
    values = [v for v in dict.fromkeys(divisors) if v is not None]
    alike = [v for v in values if evidence.array(v).shape[2:] == whole.shape[2:]]
    floats = [v for v in alike if evidence.second.values[v].kind == "field"]
    if not FEWEST <= len(floats) <= MOST or len({len(evidence.codes(v)) for v in floats}) > 1:
        return []
    total = sum((_held(evidence, v) for v in floats[1:]), start=_held(evidence, floats[0]))
    return [] if far(total, np.broadcast_to(whole, total.shape)).any() else floats


def _shares(evidence: Evidence, counts: Sequence[int]) -> Iterator[list[Fraction]]:
    """Yield by count the factor that its means may have behind them."""
    literals = [_literal_behind(evidence, value) for value in counts]
    if None not in literals:
        yield [literal for literal in literals if literal is not None]
    yield [Fraction(1, len(counts))] * len(counts)
    yield [Fraction(1)] * len(counts)


def _literal_behind(evidence: Evidence, count: int) -> Fraction | None:
    """Return the number by which means that are divided by a count are multiplied."""
    for step in evidence.readers.get(count, []):
        for behind in (s for o in evidence.outputs(step) for s in evidence.readers.get(o, [])):
            for literal in behind.inputs:
                if isinstance(literal, (int, Fraction)) and literal:
                    ratio = Fraction(literal)
                    return ratio if behind.kind in PRODUCTS else 1 / ratio
    return None


def _count(site: Site, value: int, whole: Floats, share: Fraction) -> Override:
    """Return a count that makes a mean with a share behind it a part of the mean of all."""
    wanted = np.broadcast_to(whole, _held(site.evidence, value).shape) * float(share)
    return Override(value, site.evidence.codes(value), Value("field", wanted[None].copy()))


def _held(evidence: Evidence, value: int) -> Floats:
    """Return what a value holds at its coordinates, shape (trials, codes, *shape)."""
    return evidence.array(value)[:, evidence.batch.rows[value][evidence.codes(value)]]
