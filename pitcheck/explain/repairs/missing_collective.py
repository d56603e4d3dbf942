"""Repairs that put in a collective: a reduction, a gather or an exchange is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import varies
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import (
    ADDS_SQUARES,
    COPIES,
    KEEPS_SUMS,
    LIMITS,
    MOVES,
    QUOTIENTS,
    REDUCTIONS,
    ROOTS,
)
from pitcheck.explain.repairs.missing_operator import copied
from pitcheck.explain.rerun.site import Candidate, Site, collected, groups_of_mesh, reduced
from pitcheck.explain.term_groups import NOT_REDUCED, groups_present, reduced_anyway, too_narrow
from pitcheck.graph.graph import Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Step

MEAN_OF_MEANS = Kind(
    "PIT112",
    "{result!r} is the count of one rank or micro-batch, by which its sum is divided; the mean of "
    "such means over {over} is not the mean of all",
    "divide the sum of all by the count of all: an all-reduce({reduction}) over {over} of "
    "{result!r} before it is used makes it right",
    ("over",),
    edits=("+ all-reduce({reduction}) over {over} of {result!r}",),
)
MEAN_OF_NORMS = Kind(
    "PIT111",
    "operator {operator!r} takes the mean of the ranks' norms, where the norm over {over} is the "
    "root of the sum of their squares",
    "sum {result!r}, the squares, over {over}, and take the root of that",
    ("over",),
    edits=(
        "- {operator!r}: the mean of the norms over {over}",
        "+ all-reduce(sum) over {over} of {result!r}, and the root of that",
    ),
)
NORM_OF_RANK = Kind(
    "PIT113",
    "the norm is taken over part of the parameters: {result!r} has the squares of one rank, not "
    "of all over {over}",
    "an all-reduce({reduction}) over {over} of {result!r} before it is used makes it right",
    ("over",),
    edits=("+ all-reduce({reduction}) over {over} of {result!r}",),
)
NOT_GATHERED = Kind(
    "PIT107",
    "operator {operator!r} takes what the rank has of {called}, where it should take the parts of "
    "all ranks over {over}",
    "an {collective} over {over} in its place makes it right",
    ("collective", "over"),
    edits=(
        "- {operator!r} ({kind}) of {called}",
        "+ {collective} over {over} of {called}",
    ),
)
NOT_EXCHANGED = Kind(
    "PIT107",
    "{called} is passed on as every rank has it, where it should have parts of all ranks over "
    "{over}",
    "an all-to-all from dimension {axis} to {axis} over {over} of it makes it right",
    ("axis", "over"),
    edits=("+ all-to-all from dimension {axis} to {axis} over {over} of {called}",),
)
MOST_SQUARES = 64
"""Elements of a tensor up to which it may hold the squares of a norm."""


def missing_reduction(site: Site) -> Iterator[Candidate]:
    """Insert a reduction over each group whose members hold addends of one sum.

    The largest and the smallest of what they hold are tried after that.
    """
    yield from _reduced(site, ("sum", "max", "min"))


def missing_mean(site: Site) -> Iterator[Candidate]:
    """Insert a mean over each group whose members hold addends of one mean."""
    yield from _reduced(site, ("avg",))


def _reduced(site: Site, reductions: Sequence[str]) -> Iterator[Candidate]:
    """Insert reductions over each group whose members hold addends.

    A value that holds parts of a reference tensor is no addend.
    """
    if site.evidence.is_true(site.value) and not site.is_output:
        return
    for grouping in site.evidence.groupings:
        table = groups_present(site.evidence, site.value, grouping)
        if table is None:
            continue
        if replicas(site, site.value, table) or reduced_anyway(site.evidence, site.value, table):
            continue
        for reduction in _likeliest_first(site, table, reductions):
            override = reduced(site.rerun, site.value, table, reduction)
            if override is None or not site.changes([override]):
                break
            if reduction in ("max", "min") and _of_one_member(site, table, override.data):
                continue
            if (
                reduction == "avg"
                and not _of_floats(site.evidence, site.value)
                and not _divides(site.evidence, site.value)
            ):
                continue
            narrow = (
                too_narrow(site.evidence, site.value, replace(grouping, table=table))
                if reduction in ("sum", "avg")
                else None
            )
            yield (
                _unreduced(site, reduction, grouping.name) if narrow is None else narrow,
                [override],
            )


def _likeliest_first(site: Site, table: Codes, reductions: Sequence[str]) -> Sequence[str]:
    """Return the reductions, those first whose result is part of a reference tensor.

    Behind a shift that cancels, a sum makes the outputs right as well as the largest element.
    """

    def unknown(reduction: str) -> bool:
        override = reduced(site.rerun, site.value, table, reduction)
        data = None if override is None else site.rerun.numbers(override.data)
        return data is None or not varies(data) or site.evidence.part_of(data) is None

    return sorted(reductions, key=unknown) if len(reductions) > 1 else reductions


def replicas(site: Site, value: int, table: Codes) -> bool:
    """Return True if the members of every group hold the same numbers.

    Those are no addends: their sum is only a multiple of them.
    """
    held = site.rerun.held(value)
    if held is None:
        return False
    pair = table[:, :1].repeat(table.shape[1], 1), table
    first, others = (
        site.rerun.numbers(site.rerun.algebra.gather(held.value, held.rows[codes.reshape(-1)]))
        for codes in pair
    )
    return np.array_equal(first, others, equal_nan=True)


def _of_one_member(site: Site, table: Codes, result: Value) -> bool:
    """Return True if an extremum is always what one and the same member of a group holds.

    Then that member is right as it is.
    """
    held = site.rerun.held(site.value)
    if held is None:
        return False
    codes = site.evidence.codes(site.value)
    place = np.searchsorted(codes, np.sort(table, axis=1))
    due, own = (
        site.rerun.numbers(v)
        for v in (result, site.rerun.algebra.gather(held.value, held.rows[codes]))
    )
    return any(
        np.array_equal(due[:, row[0]], own[:, member], equal_nan=True)
        for row in place
        for member in row
    )


def _unreduced(site: Site, reduction: str, over: str) -> Diagnosis:
    """Return the diagnosis of an addend: a count, the squares of a norm, or any other."""
    facts = {"over": over, "reduction": reduction}
    if reduction == "avg" and _divides(site.evidence, site.value):
        return site.diagnosis(MEAN_OF_MEANS, **facts)
    averaged = _averaged_root(site.evidence, site.value) if reduction == "sum" else None
    if averaged is not None:
        return replace(
            site.diagnosis(MEAN_OF_NORMS, over=over, operator=site.evidence.operator(averaged)),
            step=averaged,
        )
    if reduction == "sum" and of_norm(site.evidence, site.value):
        return site.diagnosis(NORM_OF_RANK, **facts)
    what, whole = WHOLE[reduction]
    return site.diagnosis(NOT_REDUCED, what=what, whole=whole, **facts)


WHOLE = {
    "sum": ("a term of a sum", "the sum"),
    "avg": ("a term of a mean", "the mean"),
    "max": ("the largest of one rank's elements", "the largest"),
    "min": ("the smallest of one rank's elements", "the smallest"),
}
"""By reduction the words for what is not reduced yet, and for what it should be."""


def _averaged_root(evidence: Evidence, value: int) -> Step | None:
    """Return the step that takes the mean of the ranks' roots of a value; None if there is none."""
    sums = KEEPS_SUMS - REDUCTIONS
    read = evidence.read_behind([value], lambda step: step.kind in sums)
    roots = [o for step in read if step.kind in ROOTS for o in evidence.outputs(step)]
    averages = (
        step
        for step in evidence.read_behind(roots, lambda step: step.kind in ROOTS | sums)
        if step.kind in REDUCTIONS and step.attributes.get("reduction", "sum") == "avg"
    )
    return next(averages, None)


def _divides(evidence: Evidence, value: int) -> bool:
    """Return True if a value is a count: a divisor that depends on no floating-point input."""
    counts = {value}
    for step in evidence.read_behind([value], lambda step: step.kind in MOVES | LIMITS):
        divisor = step.inputs[-1]
        if step.kind in QUOTIENTS and isinstance(divisor, Argument) and divisor.value in counts:
            return not _of_floats(evidence, value)
        if step.kind in MOVES | LIMITS:
            counts.update(evidence.outputs(step))
    return False


def _of_floats(evidence: Evidence, value: int) -> bool:
    """Return True if a value is computed from floating-point inputs."""
    stack, seen = [value], {value}
    while stack:
        held = stack.pop()
        info = evidence.second.values[held]
        if held in evidence.batch.inputs and info.kind == "field" and info.tensor.value is None:
            return True
        for step in evidence.writers.get(held, []):
            new = [v for v in evidence.inputs(step) if v not in seen]
            seen.update(new)
            stack.extend(new)
    return False


def of_norm(evidence: Evidence, value: int) -> bool:
    """Return True if a value is a sum of squares of which a root is taken.

    It is then part of the norm of several tensors.
    """
    if len(evidence.array(value).shape) > 3 or not any(
        step.kind in ADDS_SQUARES for step in evidence.writers.get(value, [])
    ):
        return False
    for step in evidence.read_behind([value], partial(_joins_squares, evidence)):
        if has_trait(step.kind, Trait.TAKES_ROOT, step.attributes):
            return all(evidence.array(v).shape[2:] in ((), (1,)) for v in evidence.inputs(step))
    return False


def _joins_squares(evidence: Evidence, step: Step) -> bool:
    """Return True if a step keeps sums or moves elements, and its results are small."""
    kept = step.kind in KEEPS_SUMS | MOVES
    return kept and all(
        evidence.array(o)[0, 0].size <= MOST_SQUARES for o in evidence.outputs(step)
    )


def missing_gather(site: Site) -> Iterator[Candidate]:
    """Take the parts of all ranks in place of what the rank holds."""
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if (
        site.kind not in COPIES
        or not isinstance(source, Source)
        or source.members
        or source.value not in site.evidence.run.evaluated.parallel
    ):
        return
    shape, own = site.rerun.shape(site.value), site.rerun.shape(source.value)
    if shape is None or own is None or len(shape) != len(own) or not shape:
        return
    for over, groups in groups_of_mesh(site):
        members = groups.shape[1]
        axes = [
            axis for axis, (a, b) in enumerate(zip(own, shape, strict=True)) if b == a * members
        ]
        drafts: list[tuple[str, dict[str, Any], str]] = [
            ("all_gather", {"axis": axis}, f"all-gather along dimension {axis}") for axis in axes
        ]
        if shape == own:
            drafts += [
                (
                    "all_to_all",
                    {"split_axis": axis, "concat_axis": axis},
                    f"all-to-all from dimension {axis} to {axis}",
                )
                for axis, size in enumerate(own)
                if size % members == 0
            ]
        for kind, attributes, what in drafts:
            overrides = collected(site, kind, attributes, source.value, groups)
            if overrides is not None:
                facts = {
                    "called": site.evidence.called(source.value),
                    "over": over,
                    "collective": what,
                }
                yield site.diagnosis(NOT_GATHERED, **facts), overrides


def missing_exchange(site: Site) -> Iterator[Candidate]:
    """Insert an all-to-all of a result that is only passed on."""
    shape = site.rerun.shape(site.value)
    if shape is None or not copied(site, site.value):
        return
    for over, groups in groups_of_mesh(site):
        for axis, size in enumerate(shape):
            if size % groups.shape[1] == 0:
                attributes = {"split_axis": axis, "concat_axis": axis}
                overrides = collected(site, "all_to_all", attributes, site.value, groups)
                if overrides is not None:
                    facts = {
                        "called": site.evidence.called(site.value),
                        "over": over,
                        "axis": axis,
                    }
                    yield site.diagnosis(NOT_EXCHANGED, **facts), overrides
