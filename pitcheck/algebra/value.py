"""The value that every concrete algebra computes with: one array for all levels and trials.

>>> import numpy as np
>>> Value("int", np.zeros((1, 1, 4, 2, 3))).rank
2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pitcheck.algebra.interface import Kind

LEADING = 3
"""The number of axes in front of the logical ones: levels, trials, instances."""

FINITE, NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor at all levels, trials and instances.

    ``data`` has shape (levels, trials, instances, *shape). An axis of trials or instances of size 1
    stands for all of them (constants); int and bool values have one level. Residues are int64 in
    [0, p). ``lowest`` is the chain level of ``data[0]``.

    ``special`` is None, or uint8 of shape (1, trials or 1, instances or 1, *shape): 0 finite, 1
    NaN, 2 +inf, 3 -inf. ``data`` says nothing where it is not 0.

    ``logs`` are formal logarithms (n, S) with integers n and values S of the same logical shape, no
    n twice: the value is ``data + sum n log(S)``.

    ``nonnegative`` says that no element can be a negative number, whatever real numbers are drawn.
    ``square`` is None, or the value whose nonnegative root this value is; ``data`` has the root as
    a residue, and the square of that may be the negative of ``square``.

    ``parts`` are () or pairs (n, A) with integers n and finite values A of the same logical shape:
    ``data`` is the sum of the n A. They say how an exponential is split
    (:mod:`pitcheck.algebra.residues.free_functions`).
    """

    kind: Kind
    data: Any
    lowest: int = 0
    special: Any = None
    logs: tuple[tuple[int, Value], ...] = ()
    nonnegative: bool = False
    square: Value | None = None
    parts: tuple[tuple[int, Value], ...] = ()

    @property
    def rank(self) -> int:
        """The number of logical dimensions."""
        return int(self.data.ndim) - LEADING
