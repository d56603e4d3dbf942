"""Knots: tensors of a reference in which the arrays of all devices lie behind each other.

The reference of a manual region computes the arrays of the devices one by one, and the partitioned
program has one tensor of them, whose parts the devices hold. A proof cuts both programs where a
tensor of one is made of parts of a tensor of the other. Without knots that is never within a
region, and a long one is a single stage. So the arrays are joined behind each product, and what
follows reads its parts.
"""

from __future__ import annotations

from pitcheck.frontends.xla.lowering.arrays import NUMPY, Copies
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.text.shapes import ArrayShape

KNOTS = frozenset({"dot", "convolution"})
"""The opcodes behind which arrays are joined: what grows with each of them is the degree."""


def knotted(b: Building, copies: Copies) -> Copies:
    """Return the arrays of a region as parts of one tensor; as they are where all are the same.

    Devices that hold one tensor get one part, so that replicas stay what the same steps compute.
    """
    first = copies.arrays[0]
    if not first.rank or first.shape.element in NUMPY:
        return copies
    names = list(dict.fromkeys(array.name for array in copies.arrays))
    if len(names) == 1:
        return copies
    size = first.sizes[0]
    whole = ArrayShape(first.shape.element, (size * len(names), *first.sizes[1:]))
    joined = b.emit("cat", names, whole, {"axis": 0})
    parts = {
        name: b.array(
            "slice",
            (joined,),
            first.shape,
            {"axis": 0, "start": number * size, "stop": (number + 1) * size},
        )
        for number, name in enumerate(names)
    }
    return Copies(tuple(parts[array.name] for array in copies.arrays), copies.groups)
