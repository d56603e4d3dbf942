"""The certificate of a check that proved its pair: both plans, every cut, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import msgspec
import numpy as np

from pitcheck.certificate.digests import Digests
from pitcheck.certificate.specification import specify
from pitcheck.certificate.statement import (
    BOUND_LOG2,
    MOST_DRAWS,
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
    encode,
)
from pitcheck.engine.state import Check
from pitcheck.errors import UnsupportedError, UsageError
from pitcheck.graph.cuts import Cut
from pitcheck.plan.model import MICROBATCH_AXIS, Lineage, Shard, Table
from pitcheck.prove.prover import Obligation
from pitcheck.report.report import Report

LEAST_LOG2 = -96
"""log2 of the least error that is certified: a verifier has to reach it, too."""


@dataclass
class Certifier:
    """The makings of a certificate: the digests, the salt of the seed, and the check."""

    digests: Digests
    salt: int
    check: Check | None = None
    _lineages: dict[Lineage, int] = field(default_factory=dict)
    _stages: dict[str, int] = field(default_factory=dict)
    _draws: list[int] = field(default_factory=list)

    @property
    def seed(self) -> int:
        """Return the seed that the run must have."""
        return derived_seed(self.digests.digests, self.salt)

    def keep(self, check: Check) -> None:
        """Keep a check that has been decided."""
        self.check = check

    def encode(self, report: Report) -> bytes:
        """Return the certificate of the check that was kept.

        Raises:
            UsageError: the verdict is not equivalent, the bound is too weak, or a plan file has
                changed since its digest was taken.
            UnsupportedError: a certificate cannot say what was proven.
        """
        if report.verdict != "equivalent" or self.check is None:
            raise UsageError(
                f"the verdict is {report.verdict}; only an equivalent pair has a certificate"
            )
        if report.error_bound_log2 > BOUND_LOG2:
            raise UsageError("a certificate needs an --error-bound of at most 2^-64")
        self.digests.check_unchanged()
        return encode(self._statement(self.check, report))

    def _statement(self, check: Check, report: Report) -> Statement:
        found = specify(check.reference, check.parallel)
        proven = {
            check.problem.parallel.values[o.target.cut.value].name: o
            for o in check.ledger.obligations
            if not o.output
        }
        outputs = {(o.output, o.target.cut.value): o for o in check.ledger.obligations if o.output}
        numbers = check.problem.parallel.number
        cuts = tuple(
            self._target(name, self._of_cut(check, o.target.cut), o)
            for name, o in sorted(proven.items())
        )
        ends = tuple(
            self._target(tensor, lineage, outputs[lineage.reference, numbers[tensor]])
            for tensor, lineage in found.outputs
        )
        given = tuple((name, *self._lineage(name, own)) for name, own in found.given.items())
        names, digests = self.digests.names, self.digests.digests
        return Statement(
            type=STATEMENT,
            subject=tuple(Subject(n, {"sha256": d}) for n, d in zip(names, digests, strict=True)),
            predicate_type=PREDICATE,
            predicate=Predicate(
                version=VERSION,
                seed=Seed(self.salt, f"{self.seed:032x}"),
                specification=Stated(
                    given, ends, tuple(found.assumptions), tuple(found.exceptions)
                ),
                lineages=tuple(self._lineages),
                cuts=cuts,
                stages=tuple(map(Stage, self._draws)),
                bound=Bound(float(max(LEAST_LOG2, ceil(report.error_bound_log2)))),
            ),
        )

    def _target(self, tensor: str, lineage: Lineage, obligation: Obligation) -> Target:
        return Target(tensor, *self._lineage(tensor, lineage), self._stage(obligation))

    def _lineage(self, tensor: str, lineage: Lineage) -> tuple[str, int]:
        """Return the reference tensor, "" if it has the same name, and the lineage's number."""
        unnamed = msgspec.structs.replace(lineage, reference="")
        number = self._lineages.setdefault(unnamed, len(self._lineages))
        return "" if lineage.reference == tensor else lineage.reference, number

    def _stage(self, obligation: Obligation) -> int:
        if obligation.key not in self._stages:
            self._draws.append(min(max(obligation.proof.trials, 1), MOST_DRAWS))
        return self._stages.setdefault(obligation.key, len(self._stages))

    def _of_cut(self, check: Check, cut: Cut) -> Lineage:
        """Return a cut as a lineage: the one that the plan states, or one of intervals."""
        info = check.problem.parallel.values[cut.value]
        if (
            check.prover.usable.get(cut.value) is check.hints.get(cut.value, 0)
            and info.tensor.lineage
        ):
            return info.tensor.lineage
        return _of_intervals(check, cut)


def _of_intervals(check: Check, cut: Cut) -> Lineage:
    """Return a cut as a lineage with a table of intervals for each dimension that is cut.

    Raises:
        UnsupportedError: it is of terms, or of some of the coordinates alone.
    """
    mesh, graph = check.parallel.mesh, check.problem.parallel
    held = np.broadcast_to(cut.grid, graph.coordinates.shape)
    written = np.zeros(graph.coordinates.shape, dtype=np.bool_)
    for writer in graph.values[cut.value].writers:
        written = written | graph.nodes[writer].where
    name = graph.values[cut.value].name
    if int(cut.parts.terms.max(initial=1)) > 1 or bool((written & (held < 0)).any()):
        raise UnsupportedError(f"a certificate cannot say what {name!r} holds at every coordinate")
    reference = check.problem.reference.values[cut.reference]
    axes = (*(axis.name for axis in mesh), MICROBATCH_AXIS)
    shards = []
    for dim, size in enumerate(reference.shape):
        column = cut.parts.intervals[dim]
        if column == (((0, size),),):
            continue
        which = cut.parts.which[np.maximum(held, 0), dim]
        kept = [d for d in range(which.ndim) if (which != np.take(which, [0], axis=d)).any()]
        few = which[tuple(slice(None) if d in kept else 0 for d in range(which.ndim))]
        values = tuple(column[n] for n in few.reshape(-1).tolist())
        shards.append(Shard(dim, intervals=Table(tuple(axes[d] for d in kept), values)))
    return Lineage(reference.name, tuple(shards), scale=str(cut.scale))
