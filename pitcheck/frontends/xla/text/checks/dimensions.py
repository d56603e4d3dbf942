"""Checks of the dimensions that instructions name: they are those of their operands.

XLA refuses a text that names others. A plan would have another meaning for some of them: its
operators repeat an array of one place, or pass over a dimension that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from pitcheck.frontends.xla.text.lexer import Lexer
from pitcheck.frontends.xla.text.module import Instruction
from pitcheck.frontends.xla.text.shapes import ArrayShape, ElementType, Shape
from pitcheck.frontends.xla.text.values import Range

Check = Callable[[Lexer, Instruction, ArrayShape, Sequence[ArrayShape]], None]


def check_dimensions(lexer: Lexer, instruction: Instruction, given: Sequence[Shape]) -> None:
    """Raise PlanError if an instruction names a dimension that is not there, or one twice."""
    check = _CHECKS.get(instruction.opcode)
    if check is None:
        return
    arrays = [shape for shape in given if isinstance(shape, ArrayShape)]
    whole = instruction.shape if isinstance(instruction.shape, ArrayShape) else None
    if len(arrays) < len(given) or (whole is None and instruction.opcode not in _OF_TUPLES):
        raise lexer.damaged(f"{instruction.opcode} is of arrays, and not of tuples")
    check(lexer, instruction, whole or arrays[0], arrays)


def _named(
    lexer: Lexer, instruction: Instruction, numbers: Sequence[int], rank: int, meaning: str
) -> None:
    """Raise PlanError unless each number is one of ``rank`` dimensions, and stands once."""
    if len({*numbers}) < len(numbers) or not {*numbers} <= {*range(rank)}:
        shown = ",".join(map(str, numbers[:20]))
        raise lexer.damaged(
            f"{instruction.opcode} has {meaning}={{{shown}}}; each must be one of {rank} "
            f"dimensions, and stand once"
        )


def _fits(lexer: Lexer, instruction: Instruction, fits: bool, given: Sequence[ArrayShape]) -> None:
    """Raise PlanError unless operands fit the result."""
    if not fits:
        shown = ", ".join(map(str, given[:4]))
        raise lexer.damaged(f"{instruction.opcode} of {shown} gives no {instruction.shape}")


# --- moved elements
def _broadcast(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    numbers, (x,) = instruction.integers("dimensions"), given
    _named(lexer, instruction, numbers, len(result.dimensions), "dimensions")
    kept = tuple(result.dimensions[d] for d in numbers)
    fits = x.element is result.element and x.dimensions == kept
    _fits(lexer, instruction, fits, given)


def _transpose(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    numbers, (x,) = instruction.integers("dimensions"), given
    _named(lexer, instruction, numbers, len(x.dimensions), "dimensions")
    fits = len(numbers) == len(x.dimensions) and x.element is result.element
    fits = fits and result.dimensions == tuple(x.dimensions[d] for d in numbers)
    _fits(lexer, instruction, fits, given)


def _reshape(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    (x,) = given
    _fits(lexer, instruction, (x.element, x.size) == (result.element, result.size), given)


def _reverse(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    numbers = instruction.integers("dimensions")
    _named(lexer, instruction, numbers, len(result.dimensions), "dimensions")
    _fits(lexer, instruction, given[0] == result, given)


def _concatenate(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    numbers = instruction.integers("dimensions")
    _named(lexer, instruction, numbers, len(result.dimensions), "dimensions")
    fits = len(numbers) == 1 and all(_beside(x, result, numbers[0]) for x in given)
    fits = fits and result.dimensions[numbers[0]] == sum(x.dimensions[numbers[0]] for x in given)
    _fits(lexer, instruction, fits, given)


def _beside(x: ArrayShape, result: ArrayShape, axis: int) -> bool:
    """Return True if two arrays differ in the size of one dimension at most."""
    sizes, whole = x.dimensions, result.dimensions
    alike = len(sizes) == len(whole) and x.element is result.element
    return alike and (*sizes[:axis], *sizes[axis + 1 :]) == (*whole[:axis], *whole[axis + 1 :])


def _slice(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    (x,) = given
    cuts = cast("tuple[Range, ...]", instruction.attributes["slice"])
    fits = len(cuts) == len(x.dimensions) and x.element is result.element
    fits = fits and all(cut.limit <= size for cut, size in zip(cuts, x.dimensions, strict=False))
    left = tuple(-(-(cut.limit - cut.start) // cut.stride) for cut in cuts)
    _fits(lexer, instruction, fits and left == result.dimensions, given)


def _iota(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, _: Sequence[ArrayShape]
) -> None:
    number = instruction.get("iota_dimension", 0)
    _named(lexer, instruction, (number,), len(result.dimensions), "iota_dimension")


# --- choices
def _select(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    condition, first, second = given
    fits = first == second == result and condition.element is ElementType.PRED
    fits = fits and condition.dimensions in ((), result.dimensions)
    _fits(lexer, instruction, fits, given)


def _clamp(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    low, x, high = given
    ends = ArrayShape(result.element, ()), result
    fits = x == result and low in ends and high in ends
    _fits(lexer, instruction, fits, given)


# --- products and reductions
def _dot(
    lexer: Lexer, instruction: Instruction, _: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    pairs: list[list[int]] = []
    for side, x in zip(("lhs", "rhs"), given, strict=True):
        numbers = [
            *instruction.integers(f"{side}_batch_dims"),
            *instruction.integers(f"{side}_contracting_dims"),
        ]
        _named(lexer, instruction, numbers, len(x.dimensions), f"{side} dimensions")
        pairs.append([x.dimensions[d] for d in numbers])
    _fits(lexer, instruction, pairs[0] == pairs[1], given)


def _reduce(
    lexer: Lexer, instruction: Instruction, _: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    numbers = instruction.integers("dimensions")
    _named(lexer, instruction, numbers, len(given[0].dimensions), "dimensions")
    arrays, starts = given[: len(given) // 2], given[len(given) // 2 :]
    fits = len(arrays) == len(starts) and all(not each.dimensions for each in starts)
    _fits(lexer, instruction, fits and _equal_sizes(arrays), given)


def _along_one(
    lexer: Lexer, instruction: Instruction, _: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    """Raise PlanError unless dimensions, if there are any, are one of each operand."""
    numbers = instruction.integers("dimensions")
    for x in given:
        _named(lexer, instruction, numbers, len(x.dimensions), "dimensions")


def _equal_sizes(arrays: Sequence[ArrayShape]) -> bool:
    return len({x.dimensions for x in arrays}) == 1


# --- gathers and scatters
def _gather(
    lexer: Lexer, instruction: Instruction, result: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    x, indices = given
    _indexed(lexer, instruction, (x, indices, result), _GATHER)
    sizes = instruction.integers("slice_sizes")
    fits = len(sizes) == len(x.dimensions) and x.element is result.element
    _fits(lexer, instruction, fits, given)
    dropped = {
        *instruction.integers("collapsed_slice_dims"),
        *instruction.integers("operand_batching_dims"),
    }
    kept = [size for d, size in enumerate(sizes) if d not in dropped]
    _with_offsets(lexer, instruction, result, indices, kept, given)


def _scatter(
    lexer: Lexer, instruction: Instruction, _: ArrayShape, given: Sequence[ArrayShape]
) -> None:
    count = len(given) // 2
    if len(given) != 2 * count + 1:
        raise lexer.damaged(f"scatter has {len(given)} operands; bases, indices and updates")
    bases, indices, updates = given[:count], given[count], given[count + 1 :]
    _fits(lexer, instruction, _equal_sizes(bases) and _equal_sizes(updates), given)
    _indexed(lexer, instruction, (bases[0], indices, updates[0]), _SCATTER)
    _with_offsets(lexer, instruction, updates[0], indices, None, given)


_GATHER = (
    "start_index_map",
    "collapsed_slice_dims",
    "operand_batching_dims",
    "start_indices_batching_dims",
    "offset_dims",
)
_SCATTER = (
    "scatter_dims_to_operand_dims",
    "inserted_window_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
    "update_window_dims",
)


def _indexed(
    lexer: Lexer,
    instruction: Instruction,
    arrays: tuple[ArrayShape, ArrayShape, ArrayShape],
    names: Sequence[str],
) -> None:
    """Raise PlanError unless the numbers are dimensions of an array, its indices and slices."""
    x, indices, slices = (len(each.dimensions) for each in arrays)
    for name, rank in zip(names, (x, x, x, indices, slices), strict=True):
        _named(lexer, instruction, instruction.integers(name), rank, name)
    mapped, dropped, batching, paired, offsets = map(instruction.integers, names)
    vector = instruction.get("index_vector_dim", indices)
    fits = (
        vector <= indices
        and vector not in paired
        and not {*batching} & {*mapped, *dropped}
        and [arrays[0].dimensions[d] for d in batching] == [arrays[1].dimensions[d] for d in paired]
        and slices == len(offsets) + indices - (vector < indices)
        and list(offsets) == sorted(offsets)
        and arrays[1].element.is_integer
    )
    _fits(lexer, instruction, fits, arrays)


def _with_offsets(
    lexer: Lexer,
    instruction: Instruction,
    slices: ArrayShape,
    indices: ArrayShape,
    kept: Sequence[int] | None,
    given: Sequence[ArrayShape],
) -> None:
    """Raise PlanError unless slices have the sizes of their indices, and ``kept`` at offsets."""
    vector = instruction.get("index_vector_dim", len(indices.dimensions))
    offsets = instruction.integers("offset_dims") or instruction.integers("update_window_dims")
    batch = [size for d, size in enumerate(indices.dimensions) if d != vector]
    found = [size for d, size in enumerate(slices.dimensions) if d not in offsets]
    inside = [slices.dimensions[d] for d in offsets]
    _fits(lexer, instruction, batch == found and kept in (None, inside), given)


_OF_TUPLES = frozenset({"reduce", "scatter", "all-gather", "reduce-scatter", "all-to-all"})
"""The opcodes that may give a tuple."""
_CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "broadcast": _broadcast,
        "transpose": _transpose,
        "reshape": _reshape,
        "reverse": _reverse,
        "concatenate": _concatenate,
        "slice": _slice,
        "iota": _iota,
        "select": _select,
        "clamp": _clamp,
        "dot": _dot,
        "reduce": _reduce,
        "all-gather": _along_one,
        "reduce-scatter": _along_one,
        "all-to-all": _along_one,
        "gather": _gather,
        "scatter": _scatter,
    }
)
"""The checks of opcodes that name dimensions. Others are checked where they are lowered."""
