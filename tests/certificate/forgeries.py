"""Certificates for any pair of plans, as somebody writes them who does not run the check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from attacks.pairs import alone, spread
from certificate.certified_pairs import accepted, digests_of, result

from pitcheck.certificate.specification import specify
from pitcheck.certificate.statement import (
    PREDICATE,
    STATEMENT,
    VERSION,
    Bound,
    Predicate,
    Seed,
    Stage,
    Stated,
    Statement,
    Subject,
    Target,
    derived_seed,
)
from pitcheck.errors import PitcheckError
from pitcheck.plan.model import Lineage, Number, Operator, Plan, Tensor, Use

Step = tuple[Tensor, Operator]
Pair = tuple[Plan, Plan]


def step(
    name: str,
    kind: str,
    *inputs: str | Number | Use,
    of: Any = "float32",
    shape: tuple[int, ...] = (4,),
    **attributes: Any,
) -> Step:
    """Return an operator, and the tensor of dtype ``of`` that it writes."""
    return Tensor(name, shape, of), Operator(name, kind, inputs, (name,), attributes)


def formulas(leaves: Sequence[Tensor], one: Sequence[Step], other: Sequence[Step]) -> Pair:
    """Return a reference and a plan of two ranks that both read the same leaves and end in y."""
    held = [
        leaf
        if leaf.value is not None
        else msgspec.structs.replace(leaf, lineage=Lineage(leaf.name))
        for leaf in leaves
    ]
    first, second = ([*zip(*steps, strict=True)] for steps in (one, other))
    return alone([*leaves, *first[0]], first[1]), spread([*held, *second[0]], second[1])


def forged_for(pair: Pair, *cuts: tuple[str, Lineage]) -> Statement:
    """Return a certificate of a pair with these cuts, whatever the plans compute."""
    stated, digests = specify(*pair), digests_of(*pair)
    lineages: dict[Lineage, int] = {}

    def number(lineage: Lineage) -> int:
        unnamed = msgspec.structs.replace(lineage, reference="")
        return lineages.setdefault(unnamed, len(lineages))

    given = tuple((name, own.reference, number(own)) for name, own in stated.given.items())
    ends = tuple(Target(name, own.reference, number(own), 0) for name, own in stated.outputs)
    targets = tuple(Target(name, own.reference, number(own), 0) for name, own in cuts)
    said = Stated(given, ends, tuple(stated.assumptions), tuple(stated.exceptions))
    seed = Seed(0, f"{derived_seed(digests, 0):032x}")
    subject = tuple(Subject("plan.json", {"sha256": digest}) for digest in digests)
    predicate = Predicate(VERSION, seed, said, tuple(lineages), targets, (Stage(1),), Bound(-64.0))
    return Statement(STATEMENT, subject, PREDICATE, predicate)


def told(pair: Pair, *cuts: tuple[str, Lineage]) -> str:
    """Return "" if a forged certificate of a pair is accepted, else why not."""
    try:
        found = result(forged_for(pair, *cuts), pair[1], pair[0])
    except PitcheckError as error:
        return str(error)
    return "" if accepted(found) else " | ".join((*found.refused, *found.open))
