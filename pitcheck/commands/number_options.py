"""Numbers as people write them on the command line: probabilities and sizes of memory."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from pitcheck.base.nearest import shown
from pitcheck.errors import UsageError

_POWER = re.compile(r"^2(?:\^|\*\*)-(\d{1,9}(?:\.\d{1,9})?)$")
_LARGE = re.compile(r"2(?:\^|\*\*)\+?(\d{1,9})", re.ASCII)
_SIZE = re.compile(r"^(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?)(I?)B?$")
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_probability_log2(text: str) -> float:
    """Return the base-2 logarithm of a probability such as ``2^-64``, ``2**-64`` or ``1e-20``.

    Raises UsageError unless it lies strictly between 0 and 1.
    """
    power = _POWER.match(text.strip())
    exponent = -float(power.group(1)) if power else _log2_of_decimal(text)
    if not exponent < 0:
        raise _no_probability(text)
    return exponent


def _no_probability(text: str) -> UsageError:
    large = _LARGE.fullmatch(text.strip())
    meant = f"; 2^-{large[1]} may be meant" if large else ""
    return UsageError(
        f"--error-bound {shown(text)} is no probability between 0 and 1; write it as 2^-64 or 1e-20"
        f"{meant}"
    )


def _log2_of_decimal(text: str) -> float:
    """Return the base-2 logarithm of a decimal, which may be too small for a float (1e-400)."""
    try:
        number = Decimal(text.strip())
        if number.is_finite() and 0 < number < 1 and number.adjusted() > -(10**9):
            return float(number.log10()) / 0.30102999566398119521
    except InvalidOperation:
        pass
    raise _no_probability(text)


def parse_memory(text: str, backend: str, shapes: str = "reduced", jobs: int | None = 1) -> int:
    """Return the bytes of a size of memory; "auto" is the default of a backend.

    ``shapes`` and ``jobs`` tell if several processes have a GPU each. Raises UsageError for what
    ``parse_size`` refuses, and for a backend that cannot be used.
    """
    if text.strip().lower() != "auto":
        return parse_size(text)
    from pitcheck.algebra.device_memory import default_memory  # noqa: PLC0415  a GPU is asked for alone

    return default_memory(backend, shapes, jobs)


def parse_size(text: str) -> int:
    """Return the bytes of a size such as ``500MB`` (powers of 1000) or ``4GiB`` (powers of 1024).

    A number alone is bytes. Raises UsageError for anything else, and for less than one megabyte.
    """
    match = _SIZE.match(text.strip().upper())
    if match is None or (match.group(3) and not match.group(2)):
        raise UsageError(f"--max-memory {shown(text)} is no size; write it as 500MB or 4GiB")
    number, unit, binary = match.groups()
    size = int(Decimal(number) * (1024 if binary else 1000) ** _UNITS[unit])
    if size < 10**6:
        raise UsageError(
            f"--max-memory {shown(text)} is less than one megabyte (a number alone is "
            f"bytes), in which nothing can be checked; write it as 500MB or 4GiB"
        )
    return size
