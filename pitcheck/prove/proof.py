"""The settings by which stages are evaluated, and the proof that comes of one.

>>> import numpy as np
>>> settings = Settings(np, 1, -64.0, 1, full_shapes=False, max_memory=1 << 30)
>>> Phase.SIZES in settings.phases()
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as OneOf

import numpy as np

from pitcheck.algebra.devices import shared_gpus
from pitcheck.algebra.dimensions.size_choice import LEAST
from pitcheck.algebra.residues.drawn_primes import DrawnPrimes, PrimeSource
from pitcheck.base.work import Work
from pitcheck.errors import BudgetError
from pitcheck.graph.grids import Codes
from pitcheck.ops.axis_templates import Templates
from pitcheck.prove.automatic import Automatic
from pitcheck.prove.error_budget import Attempt, Attempts
from pitcheck.prove.routing_counts import Coverage
from pitcheck.stage.reductions.pipeline import STAGE_REDUCTIONS, Reductions
from pitcheck.stage.reductions.protocol import Context, Phase

Outcome = OneOf["proven", "failed", "inconclusive"]


MOST_TRIALS = 256
"""The redraws after which a stage is given up."""


FREE_MARGIN_LOG2 = 6.0
"""The bits by which an attempt with functions as tables may spend less than others. It often fails,
and still counts with all that it was allowed; a draw more costs little.
"""


BUDGET = "PIT203"
"""The code of a proof that would cost too much."""


@dataclass
class Allowance:
    """The elements that may still be evaluated, counting one draw of every stage.

    Stages share it, and use it up in the order of their proofs.
    """

    left: int

    def take(self, elements: int) -> None:
        """Take what a stage needs. Raises BudgetError if that is more than is left."""
        if elements > self.left:
            raise BudgetError(
                f"a draw has {elements} elements, more than are tried where nobody asks for "
                f"larger sizes; --shapes full tries them"
            )
        self.left -= elements


@dataclass(frozen=True)
class Settings:
    """The way in which stages are evaluated.

    ``xp``: the array module. ``seed``: that of the run. ``target_log2``: log2 of the accepted error
    per obligation. ``least_trials``: the least number of redraws. ``max_memory``: in bytes.
    """

    xp: Any
    seed: int
    target_log2: float
    least_trials: int
    full_shapes: bool
    max_memory: int
    primes: PrimeSource = field(init=False)
    """The source of the primes of redraws, drawn by the run's seed."""
    given_primes: PrimeSource | None = None
    """Another source to use instead."""
    templates: Templates | None = None
    """Shape rules of operators that were run before, shared between stages."""
    most_trials: int = MOST_TRIALS
    """The redraws after which a stage is given up."""
    full_coordinates: bool = False
    """True if every coordinate is evaluated, symmetric or not."""
    formal_roots: bool = True
    """True if the square of a root is its argument (:mod:`pitcheck.algebra.residues.formal_roots`).
    """
    free_functions: bool = True
    """True if functions are first taken as tables (:mod:`pitcheck.prove.bounds.free_degrees`)."""
    free_margin_log2: float = FREE_MARGIN_LOG2
    """The bits by which such an attempt may spend less than others."""
    least: int = LEAST
    """The least number of elements of a unit at reduced shapes."""
    attempt: int = 0
    """The number of times that stages were tried at other sizes before. Every attempt draws other
    numbers.
    """
    allowance: Allowance | None = None
    """The elements that an attempt may cost for which nobody asked."""
    reductions: Reductions = STAGE_REDUCTIONS
    """The reductions that make stages smaller, in this order."""
    automatic: Automatic | None = None
    """The choice of the array module for every stage; None: it is ``xp`` for all."""
    work: Work = field(default_factory=Work, compare=False)
    """The work that is told which stage and attempt go on."""
    made: MadeAhead | None = None
    """The proof at reduced sizes with which that of a stage at full shapes begins, if it is made.
    """

    def __post_init__(self) -> None:
        # All stages, and settings changed from these, share one source: the primes of a draw are
        # found once.
        given = self.given_primes or DrawnPrimes(self.seed)
        object.__setattr__(self, "given_primes", given)
        object.__setattr__(self, "primes", given)

    @property
    def in_pieces(self) -> bool:
        """True if stages too large for the memory are taken apart: at full shapes, if asked for."""
        return self.full_shapes and self.allowance is None

    def on_host(self) -> Settings:
        """Return these settings for NumPy, which computes the same as a GPU."""
        return replace(self, xp=np, automatic=None)

    @property
    def here(self) -> Settings:
        """These settings for this process: on the host if other processes have the GPUs."""
        return self.on_host() if shared_gpus(self.xp) else self

    def context(self, variant: int) -> Context:
        """Return what reductions are told at a set of sizes, with this run's secret seed."""
        return Context(self.templates, variant, self.least, seed=self.seed)

    def phases(self) -> frozenset[Phase]:
        """Return the phases whose reductions may act on every stage."""
        of_coordinates = set() if self.full_coordinates else {Phase.ROWS, Phase.COORDINATES}
        return frozenset(of_coordinates | (set() if self.full_shapes else {Phase.SIZES}))


@dataclass
class Proof:
    """The outcome of a stage.

    ``error_log2``: log2 of a bound on the probability that it was called proven although it is
    false. ``heuristic``: the bound is an estimate. ``no_tables``: why functions as tables of random
    residues, which would have given a theorem, did not prove it; "" if that was not tried.
    ``sizes``: why it is not known to hold at every size of the axes that were reduced; "" if it is,
    or if the stage was proven at its own sizes. ``together``: a decision of integers that was tried
    and is not proven; "" if there is none. ``unread``: a step that indexes a table of which no draw
    read some row.
    """

    outcome: Outcome
    error_log2: float = 0.0
    trials: int = 0
    attempts: int = 0
    primes: tuple[int, ...] = ()
    heuristic: bool = False
    no_tables: str = ""
    unread: str = ""
    sizes: str = ""
    together: str = ""
    code: str = ""
    reason: str = ""
    reductions: tuple[str, ...] = ()
    discrete: tuple[str, ...] = ()
    squared_roots: bool = False
    """True if a formal root was squared in the last evaluation."""
    routing: Coverage | None = None
    """The routes of tokens, for a stage that has any."""
    differing: Codes | None = None
    """A coordinate code of every compared row at which the sides of a failed stage differ, shape
    (n,).
    """
    undefined: int = 0
    """The part of the reference's targets that inputs may leave without a value, as
    :class:`pitcheck.prove.domains.guards.Extent` counts it.
    """
    on_gpu: bool = False
    """True if a GPU evaluated any of it."""
    undecided: int | None = None
    """The node of a parallel step of which an outcome was not seen, and whose result may be drawn.
    """


@dataclass(frozen=True)
class MadeAhead:
    """The first proof of a stage at reduced sizes, made by another process.

    ``kind`` begins the names of its attempts; ``errors``: what each of them may spend, or spent.
    """

    kind: str
    proof: Proof
    errors: Mapping[Attempt, float]

    def is_of(self, kind: str, attempts: Attempts) -> bool:
        """Return True if this is what an attempt of a kind would make that is the first."""
        return kind == self.kind and not attempts.count

    def entered(self, attempts: Attempts) -> Proof:
        """Enter its attempts among those at the stage, and return the proof."""
        attempts.enter(self.errors)
        return self.proof
