"""The interface of an algebra that runs many instances (ranks, micro-batches) and trials at once.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> algebra: BatchAlgebra = RealAlgebra(np, seed=0, trials=(0, 1))
>>> x = algebra.fresh("x", (3,), instances=4)
>>> algebra.stack(x, np.array([[0, 1], [2, 3]])).data.shape
(1, 2, 2, 2, 3)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from typing import Literal as OneOf

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.interface import Algebra
from pitcheck.algebra.value import Value

Domain = OneOf["any", "square", "nonzero", "nonnegative"]


class BatchAlgebra(Algebra[Value], Protocol):
    """An algebra over values with leading axes of levels, trials and instances."""

    seed: int
    trials: tuple[int, ...]

    @property
    def void(self) -> NDArray[np.bool_]:
        """True for each trial that must be drawn anew, shape (trials,).

        A divisor vanished in it by chance.
        """
        ...

    def fresh(
        self, key: str, shape: Sequence[int], instances: int = 1, domain: Domain = "any"
    ) -> Value:
        """Return random values of shape (all levels, trials, instances, *shape).

        They are functions of (seed, key, trial number, level, instance, element) alone. Domain
        ``square``: squares of nonzero values; ``nonzero``: never 0; ``nonnegative``: any residues,
        which stand for numbers that are not negative.
        """
        ...

    def integers(self, array: Any) -> Value:
        """Return given ints or bools of shape (trials or 1, instances or 1, *shape)."""
        ...

    def gather(self, a: Value, index: NDArray[np.int64]) -> Value:
        """Return the instances ``index``, shape (n,), of ``a``.

        Every index means the one instance of a value that has one.
        """
        ...

    def stack(self, a: Value, index: NDArray[np.int64]) -> Value:
        """Return n instances of logical shape (members, *shape).

        ``index`` has shape (n, members).
        """
        ...

    def join(self, parts: Sequence[Value], counts: Sequence[int] | None = None) -> Value:
        """Return the parts one behind the other as instances, on the levels common to all.

        A part stands for ``counts`` instances (a constant has one in store), by default as many as
        it has in store.
        """
        ...

    def differs(self, a: Value, b: Value) -> NDArray[np.bool_]:
        """Return True where two values differ: bool on the host, shape (trials, instances, *shape).

        Raises:
            BudgetError: if they have no level in common.
        """
        ...

    def levels(self, a: Value) -> range:
        """Return the chain levels at which ``a`` is defined."""
        ...
