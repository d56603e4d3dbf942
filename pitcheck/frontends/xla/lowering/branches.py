"""Conditionals whose branch depends on inputs: all branches, and a choice among their results.

A branch has no effect but its result, and a number that is not chosen counts for nothing. So both
may be computed, unless devices meet in them: then it decides who takes part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import Array, Tuple, Value
from pitcheck.frontends.xla.lowering.building import Building
from pitcheck.frontends.xla.lowering.elementwise import chosen
from pitcheck.frontends.xla.lowering.structure import spread
from pitcheck.frontends.xla.text.module import Computation, Module
from pitcheck.frontends.xla.text.opcodes import OPCODES
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType
from pitcheck.plan.model import Number


def meeting_in(module: Module, computation: Computation) -> str | None:
    """Return an instruction of a computation, or of one it calls, in which devices meet."""
    seen, queue = {computation.name}, [computation]
    while queue:
        for instruction in queue.pop().instructions.values():
            if OPCODES[instruction.opcode].meets:
                return f"{instruction.name} (line {instruction.line})"
            new = set(instruction.calls) - seen
            seen |= new
            queue += [module.computations[name] for name in new]
    return None


def taken(b: Building, choice: Array, results: Sequence[Value]) -> Value:
    """Return the result of the branch that a truth or an integer names.

    True names the first. An integer that names none stands for the last.
    """
    if choice.shape.element is ElementType.PRED:
        return _either(b, choice, results[0], results[1])
    found = results[-1]
    for number in reversed(range(len(results) - 1)):
        found = _either(b, _equal(b, choice, number), results[number], found)
    return found


def _equal(b: Building, choice: Array, number: int) -> Array:
    """Return where an integer is a number."""
    truth = ArrayShape(ElementType.PRED, ())
    if choice.known is not None:
        return b.known(truth, np.equal(choice.known, number))
    return b.array("eq", (choice.name, Number(number)), truth)


def _either(b: Building, condition: Array, first: Value, second: Value) -> Value:
    """Return the first of two values if a condition holds, else the second."""
    if isinstance(first, Array) and isinstance(second, Array):
        wide = spread(b, condition, (), first.sizes)
        return chosen(b, first.shape, wide, first, second)
    if not isinstance(first, Tuple) or not isinstance(second, Tuple):
        raise PlanError("branches give an array and a tuple", b.place)
    pairs = zip(first.elements, second.elements, strict=True)
    return Tuple(tuple(_either(b, condition, *pair) for pair in pairs))
