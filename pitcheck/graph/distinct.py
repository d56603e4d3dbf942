"""Distinct keys in the order in which they first occur."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SMALL = 512
"""The length up to which a dictionary is faster than sorting."""

Indices = NDArray[np.int64]


def distinct(keys: Indices) -> tuple[Indices, Indices]:
    """Return the distinct keys of an array of integers, shape (n,).

    Returns:
        The position of the first occurrence of every distinct key; which distinct key each one is,
        shape (n,).
    """
    if bool((keys[1:] > keys[:-1]).all()):
        everything = np.arange(len(keys), dtype=np.int64)
        return everything, everything
    if len(keys) <= SMALL:
        seen: dict[int, int] = {}
        which = [seen.setdefault(key, len(seen)) for key in keys.tolist()]
        if len(seen) == len(which):
            everything = np.arange(len(which), dtype=np.int64)
            return everything, everything
        first = [0] * len(seen)
        for position in range(len(which) - 1, -1, -1):
            first[which[position]] = position
        return np.array(first, dtype=np.int64), np.array(which, dtype=np.int64)
    _, first_sorted, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first_sorted)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first_sorted[order], rank[inverse.reshape(-1)]
