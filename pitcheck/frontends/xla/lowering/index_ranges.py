"""The integers that parameters may hold: the places that they index.

XLA clamps an index that lies outside, or drops what it would write. Programs do not mean that. So
an integer parameter that indexes a dimension is taken to lie within it, which the report says. The
starts of a slice are the exception: there clamping is what a program may rely on, so they may also
lie before its begin and beyond its end, where a partitioned program that clamps in each shard, or
not at all, reads something else. JAX counts negative starts from the end, so that those before the
begin are below minus the size.
"""

from __future__ import annotations

from typing import cast

from pitcheck.frontends.xla.lowering.arrays import NUMPY, limits
from pitcheck.frontends.xla.text.module import Computation, Instruction, Module
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType

MOST = 1 << 10
"""The largest magnitude that a plan bounds an integer by."""
BEYOND = 2
"""The range of the starts of a slice on either side of 0, in sizes of the dimension."""
_THROUGH = frozenset(
    {
        "add",
        "subtract",
        "select",
        "clamp",
        "copy",
        "convert",
        "reshape",
        "broadcast",
        "transpose",
        "concatenate",
        "slice",
        "maximum",
        "minimum",
        "all-gather",
        "custom-call",
    }
)
"""The operators that hand indices on, moved or not."""


def index_ranges(module: Module) -> dict[int, tuple[int, int]]:
    """Return the half-open range of each integer parameter that indexes, by its number.

    What no result needs says nothing of a parameter. The range is that of all dimensions which it
    indexes together, and has each constant that the integers are asked to be equal to: one that
    stands for no index would be no case else.
    """
    entry = module.computations[module.entry]
    needed = _needed(entry)
    ranges: dict[int, tuple[int, int]] = {}
    for instruction in needed:
        for operand, (low, high) in _indices(entry, instruction):
            for number in _origins(entry, operand):
                first, behind = ranges.get(number, (low, high))
                ranges[number] = max(low, first), min(high, behind)
    for instruction in needed:
        for operand, value in _equated(entry, instruction):
            for number in _origins(entry, operand) & ranges.keys():
                low, high = ranges[number]
                ranges[number] = min(low, value), max(high, value + 1)
    return ranges


def _needed(entry: Computation) -> list[Instruction]:
    """Return the instructions that the result of a computation is made of."""
    seen, queue = {entry.root}, [entry.root]
    while queue:
        for operand in entry.instructions[queue.pop()].operands:
            if operand not in seen:
                seen.add(operand)
                queue.append(operand)
    return [entry.instructions[name] for name in entry.instructions if name in seen]


def widest(element: ElementType) -> tuple[int, int]:
    """Return the range of an integer of which nothing is known: that of its type."""
    low, high = limits(element)
    return max(low, -MOST), min(high, MOST)


def _indices(entry: Computation, instruction: Instruction) -> list[tuple[str, tuple[int, int]]]:
    """Return the operands of an instruction that are indices, each with its half-open range."""
    operands = instruction.operands
    if instruction.opcode in {"gather", "scatter"}:
        whole = entry.instructions[operands[0]].shape
        key = (
            "start_index_map" if instruction.opcode == "gather" else "scatter_dims_to_operand_dims"
        )
        mapped = cast("tuple[int, ...]", instruction.attributes[key])
        if isinstance(whole, ArrayShape) and mapped:
            return [(operands[1], (0, min(whole.dimensions[d] for d in mapped)))]
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(instruction.opcode)
    if first is not None:
        whole = entry.instructions[operands[0]].shape
        if isinstance(whole, ArrayShape):
            places = zip(operands[first:], whole.dimensions, strict=False)
            return [(operand, (-BEYOND * size, BEYOND * size)) for operand, size in places]
    return []


def _equated(entry: Computation, instruction: Instruction) -> list[tuple[str, int]]:
    """Return the operands of a comparison for equality, each with the constant that it may be."""
    if instruction.get("direction", "") not in {"EQ", "NE"}:
        return []
    first, second = instruction.operands
    found = ((first, _constant(entry, second)), (second, _constant(entry, first)))
    return [(operand, value) for operand, value in found if value is not None]


def _constant(entry: Computation, name: str) -> int | None:
    """Return the integer that all elements of a repeated constant are; None if there is none."""
    instruction = entry.instructions[name]
    while instruction.opcode in {"broadcast", "reshape", "copy", "convert"}:
        instruction = entry.instructions[instruction.operands[0]]
    literal = instruction.literal
    if literal is None or not literal.shape.element.is_integer or len({*literal.elements}) != 1:
        return None
    value = literal.elements[0]
    return value if isinstance(value, int) and abs(value) < MOST else None


def _origins(entry: Computation, name: str) -> set[int]:
    """Return the numbers of the integer parameters that an index comes from."""
    numbers, seen, queue = set(), {name}, [name]
    while queue:
        instruction = entry.instructions[queue.pop()]
        shape = instruction.shape
        if not isinstance(shape, ArrayShape) or shape.element not in NUMPY:
            continue
        if instruction.parameter is not None:
            if shape.element is not ElementType.PRED:
                numbers.add(instruction.parameter)
        elif instruction.opcode in _THROUGH:
            new = set(instruction.operands) - seen
            seen |= new
            queue += new
    return numbers
