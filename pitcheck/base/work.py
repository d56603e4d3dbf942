"""The work that a check is doing, as it says itself while it goes on.

Progress lines and reports of checks that end early are made of it.

>>> work = Work()
>>> work.begins("prove all outputs")
>>> work.at("loss", "sum#4 (sum)", "model.py:12")
>>> work.tries("sizes 0.1")
>>> work.place()
"'loss', which ends in sum#4 (sum) at model.py:12, attempt 1: sizes 0.1"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pitcheck.errors import Interrupted

Told = Callable[..., None]
"""A function that is told (what, how many are done, how many are known, a sentence for people)."""


@dataclass(eq=False)
class Work:
    """The step of a check that goes on now, and why the check is to end early, if it is.

    ``told`` is told how far the proofs are. ``over`` says in words why the check has to end; ""
    lets it go on.
    """

    told: Told | None = None
    doing: str = ""
    """The step, as an order: "prove all outputs"."""
    step: str = ""
    """The name of the things that are counted: "stages"."""
    done: int = 0
    total: int = 0
    stage: str = ""
    """The tensor whose stage is being proven; "" if none is."""
    operator: str = ""
    source: str = ""
    attempts: int = 0
    """The attempts at the stage that have begun, the one that goes on among them."""
    attempt: str = ""
    over: str = ""
    noticed: bool = False
    """True once the check ends since it is ``over``: it need not be asked again."""
    signalled: int = 0
    """The number of the signal that ends the check; 0 if none does."""
    check: Any = None
    """The check that goes on; None while plans are read."""

    def __call__(self, step: str, done: int, total: int, said: str = "") -> None:
        """Note how many are done of what is known; ``said`` is a sentence for people."""
        self.step, self.done, self.total = step, done, total
        if self.told is not None:
            self.told(step, done, total, *((said,) if said else ()))

    def begins(self, doing: str) -> None:
        """Note the step that begins. Raises Interrupted if the check is to end."""
        self.doing, self.stage = doing, ""
        self.end_if_over()

    def at(self, stage: str, operator: str, source: str) -> None:
        """Note the stage that is proven from now on, with its last operator and that one's line."""
        self.stage, self.operator, self.source = stage, operator, source
        self.attempts, self.attempt = 0, ""

    def tries(self, attempt: str) -> None:
        """Note the attempt at the stage that begins."""
        self.attempts, self.attempt = self.attempts + 1, attempt

    def end_if_over(self) -> None:
        """Raise Interrupted if the check is to end."""
        if self.over:
            raise Interrupted(self.over)

    def place(self) -> str:
        """Return what goes on, in words: the stage with operator, line and attempt, or the step."""
        if not self.stage:
            return self.doing
        line = f" at {self.source}" if self.source else ""
        ends = f", which ends in {self.operator}{line}" if self.operator else ""
        tried = f", attempt {self.attempts}: {self.attempt}" if self.attempts else ""
        return f"{self.stage!r}{ends}{tried}"
