"""Elementwise operators of codes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from pitcheck.frontends.xla.lowering.known_numbers import COMMUTATIVE, computed
from pitcheck.frontends.xla.lowering.random.codebook import Codebook
from pitcheck.frontends.xla.lowering.random.codes import Codes, Elements, Held
from pitcheck.frontends.xla.text.shapes import ArrayShape


def operator(opcode: str, shape: ArrayShape, given: Sequence[Codes], direction: str = "") -> Codes:
    """Return an elementwise operator of elements. ``direction``: that of a comparison."""

    def make(book: Codebook, held: Sequence[Held]) -> Held:
        rows = max(each.rows for each in held)
        book.spend(rows * prod(shape.dimensions))
        numbers = [each.numbers for each in held if each.numbers is not None]
        if len(numbers) == len(held):
            known = computed(opcode, numbers, shape, direction)
            if known is not None:
                return Held(shape.element, numbers=known)
        rank, wide = len(shape.dimensions), (rows, *shape.dimensions)
        codes = [_aligned(each.codes(book), rank) for each in held]
        if opcode == "select" and held[0].numbers is not None:
            chosen = np.where(_aligned(held[0].numbers, rank), codes[1], codes[2])
            return Held(shape.element, expressions=np.broadcast_to(chosen, wide))
        if opcode in COMMUTATIVE or direction in {"EQ", "NE"}:
            codes = [np.minimum(*codes), np.maximum(*codes)]
        types = (shape.element, *(each.element for each in held))
        found = book.code((opcode, direction, types), *codes)
        return Held(shape.element, expressions=np.broadcast_to(found, wide))

    mixing = max(each.mixing for each in given) + (opcode == "xor")
    return Codes(given, make, mixing=mixing)


def _aligned(codes: Elements, rank: int) -> Elements:
    """Return codes with a dimension for each of the result's: a scalar stands for all."""
    return codes.reshape(len(codes), *(1,) * rank) if codes.ndim == 1 else codes
