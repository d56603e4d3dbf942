"""The protocol of stage reductions.

A reduction is an object with a name, the phase in which it acts, and the mathematical reason why
its result decides the stage. It is right if every stage that it changes is decided by its result,
as ``refutes`` says. Nothing else is asked of it: it may refuse any stage.

>>> [phase.name for phase in Phase if phase.repeated]
['COORDINATES']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from secrets import randbits
from typing import Protocol, TypeVar

from pitcheck.algebra.dimensions.size_choice import LEAST
from pitcheck.ops.axis_templates import Templates

Subject = TypeVar("Subject")
"""The kind of stage that goes through a phase: a Stage, a Measured stage or a ShapedStage."""


class Phase(Enum):
    """The phases in which reductions act, in this order, and their subjects."""

    CUT_OUT = "on a Stage, as soon as it is cut out of both plans"
    ROWS = "on a Stage, before its dimensions are compared"
    COORDINATES = "on a Measured stage; the first that applies begins the phase again"
    SIZES = "on a Measured stage, once its coordinates are chosen"
    STEPS = "on a ShapedStage, for the steps that the context names"
    WEIGHTS = "on a ShapedStage, as an attempt beside the one without"

    @property
    def repeated(self) -> bool:
        """Return True if the phase begins again after every reduction, until none applies."""
        return self is Phase.COORDINATES


@dataclass(frozen=True)
class Context:
    """All that reductions are told besides the stage."""

    templates: Templates | None = None
    """Shape rules of operators that were run before, shared between stages."""
    variant: int = 0
    """The number of the set of sizes. ``1 + variant`` coordinates of every symmetric class are kept
    along one dimension.
    """
    least: int = LEAST
    """The least number of elements of a unit at reduced sizes."""
    needed: Mapping[int, int] = field(default_factory=dict)
    """The number of elements that a unit of a class has at least, by the number of the class."""
    avoided: frozenset[int] = frozenset()
    """The numbers that are no reduced sizes."""
    free: tuple[int, ...] = ()
    """The nodes of parallel steps that are to give any numbers."""
    unweighed: frozenset[int] = frozenset()
    """The sizes of axes whose places cannot have weights."""
    seed: int = field(default_factory=lambda: randbits(128))
    """The secret key of all words by which parts of a stage are compared; drawn if none is given.
    """


class StageReduction(Protocol[Subject]):
    """One way to make a stage smaller, or its claim stronger.

    A proof of the result always is one of the stage. ``refutes``: True if a failure of the result
    is one of the stage, too.
    """

    name: str
    phase: Phase
    refutes: bool

    def apply(self, subject: Subject, context: Context, /) -> Subject | None:
        """Return the reduced stage; None, or the same stage, if there is nothing to do.

        Raises:
            PitcheckError: the reduction cannot deal with the stage.
        """
