"""The obligations of a check: every output, and every cut that a proof of it takes as given, each as one stage.

Obligations are raised from the outputs backwards. A stage for a parallel value takes only values as given that are computed before it, so justifications
follow the parallel plan's own order and cannot be circular; the reference side is always the reference's own function of its inputs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.degree_bounds import log2_sum
from pitcheck.check.prove import Proof, Settings, prove_stage
from pitcheck.check.specification import Specification
from pitcheck.check.workers import prove_on
from pitcheck.errors import UnsupportedError
from pitcheck.stages.cuts import Cut
from pitcheck.stages.fingerprint import Fingerprints, Key, Walk, places
from pitcheck.stages.graph import Graph
from pitcheck.stages.pair import Stage, Target, build_stage, canonical_form

Progress = Callable[[str, int, int], None]
WIDENINGS = 6


@dataclass
class Obligation:
    """One target with its proof. ``output`` names the reference output it is, "" for a cut in between; ``nodes`` are parallel nodes it covers."""

    target: Target
    proof: Proof
    key: str
    output: str = ""
    widened: int = 0
    demands: tuple[tuple[int, NDArray[np.bool_]], ...] = ()
    nodes: tuple[int, ...] = ()


@dataclass
class Ledger:
    """All obligations of a run, and the distinct proofs behind them."""

    obligations: list[Obligation] = field(default_factory=list)
    proofs: dict[str, Proof] = field(default_factory=dict)
    attempted: list[float] = field(default_factory=list)
    """log2 error of every distinct attempt."""
    covered: set[int] = field(default_factory=set)
    """Parallel nodes that lie in some stage."""


class Prover:
    """Raises and proves the obligations of one pair of graphs. ``accepted_log2`` is what the errors of all obligations attempted may add up to.

    With several ``jobs`` the stages that are needed if all hold are proven by as many processes first.
    """

    def __init__(
        self,
        first: Graph,
        second: Graph,
        specification: Specification,
        settings: Settings,
        progress: Progress | None = None,
        *,
        accepted_log2: float = 0.0,
        jobs: int = 1,
    ) -> None:
        self.first = first
        self.second = second
        self.specification = specification
        self.settings = settings
        self.progress = progress
        self.accepted_log2 = accepted_log2
        self.jobs = jobs
        self._fingerprints = Fingerprints(first, second)
        self._collected: dict[str, tuple[Stage, dict[int, str]]] | None = None
        self.proofs: dict[str, Proof] = {}
        self.attempted: list[float] = []

    def run(self, cuts: dict[int, Cut]) -> Ledger:
        """Prove all outputs, so that the errors of all obligations attempted add up to at most the accepted one, or leave an output unproven.

        Where so many obligations were needed that their sum is larger, all are proven again to a share of it. Trials are numbered as before, so a false
        obligation is only then proven again when it agrees in the earlier draws and in more: the last round's errors are those that count.
        """
        while True:
            ledger = self._settled(cuts)
            if log2_sum(self.attempted) <= self.accepted_log2 or any(o.output and o.proof.outcome != "proven" for o in ledger.obligations):
                return ledger
            # Each counts at two sets of sizes.
            self.settings = replace(self.settings, target_log2=self.accepted_log2 - math.ceil(math.log2(len(self.attempted))) - 2)
            self.proofs = {}
            self.attempted = []

    def _prove_ahead(self, usable: dict[int, Cut]) -> None:
        """Prove on several processes what a round will ask for if everything holds."""
        self._collected = {}
        self._round(usable)
        work, self._collected = self._collected, None
        for key, proof in prove_on(self.jobs, work, self.settings).items():
            self._book(key, proof)

    def _settled(self, cuts: dict[int, Cut]) -> Ledger:
        """Cuts that turn out false are dropped and everything that stood on them is proven anew."""
        usable = dict(cuts)
        if self.jobs > 1:
            self._prove_ahead(usable)
        while True:
            ledger = self._round(usable)
            false = {o.target.cut.value for o in ledger.obligations if not o.output and o.proof.outcome != "proven"}
            if not false:
                return ledger
            for value in false:
                del usable[value]

    def _round(self, usable: dict[int, Cut]) -> Ledger:
        ledger = Ledger(proofs=self.proofs, attempted=self.attempted)
        pending: dict[int, NDArray[np.bool_]] = {}
        queue: list[tuple[int, int]] = []
        waiting: set[int] = set()

        def demand(value: int, mask: NDArray[np.bool_]) -> None:
            if value not in self.specification.initial:
                known = pending.setdefault(value, np.zeros(self.second.codes, dtype=np.bool_))
                if (mask & ~known).any() and value not in waiting:
                    waiting.add(value)
                    heapq.heappush(queue, (-self._rank(value), value))
                known |= mask

        for expected in self.specification.expected:
            target = Target(expected.cut, expected.codes, expected.name)
            obligation = self._prove(target, usable, expected.name)
            self._take(ledger, obligation, demand)
        while queue:
            _, value = heapq.heappop(queue)
            waiting.discard(value)
            target = Target(usable[value], np.flatnonzero(pending[value]), self.second.values[value].name)
            self._take(ledger, self._prove(target, usable, ""), demand)
            if self.progress is not None:
                self.progress("stages", len(ledger.obligations), len(ledger.obligations) + len(queue))
        return ledger

    def _take(self, ledger: Ledger, obligation: Obligation, demand: Callable[[int, NDArray[np.bool_]], None]) -> None:
        ledger.obligations.append(obligation)
        ledger.covered.update(obligation.nodes)
        for value, mask in obligation.demands:
            demand(value, mask)

    def _rank(self, value: int) -> int:
        return max((self.second.rank[w] for w in self.second.values[value].writers), default=-1)

    def _prove(self, target: Target, usable: dict[int, Cut], output: str) -> Obligation:
        """Prove one target; a failing stage is merged with its predecessors before it is blamed."""
        excluded: set[int] = set()
        key, walk = self._fingerprints.of(target, partial(self._cut_of, usable, excluded))
        known = self._again(key, walk, target, output)
        if known is not None:
            return known
        first: Obligation | None = None
        for widened in range(WIDENINGS + 1):
            try:
                stage = build_stage(self.first, self.second, partial(self._cut_of, usable, excluded), [target])
            except UnsupportedError as error:
                return Obligation(target, Proof("inconclusive", code="PIT201", reason=str(error)), "", output, widened)
            obligation = self._prove_stage(stage, target, output, widened)
            if not widened:
                self._fingerprints.remember(key, walk, stage, obligation.key)
            if obligation.proof.outcome == "proven":
                return obligation
            first = first or obligation
            inner = {v for v in stage.cuts if v not in self.specification.initial}
            if not inner:
                break
            excluded |= inner
        return first if first is not None else obligation

    def _again(self, key: Key, walk: Walk, target: Target, output: str) -> Obligation | None:
        """The obligation of a target whose stage is one that was proven as it stands."""
        known = self._fingerprints.known.get(key)
        if known is None:
            return None
        proof = Proof("proven") if self._collected is not None else self.proofs.get(known.form)
        if proof is None or proof.outcome != "proven":
            return None
        values, nodes = places(walk)
        demands = tuple((values[place], mask) for place, mask in known.demands)
        return Obligation(target, proof, known.form, output, 0, demands, tuple(nodes[place] for place in known.nodes))

    def _cut_of(self, usable: dict[int, Cut], excluded: set[int], value: int) -> Cut | None:
        if value in self.specification.initial:
            return self.specification.initial[value]
        return None if value in excluded else usable.get(value)

    def _prove_stage(self, stage: Stage, target: Target, output: str, widened: int) -> Obligation:
        key, keys = canonical_form(stage)
        demands = tuple((value, stage.parallel.rows[value] >= 0) for value in stage.cuts)
        nodes = tuple(step.node for step in stage.parallel.steps)
        if self._collected is not None:
            self._collected.setdefault(key, (stage, keys))
            return Obligation(target, Proof("proven"), key, output, widened, demands, nodes)
        if key not in self.proofs:
            self._book(key, prove_stage(stage, keys, self.settings))
        return Obligation(target, self.proofs[key], key, output, widened, demands, nodes)

    def _book(self, key: str, proof: Proof) -> None:
        self.proofs[key] = proof
        self.attempted.append(proof.error_log2 if proof.outcome == "proven" else self.settings.target_log2)
