"""The one ledger of errors: the probability that something false is accepted, and who spends it.

Attempts may be chosen by what earlier ones showed. Let attempt i draw residues of its own, on which
nothing depends that fixed its statement, and accept a false statement with a probability of at most
e_i. Then any false statement is accepted with a probability of at most the sum of all e_i: a union
bound, each term conditioned on the history of its attempt. An attempt that failed, or was left
open, might have accepted as well, and counts in full.

>>> attempts = Attempts("y = exp(x)", allowance_log2=-64.0)
>>> two = attempts.reserve("sizes 0"), attempts.reserve("sizes 1")
>>> attempts.count, attempts.spent_log2
(2, -63.0)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from pitcheck.algebra.bound.degree_bounds import log2_sum

HINTS = "hints"
"""The name of an attempt to prove everything over hints that was given up."""
EARLIER = "earlier"
"""The name of all that was attempted at smaller sizes."""
MOST_SPENT = 5 / 8
"""The share of the accepted error that earlier attempts may have used, so that enough is left for
one more.
"""
UNREACHABLE = -1e6
"""The log2 of an error that no attempt reaches."""
SEED_BYTES = 16


@dataclass(frozen=True)
class Attempt:
    """One attempt to prove a statement.

    ``kind``: the way, in words. ``number``: how many attempts of the kind came before at this
    statement.
    """

    statement: str
    kind: str
    number: int

    def seed(self, of_run: int) -> int:
        """Return the seed of the attempt's numbers, in [0, 2^128).

        It is a function of the run's seed and of the attempt, not of when the attempt is made.
        """
        name = repr((of_run, self.statement, self.kind, self.number)).encode()
        return int.from_bytes(blake2b(name, digest_size=SEED_BYTES).digest(), "little")


@dataclass
class Attempts:
    """The attempts at one statement; each may spend 2^``allowance_log2``."""

    statement: str
    allowance_log2: float
    _errors: dict[Attempt, float] = field(default_factory=dict)

    def reserve(self, kind: str, less_log2: float = 0.0) -> Attempt:
        """Return a new attempt; until it is settled it counts with its whole allowance.

        The allowance is ``less_log2`` bits below that of others.
        """
        attempt = Attempt(self.statement, kind, sum(other.kind == kind for other in self._errors))
        self._errors[attempt] = self.allowance_log2 - less_log2
        return attempt

    def settle(self, attempt: Attempt, error_log2: float) -> None:
        """Enter the error (log2) of an attempt that proved its statement.

        It is -inf for an attempt that compared nothing.
        """
        self._errors[attempt] = error_log2

    @property
    def errors(self) -> Mapping[Attempt, float]:
        """Return what each attempt may spend, or spent."""
        return dict(self._errors)

    def enter(self, errors: Mapping[Attempt, float]) -> None:
        """Enter attempts at the same statement that another process made."""
        self._errors.update(errors)

    @property
    def spent_log2(self) -> float:
        """Return log2 of what all attempts may have accepted falsely; -inf before the first."""
        return log2_sum(list(self._errors.values())) if self._errors else -math.inf

    @property
    def count(self) -> int:
        """Return the number of attempts."""
        return len(self._errors)


class ErrorBudget:
    """The probability 2^``accepted_log2`` of accepting something false, and how much is spent."""

    def __init__(self, accepted_log2: float) -> None:
        self.accepted_log2 = accepted_log2
        self._spent: dict[str, tuple[float, int]] = {}
        self._aside: dict[str, float] = {}

    def enter(self, statement: str, spent_log2: float, attempts: int) -> None:
        """Enter what the attempts at a statement spent.

        Entered again it counts once: its attempts draw the same numbers whenever they are made.
        """
        self._spent[statement] = spent_log2, attempts

    def withdraw(self, statement: str) -> None:
        """Take out a statement at which nothing was attempted after all."""
        self._spent.pop(statement, None)

    def set_aside(self, name: str, spent_log2: float) -> None:
        """Count all that was attempted so far, and is looked at no more, as one sum."""
        self._spent = {}
        self._aside = {name: spent_log2}

    def again(self) -> float:
        """Begin anew with a smaller allowance for each attempt, and return its log2.

        What was set aside stays. Attempts at the same statements draw the same numbers again, and
        more: a false one is accepted only if it agrees in all of them. So the attempts of the round
        before are part of those to come, and count once.
        """
        share = 1 - 2.0 ** (log2_sum(self._aside.values()) - self.accepted_log2)
        # The next round may need more attempts: half of what is left is kept for them.
        allowance = (
            self.accepted_log2 + math.log2(share / 2) - math.ceil(math.log2(max(self.attempts, 1)))
            if share > 0
            else UNREACHABLE
        )
        self._spent = {}
        return allowance

    @property
    def spent_log2(self) -> float:
        """Return log2 of the greatest probability that something false was accepted.

        Return -inf if nothing was attempted.
        """
        errors = [*self._aside.values(), *(spent for spent, _ in self._spent.values())]
        return log2_sum(errors) if errors else -math.inf

    @property
    def attempts(self) -> int:
        """Return the number of attempts that are counted one by one."""
        return sum(attempts for _, attempts in self._spent.values())

    @property
    def holds(self) -> bool:
        """Return True if no more is spent than is accepted."""
        return self.spent_log2 <= self.accepted_log2

    @property
    def allows_more(self) -> bool:
        """Return True if so little is spent that everything may be attempted once more."""
        return self.spent_log2 <= self.accepted_log2 + math.log2(MOST_SPENT)
