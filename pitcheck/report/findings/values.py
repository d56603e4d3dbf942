"""Values of elements as people read them: whole, and with no more digits than tell them apart."""

from __future__ import annotations

import math
import re
import sys
from decimal import Decimal

_SHORT = 20
_DECIMAL = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,200})?(e[+-]?[0-9]{1,4})?")


def told_apart(reference: str, parallel: str) -> tuple[str, str]:
    """Return two values with as many digits as tell them apart.

    They stay as they are if they are not plain decimals, or differ beyond the 17th digit only.
    """
    values = whole(reference), whole(parallel)
    if max(map(len, values)) <= _SHORT or not all(map(_DECIMAL.fullmatch, values)):
        return values
    for digits in (9, 17):
        short = _rounded(reference, digits), _rounded(parallel, digits)
        if short[0] != short[1]:
            return short
    return values


def _rounded(value: str, digits: int) -> str:
    """Return a decimal with some digits; one beyond the range of float64 keeps its exponent."""
    number, exact = float(value), Decimal(value)
    beyond = math.isinf(number) or (abs(number) < sys.float_info.min and exact != 0)
    return f"{exact:.{digits}g}" if beyond else f"{number + 0.0:.{digits}g}"  # -0.0 + 0.0 is 0.0


def whole(value: str) -> str:
    """Return a decimal without zeros behind its point; 0 is 0, however it is written."""
    if not _DECIMAL.fullmatch(value):
        return value
    if not value.partition("e")[0].strip("-0."):
        return "0"
    return re.sub(r"\.0+$", "", value)
