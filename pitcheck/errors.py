"""The exceptions pitcheck raises. Every one carries a message that names the thing, the rule and
the value.
"""

from __future__ import annotations


class PitcheckError(Exception):
    """Base of every error that pitcheck raises on purpose."""


class UsageError(PitcheckError):
    """A wrong option or argument (exit code 2)."""


class PlanError(PitcheckError):
    """A plan that cannot be read, is malformed or contradicts itself (verdict ``invalid``).

    ``place`` says where in the file or plan, e.g. ``operators[3].inputs[0]``.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.message = message
        self.place = place


class ShapeError(PlanError):
    """Operands whose shapes or kinds do not fit the operator."""


class UnsupportedError(PitcheckError):
    """An operator, attribute or case whose meaning is not implemented (verdict
    ``inconclusive``).
    """


class ReductionError(UnsupportedError):
    """Sizes that cannot be reduced as asked; at full shapes nothing stands in the way."""


class BudgetError(PitcheckError):
    """A budget (memory, trials, redraws) was reached before the question was decided
    (``inconclusive``).
    """


class ExplanationWarning(UserWarning):
    """Looking for the cause of a difference failed by a fault of pitcheck. The verdict stands;
    tests take it for an error.
    """
