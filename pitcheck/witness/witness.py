"""The witness file: one stage with small inputs on which both sides differ.

The file is complete in itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from pitcheck.algebra.interface import Kind
from pitcheck.base.formats import known_content
from pitcheck.base.numbers import Literal, Root, parse_number
from pitcheck.cache.folder import FOLDER, made
from pitcheck.errors import PlanError
from pitcheck.graph.graph import Graph, GraphValue, Node
from pitcheck.graph.grids import Lattice
from pitcheck.plan.coordinates import Coordinates
from pitcheck.plan.model import Axis, Tensor
from pitcheck.stage.batch import Argument, Batch, Step, StepOperand

FORMAT = "pitcheck.witness/1"
LARGEST = 64 << 20
"""The size of the largest file that is read, in bytes."""
_SCALE = re.compile(r"-?\d{1,18}(/\d{1,18})?")


class Operand(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows of a value, or of several stacked ones (``members``), or a literal (``number``)."""

    value: int = -1
    rows: list[Any] = []
    members: list[Operand] = []
    number: str = ""


class WitnessStep(msgspec.Struct, frozen=True):
    """One operator of the stage."""

    operator: str
    kind: str
    attributes: dict[str, Any]
    inputs: list[Operand]
    outputs: list[int | None]
    count: int


class Filled(msgspec.Struct, frozen=True):
    """A tensor with its numbers in row-major order; ``numbers`` of length one fills it."""

    name: str
    shape: list[int]
    kind: Kind
    numbers: list[str]


class Held(msgspec.Struct, frozen=True):
    """Parts of reference tensor ``source`` that a parallel input holds.

    Each of ``rows`` is (box, number of the addend, number of addends).
    """

    name: str
    source: int
    boxes: list[list[list[tuple[int, int]]]]
    rows: list[tuple[int, int, int]]
    scale: str


class Side(msgspec.Struct, frozen=True):
    """The steps of one plan in the stage, with its constants."""

    steps: list[WitnessStep]
    constants: dict[int, Filled]


class Compared(msgspec.Struct, frozen=True):
    """The comparison of a witness.

    The sum over ``rows`` of parallel value ``parallel`` should be ``scale`` times ``box`` of
    reference value ``reference``.
    """

    parallel: int
    reference: int
    rows: list[int]
    box: list[list[tuple[int, int]]]
    scale: str
    element: list[int]


class Witness(msgspec.Struct, frozen=True):
    """A witness.

    ``reference_value`` and ``parallel_value``: what both sides give at ``compared.element``, to 60
    digits if that many were computed.
    """

    code: str
    title: str
    output: str
    ranks: list[int]
    microbatches: list[int]
    reference: Side
    parallel: Side
    inputs: dict[int, Filled]
    held: dict[int, Held]
    compared: Compared
    reference_value: str
    parallel_value: str
    confirmed_by: list[str]
    format: str = FORMAT


def write_witness(witness: Witness, directory: Path) -> Path:
    """Write a witness under a name made of its code and contents; whole or not at all.

    Returns:
        The path.

    Raises:
        OSError: the file cannot be written.
    """
    data = msgspec.json.format(msgspec.json.encode(witness), indent=1)
    path = directory / f"{witness.code}-{hashlib.sha256(data).hexdigest()[:10]}.witness.json"
    directory.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=".witness-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:  # an interrupt, too, must not leave half a file
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def save_witness(witness: Witness, directory: Path | None) -> tuple[str | None, str | None]:
    """Write a witness into ``directory``, unless that is None.

    Returns:
        The path, and the reason if it could not be written. A difference stays one without its
        file.
    """
    if directory is None:
        return None, None
    try:
        if FOLDER in directory.parts:
            made(Path(FOLDER))
            directory.mkdir(parents=True, exist_ok=True)
        return str(write_witness(witness, directory)), None
    except OSError as error:
        return None, f"{directory}: {error.strerror or error}"


def read_witness(path: Path) -> Witness:
    """Read a witness.

    Raises:
        PlanError: the file is none; the error names the place.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise PlanError(f"the file is larger than {LARGEST >> 20} MiB", str(path))
        data = path.read_bytes()
        known = known_content(data)
        if known and not known.startswith("a witness"):
            raise PlanError(f"this is {known}; a witness is expected", str(path))
        witness = msgspec.json.decode(data, type=Witness)
    except (OSError, msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise PlanError(f"not a witness: {error}", str(path)) from error
    if witness.format != FORMAT:
        raise PlanError(f"format {witness.format!r} is not {FORMAT!r}", str(path))
    return witness


# --- batches to data


def side_of(
    batch: Batch, attributes: list[Any], constants: dict[int, tuple[Any, tuple[int, ...], str]]
) -> Side:
    """Return one side of a stage as data.

    Args:
        batch: its steps.
        attributes: the attributes of each step, at the sizes of the stage.
        constants: by value its number, shape and kind.
    """
    steps = [
        WitnessStep(
            batch.graph.nodes[step.node].operator,
            step.kind,
            {name: _plain(value) for name, value in given.items()},
            [_operand(operand) for operand in step.inputs],
            list(step.outputs),
            step.count,
        )
        for step, given in zip(batch.steps, attributes, strict=True)
    ]
    filled = {
        value: Filled(
            batch.graph.values[value].name, list(shape), cast("Kind", kind), [spell_number(number)]
        )
        for value, (number, shape, kind) in constants.items()
    }
    return Side(steps, filled)


def _plain(value: Any) -> Any:
    if isinstance(value, (Fraction, Root)):
        return spell_number(value)
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _operand(operand: StepOperand) -> Operand:
    if isinstance(operand, Argument):
        return Operand(operand.value, operand.rows.tolist())
    if isinstance(operand, tuple):
        return Operand(members=[_operand(member) for member in operand])
    return Operand(number=spell_number(operand))


def spell_number(number: Literal) -> str:
    """Return a literal as the text that ``parse_number`` reads."""
    return str(number)


# --- data to batches


def batch_of(side: Side, inputs: dict[int, int], place: str) -> Batch:
    """Return a batch that runs the steps of a side.

    Args:
        side: the side of a witness.
        inputs: by input value the number of its rows.
        place: the name of the side in errors.

    Raises:
        PlanError: a row is out of range, or a value is read before it is written.
    """
    graph = Graph(Coordinates((Axis("witness", 1),), 1))
    batch = Batch(
        graph, inputs={value: np.arange(rows, dtype=np.int64) for value, rows in inputs.items()}
    )
    filled = dict(inputs)
    lattice = Lattice((1, 1), microbatched=False)
    for number, step in enumerate(side.steps):
        operands = tuple(
            _read_operand(o, filled, step.count, f"{place}.steps[{number}]") for o in step.inputs
        )
        attributes = {name: _tuples(value) for name, value in step.attributes.items()}
        graph.nodes.append(
            Node(
                step.kind,
                attributes,
                (),
                tuple(step.outputs),
                np.zeros((1, 1), dtype=np.bool_),
                lattice,
                step.operator,
                number,
            )
        )
        batch.steps.append(
            Step(number, step.kind, attributes, operands, tuple(step.outputs), step.count)
        )
        for output in step.outputs:
            if output is not None:
                filled[output] = filled.get(output, 0) + step.count
    graph.values.append(GraphValue("witness", (), "field", Tensor("witness", ()), lattice))
    return batch


def scale_of(text: str, place: str) -> Fraction:
    """Return a rational factor that is given as text.

    Raises:
        PlanError: the text is no rational.
    """
    if not _SCALE.fullmatch(text) or re.search(r"/0+$", text):
        raise PlanError(f"scale {text[:40]!r} is not a rational such as '1/2'", place)
    return Fraction(text)


def _read_operand(operand: Operand, filled: dict[int, int], count: int, place: str) -> StepOperand:
    if operand.members:
        return tuple(_read_argument(member, filled, count, place) for member in operand.members)
    if operand.number:
        return parse_number(operand.number, place)
    return _read_argument(operand, filled, count, place)


def _read_argument(operand: Operand, filled: dict[int, int], count: int, place: str) -> Argument:
    if operand.members or operand.number or operand.value not in filled:
        raise PlanError(f"value {operand.value} is not there when it is read", place)
    flat = [
        row for entry in operand.rows for row in (entry if isinstance(entry, list) else (entry,))
    ]
    if any(type(row) is not int for row in flat):
        raise PlanError("rows are no table of integers", place)
    if any(not 0 <= row < filled[operand.value] for row in flat):
        raise PlanError(
            f"value {operand.value} has {filled[operand.value]} rows, and others are read", place
        )
    try:
        rows = np.array(operand.rows, dtype=np.int64)
    except ValueError:
        raise PlanError("rows are no table of integers", place) from None
    if rows.ndim not in (1, 2) or rows.size == 0 or len(rows) != count:
        raise PlanError(f"rows of shape {rows.shape} are read for {count} rows", place)
    return Argument(operand.value, rows)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
