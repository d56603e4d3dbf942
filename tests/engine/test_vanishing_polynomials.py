"""Polynomials of a size that are 0 at the sizes that shapes are reduced to, and nowhere else."""

from __future__ import annotations

import pytest
from zoo.builder import Builder

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.plan.model import Number, Plan


def _size(roots: tuple[int, ...], length: int, by_sums: bool) -> Plan:
    """Return the plan of the sum of rows, plus that sum times a polynomial of its length.

    ``roots`` are the polynomial's. Powers of the length are sums of copies, or scaled by it.
    """
    b = Builder("size")
    x = b.input("x", (4, length))
    total = result = b.op("sum", x, axes=[1])
    term = total
    for root in roots:
        wide = b.op("expand", b.op("unsqueeze", term, axis=1), sizes=[4, length])
        times = (
            b.op("sum", wide, axes=[1])
            if by_sums
            else b.op("mean", b.op("scale_by_size", wide, axis=1, exponent=1), axes=[1])
        )
        term = b.op("sub", times, b.op("mul", term, Number(root)))
    if roots:
        result = b.op("add", result, term)
    b.output(b.op("identity", result, out="y"))
    return b.plan()


@pytest.mark.parametrize("by_sums", [False, True])
@pytest.mark.parametrize("roots", [(3, 4), (3, 4, 5, 6), tuple(range(2, 12))])
@pytest.mark.parametrize("length", [30, 1 << 13])
def test_polynomials_of_a_size_that_vanish_at_small_ones(
    roots: tuple[int, ...], length: int, by_sums: bool
) -> None:
    plans = _size((), length, by_sums), _size(roots, length, by_sums)
    assert check(*plans, Options(seed=1, explain=False)).verdict in ("mismatch", "inconclusive")
