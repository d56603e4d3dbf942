"""Everything that one check knows while it goes on, and the clock of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pitcheck.base.options import Options
from pitcheck.base.work import Work
from pitcheck.claims.hints import hinted_cuts
from pitcheck.claims.problem import Problem
from pitcheck.claims.specification import Specification
from pitcheck.errors import ReductionError, ShapeError
from pitcheck.graph.cuts import Cut
from pitcheck.graph.graph import Graph
from pitcheck.plan.model import PairAt, Plan
from pitcheck.prove.automatic import automatic_of
from pitcheck.prove.proof import Proof, Settings
from pitcheck.prove.prover import Ledger, Prover
from pitcheck.prove.remembered import Remembered, remembered
from pitcheck.refute.block_run import find_batch
from pitcheck.refute.whole_run import WholeRun, conjecture, run_whole
from pitcheck.report.report import Finding, OperatorCounts, Seconds, Shown
from pitcheck.stage.equal_blocks import Batched
from pitcheck.stage.run_batch import StepError

Progress = Callable[..., None]
"""A function that is told (what, how many are done, how many are known, a sentence for people)."""
MOST_NODES = 10_000
"""The most nodes of the parallel plan times blocks of its batch at which both plans are run with
other data at every coordinate.
"""
MOST_REFUSED = 8
"""The number of different stages over hints that may fail before hints are given up."""
SPARE_LOG2 = 12.0
"""Every obligation is proven to 2^-12 of the accepted error, so that a few thousand distinct ones
stay below it together; with more of them all are proven again.
"""


@dataclass
class Clock:
    """The seconds that each step of a check took."""

    spent: dict[str, float] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """Book the time since the last lap under a name."""
        now = time.perf_counter()
        self.spent[name] = self.spent.get(name, 0.0) + now - self.last
        self.last = now

    def seconds(self, load: float) -> Seconds:
        """Return the times of all steps, in seconds; ``load``: those of reading the plans."""
        rounded = {name: round(value, 4) for name, value in self.spent.items()}
        return Seconds(
            **rounded,
            load=round(load, 4),
            total=round(load + time.perf_counter() - self.started, 4),
        )


@dataclass(eq=False)
class Check:
    """One check: what it was asked, and what its strategies have found so far.

    The strategies that read the plans set ``graphs`` and ``problem``; those after them may read
    what follows from these, which is computed once. ``again`` makes the pair at another mesh; None:
    it cannot be made again. ``causes``: findings of another pair of plans, whose repairs are known
    to make this one right; a mismatch is explained by them.
    """

    reference: Plan
    parallel: Plan
    options: Options
    seed: int
    xp: Any
    work: Work = field(default_factory=Work)
    load_seconds: float = 0.0
    jobs: int = 1
    again: PairAt | None = None
    causes: Sequence[Finding] = ()
    clock: Clock = field(default_factory=Clock)
    shown: Shown | None = None
    """The difference that is shown, from then on a mismatch whatever else happens."""
    counts: OperatorCounts = field(default_factory=OperatorCounts)
    findings: list[Finding] = field(default_factory=list)
    graphs: tuple[Graph, Graph] = field(init=False)
    problem: Problem = field(init=False)
    specification: Specification = field(init=False)
    ledger: Ledger = field(default_factory=Ledger)
    remembered: Remembered | None = field(init=False)
    """The proofs of earlier runs; None if nothing is remembered."""
    tried: str = ""
    """The sizes at which open outputs were tried in vain, in words."""
    too_large: str = ""
    """The reason why a few draws of large plans do not fit, with what differs at smaller sizes."""
    differing: tuple[str, ...] = ()
    """The outputs that differ in the run that shows a mismatch, or in proofs that were tried after
    it.
    """
    drawn: set[str] = field(default_factory=set)
    """The outputs that depend on random numbers that the reference does not draw."""
    dead: tuple[str, ...] = ()
    """The operators of the parallel plan that no proof covers."""

    def __post_init__(self) -> None:
        self.specification = Specification(total=len(self.reference.outputs))
        self.remembered = remembered(self.options, self.parallel)

    @cached_property
    def hints(self) -> dict[int, Cut]:
        """Return the cuts that the parallel plan states itself, by value."""
        return hinted_cuts(self.problem)

    @cached_property
    def batch(self) -> Batched | None:
        """Return the batch by which inputs are made of equal blocks; None if sizes stay full."""
        return None if self.problem.full_shapes else find_batch(self.problem)

    @property
    def large_batch(self) -> Batched | None:
        """Return the batch of plans that are first run on few different blocks of data."""
        return self.batch_above(MOST_NODES)

    def batch_above(self, most: int) -> Batched | None:
        """Return the batch of plans too large to be run with other data at every coordinate.

        Return None if blocks times nodes of the parallel plan are at most ``most``.
        """
        nodes = len(self.problem.parallel.nodes)
        return self.batch if self.batch is not None and self.batch.count * nodes > most else None

    @cached_property
    def prover(self) -> Prover:
        """Return the one prover of this check, which keeps account of all attempts."""
        options, problem = self.options, self.problem
        settings = Settings(
            self.xp,
            self.seed,
            options.error_bound_log2 - SPARE_LOG2,
            options.trials or 1,
            problem.full_shapes,
            options.max_memory,
            templates=problem.templates,
            full_coordinates=options.coordinates == "full",
            automatic=automatic_of(options.backend),
            work=self.work,
        )
        return Prover(
            problem,
            settings,
            self.work,
            accepted_log2=options.error_bound_log2,
            jobs=self.jobs,
            patience=MOST_REFUSED if self.large_batch is not None else 0,
            remembered=self.remembered,
        )

    @property
    def proofs_so_far(self) -> Mapping[str, Proof]:
        """Return the proofs that were made, by stage; none if no prover is at work yet."""
        prover = self.__dict__.get("prover")
        return prover.proofs if isinstance(prover, Prover) else {}

    @cached_property
    def run(self) -> WholeRun:
        """Return a run of both plans on float64 at reduced sizes.

        Full sizes are used if small ones conflict although those of the plans do not.
        """
        problem = self.problem
        try:
            return run_whole(problem)
        except (StepError, ReductionError) as error:
            conflict = not isinstance(error, StepError) or isinstance(
                error.cause, (ShapeError, ReductionError)
            )
            if problem.full_shapes or not conflict:
                raise
            full = replace(problem, options=replace(problem.options, shapes="full"))
            return run_whole(full, must_fit=True)

    @cached_property
    def cuts(self) -> dict[int, Cut]:
        """Return the cuts that the run lets one expect, by value."""
        return conjecture(self.problem, self.run)
