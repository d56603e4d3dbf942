"""Repairs of what is read or added up of micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import Floats
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
    counts = [] if own is None or not site.leads else _like(evidence, own)
    if own is None or not counts or own != counts[0]:
        return
    first, *more = (_held(evidence, value) for value in counts)
    found = _reference_divisor(evidence, sum(more, start=first))
    if found is None:
        return
    total, whole = found
    others = ", ".join(evidence.called(value) for value in counts[1:])
    facts = {"called": evidence.called(own), "others": others, "total": total}
    for shares in _shares(evidence, counts):
        overrides = [
            _count(site, value, whole, share) for value, share in zip(counts, shares, strict=True)
        ]
        if site.changes(overrides):
            yield site.diagnosis(MEAN_OF_MEANS, **facts), overrides


def _divisor(step: Step) -> int | None:
    """Return the value by which a step divides another; None for other steps."""
    if step.kind not in QUOTIENTS or len(step.inputs) < 2:
        return None
    own = step.inputs[1]
    return own.value if isinstance(own, Argument) else None


def _like(evidence: Evidence, own: int) -> list[int]:
    """Return the divisors of the plan that have the shape and the coordinates of one of them.

    Empty if there are too few, or too many to be counts of micro-batches.
    """
    divisors = dict.fromkeys(map(_divisor, evidence.batch.steps))
    shape = evidence.array(own).shape[2:]
    alike = [v for v in divisors if v is not None and evidence.array(v).shape[2:] == shape]
    codes = evidence.codes(own)
    counts = [
        value
        for value in alike
        if evidence.second.values[value].kind == "field"
        and np.array_equal(evidence.codes(value), codes)
    ]
    return counts if FEWEST <= len(counts) <= MOST else []


def _reference_divisor(evidence: Evidence, total: Floats) -> tuple[str, Floats] | None:
    """Return the numbers by which the reference divides, if they are ``total``: name and numbers.

    The shape of the numbers is (trials, 1, *shape).
    """
    for value in dict.fromkeys(map(_divisor, evidence.run.stage.reference.steps)):
        if value is not None:
            held = evidence.run.evaluated.reference[value]
            whole: Floats = np.asarray(held.data, dtype=np.float64)[0]
            if whole.shape[2:] != total.shape[2:]:
                continue
            if not far(total, np.broadcast_to(whole, total.shape)).any():
                return evidence.first.values[value].name, whole
    return None


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
