"""Exact names of expressions: equal expressions have one code, and others have others.

An expression is an operator of expressions. Its code is the number under which the operator and the
codes of its operands were entered first. Nothing is hashed to fewer bits, so codes are equal for
equal expressions alone. Arrays of expressions are entered at once.

>>> book = Codebook()
>>> x = book.code("x", np.arange(3))
>>> y = book.code("y", np.arange(3))
>>> bool((book.code("add", x, y) == book.code("add", x, y)).all())
True
>>> bool((book.code("subtract", x, y) == book.code("subtract", y, x)).any())
False
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pitcheck.errors import BudgetError

Ints: TypeAlias = NDArray[np.int64]

MOST_CODES = 1 << 26
"""The expressions of all arrays, each counted as often as it is computed, that are followed."""
MOST_IN_ARRAY = 1 << 23
"""The expressions of one array, over all devices, that are followed."""
_HALF = 32
"""The bits of a code within a key of two."""
_PAIR = "pair"


def check_size(expressions: int) -> None:
    """Raise BudgetError if an array is too large to be followed element by element."""
    if expressions > MOST_IN_ARRAY:
        raise BudgetError(
            f"an array of random numbers, or of other integers whose arithmetic wraps around, has "
            f"{expressions} elements over all devices; up to {MOST_IN_ARRAY} are followed"
        )


class Codebook:
    """The codes of all expressions of both programs of a pair."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entries] = {}
        self._count = 0
        self._spent = 0

    def spend(self, expressions: int) -> None:
        """Count expressions that are to be computed. Raises BudgetError if these are too many."""
        check_size(expressions)
        self._spent += expressions
        if self._spent > MOST_CODES:
            raise BudgetError(
                f"random numbers, or other integers whose arithmetic wraps around, take more than "
                f"{MOST_CODES} steps of single elements; make the arrays or the model smaller"
            )

    def code(self, operator: Hashable, *operands: Ints) -> Ints:
        """Return the codes of an operator of expressions, whose arrays are broadcast.

        A single operand may have any integers; of several, each is a code, or from 0 to 2**31.
        """
        *others, last = operands
        if not others:
            return self._entered((operator, 1), last)
        first = others[0]
        for number, other in enumerate(others[1:]):
            first = self._entered((operator, _PAIR, number), (first << _HALF) | other)
        return self._entered((operator, len(operands)), (first << _HALF) | last)

    def _entered(self, operator: Hashable, keys: Ints) -> Ints:
        entries = self._entries.setdefault(operator, _Entries())
        found = entries.codes(keys, self._count)
        self._count += len(entries) - entries.before
        return found

    def by_code(self) -> Callable[[int], tuple[Any, int]]:
        """Return a function that gives the operator of a code, and the key of its operands."""
        operators, none = list(self._entries), np.zeros(0, dtype=np.int64)
        held = list(self._entries.values())
        order = np.argsort(np.concatenate([none, *(each.found for each in held)]))
        keys = np.concatenate([none, *(each.keys for each in held)])[order]
        of = np.concatenate([none, *(np.full(len(each), n) for n, each in enumerate(held))])[order]
        return lambda code: (operators[int(of[code])], int(keys[code]))

    def entries(self) -> Iterator[tuple[Hashable, int, int]]:
        """Yield an operator, the key of its operands and the code, for each expression."""
        for operator, entries in self._entries.items():
            for key, code in zip(entries.keys.tolist(), entries.found.tolist(), strict=True):
                yield operator, key, code


class _Entries:
    """The keys that an operator was entered with, in order, and the code of each."""

    def __init__(self) -> None:
        self.keys: Ints = np.zeros(0, dtype=np.int64)
        self.found: Ints = np.zeros(0, dtype=np.int64)
        self.before = 0

    def __len__(self) -> int:
        return len(self.keys)

    def codes(self, keys: Ints, count: int) -> Ints:
        """Return the codes of keys; new ones are numbered from ``count`` on."""
        self.before = len(self.keys)
        distinct, places = np.unique(keys, return_inverse=True)
        at = np.searchsorted(self.keys, distinct)
        inside = np.minimum(at, max(self.before - 1, 0))
        known = self.keys[inside] == distinct if self.before else np.zeros(len(distinct), bool)
        new = np.flatnonzero(~known)
        numbers = count + np.arange(len(new), dtype=np.int64)
        self.keys = np.insert(self.keys, at[new], distinct[new])
        self.found = np.insert(self.found, at[new], numbers)
        codes = self.found[np.searchsorted(self.keys, distinct)]
        result: Ints = codes[places.reshape(keys.shape)]
        return result
