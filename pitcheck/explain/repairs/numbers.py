"""Repairs of numbers: factors and operators that are left out, and other literals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice

from pitcheck.base.numbers import Literal, parse_number
from pitcheck.errors import PlanError
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.families import ADDITIONS, MOVES, PRODUCTS, SCALINGS
from pitcheck.explain.ratios import factor
from pitcheck.explain.rerun.changes import Draft, Read, Redo
from pitcheck.explain.rerun.site import Candidate, Site, reference_steps
from pitcheck.graph.graph import Node, Source
from pitcheck.graph.grids import Codes
from pitcheck.ops.registry import BACKWARD
from pitcheck.stage.batch import Argument, StepOperand

FACTOR_TOO_MUCH = Kind(
    "PIT101",
    "operator {operator!r} gives {result!r} one factor too many: every element is {meaning} times "
    "what it should be",
    "drop that factor ({kind} by {number})",
    ("kind", "number"),
    edits=("- {operator!r} ({kind} by {number})",),
)
LITERAL = Kind(
    "PIT102",
    "operator {operator!r} has the literal {literal} where it should have {right}",
    "use {right}",
    ("right",),
    edits=(
        "- {operator!r} ({kind}): {literal}",
        "+ {operator!r} ({kind}): {right}",
    ),
)
LITERAL_FACTOR = Kind(
    "PIT101",
    "operator {operator!r} has the literal {literal} where it should have {right}: its result is "
    "{meaning} times what it should be",
    "use {right}",
    ("right",),
    unsized=LITERAL,
    edits=LITERAL.edits,
)
REFERENCE_LITERAL = Kind(
    LITERAL.code,
    "operator {operator!r} has the literal {literal} where the reference has {right}",
    LITERAL.repair,
    LITERAL.same,
    edits=(
        "- {operator!r} ({kind}): {literal}",
        "+ {operator!r} ({kind}): {right}",
    ),
)
"""The right number is that of all the reference's operators of the kind."""
OPERATOR_TOO_MUCH = Kind(
    "PIT102",
    "operator {operator!r} ({kind}) is applied to {kept}, which should be used as it is",
    "drop {operator!r}",
    edits=("- {operator!r} ({kind})",),
)
TERM_TOO_MUCH = Kind(
    "PIT108",
    "operator {operator!r} has the term {term!r} too much",
    "drop that term",
    edits=("- term {term!r} of {operator!r} ({kind})",),
)
COMPUTED_OTHERWISE = Kind(
    "PIT109",
    "operator {operator!r} ({kind}) computes {result!r} otherwise than on other ranks or "
    "micro-batches",
    "drop {operator!r}: let all replicas run the same operators",
    edits=("- {operator!r} ({kind})",),
)
MOST_LITERALS = 8
"""Other numbers that are tried in the place of one."""


def dropped_factor(site: Site) -> Iterator[Candidate]:
    """Leave out a factor, with and without its derivative."""
    if site.kind in SCALINGS and any(
        _number(site, operand) is not None for operand in site.step.inputs
    ):
        for diagnosis, changes in dropped_operator(site):
            if site.derivatives:
                yield (
                    diagnosis,
                    [*changes, *(Redo(number, _gradient_as_it_is) for number in site.derivatives)],
                )
            yield diagnosis, changes


def _gradient_as_it_is(node: Node, codes: Codes) -> Draft | None:
    """Return the derivative of no operator: the gradient of its result."""
    source = node.inputs[-1]
    return (
        ("identity", {}, [Read(source.value, source.at(codes))])
        if isinstance(source, Source)
        else None
    )


def _number(site: Site, operand: StepOperand) -> Literal | str | None:
    """Return an operand that is a number, or a tensor full of one; None for other operands."""
    if not isinstance(operand, (Argument, tuple)):
        return operand
    value = site.rerun.graph.values[operand.value] if isinstance(operand, Argument) else None
    return None if value is None or value.writers else value.tensor.value


def dropped_operator(site: Site) -> Iterator[Candidate]:
    """Pass on one operand as it is."""
    if (
        site.collective
        or site.kind in MOVES
        or site.kind.endswith(BACKWARD)
        or len(site.step.outputs) != 1
    ):
        return
    for place, operand in enumerate(site.step.inputs):
        if not isinstance(operand, Argument):
            continue

        def only(node: Node, codes: Codes, place: int = place) -> Draft | None:
            given = site.rerun.reads(node, codes)[place]
            return (
                ("identity", {}, [given])
                if isinstance(given, Read) and given.codes.ndim == 1
                else None
            )

        overrides = site.redone(only)
        if overrides is None:
            continue
        others = [o for n, o in enumerate(site.step.inputs) if n != place]
        number = next((n for o in others if (n := _number(site, o)) is not None), None)
        if site.kind in SCALINGS and number is not None:
            yield _factor_too_much(site, number), overrides
        elif site.kind in ADDITIONS:
            term = next(
                (site.evidence.name(o.value) for o in others if isinstance(o, Argument)), "a term"
            )
            yield site.diagnosis(TERM_TOO_MUCH, term=term), overrides
        elif _several_write(site):
            yield site.diagnosis(COMPUTED_OTHERWISE), overrides
        else:
            yield (
                site.diagnosis(OPERATOR_TOO_MUCH, kept=site.evidence.called(operand.value)),
                overrides,
            )


def _several_write(site: Site) -> bool:
    """Return True if several operators write the tensor, on different ranks or micro-batches."""
    graph = site.rerun.graph
    return len({graph.nodes[writer].operator for writer in graph.values[site.value].writers}) > 1


def _factor_too_much(site: Site, number: Literal | str) -> Diagnosis:
    """Return the diagnosis of a factor, with everything in the plan of that size."""
    ratio = _ratio(number)
    meaning = (
        str(number)
        if ratio is None
        else factor(site.evidence, ratio if site.kind in PRODUCTS else 1 / ratio)
    )
    return site.diagnosis(FACTOR_TOO_MUCH, meaning=meaning, number=number)


def _ratio(number: Literal | str) -> Fraction | None:
    """Return a number as a ratio; None if it is a root, zero, infinite or a word."""
    try:
        exact = parse_number(number) if isinstance(number, (int, float, str)) else number
    except PlanError:
        return None
    return exact if isinstance(exact, Fraction) and exact else None


def foreign_literal(site: Site) -> Iterator[Candidate]:
    """Use a number of the reference's operators of that kind, none of which has this one."""
    for place, operand, theirs in _literals(site):
        if theirs and operand not in theirs:
            yield from (
                (replace(found, kind=REFERENCE_LITERAL), changes)
                for found, changes in _with_literals(site, place, operand, theirs)
            )


def other_literal(site: Site) -> Iterator[Candidate]:
    """Use a number that other operators of that kind have, or a usual one."""
    for place, operand, theirs in _literals(site):
        own = [
            s.inputs[place]
            for s in site.rerun.steps.values()
            if s.kind == site.kind and len(s.inputs) == len(site.step.inputs)
        ]
        usual = (
            [Fraction(1), Fraction(operand) / 2, Fraction(operand) - 1, Fraction(0)]
            if isinstance(operand, (int, Fraction))
            else []
        )
        yield from _with_literals(
            site,
            place,
            operand,
            [*theirs, *(o for o in own if not isinstance(o, (Argument, tuple))), *usual],
        )


def _literals(site: Site) -> Iterator[tuple[int, Literal, list[Literal]]]:
    """Yield the numbers among the operands.

    Yields:
        The place, the number, the numbers at that place in the reference's operators of that kind.
    """
    steps = reference_steps(site)
    for place, operand in enumerate(site.step.inputs):
        if not isinstance(operand, (Argument, tuple)):
            yield (
                place,
                operand,
                [o for step in steps if not isinstance(o := step.inputs[place], (Argument, tuple))],
            )


def _with_literals(
    site: Site, place: int, operand: Literal, others: Sequence[Literal]
) -> Iterator[Candidate]:
    for literal in islice(
        (other for other in dict.fromkeys(others) if other != operand), MOST_LITERALS
    ):

        def with_it(node: Node, codes: Codes, literal: Literal = literal) -> Draft:
            given = site.rerun.reads(node, codes)
            return (
                node.kind,
                site.rerun.attributes_of(node),
                [*given[:place], literal, *given[place + 1 :]],
            )

        overrides = site.redone(with_it)
        if overrides is not None:
            ratio = (
                Fraction(operand) / Fraction(literal)
                if isinstance(operand, (int, Fraction))
                and isinstance(literal, (int, Fraction))
                and literal
                else Fraction(1)
            )
            plain = site.kind.removesuffix(BACKWARD)
            meaning = (
                factor(site.evidence, ratio if plain in PRODUCTS else 1 / ratio)
                if ratio and plain in SCALINGS
                else None
            )
            if meaning is not None and meaning.names:
                yield (
                    site.diagnosis(LITERAL_FACTOR, literal=operand, right=literal, meaning=meaning),
                    overrides,
                )
            else:
                yield site.diagnosis(LITERAL, literal=operand, right=literal), overrides
