"""What running many instances (ranks, micro-batches) and trials at once asks of an algebra, beyond
the operators' meanings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from typing import Literal as OneOf

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.interface import Algebra
from pitcheck.algebra.value import Value

Domain = OneOf["any", "square", "nonzero"]


class BatchAlgebra(Algebra[Value], Protocol):
    """An algebra over values with leading axes of levels, trials and instances."""

    seed: int
    trials: tuple[int, ...]

    @property
    def void(self) -> NDArray[np.bool_]:
        """Which trials must be drawn anew, shape (trials,): a divisor vanished in them by
        chance.
        """
        ...

    def fresh(
        self, key: str, shape: Sequence[int], instances: int = 1, domain: Domain = "any"
    ) -> Value:
        """Random values of shape (all levels, trials, instances, *shape), functions of (seed, key,
        trial number, level, instance, element) alone.

        ``square``: squares of nonzero values; ``nonzero``: never 0.
        """
        ...

    def integers(self, array: Any) -> Value:
        """Given ints or bools of shape (trials or 1, instances or 1, *shape)."""
        ...

    def gather(self, a: Value, index: NDArray[np.int64]) -> Value:
        """Instances ``index`` (n,) of ``a``; every index means the one instance of a value that has
        one.
        """
        ...

    def stack(self, a: Value, index: NDArray[np.int64]) -> Value:
        """For ``index`` (n, members): n instances with logical shape (members, *shape)."""
        ...

    def join(self, parts: Sequence[Value], counts: Sequence[int] | None = None) -> Value:
        """Concatenation along the instances, on the levels common to all parts.

        ``counts``: how many instances each part stands for (a constant has one in store); by
        default as many as it has in store.
        """
        ...

    def differs(self, a: Value, b: Value) -> NDArray[np.bool_]:
        """Where two values differ: bool on the host, shape (trials, instances, *shape). Raises
        BudgetError where they have no level in common.
        """
        ...

    def levels(self, a: Value) -> range:
        """The chain levels at which ``a`` is defined."""
        ...
