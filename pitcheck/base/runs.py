"""Ascending numbers as runs: ``0..3, 7``."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_RUNS = 8


def spell_numbers(numbers: Sequence[int]) -> str:
    """Return ascending distinct numbers as ``0..3, 7``, at most eight runs of them."""
    found = runs(numbers)
    shown = [
        str(first) if first == last else f"{first}..{last}" for first, last in found[:_MOST_RUNS]
    ]
    left = sum(last - first + 1 for first, last in found[_MOST_RUNS:])
    return ", ".join(shown) + (f" and {left} more" if left else "")


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last of every run of ascending distinct numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
