"""The exceptions that pitcheck raises.

Every message names the thing, the rule and the value.
"""

from __future__ import annotations


class PitcheckError(Exception):
    """Base of every error that pitcheck raises on purpose.

    ``code`` has a page (``pitcheck explain CODE``); it is "" for an error that is none of a plan.
    """

    code = ""


class UsageError(PitcheckError):
    """A wrong option or argument (exit code 2)."""


class PlanError(PitcheckError):
    """A plan that cannot be read, is malformed or contradicts itself (verdict ``invalid``).

    ``place`` says where in the file or plan, e.g. ``operators[3].inputs[0]``.
    """

    code = "PIT001"

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.message = message
        self.place = place


class ConfigurationError(PlanError):
    """A configuration that names what is not known, or that cannot run (verdict ``invalid``)."""

    code = "PIT013"


class ImpossibleError(ConfigurationError):
    """Sizes of a configuration that break a rule of its model or layout.

    ``rule`` is the rule with its values, without what was assigned.
    """

    def __init__(self, message: str, place: str = "", rule: str = "") -> None:
        super().__init__(message, place)
        self.rule = rule or message


class RangeError(ImpossibleError):
    """A value that its field cannot have, whatever the other fields are."""


class ShapeError(PlanError):
    """Operands whose shapes or kinds do not fit the operator."""

    code = "PIT003"


class MeetingError(PlanError):
    """Ranks that meet in calls that do not fit together."""

    code = "PIT006"


class HangError(PlanError):
    """Ranks that wait for what never comes."""

    code = "PIT007"


class CertificateError(PitcheckError):
    """A certificate that cannot be read, or that is of other plans (exit code 2).

    ``place`` says where in it, e.g. ``predicate.cuts``.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place


class UnsupportedError(PitcheckError):
    """An operator, attribute or case without a meaning here (verdict ``inconclusive``)."""

    code = "PIT200"


class ReductionError(UnsupportedError):
    """Sizes that cannot be reduced as asked; with full shapes nothing stands in the way."""


class BudgetError(PitcheckError):
    """A budget (memory, trials, redraws) that ran out before the question was decided.

    The verdict is ``inconclusive``.
    """

    code = "PIT203"


class Interrupted(KeyboardInterrupt):
    """The end of a check before its verdict: its time is up, or it was asked to end.

    It is no Exception, so that nothing which only looks for failures takes it for one. The message
    says why.
    """


class ExplanationWarning(UserWarning):
    """A failure of pitcheck while it looked for the cause of a difference.

    The verdict stands; tests take it for an error.
    """
