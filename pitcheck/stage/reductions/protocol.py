"""What a reduction of a stage is: an object with a name, the phase in which it acts, and the
mathematical reason why its result decides the stage.

A reduction is right if every stage that it changes is decided by its result, as ``refutes`` says.
Nothing else is asked of it: it may refuse any stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from pitcheck.algebra.dimensions.size_choice import LEAST
from pitcheck.ops.axis_templates import Templates

Subject = TypeVar("Subject")
"""What goes through a phase: a Stage, a Measured stage or a ShapedStage."""


class Phase(Enum):
    """When reductions act, in this order, and on what."""

    CUT_OUT = "on a Stage, as soon as it is cut out of both plans"
    ROWS = "on a Stage, before its dimensions are compared"
    COORDINATES = "on a Measured stage; the first that applies begins the phase again"
    SIZES = "on a Measured stage, once its coordinates are chosen"
    STEPS = "on a ShapedStage, for the steps that the context names"
    WEIGHTS = "on a ShapedStage, as an attempt beside the one without"

    @property
    def repeated(self) -> bool:
        """Whether the phase begins again after every reduction, until none applies."""
        return self is Phase.COORDINATES


@dataclass(frozen=True)
class Context:
    """What reductions are told beside the stage."""

    templates: Templates | None = None
    """What operators do to dimensions, shared between stages."""
    variant: int = 0
    """The number of the set of sizes: of every symmetric class ``1 + variant`` coordinates are kept
    along one dimension.
    """
    least: int = LEAST
    """Elements of a unit at reduced sizes, at least."""
    free: tuple[int, ...] = ()
    """Nodes of parallel steps that are to give any numbers."""
    unweighed: frozenset[int] = frozenset()
    """Sizes of axes whose places cannot have weights."""


class StageReduction(Protocol[Subject]):
    """One way to make a stage smaller, or its claim stronger.

    ``refutes``: whether a failure of the result is one of the stage. A proof of the result always
    is one of the stage.
    """

    name: str
    phase: Phase
    refutes: bool

    def apply(self, subject: Subject, context: Context, /) -> Subject | None:
        """Return the reduced stage; None, or the same stage, if there is nothing to do. Raises
        PitcheckError for a stage that it cannot reduce.
        """
