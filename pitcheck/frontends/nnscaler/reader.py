"""Reading the objects of an nnScaler pickle into an execution plan."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pitcheck.errors import PlanError
from pitcheck.frontends.nnscaler import objects
from pitcheck.frontends.nnscaler.execution_plan import (
    Adapter,
    Argument,
    Call,
    CallKind,
    Cell,
    Compute,
    Derive,
    ExecutionPlan,
    Measure,
    Node,
    Primitive,
    Result,
)
from pitcheck.frontends.nnscaler.objects import class_of, items, placed, within
from pitcheck.frontends.nnscaler.pickles import Stub, loaded
from pitcheck.frontends.nnscaler.shape_arithmetic import Scalars
from pitcheck.frontends.nnscaler.signatures import Meaning, Meanings
from pitcheck.frontends.nnscaler.tensors import (
    Tensors,
    gradient_id,
    is_tensor,
    tensor_id,
)
from pitcheck.plan.model import Number

LARGEST_RUN = 2**16
"""The greatest number of ranks of a plan."""
LONGEST_PROGRAM = 2**22
"""The greatest number of calls and nodes of all ranks that are read.

In few bytes a file can call a cell, or copy a replica, any number of times.
"""

_ADAPTERS = "nnscaler.runtime.adapter."
_SOURCE = re.compile(r'File "([^"]{1,300})", line (\d{1,9})')


def read_program(path: Path) -> ExecutionPlan:
    """Return the execution plan in a pickle of nnScaler's ``ModuleCodeGen``.

    Raises PlanError for a damaged pickle, one of another object, and a field that is missing, of
    another type, or out of range.
    """
    with loaded(path) as root, within(str(path)):
        if class_of(root) != "ModuleCodeGen":
            raise PlanError(
                f"the pickle holds a {class_of(root)[:100]}, not a ModuleCodeGen of nnScaler"
            )
        return _Reader(root).run()


class _Reader:
    """The reader of one pickle. Objects that stand in it several times are read once."""

    def __init__(self, root: Stub) -> None:
        self.root = root
        self.tensors = Tensors()
        self.meanings = Meanings()
        self._cells: dict[int, Cell] = {}
        self._nodes: dict[int, Node] = {}
        self._sources: dict[str, str] = {}
        self._read = 0
        self._replicas = 1
        self._scalars = Scalars()

    def run(self) -> ExecutionPlan:
        """Return the execution plan."""
        devices = objects.integers(objects.field(self.root, "devices"), "devices")
        if not devices or devices != tuple(range(len(devices))):
            raise PlanError(f"the devices are {devices[:20]}, not 0, 1, 2, ...", "devices")
        ranks = objects.integer(self.root, "runtime_ndevs")
        if not 0 < ranks <= LARGEST_RUN or ranks % len(devices):
            raise PlanError(
                f"{ranks} ranks are no whole number of replicas of {len(devices)} devices, or "
                f"more than {LARGEST_RUN}",
                "runtime_ndevs",
            )
        plan = ExecutionPlan(ranks)
        self._replicas = ranks // len(devices)
        execplan = objects.field(self.root, "execplan")
        sequences = objects.table(execplan, "_seq")
        if objects.has(execplan, "_outputs"):
            plan.returned = self.tensors.read_all(items(execplan, "_outputs"))
        for device in devices:
            with within(f"execplan._seq[{device}]"):
                if device not in sequences:
                    raise PlanError(f"device {device} has no sequence")
                sequence = sequences[device]
                if not isinstance(sequence, list | tuple):
                    raise PlanError(f"the sequence is a {class_of(sequence)}, not a list")
                plan.programs[device] = [
                    self._call(item, position) for position, item in enumerate(sequence)
                ]
        return plan

    def _call(self, item: object, position: int) -> Call:
        place = f"[{position}]"
        with within(place):
            reused = class_of(item) == "ExeReuseCell"
            cell = self._cell(objects.field(item, "_cell") if reused else item)
            self._count(1 + len(cell.nodes))
            outputs = items(item, "_outputs")
            call = Call(
                id=objects.integer(item, "_id"),
                cell=cell,
                inputs=_arguments(items(item, "_inputs"), cell.kind)
                if cell.kind != "reducer"
                else (),
                outputs=_ids(outputs),
                place=place,
                tracked=any(
                    is_tensor(tensor) and objects.field(tensor, "_requires_grad") is True
                    for tensor in outputs
                ),
                given=self.tensors.read_all(items(item, "_inputs"))
                if cell.kind == "backward"
                else (),
                of=_by_gradient(objects.field(item, "_mirror")) if cell.kind == "backward" else {},
            )
            if len(call.outputs) != len(cell.outputs) or len(call.inputs) != len(cell.inputs):
                raise PlanError(
                    f"the call has {len(call.inputs)} inputs and {len(call.outputs)} outputs, its "
                    f"cell {len(cell.inputs)} and {len(cell.outputs)}"
                )
            return call

    def _count(self, more: int) -> None:
        self._read += more * self._replicas
        if self._read > LONGEST_PROGRAM:
            raise PlanError(
                f"the ranks of the plan run more than {LONGEST_PROGRAM} operators, which is the "
                f"most that is read"
            )

    # --- cells

    def _cell(self, thing: object) -> Cell:
        known = self._cells.get(id(thing))
        if known is None:
            known = self._cells[id(thing)] = self._new_cell(thing)
        return known

    def _new_cell(self, thing: object) -> Cell:
        name = class_of(thing)
        if name == "IRDataOperation":
            outputs = items(thing, "_outputs")
            return Cell(
                objects.integer(thing, "_id"),
                "data",
                _ids(items(thing, "_inputs")),
                _ids(outputs),
                tensors=self.tensors.read_all(outputs),
            )
        if name == "IRWeightReducer":
            devices = objects.integers(objects.field(thing, "_device"), "IRWeightReducer._device")
            weights = tuple(self.tensors.read(weight) for weight in items(thing, "_inputs"))
            return Cell(
                objects.integer(thing, "_id"),
                "reducer",
                (),
                _ids(items(thing, "_outputs")),
                tensors=weights,
                devices=devices,
            )
        if name == "IRAdapter":
            return self._framed(thing, "adapter", (self._adapter(thing),))
        if name == "IRSegment":
            nodes = items(thing, "_nodes")
            self._count(len(nodes))
            backward = any(
                class_of(node) == "IRBpOperation" or _runs_backward(node) for node in nodes
            )
            self._scalars = Scalars()
            found = [
                entry for n, node in enumerate(nodes) for entry in self._node(node, n, backward)
            ]
            return self._framed(thing, "backward" if backward else "forward", tuple(found))
        raise PlanError(
            f"{objects.shown(thing)} is no cell that a device can run (IRDataOperation, "
            f"IRSegment, IRAdapter, IRWeightReducer)"
        )

    def _framed(self, thing: object, kind: CallKind, nodes: tuple[Node, ...]) -> Cell:
        return Cell(
            id=objects.integer(thing, "_id"),
            kind=kind,
            inputs=_arguments(items(thing, "_inputs"), kind),
            outputs=_ids(items(thing, "_outputs")),
            nodes=nodes,
            mirror=_mirror_id(thing),
        )

    # --- nodes

    def _node(self, node: object, number: int, backward: bool) -> list[Node]:
        known = self._nodes.get(id(node))
        if known is not None:
            return [known]
        try:
            return self._new_node(node, backward)
        except PlanError as error:
            raise placed(error, f"_nodes[{number}]") from None

    def _new_node(self, node: object, backward: bool) -> list[Node]:
        name = class_of(node)
        if name == "IRSegment":
            raise PlanError(
                "a segment inside a segment is not read; write the plan without nested segments"
            )
        if name not in ("IRAdapter", "IRBpOperation"):
            if backward:
                raise PlanError(f"{objects.shown(node)} stands in a backward segment")
            return self._computed(node)
        found: Node = self._derive(node) if name == "IRBpOperation" else self._adapter(node)
        self._nodes[id(node)] = found
        return [found]

    def _computed(self, node: object) -> list[Node]:
        """Return a forward operator.

        An operator of the model's code that computes no tensor is computed here. It leaves the
        shapes for which it has asked.
        """
        if not any(is_tensor(thing) for thing in items(node, "_outputs")):
            return [
                Measure(measured.id, measured.shape) for measured in self._scalars.compute(node)
            ]
        arguments, keywords = items(node, "_inputs"), objects.table(node, "_kwargs")
        values = [self._scalars.resolved(value) for value in arguments]
        named = {name: self._scalars.resolved(value) for name, value in keywords.items()}
        found = self._compute(node, values, named)
        if all(a is b for a, b in zip(values, arguments, strict=True)) and all(
            named[name] is value for name, value in keywords.items()
        ):
            # An operator whose arguments are objects belongs to this segment alone.
            self._nodes[id(node)] = found
        return [found]

    def _compute(self, node: object, arguments: list[Any], keywords: dict[Any, Any]) -> Compute:
        results = [self._result(thing) for thing in items(node, "_outputs") if is_tensor(thing)]
        meaning = self.meanings.of(
            objects.text(node, "signature"), arguments, keywords, [r.tensor.dtype for r in results]
        )
        return Compute(
            id=objects.integer(node, "_id"),
            kind=meaning.kind,
            operands=self._operands(meaning),
            attributes=meaning.attributes,
            results=tuple(results),
            source=self._source(node),
            module=_module(node),
        )

    def _result(self, thing: object) -> Result:
        gradient = objects.field(objects.field(thing, "_full_tensor"), "_grad")
        return Result(
            self.tensors.read(thing),
            gradient_id(thing),
            tensor_id(gradient) if isinstance(gradient, Stub) else None,
        )

    def _operands(self, meaning: Meaning) -> tuple[Argument | Number, ...]:
        return tuple(
            [
                operand if isinstance(operand, Number) else self._argument(operand)
                for operand in meaning.operands
            ]
        )

    def _argument(self, thing: object) -> Argument:
        if objects.field(thing, "_is_attr") is not True:
            return Argument(tensor_id(thing), self.tensors.full_id(thing), None, gradient_id(thing))
        attribute = self.tensors.read(thing)
        return Argument(attribute.id, attribute.full, attribute, gradient_id(thing))

    def _source(self, node: object) -> str:
        """Return "file:line" of the model's code from nnScaler's comment; "" without one."""
        comment = objects.field(node, "_comment") if objects.has(node, "_comment") else None
        if not isinstance(comment, str):
            return ""
        if comment not in self._sources:
            found = _SOURCE.search(comment[:2000])
            self._sources[comment] = (
                f"{found.group(1)}:{found.group(2)}"
                if found and found.group(1).isprintable()
                else ""
            )
        return self._sources[comment]

    def _derive(self, node: object) -> Derive:
        mirror = objects.field(node, "_mirror")
        return Derive(
            mirror=objects.integer(mirror, "_id"),
            given=tuple([tensor_id(thing) for thing in items(node, "_inputs") if is_tensor(thing)]),
            results=self.tensors.read_all(items(node, "_outputs")),
        )

    def _adapter(self, node: object) -> Adapter:
        primitives = tuple(
            self._primitive(thing, n) for n, thing in enumerate(items(node, "_prims"))
        )
        inputs = tuple([tensor_id(thing) for thing in items(node, "_inputs") if is_tensor(thing)])
        backward = None
        if (
            objects.field(node, "_differentiable") is True
            and objects.field(node, "custom") is True
            and not _runs_backward(node)
        ):
            mirror = objects.field(node, "_mirror")
            if class_of(mirror) != "IRAdapter" or not _runs_backward(mirror):
                raise PlanError(
                    "a custom differentiable adapter has no backward adapter", "._mirror"
                )
            backward = self._adapter(mirror)
        return Adapter(
            objects.integer(node, "_id"),
            inputs,
            self.tensors.read_all(items(node, "_outputs")),
            primitives,
            _mirror_id(node),
            backward,
        )

    def _primitive(self, thing: object, number: int) -> Primitive:
        try:
            return Primitive(
                name=class_of(thing),
                function=_function(thing),
                inputs=tuple([tensor_id(entry) for entry in items(thing, "_inputs")]),
                outputs=self.tensors.read_all(items(thing, "_outputs")),
                keywords={
                    str(key)[:100]: objects.plain(value)
                    for key, value in objects.table(thing, "kwargs").items()
                },
            )
        except PlanError as error:
            raise placed(error, f"_prims[{number}]") from None


def _function(thing: object) -> str:
    """Return the function that a primitive runs, by its name in nnScaler's package of adapters."""
    value = objects.field(thing, "signature")
    if not isinstance(value, str) or not value:
        raise PlanError(
            f"{class_of(thing)[:60]} has no signature, so that it runs nothing", ".signature"
        )
    return value[:200].removeprefix(_ADAPTERS)


def _mirror_id(thing: object) -> int | None:
    mirror = objects.field(thing, "_mirror")
    return objects.integer(mirror, "_id") if isinstance(mirror, Stub) else None


def _by_gradient(forward: object) -> dict[int, int]:
    """Return the ids of the tensors that a forward call takes and returns.

    They are by the ids of their gradients.
    """
    if not isinstance(forward, Stub):
        raise PlanError("the backward pass of no forward pass", "._mirror")
    tensors = [
        thing
        for name in ("_inputs", "_outputs")
        for thing in items(forward, name)
        if is_tensor(thing)
    ]
    return {
        gradient: tensor_id(tensor)
        for tensor in tensors
        if (gradient := gradient_id(tensor)) is not None
    }


def _runs_backward(node: object) -> bool:
    return class_of(node) == "IRAdapter" and objects.field(node, "_forward") is False


def _arguments(things: list[Any] | tuple[Any, ...], kind: CallKind) -> tuple[int | None, ...]:
    """Return the ids of a call's inputs. Parameters have none, as attributes of the module."""
    if kind == "backward":
        return _ids(things)
    return tuple(
        tensor_id(thing)
        if is_tensor(thing) and objects.field(thing, "_is_attr") is not True
        else None
        for thing in things
    )


def _ids(things: list[Any] | tuple[Any, ...]) -> tuple[int | None, ...]:
    return tuple(tensor_id(thing) if is_tensor(thing) else None for thing in things)


def _module(node: object) -> str:
    """Return the path of the operator's module, the innermost of nnScaler's stack."""
    stack = objects.field(node, "_module_stack") if objects.has(node, "_module_stack") else None
    last = next(reversed(stack), "") if isinstance(stack, dict) and stack else ""
    return last if isinstance(last, str) and len(last) <= 300 and last.isprintable() else ""
