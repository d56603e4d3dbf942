"""The answers of the processes that record ranks."""

from __future__ import annotations

import msgspec

from pitcheck.errors import HangError, MeetingError, PlanError, UnsupportedError
from pitcheck.frontends.torch.together.passed_infinity import Reliance
from pitcheck.frontends.torch.trace import Trace


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The reason why a rank has no trace.

    ``code`` is that of the error: "PIT200" if the program cannot be recorded, any other if it is
    invalid. ``traceback`` is that of an exception of the program, as Python shows it.
    ``out_of_memory``: that exception is a MemoryError.
    """

    message: str
    code: str
    traceback: str = ""
    out_of_memory: bool = False

    def error(self, who: str) -> PlanError | UnsupportedError:
        """Return the error that says so; ``who`` names the rank."""
        kind = _ERRORS.get(self.code, PlanError)
        return kind(f"{who}: {self.message}")


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """The trace of a rank, and the tests for infinity and NaN on which it relies.

    By ``looked_at`` the program has decided what it does, and by ``chosen`` it has chosen numbers.
    """

    trace: Trace
    looked_at: Reliance
    chosen: Reliance


_ERRORS: dict[str, type[PlanError | UnsupportedError]] = {
    kind.code: kind for kind in (UnsupportedError, MeetingError, HangError)
}
