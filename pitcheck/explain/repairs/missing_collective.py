"""Repairs that put a collective in: a reduction or a gather that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.algebra.value import Value
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import MOVES, Evidence
from pitcheck.explain.hypotheses import REDUCTIONS, groups_present, reduced_anyway, too_narrow
from pitcheck.explain.repairs.missing_operator import copied
from pitcheck.explain.rerun import Override, Read, held_at
from pitcheck.explain.site import Candidate, Site, by_code
from pitcheck.graph.graph import Source
from pitcheck.graph.grids import Codes
from pitcheck.stage.batch import Argument, Step

SUMS = frozenset(
    {
        "add",
        "sub",
        "accumulate",
        "all_reduce",
        "reduce_scatter",
        "reduce",
        "identity",
        "sum",
        "cast",
        "view",
        "reshape",
        "stack",
        "cat",
    }
)
ROOTS = frozenset({"sqrt", "rsqrt"})
COPIES = MOVES | {"cat", "full", "identity"}


def missing_reduction(site: Site) -> Iterator[Candidate]:
    """Insert a reduction over each group whose members hold addends of one sum, or what the largest
    or smallest is taken of.
    """
    yield from _reduced(site, ("sum", "max", "min"))


def missing_mean(site: Site) -> Iterator[Candidate]:
    """Insert a mean over each group whose members hold addends of one mean."""
    yield from _reduced(site, ("avg",))


def _reduced(site: Site, kinds: Sequence[str]) -> Iterator[Candidate]:
    """Reductions over groups of what is an addend; a value that holds parts of a reference tensor
    is none.
    """
    if site.evidence.is_true(site.value) and not site.is_output:
        return
    for grouping in site.evidence.groupings:
        table = groups_present(site.evidence, site.value, grouping)
        if table is None:
            continue
        groups = by_code(np.sort(table, axis=1), site.rerun.graph.codes)
        codes = site.evidence.codes(site.value)
        if _replicas(site, site.value, table) or reduced_anyway(site.evidence, site.value, table):
            continue
        for kind in kinds:
            result = site.rerun.one(
                "all_reduce", {"reduction": kind}, [Read(site.value, groups[codes])], len(codes)
            )
            overrides = [] if result is None else [Override(site.value, codes, result)]
            if result is None or not site.changes(overrides):
                break
            if kind in ("max", "min") and _of_one_member(site, table, result):
                continue
            if (
                kind == "avg"
                and not _of_floats(site.evidence, site.value)
                and not _divides(site.evidence, site.value)
            ):
                continue
            narrow = (
                too_narrow(site.evidence, site.value, replace(grouping, table=table))
                if kind in ("sum", "avg")
                else None
            )
            yield _unreduced(site, kind, grouping.name) if narrow is None else narrow, overrides


def _replicas(site: Site, value: int, table: Codes) -> bool:
    """Whether the members of every group have the same numbers: those are no terms, and their sum
    would only be a factor.
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
    """Whether the largest or smallest of terms is what one and the same member of a group has, in
    every element and draw: then that one is right as it is.
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


def _unreduced(site: Site, kind: str, over: str) -> Diagnosis:
    facts = {"over": over, "reduction": kind}
    if kind == "avg" and _divides(site.evidence, site.value):
        return site.diagnosis(messages.MEAN_OF_MEANS, **facts)
    averaged = _averaged_root(site.evidence, site.value) if kind == "sum" else None
    if averaged is not None:
        return replace(
            site.diagnosis(
                messages.MEAN_OF_NORMS, over=over, operator=site.evidence.operator(averaged)
            ),
            step=averaged,
        )
    if kind == "sum" and of_norm(site.evidence, site.value):
        return site.diagnosis(messages.NORM_OF_RANK, **facts)
    what, whole = WHOLE[kind]
    return site.diagnosis(messages.NOT_REDUCED, what=what, whole=whole, **facts)


WHOLE = {
    "sum": ("a term of a sum", "the sum"),
    "avg": ("a term of a mean", "the mean"),
    "max": ("the largest of one rank's elements", "the largest"),
    "min": ("the smallest of one rank's elements", "the smallest"),
}
"""By reduction what is not reduced yet, and what it is used for."""


def _averaged_root(evidence: Evidence, value: int) -> Step | None:
    """The operator that takes the mean of roots of what ranks have of a value."""
    stack, seen = [(value, False)], {value}
    while stack:
        held, rooted = stack.pop()
        for step in evidence.readers.get(held, []):
            if (
                rooted
                and step.kind in REDUCTIONS
                and step.attributes.get("reduction", "sum") == "avg"
            ):
                return step
            if step.kind in ROOTS or (step.kind in SUMS and step.kind not in REDUCTIONS):
                new = [o for o in evidence.outputs(step) if o not in seen]
                seen.update(new)
                stack.extend((o, rooted or step.kind in ROOTS) for o in new)
    return None


def _divides(evidence: Evidence, value: int) -> bool:
    """Whether a value does not depend on floating-point inputs and something is divided by it: a
    count.
    """
    stack, seen = [value], {value}
    while stack:
        held = stack.pop()
        for step in evidence.readers.get(held, []):
            if (
                step.kind == "div"
                and isinstance(step.inputs[-1], Argument)
                and step.inputs[-1].value == held
            ):
                return not _of_floats(evidence, value)
            if step.kind in MOVES or step.kind in ("clamp", "maximum", "cast"):
                new = [o for o in evidence.outputs(step) if o not in seen]
                seen.update(new)
                stack.extend(new)
    return False


def _of_floats(evidence: Evidence, value: int) -> bool:
    """Whether a value is computed from floating-point inputs."""
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
    """Whether a number is a sum of squares of which a root is taken: part of the norm of several
    tensors.
    """
    if len(evidence.array(value).shape) > 3 or not any(
        step.kind in ("sum", "add", "square", "mul", "pow", "stack", "cat")
        for step in evidence.writers.get(value, [])
    ):
        return False
    stack, seen = [value], {value}
    while stack:
        for step in evidence.readers.get(stack.pop(), []):
            if step.kind in ROOTS or (step.kind == "pow" and Fraction(1, 2) in step.inputs):
                return all(evidence.array(v).shape[2:] in ((), (1,)) for v in evidence.inputs(step))
            if step.kind in SUMS or step.kind in MOVES:
                new = [
                    o
                    for o in evidence.outputs(step)
                    if o not in seen
                    and evidence.array(o).size
                    <= 64 * evidence.array(o).shape[0] * evidence.array(o).shape[1]
                ]
                seen.update(new)
                stack.extend(new)
    return False


def missing_gather(site: Site) -> Iterator[Candidate]:
    """What a rank has of its own, where the parts of all ranks are due."""
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
    for grouping in site.evidence.groupings:
        groups, members = (
            by_code(np.sort(grouping.table, axis=1), site.rerun.graph.codes),
            grouping.table.shape[1],
        )
        if (groups[site.codes] < 0).any() or members < 2:
            continue
        axes = [
            axis for axis, (a, b) in enumerate(zip(own, shape, strict=True)) if b == a * members
        ]
        drafts: list[tuple[str, dict[str, Any], str]] = [
            ("all_gather", {"axis": axis}, f"all-gather along dimension {axis}") for axis in axes
        ]
        if shape == own:
            whole = [axis for axis, size in enumerate(own) if size % members == 0]
            drafts += [
                (
                    "all_to_all",
                    {"split_axis": a, "concat_axis": b},
                    f"all-to-all from dimension {a} to {b}",
                )
                for a in whole
                for b in whole
                if a == b
            ]
        for kind, attributes, what in drafts:
            overrides = _collected(site, kind, attributes, source.value, groups)
            if overrides is not None:
                facts = {
                    "called": site.evidence.called(source.value),
                    "over": grouping.name,
                    "collective": what,
                }
                yield site.diagnosis(messages.NOT_GATHERED, **facts), overrides


def missing_exchange(site: Site) -> Iterator[Candidate]:
    """An all-to-all of a result that is but passed on."""
    shape = site.rerun.shape(site.value)
    if shape is None or not copied(site, site.value):
        return
    for grouping in site.evidence.groupings:
        groups, members = (
            by_code(np.sort(grouping.table, axis=1), site.rerun.graph.codes),
            grouping.table.shape[1],
        )
        for axis in (
            axis
            for axis, size in enumerate(shape)
            if members > 1 and size % members == 0 and not (groups[site.codes] < 0).any()
        ):
            overrides = _collected(
                site, "all_to_all", {"split_axis": axis, "concat_axis": axis}, site.value, groups
            )
            if overrides is not None:
                facts = {
                    "called": site.evidence.called(site.value),
                    "over": grouping.name,
                    "axis": axis,
                }
                yield site.diagnosis(messages.NOT_EXCHANGED, **facts), overrides


def _collected(
    site: Site, kind: str, attributes: dict[str, Any], value: int, groups: Codes
) -> list[Override] | None:
    place = (groups == np.arange(len(groups))[:, None]).argmax(axis=1)
    found = []
    for own in np.unique(place[site.codes]) if kind == "all_to_all" else (None,):
        codes = site.codes if own is None else site.codes[place[site.codes] == own]
        more = {} if own is None else {"position": int(own)}
        result = site.rerun.one(
            kind, {**attributes, **more}, [Read(value, groups[codes])], len(codes)
        )
        if result is None:
            return None
        found.append(Override(site.value, codes, result))
    return found if site.changes(found) else None


def unreduced_part(site: Site) -> Iterator[Candidate]:
    """Copy the sum, or a part of it, and not what the rank has."""
    yield from _copied(site, "sum")


def unaveraged_part(site: Site) -> Iterator[Candidate]:
    """Copy the mean, or a part of it, and not what the rank has."""
    yield from _copied(site, "avg")


def _copied(site: Site, kind: str) -> Iterator[Candidate]:
    source = site.nodes[0].inputs[0] if site.nodes[0].inputs else None
    if (
        site.kind not in COPIES
        or len(site.nodes[0].inputs) != 1
        or not isinstance(source, Source)
        or source.members
    ):
        return
    if site.evidence.is_true(source.value):  # what holds parts of a reference's tensor is no term
        return
    for grouping in site.evidence.groupings:
        table = groups_present(site.evidence, source.value, grouping)
        if (
            table is None
            or _replicas(site, source.value, table)
            or reduced_anyway(site.evidence, source.value, table)
        ):
            continue
        groups, codes = (
            by_code(np.sort(table, axis=1), site.rerun.graph.codes),
            site.evidence.codes(source.value),
        )
        total = site.rerun.one(
            "all_reduce", {"reduction": kind}, [Read(source.value, groups[codes])], len(codes)
        )
        overrides = (
            None
            if total is None
            else site.redone(
                site.as_given, known={source.value: held_at(total, codes, site.rerun.graph.codes)}
            )
        )
        if overrides is not None:
            facts = {
                "called": site.evidence.called(source.value),
                "what": "sum" if kind == "sum" else "mean",
                "over": grouping.name,
                "reduction": kind,
            }
            yield site.diagnosis(messages.COPIED_TERM, **facts), overrides
