"""The obligations of a check: every output, and every cut that a proof of it takes as given.

Each obligation is one stage. They are raised from the outputs backwards. A stage for a parallel
value takes only values as given that are computed before it, so justifications follow the parallel
plan's own order and cannot be circular. The reference side is always the reference's own function
of its inputs.

>>> import numpy as np
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> prover = Prover(Problem.of(plan, plan), Settings(np, 1, -64.0, 1, False, 1 << 30))
>>> [obligation.output for obligation in prover.run({}).obligations]
['y']
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pitcheck.claims.problem import Problem
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.grids import Mask, either
from pitcheck.prove.domains.reference_signs import Signs
from pitcheck.prove.domains.returned_states import refusal
from pitcheck.prove.domains.without_value import WithoutValue
from pitcheck.prove.error_budget import EARLIER, HINTS, ErrorBudget
from pitcheck.prove.full_shapes.in_turn import InTurn
from pitcheck.prove.pool import Pool, pool_of
from pitcheck.prove.proof import BUDGET, Proof, Settings
from pitcheck.prove.remembered import Remembered
from pitcheck.prove.stage_proof import prove_stage
from pitcheck.prove.workers import Workers
from pitcheck.stage.building import build_stage
from pitcheck.stage.canonical import canonical_form
from pitcheck.stage.coordinate_sample import Sample, sample_of
from pitcheck.stage.fingerprint import Fingerprints, Key, Walk, places
from pitcheck.stage.stage import Stage, Target

Progress = Callable[..., None]
"""A function that is told (what, how many are done, how many are known, a sentence for people)."""
WIDENINGS = 6
"""The number of times that a failing stage is merged with those before it."""
DEFERRED = Proof("proven")
"""The proof that stands for one that another process makes."""
MOST_UNCUT = 150
"""The nodes of both plans together up to which outputs are tried as one stage each, if nothing says
where to cut. Of larger plans that takes longer than to run both and to cut where they agree.
"""
LEAST_STEPS = 40_000
"""The steps of stages that hints may always cost before they are given up. Every hop of a ring of
16 ranks is a stage of 850 steps.
"""


@dataclass
class Obligation:
    """One target with its proof.

    ``output`` names the reference output that it is, "" for a cut in between. ``nodes`` are the
    parallel nodes that it covers. ``demands`` are the values, with their coordinates, that the
    proof takes as given.
    """

    target: Target
    proof: Proof
    key: str
    output: str = ""
    widened: int = 0
    demands: tuple[tuple[int, Mask], ...] = ()
    nodes: tuple[int, ...] = ()


@dataclass
class Ledger:
    """All obligations of a run, and the distinct proofs behind them."""

    obligations: list[Obligation] = field(default_factory=list)
    proofs: dict[str, Proof] = field(default_factory=dict)
    budget: ErrorBudget = field(default_factory=lambda: ErrorBudget(0.0))
    """The errors that the attempts at all distinct stages spent, by the canonical form of each
    stage.
    """
    covered: set[int] = field(default_factory=set)
    """The parallel nodes that lie in some stage."""

    @property
    def holds(self) -> bool:
        """Return True if every obligation is proven."""
        return not self.refused

    @property
    def estimated(self) -> bool:
        """Return True if the bound of some proof is an estimate."""
        return any(o.proof.heuristic for o in self.obligations)

    @property
    def refused(self) -> list[Obligation]:
        """Return the obligations that are not proven."""
        return [o for o in self.obligations if o.proof.outcome != "proven"]

    @property
    def open_outputs(self) -> list[Obligation]:
        """Return the outputs that are not proven."""
        return [o for o in self.refused if o.output]


class Prover:
    """The prover of the obligations of one problem.

    ``accepted_log2``: log2 of what the errors of all attempts may add up to. With several ``jobs``
    stages are proven by as many processes (:mod:`pitcheck.prove.workers`). With
    ``patience`` an attempt to prove everything over hints goes on although some stages fail, while
    these are at most so many different ones; ``refused`` has them then. ``failed`` is True if a
    stage over hints differs, rather than being left open. ``uncut`` has proofs of whole outputs,
    some with estimates, that stand if shorter stages have no proof. ``remembered`` has proofs of
    earlier runs; None: nothing is remembered.
    """

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        progress: Progress | None = None,
        *,
        accepted_log2: float = 0.0,
        jobs: int = 1,
        patience: int = 0,
        remembered: Remembered | None = None,
    ) -> None:
        self.problem = problem
        self.specification = problem.specification
        self.settings = settings
        self.progress = progress
        self.budget = ErrorBudget(accepted_log2)
        self.jobs = jobs
        self.patience = patience
        self.remembered = remembered
        self.refused: list[Obligation] = []
        self.failed = False
        self.over_budget = ""
        """The need of a stage over hints that was not allowed, in words; "" if there is none."""
        self.uncut: Ledger | None = None
        self.usable: dict[int, Cut] = {}
        """The cuts that were proven in the last run."""
        self._fingerprints = Fingerprints(
            problem.reference, problem.parallel, self.specification.initial
        )
        self._workers: Workers | InTurn | None = None
        self._pool: Pool[Proof] | None = None
        self._hoping = False
        self.proofs: dict[str, Proof] = {}
        self._signs = Signs(problem.reference, self._fingerprints)
        self._without_value = WithoutValue(problem, jobs)
        self._steps = 0
        self._sample: Sample | None = None

    def hope(self, cuts: dict[int, Cut]) -> Ledger | None:
        """Try to prove all outputs from untrusted cuts.

        Return None once a stage fails without widening, or if the stages grow larger than both
        plans. Half of the accepted error is kept for this attempt; if it fails, that half counts as
        spent. Without cuts a stage is all that comes before an output, which is not tried for large
        plans; None is returned as well if the bound of such a stage is an estimate, since shorter
        stages may have theorems.
        """
        if not cuts and self.problem.nodes > MOST_UNCUT:
            return None
        accepted, self._hoping = self.budget.accepted_log2, True
        self.budget.accepted_log2 = accepted - 1
        if not self.settings.full_coordinates:
            self._sample = sample_of(
                self.problem.parallel, [*self.specification.initial.values(), *cuts.values()]
            )
        ledger = self.run(cuts)
        self.budget.accepted_log2, self._hoping, self._sample = accepted, False, None
        if ledger.holds and (cuts or not ledger.estimated):
            return ledger
        self.uncut = ledger if ledger.holds else None
        refused = ledger.refused
        self.failed = any(o.proof.outcome == "failed" for o in refused)
        self.over_budget = next((o.proof.reason for o in refused if o.proof.code == BUDGET), "")
        self.refused = refused if _bearable(refused, self.patience) else []
        self.budget.set_aside(HINTS, max(accepted - 1, self.budget.spent_log2))
        return None

    def run(self, cuts: dict[int, Cut]) -> Ledger:
        """Prove all outputs, or leave some unproven, within the accepted error.

        If so many attempts were needed that their sum exceeds it, all are proven again to a share
        of it.
        """
        while True:
            ledger = self._settled(cuts)
            if self.budget.holds or any(
                (o.output or self._hoping) and o.proof.outcome != "proven"
                for o in ledger.obligations
            ):
                return ledger
            self.settings = replace(self.settings, target_log2=self.budget.again())
            self.proofs = {}

    def refusal_of(self, ledger: Ledger, states: Mapping[str, Sequence[str]]) -> str:
        """Return why outputs may not be taken for inputs in a proof that holds; "" if they may.

        ``states``: by the name of an input of the reference, the outputs that it stands for.
        """
        claims, usable, settings = ledger.obligations, self.usable, self.settings
        return refusal(
            self.problem, self._signs, self._without_value, claims, usable, settings, states
        )

    def at_other_sizes(self, settings: Settings) -> Ledger | None:
        """Prove the outputs over the proven cuts with other settings.

        Return None if earlier attempts have used up too much of the accepted error. All that was
        attempted before counts, too.
        """
        if not self.budget.allows_more:
            return None
        jobs, self.jobs, self.settings = self.jobs, 1, settings
        self.budget.set_aside(EARLIER, self.budget.spent_log2)
        self.proofs = {
            key: proof for key, proof in self.proofs.items() if proof.outcome == "proven"
        }
        ledger = self.run(self.usable)
        self.jobs = jobs
        return ledger

    def _ahead(self, usable: dict[int, Cut]) -> Ledger | None:
        """Return a round in which other processes prove stages, or all stages wait.

        These count as proven until all are cut out. Return None if one of them is not proven.
        """
        self._workers = workers = (
            InTurn(self.settings, self.progress, self._pool)
            if self._pool is not None or self.settings.in_pieces
            else Workers(self.jobs, self.settings, self.progress, all_needed=self._hoping)
        )
        try:
            ledger = self._round(usable)
            if self._hoping and not _bearable(ledger.refused, self.patience):
                workers.stop()
            found = workers.proofs()
        finally:
            workers.stop()
            self._workers = None
        given = {key for key, proof in self.proofs.items() if proof is DEFERRED}
        for key in given & found.keys():
            self.proofs[key] = found[key]
            self._keep(key, found[key])
            self.budget.enter(key, found[key].error_log2, found[key].attempts)
        for key in given - found.keys():
            del self.proofs[key]
            self.budget.withdraw(key)
        ledger.obligations = [
            replace(o, proof=found[o.key]) if o.proof is DEFERRED and o.key in found else o
            for o in ledger.obligations
        ]
        # A round that fails whatever the missing proofs say is not repeated.
        return (
            None
            if given - found.keys()
            and (not self._hoping or _bearable(ledger.refused, self.patience))
            else ledger
        )

    def _finite(self, cuts: dict[int, Cut]) -> dict[int, Cut]:
        """Return the cuts at values that are never infinite.

        Numbers are drawn at a cut. Formulas that are equal for all of these may differ at infinity:
        exp(a) / exp(a) is 1 for every number a, and has no value where a mask made a minus
        infinity.
        """
        may_be = self._signs.may_be_infinite
        return {value: cut for value, cut in cuts.items() if not may_be(cut.reference)}

    def _settled(self, cuts: dict[int, Cut]) -> Ledger:
        """Prove all outputs; drop cuts that turn out false, and prove anew what stood on them."""
        self._pool = pool_of(self.settings, self.jobs)
        try:
            return self._settled_over(self._finite(cuts))
        finally:
            if self._pool is not None:
                self._pool.stop()
            self._pool = None

    def _settled_over(self, usable: dict[int, Cut]) -> Ledger:
        """Prove all outputs over cuts, and take those away that turn out false."""
        ahead = self._ahead(usable) if self.jobs > 1 or self.settings.in_pieces else None
        while True:
            ledger, ahead = ahead or self._round(usable), None
            if self._hoping and not ledger.holds:
                return ledger
            false = {
                o.target.cut.value
                for o in ledger.obligations
                if not o.output and o.proof.outcome != "proven"
            } or self._without_value.useless(ledger.obligations, usable, self.settings)
            if not false:
                self.usable = usable
                return ledger
            for value in false:
                del usable[value]

    def _round(self, usable: dict[int, Cut]) -> Ledger:
        """Prove all outputs, and all that their proofs take as given, once."""
        self._steps = 0
        ledger = Ledger(proofs=self.proofs, budget=self.budget)
        pending: dict[int, Mask] = {}
        queue: list[tuple[int, int]] = []
        waiting: set[int] = set()

        def demand(value: int, mask: Mask) -> None:
            if value not in self.specification.initial:
                known = pending.get(value)
                if (known is None or (mask & ~known).any()) and value not in waiting:
                    waiting.add(value)
                    heapq.heappush(queue, (-self.problem.parallel.depth(value), value))
                pending[value] = either(known, mask)

        for target in self.problem.targets():
            if not self._take(ledger, self._prove(target, usable, target.name), demand):
                return ledger
        while queue:
            _, value = heapq.heappop(queue)
            waiting.discard(value)
            target = Target(
                usable[value],
                pending[value],
                self.problem.parallel.values[value].home,
                self.problem.parallel.values[value].name,
            )
            if not self._take(ledger, self._prove(target, usable, ""), demand):
                return ledger
            if self.progress is not None:
                self.progress(
                    "stages", len(ledger.obligations), len(ledger.obligations) + len(queue)
                )
        return ledger

    def _take(
        self, ledger: Ledger, obligation: Obligation, demand: Callable[[int, Mask], None]
    ) -> bool:
        """Enter an obligation and what it demands.

        Return False if nothing more need be looked at: of untrusted cuts nearly all must hold, and
        of stages that other processes prove all must.
        """
        ledger.obligations.append(obligation)
        if self._workers is not None:
            self._workers.attend()
            if self._workers.refused:
                return False
        if (
            self._hoping
            and obligation.proof.outcome != "proven"
            and not _bearable(ledger.refused, self.patience)
        ):
            return False
        ledger.covered.update(obligation.nodes)
        for value, mask in obligation.demands:
            demand(value, mask)
        return True

    def _prove(self, target: Target, usable: dict[int, Cut], output: str) -> Obligation:
        """Prove one target; merge a failing stage with its predecessors before it is blamed."""
        excluded: set[int] = set()
        cut_of = partial(self._cut_of, usable, excluded)
        form, walk = self._fingerprints.of(target, cut_of)
        key = (*form, *self._signs.facts(cut_of, walk.cuts))
        known = self._again(key, walk, target, output)
        if known is not None:
            return known
        sampled = (
            self._prove_sample(self._sample, target, usable, output, key, walk)
            if self._sample is not None
            else None
        )
        if sampled is not None:
            return sampled
        first: Obligation | None = None
        for widened in range(1 if self._hoping else WIDENINGS + 1):
            try:
                stage = build_stage(self.problem.reference, self.problem.parallel, cut_of, [target])
            except UnsupportedError as error:
                return Obligation(
                    target,
                    Proof("inconclusive", code="PIT201", reason=str(error)),
                    "",
                    output,
                    widened,
                )
            obligation = self._prove_stage(stage, target, output, widened)
            if not widened:
                self._fingerprints.remember(key, walk, stage, obligation.key, obligation.demands)
            if obligation.proof.outcome == "proven":
                return obligation
            first = first or obligation
            inner = {v for v in stage.cuts if v not in self.specification.initial}
            if not inner:
                break
            # The last stage of an output begins at the plans' inputs.
            excluded |= set(usable) if output and widened == WIDENINGS - 1 else inner
        return first if first is not None else obligation

    def _prove_sample(
        self,
        sample: Sample,
        target: Target,
        usable: dict[int, Cut],
        output: str,
        key: Key,
        walk: Walk,
    ) -> Obligation | None:
        """Prove one target at a few coordinates that stand for all.

        Return None if they do not stand for all, or if it fails.
        """
        small = sample.target(target)
        cuts = {value: self._cut_of(usable, set(), value) for value in walk.cuts}
        seen = {value: None if cut is None else sample.cut(cut) for value, cut in cuts.items()}
        if small is None or None in seen.values():
            return None
        try:
            stage = build_stage(self.problem.reference, sample.graph, seen.get, [small])
        except UnsupportedError:
            return None
        demands = {value: sample.mask(stage.parallel.held[value]) for value in stage.cuts}
        if sample.sampling.resized(stage.parallel) or any(
            mask is None for mask in demands.values()
        ):
            return None
        stage = replace(stage, sampling=sample.sampling)
        obligation = self._prove_stage(stage, target, output, 0)
        if obligation.proof.outcome != "proven":
            # All coordinates decide instead. The attempt counts all the same.
            self.proofs.pop(obligation.key, None)
            return None
        obligation.demands = tuple(
            (value, mask) for value, mask in demands.items() if mask is not None
        )
        self._fingerprints.remember(key, walk, stage, obligation.key, obligation.demands)
        return obligation

    def _again(self, key: Key, walk: Walk, target: Target, output: str) -> Obligation | None:
        """Return the obligation of a target whose stage was proven before, else None."""
        known = self._fingerprints.known.get(key)
        if known is None:
            return None
        proof = self.proofs.get(known.form)
        if proof is None or proof.outcome != "proven":
            return None
        self.budget.enter(known.form, proof.error_log2, proof.attempts)
        values, nodes = places(walk)
        demands = tuple((values[place], mask) for place, mask in known.demands)
        return Obligation(
            target,
            proof,
            known.form,
            output,
            0,
            demands,
            tuple(nodes[place] for place in known.nodes),
        )

    def _too_much(self, stage: Stage) -> bool:
        """Return True if the different stages cut out so far exceed both plans together.

        Running the plans as they are costs less then.
        """
        # An all-to-all is a step per place in its group, but one node.
        self._steps += len({step.node for step in stage.parallel.steps}) + len(
            {step.node for step in stage.reference.steps}
        )
        return self._steps > max(LEAST_STEPS, self.problem.nodes)

    def _cut_of(self, usable: dict[int, Cut], excluded: set[int], value: int) -> Cut | None:
        """Return the cut at which a value is given to a stage, or None."""
        if value in self.specification.initial:
            return self.specification.initial[value]
        return None if value in excluded else usable.get(value)

    def _prove_stage(self, stage: Stage, target: Target, output: str, widened: int) -> Obligation:
        """Return the obligation of a target whose stage is cut out."""
        stage = self._signs.of_stage(stage)
        key, keys = canonical_form(stage)
        if stage.sampling is not None:
            key = f"{key}, at {sorted(stage.sampling.axes.items())}"
        demands = tuple((value, stage.parallel.held[value]) for value in stage.cuts)
        nodes = tuple(step.node for step in stage.parallel.steps)
        if key not in self.proofs:
            if self._hoping and self._too_much(stage):
                return Obligation(
                    target,
                    Proof("inconclusive", code="PIT203", reason="hints are too far apart"),
                    "",
                    output,
                    widened,
                )
            self.proofs[key] = self._proof(key, stage, keys)
        proof = self.proofs[key]
        self.budget.enter(key, proof.error_log2, proof.attempts)
        return Obligation(target, proof, key, output, widened, demands, nodes)

    def _proof(self, key: str, stage: Stage, keys: dict[int, str]) -> Proof:
        """Return the proof of a stage, or DEFERRED if another process makes it."""
        if self.remembered is not None:
            known = self.remembered.recall(key, self.settings)
            if known is not None:
                return known
        if self._workers is None or not self._workers.takes(stage):
            proof = self._proof_now(key, stage, keys)
            self._keep(key, proof)
            return proof
        self._workers.give(key, stage, keys)
        return DEFERRED

    def _proof_now(self, key: str, stage: Stage, keys: dict[int, str]) -> Proof:
        """Return the proof of a stage that is needed before others are cut out."""
        pool = self._pool
        if pool is not None and (self.settings.in_pieces or pool.has_made(key)):
            return pool.prove(key, stage, keys)
        return prove_stage(stage, keys, self.settings.here, key)

    def _keep(self, key: str, proof: Proof) -> None:
        """Keep a proof for later runs."""
        if self.remembered is not None:
            self.remembered.keep(key, proof, self.settings)


def _bearable(refused: Sequence[Obligation], patience: int) -> bool:
    """Return True if so few stages fail that the others are worth proving.

    A stage that was not even cut out ends the attempt.
    """
    return all(o.key for o in refused) and len({o.key for o in refused}) <= patience
