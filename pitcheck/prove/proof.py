"""How stages are evaluated, and what becomes of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from typing import Literal as OneOf

from pitcheck.algebra.dimensions.size_choice import LEAST
from pitcheck.algebra.residues.drawn_primes import DrawnPrimes, PrimeSource
from pitcheck.errors import BudgetError
from pitcheck.graph.grids import Codes
from pitcheck.ops.axis_templates import Templates
from pitcheck.prove.routing_counts import Coverage
from pitcheck.stage.reductions.pipeline import STAGE_REDUCTIONS, Reductions
from pitcheck.stage.reductions.protocol import Phase

Outcome = OneOf["proven", "failed", "inconclusive"]


MOST_TRIALS = 256


BUDGET = "PIT203"


@dataclass
class Allowance:
    """How many elements may still be evaluated, those of one draw of every stage counted. It is
    shared by stages, and used up in the order of their proofs.
    """

    left: int

    def take(self, elements: int) -> None:
        """Take what a stage needs. Raises BudgetError where it is more than is left."""
        if elements > self.left:
            raise BudgetError(
                f"a draw has {elements} elements, more than are tried where nobody asks for "
                f"larger sizes; --shapes full tries them"
            )
        self.left -= elements


@dataclass(frozen=True)
class Settings:
    """How stages are evaluated: array module, run seed, accepted error per obligation (log2), least
    trials, full or reduced shapes, memory in bytes.
    """

    xp: Any
    seed: int
    target_log2: float
    least_trials: int
    full_shapes: bool
    max_memory: int
    primes: PrimeSource = field(init=False)
    """Where the primes of redraws come from: drawn by the run's seed."""
    given_primes: PrimeSource | None = None
    """Others to use instead."""
    templates: Templates | None = None
    """What operators do to dimensions, shared between stages."""
    most_trials: int = MOST_TRIALS
    """Redraws after which a stage is given up."""
    full_coordinates: bool = False
    """Whether every coordinate is evaluated, symmetric or not."""
    formal_roots: bool = True
    """Whether the square of a root is its argument
    (:mod:`pitcheck.algebra.residues.formal_roots`).
    """
    least: int = LEAST
    """Elements of a unit at reduced shapes, at least."""
    attempt: int = 0
    """How often stages were tried at other sizes before: every attempt draws other numbers."""
    allowance: Allowance | None = None
    """What an attempt may cost that nobody asked for."""
    reductions: Reductions = STAGE_REDUCTIONS
    """The reductions that make stages smaller, in this order."""

    def __post_init__(self) -> None:
        # Kept over changes of other settings, and by all stages: the primes of a draw are found
        # once.
        given = self.given_primes or DrawnPrimes(self.seed)
        object.__setattr__(self, "given_primes", given)
        object.__setattr__(self, "primes", given)

    def phases(self) -> frozenset[Phase]:
        """Return the phases whose reductions may act on every stage."""
        of_coordinates = (
            set()
            if self.full_coordinates
            else {Phase.ROWS}
            if self.full_shapes
            else {Phase.ROWS, Phase.COORDINATES}
        )
        return frozenset(of_coordinates | (set() if self.full_shapes else {Phase.SIZES}))


@dataclass
class Proof:
    """What became of a stage. ``error_log2``: bound on the probability that it was called proven
    although it is false.
    """

    outcome: Outcome
    error_log2: float = 0.0
    trials: int = 0
    attempts: int = 0
    primes: tuple[int, ...] = ()
    heuristic: bool = False
    code: str = ""
    reason: str = ""
    reductions: tuple[str, ...] = ()
    discrete: tuple[str, ...] = ()
    squared_roots: bool = False
    """Whether a formal root was squared in the last evaluation."""
    routing: Coverage | None = None
    """Where tokens went, in a stage that routes any."""
    differing: Codes | None = None
    """A code of every compared row at which the sides of a stage that failed differ."""
    undecided: int | None = None
    """The node of a parallel step of which an outcome was not seen, and whose result may
    be drawn.
    """
