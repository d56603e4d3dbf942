"""The check of a witness file before it is run.

A witness comes from anywhere, so nothing in it is believed: every number must be in range, and its
steps are first run on the dimensions alone, which costs no memory. A tensor of more than
``MOST_ELEMENTS`` elements on the way is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
from pitcheck.algebra.interface import Kind
from pitcheck.base.numbers import parse_number
from pitcheck.errors import PitcheckError, PlanError
from pitcheck.graph.cuts import FREE, ZERO
from pitcheck.stage.batch import Batch
from pitcheck.stage.run_batch import run_batch
from pitcheck.witness.witness import Filled, Held, Side, Witness, batch_of, scale_of

MOST_ELEMENTS = 1 << 22
MOST_DIMENSIONS = 16
MOST_ROWS = 1 << 16
MOST_DEPTH = 8
LARGEST_INTEGER = 1 << 53
BROKEN = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    StopIteration,
)
"""Errors of operators that meet attributes that no plan could have brought them.

They are the fault of the file, and not of the program.
"""


def check_witness(witness: Witness) -> None:
    """Check that a witness can be run.

    Raises:
        PlanError: it contradicts itself, or has a number out of range, an unknown operator or too
            large a tensor; the error names the place.
    """
    for value, filled in witness.inputs.items():
        _check_filled(filled, f"inputs[{value}]")
        _check_integers(filled, f"inputs[{value}]")
    for name in ("reference", "parallel"):
        side: Side = getattr(witness, name)
        for value, filled in side.constants.items():
            _check_filled(filled, f"{name}.constants[{value}]")
        _check_steps(side, name)
    for value, held in witness.held.items():
        _check_held(held, witness.inputs, f"held[{value}]")
    _check_compared(witness, *_shapes(witness))


def _refuse_unless(condition: bool, message: str, place: str) -> None:
    if not condition:
        raise PlanError(message, place)


def _check_filled(filled: Filled, place: str) -> None:
    _check_shape(filled.shape, place)
    count = prod(filled.shape)
    _refuse_unless(
        len(filled.numbers) in (1, count),
        f"{len(filled.numbers)} numbers for shape {tuple(filled.shape)}",
        place,
    )
    if len(filled.numbers) == 1:
        parse_number(filled.numbers[0], place)


def _check_shape(shape: list[int], place: str) -> None:
    _refuse_unless(
        len(shape) <= MOST_DIMENSIONS,
        f"{len(shape)} dimensions are more than {MOST_DIMENSIONS}",
        place,
    )
    _refuse_unless(
        all(0 <= n <= MOST_ELEMENTS for n in shape),
        f"a size of shape {tuple(shape)} is not within 0 to {MOST_ELEMENTS}",
        place,
    )
    _refuse_unless(
        prod(shape) <= MOST_ELEMENTS,
        f"a tensor of shape {tuple(shape)} has more than {MOST_ELEMENTS} elements",
        place,
    )


def _check_integers(filled: Filled, place: str) -> None:
    for text in filled.numbers:
        digits = text.removeprefix("-")
        right = (
            digits.isascii()
            and digits.isdigit()
            and len(digits) <= len(str(LARGEST_INTEGER))
            and int(digits) <= LARGEST_INTEGER
        )
        _refuse_unless(
            right,
            f"{text[:40]!r} is no integer of at most 2^53 in size; inputs are integers",
            place,
        )


def _check_steps(side: Side, name: str) -> None:
    for number, step in enumerate(side.steps):
        place = f"{name}.steps[{number}]"
        _refuse_unless(
            1 <= step.count <= MOST_ROWS,
            f"{step.count} rows are not within 1 to {MOST_ROWS}",
            place,
        )
        for attribute, value in step.attributes.items():
            _check_attribute(value, f"{place}.attributes.{attribute[:40]}", 0)


def _check_attribute(value: Any, place: str, depth: int) -> None:
    _refuse_unless(depth <= MOST_DEPTH, f"lists are nested more than {MOST_DEPTH} deep", place)
    _refuse_unless(
        value is None or isinstance(value, (bool, int, float, str, list)),
        f"{type(value).__name__} is no attribute",
        place,
    )
    if isinstance(value, list):
        for each in value:
            _check_attribute(each, place, depth + 1)
    elif isinstance(value, int):
        _refuse_unless(
            abs(value) <= LARGEST_INTEGER, f"the integer is larger than {LARGEST_INTEGER}", place
        )


def _check_held(held: Held, inputs: dict[int, Filled], place: str) -> None:
    scale_of(held.scale, f"{place}.scale")
    source = inputs.get(held.source)
    if source is None:
        raise PlanError(f"input {held.source} is not there", place)
    for box in held.boxes:
        check_box(box, tuple(source.shape), place)
    _refuse_unless(
        1 <= len(held.rows) <= MOST_ROWS,
        f"{len(held.rows)} rows are not within 1 to {MOST_ROWS}",
        place,
    )
    for box_number, term, terms in held.rows:
        right = 0 <= box_number < len(held.boxes) and 0 <= term < terms <= MOST_ROWS
        _refuse_unless(
            right, f"row {(box_number, term, terms)} names a box or term that is not there", place
        )
    shapes = {_box_shape(box) for box in held.boxes}
    _refuse_unless(
        len(shapes) == 1, f"its boxes have different shapes: {sorted(shapes)[:4]}", place
    )
    _check_shape([*next(iter(shapes)), len(held.rows)], place)
    _refuse_unless(
        sum(terms for _, _, terms in held.rows) * prod(next(iter(shapes))) <= MOST_ELEMENTS,
        "its terms have too many elements",
        place,
    )


def check_box(box: list[list[tuple[int, int]]], shape: tuple[int, ...], place: str) -> None:
    """Check that a box lies within a tensor of a shape. Intervals that begin at -1 are free.

    Raises:
        PlanError: it does not.
    """
    _refuse_unless(
        len(box) == len(shape),
        f"a box of {len(box)} dimensions in a tensor of shape {shape}",
        place,
    )
    for size, intervals in zip(shape, box, strict=True):
        _refuse_unless(bool(intervals), "a box has a dimension without intervals", place)
        for start, stop in intervals:
            right = (
                0 <= stop <= MOST_ELEMENTS if start in (FREE, ZERO) else 0 <= start <= stop <= size
            )
            _refuse_unless(
                right, f"interval {(start, stop)} is not within a dimension of size {size}", place
            )


def _box_shape(box: list[list[tuple[int, int]]]) -> tuple[int, ...]:
    return tuple(
        sum(stop if start < 0 else stop - start for start, stop in intervals) for intervals in box
    )


def _shapes(
    witness: Witness,
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]], Batch]:
    """Return the shapes of all values of both sides, from a run on dimensions alone.

    Returns:
        By value the shapes of the reference side, those of the parallel side, and the parallel
        batch.
    """
    filled = {value: (tuple(f.shape), f.kind) for value, f in witness.inputs.items()}
    held = {
        value: (_box_shape(h.boxes[0]), witness.inputs[h.source].kind)
        for value, h in witness.held.items()
    }
    reference = batch_of(
        witness.reference, dict.fromkeys([*filled, *witness.reference.constants], 1), "reference"
    )
    parallel = batch_of(
        witness.parallel,
        {
            **{v: len(h.rows) for v, h in witness.held.items()},
            **dict.fromkeys(witness.parallel.constants, 1),
        },
        "parallel",
    )
    return (
        _run_on_shapes(reference, witness.reference, filled, "reference"),
        _run_on_shapes(parallel, witness.parallel, held, "parallel"),
        parallel,
    )


def _run_on_shapes(
    batch: Batch, side: Side, given: Mapping[int, tuple[tuple[int, ...], Kind]], name: str
) -> dict[int, tuple[int, ...]]:
    axes = Bounded(AxisAlgebra(AxisSystem()))
    constants = {value: (tuple(f.shape), f.kind) for value, f in side.constants.items()}
    try:
        values = run_batch(
            batch,
            axes,
            {v: axes.tensor(shape, kind) for v, (shape, kind) in {**constants, **given}.items()},
        )
    except PitcheckError as error:
        raise PlanError(str(error), name) from error
    except BROKEN as error:
        raise PlanError(f"a step cannot be run ({type(error).__name__}: {error})", name) from error
    shapes = {value: tuple(int(n) for n in axes.shape(a)) for value, a in values.items()}
    for step in batch.steps:
        for output in step.outputs:
            if output is not None:
                _refuse_unless(
                    prod(shapes[output]) * step.count <= MOST_ELEMENTS,
                    f"value {output} has too many elements",
                    name,
                )
    return shapes


class Bounded:
    """An algebra of dimensions that raises PlanError for a tensor of too many elements."""

    def __init__(self, inner: AxisAlgebra) -> None:
        self.inner = inner
        self.site = ""

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.inner, name)
        return self._checked(member) if callable(member) else member

    def _checked(self, operation: Any) -> Any:
        def run(*arguments: Any, **named: Any) -> Any:
            result = operation(*arguments, **named)
            dims = getattr(result, "dims", None)
            if dims is not None:
                _check_shape([d.size for d in dims], "an intermediate value")
            return result

        return run


def _check_compared(
    witness: Witness,
    reference: dict[int, tuple[int, ...]],
    parallel: dict[int, tuple[int, ...]],
    batch: Batch,
) -> None:
    compared = witness.compared
    scale_of(compared.scale, "compared.scale")
    if compared.reference not in reference or compared.parallel not in parallel:
        raise PlanError("what is compared is not computed", "compared")
    check_box(compared.box, reference[compared.reference], "compared.box")
    shape = _box_shape(compared.box)
    local = parallel[compared.parallel]
    _refuse_unless(
        shape == local,
        f"a part of shape {shape} is compared with a value of shape {local}",
        "compared",
    )
    within = len(compared.element) == len(shape) and all(
        0 <= i < n for i, n in zip(compared.element, shape, strict=False)
    )
    _refuse_unless(
        within, f"element {tuple(compared.element)} is not within shape {shape}", "compared.element"
    )
    rows = sum(step.count for step in batch.steps if compared.parallel in step.outputs) + len(
        batch.inputs.get(compared.parallel, ())
    )
    _refuse_unless(
        0 < len(compared.rows) <= MOST_ROWS, "no rows, or too many, are compared", "compared.rows"
    )
    _refuse_unless(
        all(0 <= row < rows for row in compared.rows),
        f"value {compared.parallel} has {rows} rows, not {compared.rows[:4]}",
        "compared.rows",
    )
    free = any(start == FREE for intervals in compared.box for start, _ in intervals)
    _refuse_unless(
        not free or prod(shape) <= MOST_ELEMENTS,
        "the part compared has too many elements",
        "compared.box",
    )
