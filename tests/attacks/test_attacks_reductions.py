"""Families of wrong plans beside right ones for what makes stages smaller: axes of sums in every
form, and buffers of which a part is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attacks.pairs import found
from zoo.builder import Builder

from pitcheck.plan.model import Plan

RANKS = 8
Pair = tuple[Plan, Plan]


@pytest.mark.parametrize("axes", [0, -3, (0,), (-3,)])
def test_axes_in_every_form_are_reduced(axes: object) -> None:
    def pair(kind: str) -> Pair:
        reference, parallel = Builder("one"), Builder("many", {"r": RANKS})
        for b, spec in ((reference, None), (parallel, {0: "r"})):
            x = b.input("x", (RANKS * 2 if spec is None else 2, 2, 3), spec)
            value = b.op("sum", b.op("square" if spec is None else kind, x), axes=axes)
            b.op("identity", value, out="y") if spec is None else b.op(
                "all_reduce", value, group="r", out="y"
            )
            b.output("y")
        return reference.plan(), parallel.plan()

    assert found(*pair("square"))[0] == "equivalent"
    assert found(*pair("abs"))[0] == "mismatch"


def buffered(order: str, sizes: tuple[int, ...], read: Sequence[int], group: object = "r") -> Pair:
    """Return three sums over a batch, and the same by one all-reduce of a buffer that is cut into
    parts of ``sizes``, of which some are read.
    """
    reference, parallel = Builder("one"), Builder("many", {"r": 4})
    lengths, names = {"a": 2, "b": 3, "c": 4}, [f"part {n}" for n in range(len(sizes))]
    for b, spec in ((reference, None), (parallel, {0: "r"})):
        size = 4 if spec is None else 1
        given_ = {n: b.input(n, (size, length), spec) for n, length in lengths.items()}
        sums = {n: b.op("sum", b.op("square", x), axes=(0,)) for n, x in given_.items()}
        buffer = b.op("cat", *(sums[n] for n in (order if spec else "abc")), axis=0)
        buffer = b.op("all_reduce", buffer, group=group) if spec else buffer
        parts = b.op("split", buffer, axis=0, sizes=sizes, out=names)
        for number in read:
            b.output(parts[number])
    return reference.plan(), parallel.plan()


@pytest.mark.parametrize("sizes", [(2, 3, 4), (1, 7, 1), (4, 4, 1), (5, 4)])
@pytest.mark.parametrize("last", [False, True])
def test_parts_of_a_buffer_are_those_of_the_tensors_joined(
    sizes: tuple[int, ...], last: bool
) -> None:
    read = [len(sizes) - 1 if last else 0]
    assert found(*buffered("abc", sizes, read))[0] == "equivalent"
    swapped = "acb" if last else "bac"
    assert found(*buffered(swapped, sizes, read))[0] == "mismatch"
