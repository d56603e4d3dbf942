"""The tape on which programs are written: every call appends one record to a plan, and the tape
remembers what is needed to differentiate it.

Reference and parallel programs alike are written over it, as PyTorch's autograd serves both on a
rank. It knows nothing of what is compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError
from pitcheck.models.autograd import Backward
from pitcheck.models.records import Entry, Hook, Spread, Where, gradient_lineage, held
from pitcheck.models.result_types import Signature, Signatures, kind_of
from pitcheck.ops.registry import operator_kind
from pitcheck.plan.model import (
    MICROBATCH_AXIS,
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
    Use,
)

Literal = int | float | Fraction
Hint = Lineage | Spread | None
_HERE = Path(__file__).parents[2]


class Tape:
    """Appends tensors and operators; ``plan()`` gives the plan.

    ``mesh``: axis -> size, outermost first, or None for a single device. Names of tensors are
    unique, but one tensor may be written by several records that run at disjoint coordinates. A
    tensor called NAME has its complete gradient under the name ``grad:NAME``.
    """

    def __init__(
        self, name: str, mesh: Mapping[str, int] | None = None, microbatches: int = 1
    ) -> None:
        self.name = name
        self.sizes: dict[str, int] = dict(mesh or {})
        self.microbatches = microbatches
        self.tensors: dict[str, Tensor] = {}
        self.entries: list[Entry] = []
        self.tracked: set[str] = set()
        self._expected: dict[str, Lineage | None] = {}
        self._operators: list[Operator] = []
        self._ids: set[str] = set()
        self._outputs: list[Output] = []
        self._blocks: dict[str, list[str]] = {}
        self._programs: list[Program] = []
        self._signatures = Signatures()
        self._boxes: dict[Where, tuple[Box, ...]] = {(): ()}
        self._files: dict[str, str] = {}
        self._where: Where = ()
        self._block = ""
        self._module = ""
        self._tracking = True
        self._segment: int | None = None
        self._segments = 0
        self._every = False
        self._backward: Backward | None = None

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
        """An input of the step. ``lineage``: dimension -> axes by which the reference's tensor of
        this name is cut, or a whole Lineage.
        """
        return self._given(
            Tensor(
                name,
                tuple(shape),
                dtype,
                "input",
                microbatched,
                self._lineage(name, lineage),
                bounds=bounds,
            )
        )

    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        lineage: Hint = None,
        *,
        dtype: DType = "float32",
        gradient: Lineage | bool = False,
    ) -> str:
        """A trainable parameter. ``gradient`` is the hint for what the backward pass computes for
        it, as in ``op``; on one device none is needed.
        """
        self._given(
            Tensor(name, tuple(shape), dtype, "parameter", lineage=self._lineage(name, lineage))
        )
        self.tracked.add(name)
        self._expect(name, gradient)
        return name

    def state(
        self, name: str, shape: Sequence[int], lineage: Hint = None, *, dtype: DType = "float32"
    ) -> str:
        """State that lives on from step to step: moments, master weights, biases that no gradient
        changes.
        """
        return self._given(
            Tensor(
                name, tuple(shape), dtype, "optimizer_state", lineage=self._lineage(name, lineage)
            )
        )

    def constant(
        self, name: str, value: Literal, shape: Sequence[int] = (), dtype: DType = "float32"
    ) -> str:
        """A tensor filled with one number; asked for again, the same tensor."""
        number = _number(value).value
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

    def _lineage(self, name: str, hint: Hint) -> Lineage | None:
        return hint if hint is None or isinstance(hint, Lineage) else held(name, hint)

    # --- operators

    def op(
        self,
        kind: str,
        *operands: Operand | Literal,
        name: str = "",
        group: Group | str | Sequence[str] | None = None,
        hint: Hint = None,
        gradient: Lineage | bool = True,
        **attributes: Any,
    ) -> str:
        """Append a record with one output; returns its name.

        ``operands``: tensors, uses, literals. ``group``: an axis, axes, or a Group. ``hint``: what
        the output holds, as a Lineage or, of the reference's tensor of the same name, dimension ->
        axes. ``gradient``: what the output's gradient holds: with True the same part as the hint,
        with False nothing is known. Raises PlanError and UnsupportedError as the operator's meaning
        does, and where a derivative would be lost (a collective outside ``untracked``).
        """
        return self.several(
            kind,
            *operands,
            names=(name,),
            group=group,
            hints=(hint,),
            gradient=gradient,
            depth=2,
            **attributes,
        )[0]

    def several(
        self,
        kind: str,
        *operands: Operand | Literal,
        names: Sequence[str],
        group: Group | str | Sequence[str] | None = None,
        hints: Sequence[Hint] = (),
        gradient: Lineage | bool = True,
        depth: int = 1,
        **attributes: Any,
    ) -> tuple[str, ...]:
        """Append a record with as many outputs as ``names``; an empty name is made up. Otherwise as
        ``op``; ``depth``: which caller is the source.
        """
        inputs = tuple(
            operand if isinstance(operand, (str, Use, Number)) else _number(operand)
            for operand in operands
        )
        found = _group(group)
        signatures = self._signatures.outputs(
            kind,
            tuple(self._signature(operand) for operand in inputs),
            attributes,
            self._members(found),
        )
        if len(signatures) != len(names):
            raise PlanError(
                f"{kind} has {len(signatures)} outputs, but {len(names)} are named",
                ", ".join(names),
            )
        outputs = tuple(name or self._fresh(kind, number) for number, name in enumerate(names))
        microbatched = kind != "accumulate" and (self._every or self.runs_per_microbatch(inputs))
        for number, (output, signature) in enumerate(zip(outputs, signatures, strict=True)):
            self.write(
                output,
                signature,
                microbatched,
                self._lineage(output, hints[number] if number < len(hints) else None),
            )
            if output not in self._expected:
                self._expect(output, gradient)
        source = self._source(depth)
        self.append(kind, inputs, outputs, attributes, found, source)
        self._track(kind, inputs, outputs, attributes, found, source)
        return outputs

    def send(self, tensor: str, peer: Any, **attributes: Any) -> None:
        """Send ``tensor`` to rank ``peer`` (a number or a table). It has no output and no
        derivative: see ``region``.
        """
        self._record_silently("send", (tensor,), (), {"peer": peer, **attributes})

    def receive(
        self,
        like: str,
        peer: Any,
        name: str,
        hint: Hint = None,
        *,
        gradient: Lineage | bool = True,
        **attributes: Any,
    ) -> str:
        """A tensor of the shape and dtype of ``like``, received from rank ``peer``. It has no
        derivative: see ``region``.
        """
        tensor = self.tensors[like]
        self.write(
            name, (tensor.shape, tensor.dtype), tensor.microbatched, self._lineage(name, hint)
        )
        self._expect(name, gradient)
        self._record_silently("receive", (), (name,), {"peer": peer, **attributes})
        return name

    def wait_sent(self, tensor: str) -> None:
        """Wait until ``tensor`` is sent, if the send was asynchronous. Until then its buffer must
        not be used again.
        """
        self._record_silently("wait", (tensor,), (), {})

    def _record_silently(
        self,
        kind: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
    ) -> None:
        source = self._source(2)
        self.append(kind, inputs, outputs, attributes, None, source)
        if self._segment is not None:
            self.entries.append(
                Entry(
                    kind,
                    inputs,
                    outputs,
                    attributes,
                    None,
                    self._where,
                    self._block,
                    self._module,
                    source,
                    (),
                    None,
                    self._segment,
                )
            )

    def region(self, inputs: Sequence[str], outputs: Sequence[str], backward: Hook) -> None:
        """Say that ``outputs`` were computed from ``inputs`` by records whose derivative is written
        by hand.

        Record the forward pass within ``untracked()`` first. ``backward`` gets the name of the
        gradient of every output (None where there is none) and records the operators that compute
        the gradients of the inputs, whose names it returns (None for no gradient). It is called
        where the forward pass was recorded: same coordinates, the backward block; it may change
        both. ``gradient_name(x)`` is the name for what it computes for x.
        """
        tracked = tuple(name for name in inputs if name in self.tracked)
        if not tracked:
            return
        self.tracked.update(outputs)
        entry = Entry(
            "region",
            tuple(inputs),
            tuple(outputs),
            {},
            None,
            self._where,
            self._block,
            self._module,
            self._source(1),
            tracked,
            backward,
            self._segment,
        )
        self.entries.append(entry)

    def on_backward(self, action: Callable[[], None]) -> None:
        """Say what the backward pass records when it comes to this place of the program, before it
        differentiates anything recorded so far.
        """

        def hook(_: Sequence[str | None]) -> Sequence[str | None]:
            action()
            return ()

        self.entries.append(
            Entry(
                "region",
                (),
                (),
                {},
                None,
                self._where,
                self._block,
                self._module,
                self._source(1),
                (),
                hook,
            )
        )

    def held_again(self, name: str, by: str) -> None:
        """Within the backward pass: from here on ``by`` holds the value of ``name``, which was not
        kept.
        """
        self._walk().again[name] = by

    def _track(
        self,
        kind: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
        group: Group | None,
        source: str,
    ) -> None:
        tracked = (
            tuple(name for name in inputs if isinstance(name, str) and name in self.tracked)
            if self._tracking
            else ()
        )
        if tracked and kind != "detach":
            declared = operator_kind(kind)
            if declared.derivative is not None:
                self.tracked.update(
                    name for name in outputs if kind_of(self.tensors[name].dtype) == "field"
                )
            elif declared.collective or kind in ("accumulate", "wait"):
                raise PlanError(
                    f"{kind} has no derivative of its own: record it within untracked() and write "
                    f"its derivative with region()",
                    tracked[0],
                )
            else:
                tracked = ()
        else:
            tracked = ()
        if tracked or self._segment is not None:
            self.entries.append(
                Entry(
                    kind,
                    inputs,
                    outputs,
                    attributes,
                    group,
                    self._where,
                    self._block,
                    self._module,
                    source,
                    tracked,
                    None,
                    self._segment,
                )
            )

    def append(
        self,
        kind: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
        group: Group | None,
        source: str,
    ) -> None:
        """Append a record whose outputs are there; nothing is remembered for the derivative."""
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
        """Make the tensor that a record is about to write; one that other ranks write already must
        be the same.
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

    def _signature(self, operand: Operand) -> Signature | None:
        if isinstance(operand, Number):
            return None
        name = operand if isinstance(operand, str) else operand.tensor
        tensor = self.tensors.get(name)
        if tensor is None:
            raise PlanError("no tensor of this name has been recorded", name)
        return tensor.shape, tensor.dtype

    def runs_per_microbatch(self, inputs: Sequence[Operand]) -> bool:
        """Whether one of the inputs exists per micro-batch and is not taken from a given one."""
        return any(
            isinstance(operand, str) and self.tensors[operand].microbatched for operand in inputs
        )

    def _members(self, group: Group | None) -> int | None:
        if group is None:
            return None
        return len(group.ranks[0]) if group.ranks else prod(self.sizes[axis] for axis in group.axes)

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

    # --- where, in which block, how

    @contextmanager
    def at(self, **box: Sequence[int]) -> Iterator[None]:
        """What is recorded within runs at these coordinates only; an axis that is named again
        within takes the inner values.
        """
        with self.placed(
            tuple(
                sorted(
                    {
                        **dict(self._where),
                        **{axis: tuple(values) for axis, values in box.items()},
                    }.items()
                )
            ),
            self._block,
            self._module,
        ):
            yield

    @contextmanager
    def block(self, name: str) -> Iterator[None]:
        """What is recorded within belongs to this block of the program; a block may be continued
        later.
        """
        with self.placed(self._where, name, self._module):
            yield

    @contextmanager
    def module(self, name: str) -> Iterator[None]:
        """What is recorded within belongs to module ``name``, said in messages and in names that
        are made up.
        """
        with self.placed(
            self._where, self._block, f"{self._module}.{name}" if self._module else name
        ):
            yield

    @contextmanager
    def placed(self, where: Where, block: str, module: str) -> Iterator[None]:
        """All three at once, replacing those around. Raises PlanError for an axis that the mesh
        does not have or a value outside it.
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

    @contextmanager
    def untracked(self) -> Iterator[None]:
        """What is recorded within has no derivative of its own."""
        before, self._tracking = self._tracking, False
        try:
            yield
        finally:
            self._tracking = before

    @contextmanager
    def recomputed(self) -> Iterator[None]:
        """What is recorded within is not kept: the backward pass records it again, under names that
        end in ``:again``, before it differentiates it.
        """
        self._segments += 1
        before, self._segment = self._segment, self._segments
        try:
            yield
        finally:
            self._segment = before

    @contextmanager
    def every_microbatch(self) -> Iterator[None]:
        """What is recorded within runs for every micro-batch, also where nothing that it reads
        differs between them.
        """
        before, self._every = self._every, True
        try:
            yield
        finally:
            self._every = before

    @property
    def where(self) -> Where:
        """The coordinates at which is being recorded."""
        return self._where

    # --- the backward pass

    def backward(
        self, roots: Mapping[str, str], *, partial: str = "grad:", split: bool = False
    ) -> dict[str, str]:
        """Record the derivative of the sum of ``roots`` (a tensor -> the tensor that is the
        gradient to begin with); returns parameter -> gradient.

        Records are those of ``KIND.backward``, in reverse order; gradients of what is used more
        than once are added up as they arrive. A record goes to the coordinates of the one that it
        is the derivative of, and from block ``forward...`` to ``backward...``; with ``split`` the
        gradients of parameters go to ``weight...``. The gradient of parameter P is called
        ``partial`` + P: give another prefix where it is not yet the complete one.
        """
        walk = self._backward = Backward(self, partial, split)
        with self.untracked():
            return walk.run(roots)

    def _walk(self) -> Backward:
        if self._backward is None:
            raise PlanError("is asked for outside of a backward pass", "gradient")
        return self._backward

    def gradient_name(self, name: str) -> str:
        """Within the ``backward`` of a region: the name for the next part of the gradient of
        ``name``, ``grad:NAME`` if it is the whole.
        """
        return self._walk().contribution_name(name)

    def saved(self, name: str) -> str:
        """Within the ``backward`` of a region: the tensor that holds the value of ``name`` now,
        which may have been computed again.
        """
        return self._walk().value(name)

    def gradient_hint(self, name: str) -> Lineage | None:
        """What the complete gradient of a tensor holds, as far as it was said."""
        return self._expected.get(name)

    def _expect(self, name: str, gradient: Lineage | bool) -> None:
        known = (
            gradient_lineage(self.tensors[name].lineage) if gradient is True else gradient or None
        )
        if known is not None:
            self._expected[name] = known

    # --- what comes out

    def output(self, tensor: str, reference: str = "", lineage: Lineage | None = None) -> None:
        """A result that is compared."""
        self._outputs.append(Output(tensor, reference, lineage))

    def gradient(
        self, tensor: str, of: str, reference: str = "", lineage: Lineage | None = None
    ) -> None:
        """Mark a tensor as the complete gradient of a parameter, and compare it. ``lineage``: how
        it is spread, if not as the parameter.
        """
        self.tensors[tensor] = replace(self.tensors[tensor], role="gradient", gradient_of=of)
        self.output(tensor, reference, lineage)

    def update(self, tensor: str, of: str, reference: str = "") -> None:
        """Mark a tensor as the new value of a parameter or state, and compare it."""
        self.tensors[tensor] = replace(self.tensors[tensor], updated=of)
        self.output(tensor, reference)

    def program(self, steps: Sequence[tuple[str, int | None]], **box: Sequence[int]) -> None:
        """The order of (block, micro-batch) of all ranks within ``box``. Blocks without records are
        left out.
        """
        where: tuple[Box, ...] = (
            ({axis: tuple(values) for axis, values in box.items()},) if box else ()
        )
        self._programs.append(
            Program(
                tuple(
                    Step(block, microbatch)
                    for block, microbatch in steps
                    if self._blocks.get(block)
                ),
                where,
            )
        )

    def role(self, name: str) -> Role:
        """The role of a tensor."""
        return self.tensors[name].role

    def plan(self) -> Plan:
        """Everything recorded so far."""
        blocks = (
            {name: tuple(ids) for name, ids in self._blocks.items() if ids}
            if self._programs
            else {}
        )
        mesh = tuple(Axis(axis, size) for axis, size in self.sizes.items())
        tensors, operators, outputs = (
            tuple(self.tensors.values()),
            tuple(self._operators),
            tuple(self._outputs),
        )
        return Plan(
            mesh,
            tensors,
            operators,
            outputs,
            self.microbatches,
            blocks,
            tuple(self._programs),
            self.name,
        )


def _number(value: Literal) -> Number:
    return Number(
        value
        if isinstance(value, (int, float))
        else value.numerator
        if value.denominator == 1
        else str(value)
    )


def _group(group: Group | str | Sequence[str] | None) -> Group | None:
    if group is None or isinstance(group, Group):
        return group
    return Group(axes=(group,) if isinstance(group, str) else tuple(group))
