"""NaN and infinity beside residues, by the rules of IEEE 754.

A residue has no NaN; codes stand beside it. To find the codes of a result, the same operation runs
on float64 stand-ins: the sign of a finite value (-1, 0 or 1), or the special value itself. Finite
stand-ins only make NaN or infinity if the operation does so for every finite value of that sign.

>>> from pitcheck.algebra.value import NAN, NEGATIVE_INFINITY
>>> codes_of(np, np.array([np.nan, -np.inf, 0.0])).tolist() == [NAN, NEGATIVE_INFINITY, FINITE]
True
>>> a, b = stand_in(np, np.array([1, 0]), None), stand_in(np, np.array([1, 1]), np.uint8([2, 0]))
>>> codes_of(np, a + b).tolist() == [POSITIVE_INFINITY, FINITE]
True
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pitcheck.algebra.value import FINITE, POSITIVE_INFINITY


def stand_in(xp: Any, sign: Any, special: Any) -> Any:
    """Return float64 stand-ins from signs of finite values (-1, 0, 1) and codes of the others."""
    result = sign.astype(xp.float64)
    if special is None:
        return result
    table = xp.asarray([0.0, np.nan, np.inf, -np.inf])
    return xp.where(special == FINITE, result, table[special])


def codes_of(xp: Any, stand_ins: Any) -> Any:
    """Return the codes of float64 stand-ins, or None if all are finite."""
    if bool(xp.isfinite(stand_ins).all()):
        return None
    # A mask as an index would wait for a GPU. NEGATIVE_INFINITY is NAN + POSITIVE_INFINITY.
    codes = (xp.isnan(stand_ins) | (stand_ins == -np.inf)).view(np.uint8)
    codes += xp.isinf(stand_ins).view(np.uint8) * POSITIVE_INFINITY
    return codes
