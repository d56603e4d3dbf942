"""Short postfix programs over the elements of arrays: the struct ``Program`` of elementwise.cu.

>>> sum_of_squares = [(LOAD, 0), (POWER, 0), (LOAD, 1), (POWER, 0), (ADD, 0)]
>>> program(tuple(sum_of_squares), ((2, 2),))["length"].tolist()
[5]
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.device.kernels import MOST_LEVELS

LOAD, LOAD_BOOL, CONSTANT, ADD, SUBTRACT, NEGATE = range(6)
MULTIPLY, REDUCE, POWER, INVERSE, SELECT, IS_ZERO = range(6, 12)
"""The instructions. LOAD, LOAD_BOOL take the number of an operand, CONSTANT and POWER that of a
constant; the argument of others is 0. SELECT takes a condition, the value where it is not 0, and
the value where it is.
"""

MOST_STEPS = 24
MOST_CONSTANTS = 8
MOST_WAITING = 6
_TAKEN = {ADD: 2, SUBTRACT: 2, MULTIPLY: 2, NEGATE: 1, REDUCE: 1, POWER: 1, INVERSE: 1}
_TAKEN |= {SELECT: 3, IS_ZERO: 1, LOAD: 0, LOAD_BOOL: 0, CONSTANT: 0}

PROGRAM = np.dtype(
    [
        ("length", np.int32),
        ("code", np.int32, MOST_STEPS),
        ("argument", np.int32, MOST_STEPS + 1),
        ("constant", np.uint64, (MOST_CONSTANTS, MOST_LEVELS)),
    ],
    align=True,
)

Step = tuple[int, int]
"""An instruction and its argument."""


@lru_cache(maxsize=1 << 10)
def program(
    steps: tuple[Step, ...], constants: tuple[tuple[int, ...], ...] = ()
) -> NDArray[np.void]:
    """Return a program; ``constants`` have a number for each level of the operands.

    Raises:
        ValueError: if it is too long, lacks values, keeps more than six waiting, or leaves more
            than one.
    """
    waiting = 0
    for code, _ in steps:
        waiting += 1 - _TAKEN[code]
        if waiting < 1 or waiting > MOST_WAITING:
            raise ValueError(f"a program keeps 1 to {MOST_WAITING} values, not {waiting}: {steps}")
    if waiting != 1 or len(steps) > MOST_STEPS or len(constants) > MOST_CONSTANTS:
        raise ValueError(
            f"a program of {len(steps)} steps and {len(constants)} constants leaves {waiting} "
            f"values; at most {MOST_STEPS} and {MOST_CONSTANTS}, and one value, are possible"
        )
    result = np.zeros(1, PROGRAM)
    result["length"] = len(steps)
    for place, (code, argument) in enumerate(steps):
        result["code"][0, place], result["argument"][0, place] = code, argument
    for place, numbers in enumerate(constants):
        result["constant"][0, place, : len(numbers)] = numbers
    return result
