"""Trials of many operands at once, which tell what each element needs.

Where several operands are undefined at once, an element is undefined that needs one of them. So
most elements, which need one of *n* operands at most, tell which from 2·log2 *n* trials: in one of
a pair of trials the operands are undefined whose number has a certain bit, in the other those whose
number has not. An element that is undefined in both needs several. (Group testing: Du and Hwang,
*Combinatorial Group Testing and Its Applications*, 2nd edition, 2000, chapter 1.)

>>> groups(4)
[[0, 2], [1, 3], [0, 1], [2, 3]]
>>> tests = [np.array([False, False, 2 in group or 1 in group]) for group in groups(4)]
>>> needed(4, tests) is None
True
>>> needed(4, [np.array([2 in group, False]) for group in groups(4)]).tolist()
[2, 4]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pitcheck.prove.domains.operands import Bools, Elements, Operand, together

Numbers = NDArray[np.int64]

FEW = 8
"""The operands up to which each is tried alone: that costs hardly more than groups."""


def groups(count: int) -> list[list[int]]:
    """Return the numbers below ``count`` that are undefined together, by trial."""
    found = []
    for bit in range(max(count - 1, 1).bit_length()):
        for value in (0, 1):
            found.append([number for number in range(count) if number >> bit & 1 == value])
    return found


def needed(count: int, undefined: Sequence[Bools]) -> Numbers | None:
    """Return the number of what each element needs, ``count`` for nothing; shape (elements,).

    ``undefined`` has the elements that are undefined in each of the trials of ``groups``, shape
    (elements,) each. Return None if some element needs several.
    """
    without, having = np.array(undefined[::2]), np.array(undefined[1::2])
    if (without & having).any():
        return None
    any_one = without[0] | having[0]
    if ((without | having) != any_one).any():
        return None
    weights = 1 << np.arange(len(having), dtype=np.int64)
    numbers: Numbers = np.where(any_one, weights @ having.astype(np.int64), count)
    return numbers


class Answer(NamedTuple):
    """The outcome of a trial: the elements that it leaves undefined, shape (elements,).

    ``hides``: something that inputs decide may hide it in other draws. ``vague``: that is not
    known, if several operands were undefined.
    """

    elements: Bools
    hides: bool
    vague: bool


@dataclass(frozen=True)
class GroupTest:
    """Trials of a draw that tell which elements of side 0 or 1 need which of some operands."""

    draw: int
    side: int
    operands: Sequence[Operand]

    @cached_property
    def asked(self) -> list[Operand]:
        """Return what is undefined in each trial."""
        if len(self.operands) == 1:
            return list(self.operands)
        return [together([self.operands[n] for n in group]) for group in self._groups]

    @cached_property
    def _groups(self) -> list[list[int]]:
        return groups(len(self.operands))

    def told(self, answers: Sequence[Answer]) -> list[tuple[Operand, Elements, bool]] | None:
        """Return each operand with the elements that need it, and if anything may hide that.

        Return None if the trials do not tell.
        """
        if len(self.operands) == 1:
            return [(self.operands[0], np.flatnonzero(answers[0].elements), answers[0].hides)]
        if any(answer.vague for answer in answers):
            return None
        count = len(self.operands)
        numbers = needed(count, [answer.elements for answer in answers])
        if numbers is None:
            return None
        hiding = {
            n
            for group, answer in zip(self._groups, answers, strict=True)
            if answer.hides
            for n in group
        }
        elements = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[elements], np.arange(count + 1)).tolist()
        return [
            (own, elements[ends[n] : ends[n + 1]], n in hiding)
            for n, own in enumerate(self.operands)
        ]


def grouped(operands: Sequence[Operand]) -> list[tuple[Operand, ...]]:
    """Return operands in groups of which most elements need one: those of one guard; or alone."""
    by_guard: dict[int, list[Operand]] = {}
    for operand in operands:
        by_guard.setdefault(min(operand.places), []).append(operand)
    return [
        group
        for own in by_guard.values()
        for group in ([tuple(own)] if len(own) > FEW else [(each,) for each in own])
    ]
