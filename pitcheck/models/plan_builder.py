"""The plan that a tape writes: tensors, records, blocks, programs and outputs, as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from msgspec.structs import replace

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError
from pitcheck.models.records import Hint, Where, held
from pitcheck.models.result_types import Signature
from pitcheck.plan.model import (
    MICROBATCH_AXIS,
    Attribute,
    Axis,
    Box,
    Group,
    Lineage,
    Number,
    Operand,
    Operator,
    Output,
    Plan,
    Program,
    Role,
    Step,
    Tensor,
)

Literal = int | float | Fraction
_HERE = Path(__file__).parents[2]


class PlanBuilder:
    """A plan in the making, and the place at which records are added to it.

    The place is a box of coordinates, a block of the program and a module; ``at``, ``block`` and
    ``module`` change it for what is recorded within them. Nothing here knows of derivatives.
    """

    def __init__(self, name: str, mesh: Mapping[str, int] | None, microbatches: int) -> None:
        self.name = name
        self.sizes: dict[str, int] = dict(mesh or {})
        self.microbatches = microbatches
        self.tensors: dict[str, Tensor] = {}
        self._operators: list[Operator] = []
        self._ids: set[str] = set()
        self._outputs: list[Output] = []
        self._blocks: dict[str, list[str]] = {}
        self._programs: list[Program] = []
        self._boxes: dict[Where, tuple[Box, ...]] = {(): ()}
        self._files: dict[str, str] = {}
        self._where: Where = ()
        self._block = ""
        self._module = ""

    # --- what comes from outside

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DType = "float32",
        lineage: Hint = None,
        *,
        microbatched: bool = False,
        bounds: tuple[int, int] | None = None,
    ) -> str:
        """Add an input of the step and return its name.

        ``shape`` is that of one rank's tensor. ``lineage`` is a whole Lineage, or maps a dimension
        to the axes by which the reference's tensor of this name is cut. ``bounds``: the half-open
        range of an integer input. Raises PlanError if the name is taken.
        """
        return self._given(
            Tensor(
                name,
                tuple(shape),
                dtype,
                "input",
                microbatched,
                lineage_of(name, lineage),
                bounds=bounds,
            )
        )

    def state(
        self, name: str, shape: Sequence[int], lineage: Hint = None, *, dtype: DType = "float32"
    ) -> str:
        """Add state that lives on from step to step: moments, master weights, router biases.

        Takes and returns the same as ``input``.
        """
        return self._given(
            Tensor(name, tuple(shape), dtype, "optimizer_state", lineage=lineage_of(name, lineage))
        )

    def constant(
        self, name: str, value: Literal, shape: Sequence[int] = (), dtype: DType = "float32"
    ) -> str:
        """Add a tensor filled with one number, unless the same one exists, and return its name."""
        number = number_of(value).value
        known = self.tensors.get(name)
        if (
            known is not None
            and known.role == "constant"
            and (known.value, known.shape, known.dtype) == (number, tuple(shape), dtype)
        ):
            return name
        return self._given(Tensor(name, tuple(shape), dtype, "constant", value=number))

    def _given(self, tensor: Tensor) -> str:
        if tensor.name in self.tensors:
            raise PlanError("a tensor of this name is there already", tensor.name)
        self.tensors[tensor.name] = tensor
        return tensor.name

    # --- records

    def append(
        self,
        kind: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Attribute],
        group: Group | None,
        source: str,
    ) -> None:
        """Append a record whose outputs exist already. Its derivative is not prepared."""
        place = next(filter(None, outputs), "") or f"{kind}:{inputs[0] if inputs else ''}"
        identity, number = place, 2
        while identity in self._ids:
            identity, number = f"{place}#{number}", number + 1
        self._ids.add(identity)
        self._operators.append(
            Operator(
                identity,
                kind,
                inputs,
                outputs,
                attributes,
                group,
                self._boxes[self._where],
                source,
                self._module,
            )
        )
        if self._block:
            self._blocks[self._block].append(identity)

    def write(
        self, name: str, signature: Signature, microbatched: bool, lineage: Lineage | None
    ) -> None:
        """Make the tensor that a record is about to write.

        Several records may write one tensor, at disjoint coordinates. Raises PlanError if the
        tensor exists with another shape, dtype or role.
        """
        known = self.tensors.get(name)
        if known is None:
            self.tensors[name] = Tensor(
                name, signature[0], signature[1], microbatched=microbatched, lineage=lineage
            )
        elif (known.shape, known.dtype, known.microbatched) != (
            *signature,
            microbatched,
        ) or known.role != "activation":
            raise PlanError(
                f"is {known.dtype} {list(known.shape)} already; another record would write "
                f"{signature[1]} {list(signature[0])}",
                name,
            )

    def runs_per_microbatch(self, inputs: Sequence[Operand]) -> bool:
        """Return True if an input exists per micro-batch and is not read from a given one."""
        return any(
            isinstance(operand, str) and self.tensors[operand].microbatched for operand in inputs
        )

    def _fresh(self, kind: str, number: int) -> str:
        stem = f"{self._module}.{kind}" if self._module else kind
        return f"{stem}~{len(self._operators)}" + (f".{number}" if number else "")

    def _source(self, depth: int) -> str:
        frame = sys._getframe(depth + 1)
        path = frame.f_code.co_filename
        short = self._files.get(path)
        if short is None:
            inside = Path(path).is_relative_to(_HERE)
            short = self._files[path] = (
                Path(path).relative_to(_HERE).as_posix() if inside else Path(path).name
            )
        return f"{short}:{frame.f_lineno}"

    # --- the place at which records are added

    @property
    def where(self) -> Where:
        """The coordinates at which records are added now."""
        return self._where

    @contextmanager
    def at(self, **box: Sequence[int]) -> Iterator[None]:
        """Restrict what is recorded within to these coordinates: axis -> its values.

        An axis that is named again further within takes the inner values.
        """
        values = {axis: tuple(values) for axis, values in box.items()}
        where = tuple(sorted({**dict(self._where), **values}.items()))
        with self.placed(where, self._block, self._module):
            yield

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """Put what is recorded within into this block of the program, which may exist already."""
        with self.placed(self._where, name, self._module):
            yield

    @contextmanager
    def module(self, name: str) -> Iterator[None]:
        """Name the module of what is recorded within, for messages and for names made up here."""
        with self.placed(
            self._where, self._block, f"{self._module}.{name}" if self._module else name
        ):
            yield

    @contextmanager
    def placed(self, where: Where, block: str, module: str) -> Iterator[None]:
        """Set coordinates, block and module together, in place of those around.

        Raises PlanError for an axis that the mesh lacks, or a value outside of the axis.
        """
        if where not in self._boxes:
            for axis, values in where:
                size = self.microbatches if axis == MICROBATCH_AXIS else self.sizes.get(axis, 0)
                if not values or not all(0 <= value < size for value in values):
                    raise PlanError(
                        f"the values {values} are not all within axis {axis!r} of size {size}",
                        "where",
                    )
            self._boxes[where] = (dict(where),)
        if block:
            self._blocks.setdefault(block, [])
        before = self._where, self._block, self._module
        self._where, self._block, self._module = where, block, module
        try:
            yield
        finally:
            self._where, self._block, self._module = before

    # --- what comes out

    def output(self, tensor: str, reference: str = "", lineage: Lineage | None = None) -> None:
        """Name a result that is compared, by default with the reference's tensor of its name."""
        self._outputs.append(Output(tensor, reference, lineage))

    def gradient(
        self, tensor: str, of: str, reference: str = "", lineage: Lineage | None = None
    ) -> None:
        """Mark a tensor as the complete gradient of a parameter, and compare it.

        Give ``lineage`` if the gradient is spread otherwise than its parameter.
        """
        self.tensors[tensor] = replace(self.tensors[tensor], role="gradient", gradient_of=of)
        self.output(tensor, reference, lineage)

    def update(self, tensor: str, of: str, reference: str = "") -> None:
        """Mark a tensor as the new value of a parameter or of state, and compare it."""
        self.tensors[tensor] = replace(self.tensors[tensor], updated=of)
        self.output(tensor, reference)

    def program(self, steps: Sequence[tuple[str, int | None]], **box: Sequence[int]) -> None:
        """Say in which order all ranks within ``box`` run (block, micro-batch).

        The micro-batch is None for a block that runs once. Blocks without records are left out.
        """
        where: tuple[Box, ...] = (
            ({axis: tuple(values) for axis, values in box.items()},) if box else ()
        )
        run = tuple(Step(name, microbatch) for name, microbatch in steps if self._blocks.get(name))
        self._programs.append(Program(run, where))

    def role(self, name: str) -> Role:
        """Return the role of a tensor."""
        return self.tensors[name].role

    def plan(self) -> Plan:
        """Return the plan of everything recorded so far."""
        blocks = (
            {name: tuple(ids) for name, ids in self._blocks.items() if ids}
            if self._programs
            else {}
        )
        return Plan(
            tuple(Axis(axis, size) for axis, size in self.sizes.items()),
            tuple(self.tensors.values()),
            tuple(self._operators),
            tuple(self._outputs),
            self.microbatches,
            blocks,
            tuple(self._programs),
            self.name,
        )


def lineage_of(name: str, hint: Hint) -> Lineage | None:
    """Return a hint as lineage; dimension -> axes refers to the reference's tensor ``name``."""
    return hint if hint is None or isinstance(hint, Lineage) else held(name, hint)


def number_of(value: Literal) -> Number:
    """Return a literal operand; a fraction becomes an integer or the text "n/d"."""
    return Number(
        value
        if isinstance(value, (int, float))
        else value.numerator
        if value.denominator == 1
        else str(value)
    )
