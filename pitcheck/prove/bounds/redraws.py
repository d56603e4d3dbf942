"""Redraws of a stage: how many agreed over which primes, and the bound that follows.

Every evaluation has primes of its own. Over the same primes the errors of redraws multiply, except
for the share of primes that may divide the difference. Those of different primes multiply fully.

>>> redraws = Redraws()
>>> redraws.add(np.array([True, True, False]))
>>> redraws.agreed, redraws.voided
([2], [1])
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.bound.degree_bounds import DrawError

MOST_REJECTED = 0.5
"""The share of void draws up to which the error of the others is divided by the rest of it. If more
are to be feared, they are counted.
"""


@dataclass
class Redraws:
    """The complete and the void draws of every evaluation."""

    agreed: list[int] = field(default_factory=list)
    voided: list[int] = field(default_factory=list)

    def add(self, good: NDArray[np.bool_]) -> None:
        """Take in an evaluation of which the ``good`` draws agree, shape (draws,)."""
        self.agreed.append(int(good.sum()))
        self.voided.append(int((~good).sum()))

    def error(
        self, one: DrawError, counts_voids: bool, counted: NDArray[np.int64], of_counted: float
    ) -> float:
        """Return log2 of the probability that a false target agrees in all good redraws.

        ``counted``: the number of draws of every evaluation with complete ones that count for every
        argument of a root, shape (evaluations, arguments), with an error of ``of_counted`` each. If
        many may be void, n redraws that agree among v void ones count as one of C(n + v, v)
        choices, and 2^-(v+1) of the whole is kept for every v.
        """
        total, place = np.zeros(1 + counted.shape[1]), 0
        for agreed, void in zip(self.agreed, self.voided, strict=True):
            chosen = math.log2(math.comb(agreed + void, void)) + void + 1 if counts_voids else 0.0
            plain = one.agreeing(agreed + void if one.once and agreed else agreed)
            total[0] += plain + chosen
            if agreed and len(counted):
                numbers, which = np.unique(counted[place], return_inverse=True)
                rooted = [
                    max(plain, one.agreeing(agreed, n * of_counted)) for n in numbers.tolist()
                ]
                total[1:] += np.array(rooted)[which.reshape(-1)] + chosen
                place += 1
        return float(total.max())

    @staticmethod
    def at_once(one: DrawError) -> int:
        """Return how many draws over the same primes are of use.

        Beyond that, bad primes are what is left of the error.
        """
        if one.once:
            return 1
        if not one.bad:
            return 0
        least = min(-level for level in one.levels)
        return max(1, math.ceil((1 - math.log2(one.bad)) / least))
