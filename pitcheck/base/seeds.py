"""The seeds that a user may give: one rule for the command line, tests and the playground."""

from __future__ import annotations

LAST_SEED = 2**128 - 1
SEEDS = "an integer from 0 to 2^128 - 1"
"""The rule in words, for messages."""


def is_seed(number: int) -> bool:
    """Return True if a number may be given as a seed."""
    return 0 <= number <= LAST_SEED


def seed_of(text: str) -> int | None:
    """Return the seed that a text is in decimal digits, None if it is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(LAST_SEED)):
        return None
    return int(text) if is_seed(int(text)) else None
