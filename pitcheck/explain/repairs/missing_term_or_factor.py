"""Repairs that join a result with an addend or a factor that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from pitcheck.base.numbers import Literal, parse_number
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.families import (
    ACCUMULATIONS,
    DIFFERENCES,
    PASSES_ON,
    PRODUCTS,
    QUOTIENTS,
    REDUCTIONS,
    SUMS,
)
from pitcheck.explain.ratios import FACTOR, factor, ratio_of_output
from pitcheck.explain.repairs.missing_collective import of_norm
from pitcheck.explain.repairs.missing_operator import copied
from pitcheck.explain.rerun.changes import Override, Read, held_at
from pitcheck.explain.rerun.rerun import Rerun
from pitcheck.explain.rerun.site import Candidate, Site
from pitcheck.stage.batch import Argument

FACTOR_OF = Kind(
    "PIT101",
    "{result!r} is {meaning} times what it should be",
    "divide by that factor once, or drop the reduction that brought it",
    ("ratio",),
    edits=("+ divide {result!r} by {ratio}",),
)
USED_WITHOUT_TERM = Kind(
    "PIT108",
    "{called} is used without the term {term}",
    "add {term} once",
    ("number",),
    edits=("+ add {term} to {called}",),
)
USED_WITHOUT_NEGATED_TERM = Kind(
    "PIT108",
    "{called} is used without the term {term} (with a minus)",
    "take away {term} once",
    ("number",),
    edits=("+ subtract {term} from {called}",),
)
USED_WITHOUT_FACTOR = Kind(
    "PIT102",
    "{called} is used without the factor {term}",
    "multiply by {term} once",
    ("number",),
    edits=("+ multiply {called} by {term}",),
)
USED_WITHOUT_DIVISOR = Kind(
    "PIT102",
    "{called} is used without the divisor {term}",
    "divide by {term} once",
    ("number",),
    edits=("+ divide {called} by {term}",),
)
NORM_WITHOUT_TERM = Kind(
    "PIT113",
    USED_WITHOUT_TERM.said,
    USED_WITHOUT_TERM.repair,
    ("number",),
    edits=USED_WITHOUT_TERM.edits,
)
READ_WITHOUT_TERM = Kind(
    "PIT108",
    "operator {operator!r} reads {called} without the term {term}",
    "add {term} once",
    edits=(
        "- {operator!r} reads {called}",
        "+ {operator!r} reads {called} + {term}",
    ),
)
READ_WITHOUT_NEGATED_TERM = Kind(
    "PIT108",
    "operator {operator!r} reads {called} without the term {term} (with a minus)",
    "take away {term} once",
    edits=(
        "- {operator!r} reads {called}",
        "+ {operator!r} reads {called} - {term}",
    ),
)
READ_WITHOUT_FACTOR = Kind(
    "PIT102",
    "operator {operator!r} reads {called} without the factor {term}",
    "multiply by {term} once",
    edits=(
        "- {operator!r} reads {called}",
        "+ {operator!r} reads {called} * {term}",
    ),
)
READ_WITHOUT_DIVISOR = Kind(
    "PIT102",
    "operator {operator!r} reads {called} without the divisor {term}",
    "divide by {term} once",
    edits=(
        "- {operator!r} reads {called}",
        "+ {operator!r} reads {called} / {term}",
    ),
)


MOST_FITTING = 24
"""Other tensors that are tried as a missing addend or factor."""
MOST_GIVEN = 8
"""Given tensors, and numbers of the reference, that are tried beside them."""


def due_term(site: Site) -> Iterator[Candidate]:
    """Add to a result, subtract or multiply what the reference does, if the plan never does."""
    evidence = site.evidence
    held = evidence.holds(site.value)
    if held is None:
        return
    own = evidence.alike(held)
    for step in evidence.run.stage.reference.steps:
        if (
            step.kind not in JOINED
            or len(step.inputs) != 2
            or own not in {evidence.alike(o.value) for o in step.arguments}
        ):
            continue
        if any(evidence.holding(evidence.alike(o)) for o in step.outputs if o is not None):
            continue
        for place, operand in enumerate(step.inputs):
            mine = step.inputs[1 - place]
            if isinstance(mine, Argument) and evidence.alike(mine.value) == own:
                for other in (
                    evidence.holding(evidence.alike(operand.value))
                    if isinstance(operand, Argument)
                    else [operand]
                ):
                    yield from _with_term(site, other, step.kind, turned=place == 0)


JOINED = {
    kind: mistakes
    for kinds, mistakes in (
        (SUMS, (USED_WITHOUT_TERM, READ_WITHOUT_TERM)),
        (DIFFERENCES, (USED_WITHOUT_NEGATED_TERM, READ_WITHOUT_NEGATED_TERM)),
        (PRODUCTS, (USED_WITHOUT_FACTOR, READ_WITHOUT_FACTOR)),
        (QUOTIENTS, (USED_WITHOUT_DIVISOR, READ_WITHOUT_DIVISOR)),
    )
    for kind in sorted(kinds)
}
"""By kind of operator the mistake of leaving it out: for all that read a result, and for one alone.
"""


def _with_term(site: Site, other: Any, kind: str, turned: bool) -> Iterator[Candidate]:
    """Join a result with one more tensor or number. ``turned``: that is the first operand."""
    codes = site.codes
    if isinstance(other, int) and (
        other in site.evidence.downstream(site.value) or other == site.value
    ):
        return
    given = [Read(site.value, codes), Read(other, codes) if isinstance(other, int) else other]
    result = site.rerun.one(kind, {}, given[::-1] if turned else given, len(codes))
    overrides = [] if result is None else [Override(site.value, codes, result)]
    if overrides and site.changes(overrides):
        of = (
            NORM_WITHOUT_TERM
            if kind in SUMS and of_norm(site.evidence, site.value)
            else JOINED[kind][0]
        )
        tensor = site.evidence.called(other) if isinstance(other, int) else None
        number = None if isinstance(other, int) else other
        facts = {
            "called": site.evidence.called(site.value),
            "term": tensor or str(other),
            "number": number,
        }
        yield site.diagnosis(of, **facts), overrides


def missing_term(site: Site) -> Iterator[Candidate]:
    """Add, subtract or multiply a tensor with what is only passed on."""
    if site.kind not in PASSES_ON and not copied(site, site.value):
        return
    for value in fitting(site, site.value):
        for operator, turned in JOINING:
            yield from _with_term(site, value, operator, turned)


JOINING = (("add", False), ("sub", False), ("sub", True), ("mul", False), ("div", False))


def missing_number(site: Site) -> Iterator[Candidate]:
    """Add a number to what is only passed on, or multiply it."""
    if site.kind in PASSES_ON or copied(site, site.value):
        for kind, literal in _literals_of(site.evidence):
            yield from _with_term(site, literal, kind, turned=False)


def fitting(site: Site, value: int) -> list[int]:
    """Return tensors that may have to be joined with a value.

    No output depends on them, they are near in the program, or they are given and named like the
    result.
    """
    graph = site.rerun.graph
    here, form, name = (
        graph.rank[site.numbers[0]],
        graph.values[value],
        site.evidence.name(site.value),
    )
    found = [
        v
        for v in range(len(graph.values))
        if v != value
        and graph.values[v].kind == form.kind
        and _fits(graph.values[v].shape, form.shape)
    ]
    near = site.rerun.nearest(found, here, MOST_FITTING)
    given = (
        v for v in found if not graph.values[v].writers and graph.values[v].shape == form.shape
    )
    return list(
        dict.fromkeys(
            [
                *near,
                *sorted(given, key=lambda v: -called_alike(graph.values[v].name, name))[
                    :MOST_GIVEN
                ],
            ]
        )
    )


def called_alike(one: str, other: str) -> int:
    """Return how many characters two names have in common at their ends."""
    return next(
        (n for n, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _literals_of(evidence: Evidence) -> list[tuple[str, Literal]]:
    """Return what the reference adds or multiplies with, and what its normalisations add.

    Each is a kind of operator and a number.
    """
    steps = evidence.run.stage.reference.steps
    joined = (step for step in steps if step.kind in JOINED and len(step.inputs) == 2)
    found = [
        (step.kind, operand)
        for step in joined
        for operand in step.inputs[1:]
        if not isinstance(operand, (Argument, tuple))
    ]
    added = (
        parse_number(str(attributes["eps"]), "eps")
        for attributes in evidence.run.shaped.attributes[0]
        if "eps" in attributes
    )
    return list(dict.fromkeys([*(("add", number) for number in added), *found]))[:MOST_GIVEN]


def missing_term_of_operand(site: Site) -> Iterator[Candidate]:
    """Join an operand that is only a copy with a tensor, for this operator alone."""
    graph, tried = site.rerun.graph, set[int]()
    held_names = list(graph.number.values())
    for operand in (o for o in site.step.inputs if isinstance(o, Argument)):
        value = operand.value
        if value in tried or held_names.count(value) < 2:
            continue
        tried.add(value)
        codes = site.evidence.codes(value)
        later = site.evidence.downstream(site.value)
        for other in (v for v in fitting(site, value) if v not in later):
            for kind, (_, of) in JOINED.items():
                joined = site.rerun.one(
                    kind, {}, [Read(value, codes), Read(other, codes)], len(codes)
                )
                overrides = (
                    None
                    if joined is None
                    else site.redone(
                        site.as_given, known={value: held_at(joined, codes, graph.codes)}
                    )
                )
                if overrides is not None:
                    yield (
                        site.diagnosis(
                            of, called=site.evidence.called(value), term=site.evidence.called(other)
                        ),
                        overrides,
                    )


def _fits(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Return True if a shape broadcasts to another."""
    return len(shape) <= len(whole) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(whole), strict=False)
    )


def mesh_factor(site: Site) -> Iterator[Candidate]:
    """Divide the result of a reduction by the size of a mesh axis or the count of micro-batches."""
    # Elsewhere another function or operand explains the factor as well.
    if site.kind not in REDUCTIONS | ACCUMULATIONS:
        return
    sizes = [
        *site.rerun.graph.coordinates.sizes.values(),
        site.rerun.graph.coordinates.microbatches,
    ]
    yield from _divided(
        site, {ratio for size in sizes if size > 1 for ratio in (Fraction(size), Fraction(1, size))}
    )


def factor_of_outputs(
    rerun: Rerun, left: Sequence[int]
) -> tuple[list[Diagnosis], list[Override]] | None:
    """Divide all outputs that differ by the one factor that all of them are off by.

    A sign alone is no such factor: the operands of a difference are exchanged.

    Returns:
        The mistakes, one for each output, and the repair; None if they have no such factor.
    """
    evidence, ratios = rerun.evidence, set[Fraction | None]()
    diagnoses, changes = [], []
    for target, ratio in ((rerun.wanted(n).target, ratio_of_output(evidence, n)) for n in left):
        ratios.add(ratio)
        if ratio in (None, -1) or len(ratios) > 1:
            return None
        value, codes = target.cut.value, target.codes
        result = rerun.one("mul", {}, [Read(value, codes), 1 / ratio], len(codes))
        if result is None or value not in evidence.writers:
            return None
        changes.append(Override(value, codes, result))
        facts = {
            "result": evidence.name(value),
            "meaning": factor(evidence, ratio),
            "ratio": ratio,
        }
        diagnoses.append(Diagnosis(FACTOR, facts, codes, evidence.writers[value][-1], value))
    return (diagnoses, changes) if rerun.all_right(changes, left) else None


def missing_factor(site: Site) -> Iterator[Candidate]:
    """Divide a result by the factor that its cut, or an output, is off by."""
    yield from _divided(site, None)


def _divided(site: Site, among: set[Fraction] | None) -> Iterator[Candidate]:
    # In a chain of linear operators a factor anywhere makes up for one behind it: it is named where
    # it is seen.
    cut = site.evidence.cuts.get(site.value)
    seen = site.is_output or (cut is not None and cut.scale != 1)
    ratios = dict.fromkeys(_ratios(site)) if seen else {}
    for ratio in (each for each in ratios if among is None or each in among):
        result = site.rerun.one(
            "mul", {}, [Read(site.value, site.codes), 1 / ratio], len(site.codes)
        )
        overrides = [] if result is None else [Override(site.value, site.codes, result)]
        if overrides and site.changes(overrides):
            of = FACTOR if site.value in site.evidence.cuts or site.is_output else FACTOR_OF
            yield site.diagnosis(of, meaning=factor(site.evidence, ratio), ratio=ratio), overrides


def _ratios(site: Site) -> Iterator[Fraction]:
    """Yield the factors by which a cut of a site, and the outputs, are off."""
    evidence = site.evidence
    cut = evidence.cuts.get(site.value)
    if cut is not None and cut.scale != 1:
        yield cut.scale
    for number in range(len(evidence.run.comparisons)):
        found = ratio_of_output(evidence, number)
        if found is not None:
            yield found
