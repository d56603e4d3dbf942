"""The verifier: every claim of a certificate established again, stage by stage.

Nothing that a certificate says is believed. Its cuts are hypotheses: each is proven from those that
come before it, at primes, points and sizes of the verifier's choice. Sizes are always the plans'.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from math import log2

import numpy as np

from pitcheck.certificate.relation import Part, Relation
from pitcheck.certificate.specification import Specification, check_coverage, specify
from pitcheck.certificate.stage import Claim, FalseClaimError, Stage, constant
from pitcheck.certificate.statement import BOUND_LOG2, Statement, Target, derived_seed
from pitcheck.certificate.trace import Instance, Node, Nodes, Trace
from pitcheck.errors import CertificateError, PlanError, ShapeError, UnsupportedError
from pitcheck.ops.meanings.cast import kind_named
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.instances import count_instances
from pitcheck.plan.model import Lineage, Plan, Tensor
from pitcheck.plan.rules.lineage_rules import LineageRules
from pitcheck.plan.validate import validate

MOST_INSTANCES = 1 << 20
"""The operators, over all ranks and micro-batches, of the largest plan that is followed."""
MOST_PLACES = 1 << 26
"""The largest product of operators in the plan, ranks and micro-batches."""


@dataclass
class Verified:
    """The outcome of verifying. ``refused`` and ``open`` have the stages that failed, with why."""

    bound_log2: float = 0.0
    stages: int = 0
    distinct: int = 0
    sampled: int = 0
    draws: int = 0
    refused: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def verify(
    statement: Statement,
    reference: Plan,
    parallel: Plan,
    digests: tuple[str, str],
    seed: int | None = None,
) -> Verified:
    """Establish the claim of a certificate for two plans with these digests.

    ``seed`` repeats a run; without it all draws are fresh.

    Raises:
        CertificateError: the certificate is of other plans, or says what they contradict.
        PlanError: a plan is not valid.
        UnsupportedError: the pair has something that is not verified.
    """
    _check_subject(statement, digests)
    for plan, other in ((reference, None), (parallel, reference)):
        for violation in validate(plan, other):
            if violation.severity == "error":
                raise PlanError(violation.message, violation.place)
        _check_extent(plan)
    specification = specify(reference, parallel)
    _check_specification(statement, specification)
    pair = _Pair(statement, reference, parallel, specification)
    return pair.verified(np.random.default_rng(secrets.randbits(128) if seed is None else seed))


def _check_extent(plan: Plan) -> None:
    """Raise UnsupportedError for a plan of more ranks or operators than are followed."""
    mesh, runs = Coordinates.of(plan), count_instances(plan)
    places = mesh.ranks * mesh.microbatches * max(len(plan.operators), 1)
    if runs > MOST_INSTANCES or places > MOST_PLACES:
        raise UnsupportedError(
            f"a plan runs {runs} operators at {places} places; this verifier follows each of them, "
            f"at full sizes, and at most {MOST_INSTANCES} at {MOST_PLACES} places"
        )


def _check_subject(statement: Statement, digests: tuple[str, str]) -> None:
    names = "reference", "parallel"
    for subject, digest, name in zip(statement.subject, digests, names, strict=True):
        if subject.digest["sha256"] != digest:
            raise CertificateError(
                f"it is of another {name} plan: its sha256 is {subject.digest['sha256']!r}, that "
                f"of the {name} plan {digest!r}",
                "subject",
            )
    seed = statement.predicate.seed
    if seed.value != f"{derived_seed(digests, seed.salt):032x}":
        raise CertificateError("it is not made of both digests and the salt", "predicate.seed")


def _check_specification(statement: Statement, found: Specification) -> None:
    """Refuse a certificate whose specification is not that of the plans."""
    predicate = statement.predicate
    stated = predicate.specification
    given = {name: predicate.lineage(number, name, own) for name, own, number in stated.given}
    outputs = [
        (t.tensor, predicate.lineage(t.lineage, t.tensor, t.reference)) for t in stated.outputs
    ]
    same = (
        ("given", given == found.given and len(given) == len(stated.given)),
        ("outputs", outputs == found.outputs),
        ("assumptions", [*stated.assumptions] == found.assumptions),
        ("exceptions", [*stated.exceptions] == found.exceptions),
    )
    for name, holds in same:
        if not holds:
            place = f"predicate.specification.{name}"
            raise CertificateError("this is not what the plans say", place)


class _Pair:
    """Both plans followed, with the claims of all stages."""

    def __init__(
        self, statement: Statement, reference: Plan, parallel: Plan, given: Specification
    ) -> None:
        self._nodes = Nodes()
        self._predicate = statement.predicate
        self._specification = given
        self._theirs = {tensor.name: tensor for tensor in reference.tensors}
        self._reference = Trace(reference, self._nodes, self._input).run()
        self._parallel = Trace(parallel, self._nodes, self._part, self._claimed)
        self._instances: dict[str, dict[Instance, int]] = {}
        self._rules = LineageRules(parallel, self._parallel.mesh, reference)
        self._cuts = {cut.tensor: self._cut(cut) for cut in self._predicate.cuts}
        self._given = {n: self._relation(n, own, "given") for n, own in given.given.items()}
        self._parallel.run()

    def _cut(self, cut: Target) -> Relation:
        """Return what a cut says. Raises CertificateError for one of no number that is computed."""
        ours = self._parallel.tensors.get(cut.tensor)
        source = self._theirs.get(cut.reference or cut.tensor)
        if ours is None or ours.name not in self._parallel.written or source is None:
            raise CertificateError(f"{cut.tensor!r} is computed nowhere", "predicate.cuts")
        if {kind_named(tensor.dtype) for tensor in (ours, source)} != {"field"}:
            raise CertificateError(f"{cut.tensor!r} has integers or truths", "predicate.cuts")
        return self._relation(cut.tensor, self._lineage(cut), "cut")

    def _lineage(self, target: Target) -> Lineage:
        return self._predicate.lineage(target.lineage, target.tensor, target.reference)

    def _relation(self, name: str, lineage: Lineage, what: str) -> Relation:
        tensor = self._parallel.tensors[name]
        for violation in self._rules.check(tensor, lineage, f"{what} {name!r}"):
            raise PlanError(violation.message, violation.place)
        return Relation(lineage, tensor, self._theirs[lineage.reference].shape, self._parallel.mesh)

    def _input(self, tensor: Tensor, rank: int, microbatch: int) -> Node:  # noqa: ARG002
        return constant(tensor) or Node(":input", leaf=tensor.name)

    def _part(self, tensor: Tensor, rank: int, microbatch: int) -> Node:
        relation = self._given.get(tensor.name)
        if relation is None:
            return constant(tensor) or Node(":unwritten", leaf=tensor.name)
        return Node(":part", leaf=relation.at(rank, microbatch))

    def _claimed(self, name: str, rank: int, microbatch: int, node: int) -> int:
        """Note what an instance is; return what stands for it from here on."""
        self._instances.setdefault(name, {})[name, rank, microbatch] = node
        if name not in self._cuts:
            return node
        return self._nodes.add(Node(":part", leaf=self._cuts[name].at(rank, microbatch)))

    # --- claims

    def _claims(self, target: Target, is_output: bool) -> list[Claim]:
        """Return what a cut or an output says, once for each different computation."""
        name, lineage = target.tensor, self._lineage(target)
        instances = self._instances.get(name) or self._everywhere(name)
        relation = self._relation(name, lineage, "output") if is_output else self._cuts[name]
        parts = {key: relation.at(key[1], key[2]) for key in instances}
        if is_output:
            wanted = self._theirs[lineage.reference]
            owner = self._specification.owner_of(self._parallel.tensors[name], wanted)
            check_coverage(name, parts, wanted.shape, owner, self._parallel)
        sums: dict[object, list[Instance]] = {}
        for key, part in parts.items():
            sums.setdefault(part.group if part.terms > 1 else key, []).append(key)
        claims: dict[Claim, None] = {}
        for members in sums.values():
            terms = sorted(members, key=lambda key: parts[key].term)
            first = parts[terms[0]]
            if [parts[key].term for key in terms] != list(range(first.terms)) or any(
                parts[key].box != first.box for key in terms
            ):
                raise UnsupportedError("a sum lacks a term, or has one twice")
            whole = Part(first.reference, first.box, first.scale)
            claims[Claim(tuple(instances[key] for key in terms), whole)] = None
        return list(claims)

    def _everywhere(self, name: str) -> dict[Instance, int]:
        """Return the instances of a tensor that nothing writes."""
        mesh, tensor = self._parallel.mesh, self._parallel.tensors[name]
        microbatches = range(mesh.microbatches if tensor.microbatched else 1)
        keys = [(name, rank, m) for rank in range(mesh.ranks) for m in microbatches]
        return {key: self._nodes.add(self._part(tensor, *key[1:])) for key in keys}

    # --- stages

    def verified(self, generator: np.random.Generator) -> Verified:
        """Prove all stages, each different one once."""
        targets = [(t, False) for t in self._predicate.cuts]
        targets += [(t, True) for t in self._predicate.specification.outputs]
        result = Verified(
            stages=len(targets),
            exceptions=tuple(self._specification.exceptions),
            assumptions=tuple(self._specification.assumptions),
        )
        allowed = min(BOUND_LOG2, self._predicate.bound.log2) - log2(len(targets))
        proven: dict[str, bool] = {}
        total, refused, left = 0.0, [], []
        for target, is_output in targets:
            try:
                stage = Stage(
                    self._nodes, self._reference, self._theirs, self._claims(target, is_output)
                )
                least = self._predicate.stages[target.stage].draws
                key = f"{stage.key} {least}"
                if key not in proven:
                    error, draws, sampled = stage.prove(generator, allowed, least)
                    total, proven[key] = total + error, sampled
                    result.draws += draws
                result.sampled += proven[key]
            except FalseClaimError as error:
                refused.append(f"{target.tensor}: {error}")
            except (UnsupportedError, ShapeError, OverflowError) as error:
                left.append(f"{target.tensor}: {error}")
        result.distinct, result.refused, result.open = len(proven), tuple(refused), tuple(left)
        result.bound_log2 = log2(total) if total else -1074.0
        if not refused and not left and result.bound_log2 > self._predicate.bound.log2:
            raise UnsupportedError("the bound that the certificate claims is not reached")
        return result
