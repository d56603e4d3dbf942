"""Repairs that join a result with something: a term or a factor that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from pitcheck.base.numbers import Literal, parse_number
from pitcheck.explain import messages
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.hypotheses import REDUCTIONS, constant_ratio, factor
from pitcheck.explain.repairs.missing_collective import of_norm
from pitcheck.explain.repairs.missing_operator import copied
from pitcheck.explain.rerun import Override, Read, held_at
from pitcheck.explain.site import Candidate, Site
from pitcheck.stage.batch import Argument

MOST_FITTING = 24
"""Other tensors that are tried as a missing term or factor."""
MOST_GIVEN = 8
"""Given tensors and numbers of the reference that are tried beside them."""


def due_term(site: Site) -> Iterator[Candidate]:
    """What the reference adds to a result, takes away from it or multiplies it with, where nothing
    in the plan does.
    """
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
    "add": (messages.USED_WITHOUT_TERM, messages.READ_WITHOUT_TERM),
    "sub": (messages.USED_WITHOUT_NEGATED_TERM, messages.READ_WITHOUT_NEGATED_TERM),
    "mul": (messages.USED_WITHOUT_FACTOR, messages.READ_WITHOUT_FACTOR),
    "div": (messages.USED_WITHOUT_DIVISOR, messages.READ_WITHOUT_DIVISOR),
}
"""By kind of operator what it is to be without its second operand: for all that read a result, and
for one operator alone.
"""


def _with_term(site: Site, other: Any, kind: str, turned: bool) -> Iterator[Candidate]:
    """Its result joined with one tensor more, or a number."""
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
            messages.NORM_WITHOUT_TERM
            if kind == "add" and of_norm(site.evidence, site.value)
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
    """A tensor that is to be added, taken away or multiplied with what is but passed on."""
    if site.kind != "identity" and not copied(site, site.value):
        return
    for value in fitting(site, site.value):
        for operator, turned in JOINING:
            yield from _with_term(site, value, operator, turned)


JOINING = (("add", False), ("sub", False), ("sub", True), ("mul", False), ("div", False))


def missing_number(site: Site) -> Iterator[Candidate]:
    """A number that is to be added to, or multiplied with, what is but passed on."""
    if site.kind == "identity" or copied(site, site.value):
        for kind, literal in _literals_of(site.evidence):
            yield from _with_term(site, literal, kind, turned=False)


def fitting(site: Site, value: int) -> list[int]:
    """Tensors that may have to be joined with one: computed for nothing, near an operator in the
    program, or given and called like its result.
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
    """How much of two names is the same at their end."""
    return next(
        (n for n, (a, b) in enumerate(zip(reversed(one), reversed(other), strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _literals_of(evidence: Evidence) -> list[tuple[str, Literal]]:
    """(kind, number) of what the reference adds or multiplies with, and what its normalisations
    add.
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
    """An operand that is but a copy, to which something is to be added, taken away or multiplied
    with, for this operator alone.
    """
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
    """Whether a shape is broadcast to another."""
    return len(shape) <= len(whole) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(whole), strict=False)
    )


def mesh_factor(site: Site) -> Iterator[Candidate]:
    """A factor by which what a reduction gives is off: the size of a mesh axis, or the number of
    micro-batches.
    """
    # elsewhere a function or another operand explains it as well
    if site.kind not in (*REDUCTIONS, "accumulate"):
        return
    sizes = [
        *site.rerun.graph.coordinates.sizes.values(),
        site.rerun.graph.coordinates.microbatches,
    ]
    yield from _divided(
        site, {ratio for size in sizes if size > 1 for ratio in (Fraction(size), Fraction(1, size))}
    )


def missing_factor(site: Site) -> Iterator[Candidate]:
    """A factor by which every element is off: that of a known cut, or of the outputs."""
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
            of = (
                messages.FACTOR
                if site.value in site.evidence.cuts or site.is_output
                else messages.FACTOR_OF
            )
            yield site.diagnosis(of, meaning=factor(site.evidence, ratio), ratio=ratio), overrides


def _ratios(site: Site) -> Iterator[Fraction]:
    evidence = site.evidence
    cut = evidence.cuts.get(site.value)
    if cut is not None and cut.scale != 1:
        yield cut.scale
    for comparison in evidence.run.comparisons:
        found = constant_ratio(
            evidence, np.asarray(comparison.actual.data)[0], np.asarray(comparison.expected.data)[0]
        )
        if found is not None:
            yield found[0]
