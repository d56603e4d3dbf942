"""Collectives of a manual region: sums, concatenations and copies of what the devices hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from pitcheck.errors import PlanError
from pitcheck.frontends.xla.lowering.arrays import NUMPY, Array, Copies, Numbers, Value
from pitcheck.frontends.xla.lowering.arrays import Tuple as Arrays
from pitcheck.frontends.xla.lowering.building import Building, unsupported
from pitcheck.frontends.xla.lowering.collectives import axis_of, groups_of, part_of, targets_of
from pitcheck.frontends.xla.lowering.reductions import over
from pitcheck.frontends.xla.lowering.regions.of_two import reduction_of
from pitcheck.frontends.xla.lowering.structure import joined, reshaped, sliced
from pitcheck.frontends.xla.text.groups import Groups
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType

_REDUCTIONS = frozenset({"add", "maximum", "minimum"})
_OF_TRUTHS = MappingProxyType({"or": "or", "and": "and", "maximum": "or", "minimum": "and"})

Exchange = Callable[[Sequence[Array]], Sequence[Array]]
"""A function of what each member of a group holds, in its order, that gives what each gets."""
Lower = Callable[[Building, Instruction, Sequence[Copies]], list[Copies]]


def manual_collective(
    b: Building, instruction: Instruction, operands: Sequence[Copies]
) -> Value | None:
    """Return the result of a collective in a manual region; None for other opcodes.

    Raises:
        UnsupportedError: for what has no meaning in a plan.
        PlanError: for groups that do not fit the program.
    """
    lower = _LOWER.get(instruction.opcode)
    if lower is None:
        return None
    results = lower(b, instruction, operands)
    return results[0] if isinstance(instruction.shape, ArrayShape) else Arrays(tuple(results))


def manual_partition(b: Building, shape: ArrayShape, groups: tuple[int, ...]) -> Copies:
    """Return the number of each device.

    Raises UnsupportedError if several devices hold one array together.
    """
    if len(set(groups)) < len(groups):
        raise unsupported(b, "partition-id where several devices hold one array")
    numbers: Numbers = np.arange(len(groups), dtype=NUMPY[shape.element])
    return Copies(tuple(b.known(shape, number.reshape(1)) for number in numbers), groups)


def _exchanged(groups: Groups, x: Copies, exchange: Exchange) -> Copies:
    """Return what each device gets if each group exchanges what its members hold."""
    found: dict[int, Array] = {}
    for group in groups:
        got = exchange([x.arrays[device] for device in group])
        found.update(zip(group, got, strict=True))
    return Copies(tuple(found[device] for device in range(len(x.arrays))), x.groups)


def _groups(b: Building, instruction: Instruction, given: Sequence[Copies]) -> Groups:
    """Return the groups of a collective.

    Raises UnsupportedError if it meets devices that hold one array together.
    """
    groups = groups_of(b, instruction, len(given[0].arrays))
    for group in groups:
        if len({given[0].groups[device] for device in group}) < len(group):
            raise unsupported(b, f"{instruction.opcode} along an axis that is not manual")
    return groups


def _all_reduce(b: Building, instruction: Instruction, given: Sequence[Copies]) -> list[Copies]:
    groups = [tuple(sorted(group)) for group in _groups(b, instruction, given)]

    def reduced(held: Sequence[Array]) -> list[Array]:
        return [_reduced(b, instruction, held)] * len(held)

    return [_exchanged(tuple(groups), x, reduced) for x in given]


def _reduced(b: Building, instruction: Instruction, held: Sequence[Array]) -> Array:
    """Return the sum, or another reduction, of what the members of a group hold."""
    shape = held[0].shape
    operator = reduction_of(b.module, instruction)
    if shape.element is ElementType.PRED:
        operator = _OF_TRUTHS.get(operator, "")
    elif operator not in _REDUCTIONS:
        operator = ""
    if not operator:
        raise unsupported(b, f"{instruction.opcode} of {shape.element} by another reduction")
    rows = [reshaped(b, x, (1, *shape.dimensions)) for x in held]
    return over(b, joined(b, rows, 0), shape, operator, (0,))


def _all_gather(b: Building, instruction: Instruction, given: Sequence[Copies]) -> list[Copies]:
    groups, axis = _groups(b, instruction, given), axis_of(b, instruction)

    def gathered(held: Sequence[Array]) -> list[Array]:
        return [joined(b, held, axis)] * len(held)

    return [_exchanged(groups, x, gathered) for x in given]


def _parts(b: Building, x: Array, axis: int, members: int) -> list[Array]:
    """Return equal parts of an array. Raises PlanError if there are none."""
    width = part_of(b, x, axis, members).dimensions[axis]
    return [sliced(b, x, axis, number * width, (number + 1) * width) for number in range(members)]


def _reduce_scatter(b: Building, instruction: Instruction, given: Sequence[Copies]) -> list[Copies]:
    groups, axis = _groups(b, instruction, given), axis_of(b, instruction)

    def scattered(held: Sequence[Array]) -> list[Array]:
        return _parts(b, _reduced(b, instruction, held), axis, len(held))

    return [_exchanged(groups, x, scattered) for x in given]


def _all_to_all(b: Building, instruction: Instruction, given: Sequence[Copies]) -> list[Copies]:
    """Return what each device gets: one array cut along a dimension, or an array of each."""
    groups = _groups(b, instruction, given)
    members = len(groups[0])
    if "dimensions" not in instruction.attributes:
        return _sent_to_each(b, groups, given)
    axis = axis_of(b, instruction)
    if len(given) != 1:
        raise unsupported(b, "all-to-all of several arrays that are cut")

    def swapped(held: Sequence[Array]) -> list[Array]:
        parts = [_parts(b, x, axis, members) for x in held]
        return [joined(b, column, axis) for column in zip(*parts, strict=True)]

    return [_exchanged(groups, given[0], swapped)]


def _sent_to_each(b: Building, groups: Groups, given: Sequence[Copies]) -> list[Copies]:
    """Return the arrays that each device gets, if operand i goes to member i of its group."""
    members = len(groups[0])
    if len(given) != members:
        raise PlanError(
            f"all-to-all has {len(given)} operands in groups of {members}; each member sends one "
            f"to each",
            b.place,
        )
    found: list[dict[int, Array]] = [{} for _ in given]
    for group in groups:
        for place, device in enumerate(group):
            for number, source in enumerate(group):
                found[number][device] = given[place].arrays[source]
    devices = range(len(given[0].arrays))
    return [
        Copies(tuple(got[device] for device in devices), x.groups)
        for got, x in zip(found, given, strict=True)
    ]


def _permute(b: Building, instruction: Instruction, given: Sequence[Copies]) -> list[Copies]:
    """Return what each device is sent; one that is sent nothing has zeros."""
    devices = len(given[0].arrays)
    sources = {target: source for source, target in targets_of(b, instruction, devices).items()}
    results = []
    for x in given:
        zeros = _zeros(b, x.arrays[0].shape)
        held = [x.arrays[sources[d]] if d in sources else zeros for d in range(devices)]
        results.append(Copies(tuple(held), x.groups))
    return results


def _zeros(b: Building, shape: ArrayShape) -> Array:
    """Return an array of zeros, or of what is false."""
    if shape.element in NUMPY:
        return b.known(shape, np.zeros((1, *shape.dimensions), dtype=NUMPY[shape.element]))
    return b.filled(shape, Fraction(0))


def _broadcast(b: Building, instruction: Instruction, given: Sequence[Copies]) -> list[Copies]:
    groups = _groups(b, instruction, given)
    return [_exchanged(groups, x, lambda held: [held[0]] * len(held)) for x in given]


_LOWER: Mapping[str, Lower] = MappingProxyType(
    {
        "all-reduce": _all_reduce,
        "all-gather": _all_gather,
        "reduce-scatter": _reduce_scatter,
        "all-to-all": _all_to_all,
        "collective-permute": _permute,
        "collective-broadcast": _broadcast,
    }
)
