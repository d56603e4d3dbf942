"""The operators of a plan that one event of a trace becomes, and the tensors between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

import msgspec

from pitcheck.base.dtypes import DType
from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.trace import Argument, Complex, Event, Ref, Value
from pitcheck.ops.meanings.cast import NARROW, kind_named
from pitcheck.ops.meanings.indexing import UNINITIALISED
from pitcheck.plan.fold import Instance
from pitcheck.plan.model import Attribute, Group, Number

_PARTS: dict[str, DType] = {"complex64": "float32", "complex128": "float64"}
_KINDS = ("bool", "int", "field", "complex")
_ON_PAIRS = frozenset(
    [
        "identity",
        "view",
        "expand",
        "unsqueeze",
        "squeeze",
        "transpose",
        "permute",
        "slice",
        "select",
        "split",
        "unbind",
        "cat",
        "stack",
        "index_select",
        "pad",
        "flip",
        "neg",
    ]
)
"""The kinds of operators that mean for pairs of numbers what they mean for numbers.

Their axes must count from the front.
"""


class Tensor(NamedTuple):
    """An operand that is a tensor.

    ``name`` is that of its family, or a preliminary one for an intermediate tensor. ``shape`` is
    that which PyTorch sees, without the dimension of pairs.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType | Complex

    @property
    def ndim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def is_complex(self) -> bool:
        """Return True if the elements are pairs of numbers."""
        return self.dtype in _PARTS

    @property
    def is_empty(self) -> bool:
        """Return True if the tensor has no elements; then no operator can read it."""
        return 0 in self.shape


Operand = Tensor | int | float
"""A tensor or a literal."""


class Translation(msgspec.Struct, frozen=True):
    """The operators that an event becomes, in order, and the intermediate tensors by name."""

    instances: tuple[Instance, ...]
    tensors: Mapping[str, Value]


def stored(value: Value) -> Value:
    """Return a value as a plan has it, with pairs of numbers as a last dimension of size 2."""
    return Value((*value.shape, 2), _PARTS[value.dtype]) if value.dtype in _PARTS else value


def kind_of(dtype: DType | Complex) -> str:
    """Return the kind of a dtype: "bool", "int", "field" (floating-point) or "complex"."""
    return "complex" if dtype in _PARTS else kind_named(dtype)


def is_floating(dtype: DType | Complex) -> bool:
    """Return True if the values of a dtype are floating-point numbers or pairs of them."""
    return kind_of(dtype) in ("field", "complex")


def literal(value: bool | int | float) -> int | float | str:
    """Return a number as an attribute or a literal operand has it."""
    if isinstance(value, bool):
        return int(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def broadcast(*operands: Operand) -> tuple[int, ...]:
    """Return the shape to which operands broadcast.

    Raises PlanError if they do not.
    """
    shapes = [operand.shape for operand in operands if isinstance(operand, Tensor)]
    result: list[int] = []
    for place in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {shape[-place] for shape in shapes if len(shape) >= place} - {1}
        if len(sizes) > 1:
            raise PlanError(f"operands of shapes {shapes} do not broadcast")
        result.append(sizes.pop() if sizes else 1)
    return tuple(reversed(result))


@dataclass
class _Collected:
    """The operators so far.

    ``made`` has for each intermediate tensor, by its preliminary name, the kind of its operator and
    its shape and dtype.
    """

    instances: list[Instance] = field(default_factory=list)
    made: dict[str, tuple[str, Value]] = field(default_factory=dict)


@dataclass(frozen=True)
class Emitter:
    """The collector of the operators that an event becomes.

    ``values`` are those of the trace, ``name_of`` returns the tensor family of a value, and
    ``asynchronous`` says that a collective is waited for elsewhere. ``target`` is the output that
    is being computed, whose dtype is that of the arithmetic.
    """

    event: Event
    values: Sequence[Value]
    name_of: Callable[[int], str]
    asynchronous: bool = False
    target: Value = field(default_factory=lambda: Value((), "float32"))
    _collected: _Collected = field(default_factory=_Collected)

    @property
    def dtype(self) -> DType | Complex:
        """Return the dtype of the output that is being computed."""
        return self.target.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the output that is being computed."""
        return self.target.shape

    def focus(self, output: int) -> Emitter:
        """Return the same collector, which computes output number ``output``."""
        number = self.event.outputs[output] if output < len(self.event.outputs) else None
        return self if number is None else replace(self, target=self.values[number])

    def unsupported(self, argument: str, value: object, why: str) -> UnsupportedError:
        """Return the error, to be raised, for an argument that the meaning does not cover."""
        shown = (
            f"a {value.dtype} tensor of shape {value.shape}"
            if isinstance(value, Tensor)
            else repr(value)
        )
        return UnsupportedError(
            f"the PyTorch operator {self.event.operator!r} with {argument} = {shown} has no "
            f"meaning here: {why}"
        )

    def argument(self, given: Argument) -> Any:
        """Return an argument with tensors in the place of references."""
        if isinstance(given, Ref):
            value = self.values[given.value]
            return Tensor(self.name_of(given.value), value.shape, value.dtype)
        return tuple(map(self.argument, given)) if isinstance(given, tuple) else given

    # --- operators

    def op(
        self,
        kind: str,
        *inputs: Operand,
        shape: tuple[int, ...],
        dtype: DType | Complex | None = None,
        group: Group | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Tensor:
        """Add an operator with one output, by default of dtype :attr:`dtype`; return the output.

        Raises UnsupportedError for complex operands, if the operator is not known for them.
        """
        value = Value(shape, dtype or self.dtype)
        return Tensor(self._emit(kind, inputs, [value], attributes, group)[0], *_fields(value))

    def like(
        self,
        kind: str,
        x: Tensor,
        *others: Operand,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Tensor:
        """Add an operator whose output has the shape and dtype of ``x``; return the output."""
        return self.op(kind, x, *others, shape=x.shape, dtype=x.dtype, attributes=attributes)

    def ops(
        self,
        kind: str,
        *inputs: Operand,
        outputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute] | None = None,
        group: Group | None = None,
    ) -> tuple[Tensor | None, ...]:
        """Add an operator with any number of outputs, and return these.

        An output that is not wanted is None.
        """
        names = self._emit(kind, inputs, outputs, attributes, group)
        return tuple(
            None if value is None else Tensor(name, *_fields(value))
            for name, value in zip(names, outputs, strict=True)
        )

    def _emit(
        self,
        kind: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute] | None,
        group: Group | None,
    ) -> list[str]:
        dtypes = [
            *(x.dtype for x in inputs if isinstance(x, Tensor)),
            *(value.dtype for value in outputs if value is not None),
        ]
        if kind not in _ON_PAIRS and any(dtype in _PARTS for dtype in dtypes):
            raise UnsupportedError(
                f"the PyTorch operator {self.event.operator!r} has no meaning here for complex "
                f"numbers"
            )
        return self.raw(
            kind,
            inputs,
            [None if value is None else stored(value) for value in outputs],
            attributes,
            group,
        )

    def raw(
        self,
        kind: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute] | None = None,
        group: Group | None = None,
    ) -> list[str]:
        """Add an operator on tensors as the plan has them; return preliminary names of its outputs.

        Raises UnsupportedError for tensors without elements.
        """
        shapes = [("reads", x.shape) for x in inputs if isinstance(x, Tensor)] + [
            ("gives", value.shape) for value in outputs if value is not None
        ]
        for does, shape in shapes:
            if 0 in shape:
                raise UnsupportedError(
                    f"the PyTorch operator {self.event.operator!r} {does} a tensor of shape "
                    f"{shape}; tensors without elements may only be joined to others"
                )
        names = []
        for value in outputs:
            name = "" if value is None else f"%{len(self._collected.made)}"
            if value is not None:
                self._collected.made[name] = (kind, value)
            names.append(name)
        operands = tuple(x.name if isinstance(x, Tensor) else Number(literal(x)) for x in inputs)
        where = (self.event.source, self.event.module)
        self._collected.instances.append(
            Instance(kind, operands, tuple(names), dict(attributes or {}), group, *where)
        )
        return names

    # --- what most formulas are made of

    def axis(self, x: Tensor, dim: int) -> int:
        """Return a dimension of ``x`` counted from the front.

        Raises UnsupportedError for a tensor without dimensions.
        """
        if x.ndim == 0:
            raise self.unsupported(
                "self", x, "a tensor without dimensions has no elements along one"
            )
        return dim % x.ndim

    def map(
        self,
        kind: str,
        *operands: Operand,
        dtype: DType | Complex | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Tensor:
        """Return the result of an operator element by element, whose operands broadcast."""
        return self.op(
            kind, *operands, shape=broadcast(*operands), dtype=dtype, attributes=attributes
        )

    def cast(self, x: Tensor, dtype: DType | Complex) -> Tensor:
        """Return ``x`` as a tensor of ``dtype``.

        Raises UnsupportedError for numbers cast to a narrow integer dtype, which wrap around.
        """
        if x.dtype == dtype:
            return x
        if dtype in NARROW and x.dtype != "bool":
            raise self.unsupported(
                "dtype", dtype, "numbers that do not fit into narrow integers wrap around"
            )
        return self.op("cast", x, shape=x.shape, dtype=dtype, attributes={"dtype": dtype})

    @overload
    def numeric(self, x: Tensor, dtype: DType | Complex | None = None) -> Tensor: ...

    @overload
    def numeric(self, x: Operand, dtype: DType | Complex | None = None) -> Operand: ...

    def numeric(self, x: Operand, dtype: DType | Complex | None = None) -> Operand:
        """Return ``x`` as an operand of arithmetic of ``dtype``, by default the output's.

        It is cast if it is a number of a lesser kind. Raises PlanError for one of a greater kind.
        """
        to = dtype or self.dtype
        if not isinstance(x, Tensor) or _KINDS.index(kind_of(x.dtype)) == _KINDS.index(kind_of(to)):
            return x
        if _KINDS.index(kind_of(x.dtype)) > _KINDS.index(kind_of(to)):
            raise PlanError(
                f"the PyTorch operator {self.event.operator!r} gives a {to} tensor, but one of "
                f"its operands is a {x.dtype} tensor"
            )
        return x if to in _PARTS else self.cast(x, to)

    def full(
        self,
        shape: tuple[int, ...],
        value: bool | int | float,
        dtype: DType | Complex | None = None,
    ) -> Tensor:
        """Return a tensor filled with a number.

        Raises UnsupportedError for a complex tensor that is not filled with 0.
        """
        result = Value(shape, dtype or self.dtype)
        plain = stored(result)
        if result.dtype in _PARTS and value != 0:
            raise self.unsupported("value", value, "complex constants other than 0 are not known")
        said: dict[str, Attribute] = {
            "sizes": plain.shape,
            "value": literal(value),
            "dtype": plain.dtype,
        }
        return Tensor(self.raw("full", (), [plain], said)[0], *_fields(result))

    def uninitialised(self) -> Tensor:
        """Return memory of the output's shape and dtype that nobody has written to."""
        result = Value(self.shape, self.dtype)
        plain = stored(result)
        return Tensor(
            self.raw(UNINITIALISED, (), [plain], {"sizes": plain.shape, "dtype": plain.dtype})[0],
            *_fields(result),
        )

    def view(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the same elements in another shape."""
        return x if x.shape == shape else self._sized("view", x, shape)

    def expand(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return ``x`` broadcast to ``shape``."""
        if x.shape == shape:
            return x
        if x.is_complex and len(shape) != x.ndim:
            x = self.view(x, (1,) * (len(shape) - x.ndim) + x.shape)
        return self._sized("expand", x, shape)

    def _sized(self, kind: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return self.op(
            kind,
            x,
            shape=shape,
            dtype=x.dtype,
            attributes={"sizes": stored(Value(shape, x.dtype)).shape},
        )

    def unsqueeze(self, x: Tensor, axis: int) -> Tensor:
        """Return ``x`` with a dimension of size 1 inserted at ``axis`` of the result."""
        place = axis % (x.ndim + 1)
        return self.op(
            "unsqueeze",
            x,
            shape=(*x.shape[:place], 1, *x.shape[place:]),
            dtype=x.dtype,
            attributes={"axis": place},
        )

    def squeeze(self, x: Tensor, axis: int) -> Tensor:
        """Return ``x`` without dimension ``axis``, which has size 1."""
        place = axis % x.ndim
        return self.op(
            "squeeze",
            x,
            shape=(*x.shape[:place], *x.shape[place + 1 :]),
            dtype=x.dtype,
            attributes={"axis": place},
        )

    def transpose(self, x: Tensor, first: int, second: int) -> Tensor:
        """Return ``x`` with two dimensions exchanged."""
        sizes, a, b = list(x.shape), first % x.ndim, second % x.ndim
        sizes[a], sizes[b] = sizes[b], sizes[a]
        return self.op(
            "transpose", x, shape=tuple(sizes), dtype=x.dtype, attributes={"dim0": a, "dim1": b}
        )

    def slice(self, x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
        """Return the elements ``start``, ``start + step``, ... below ``stop`` of a dimension."""
        place = axis % x.ndim
        if (start, stop, step) == (0, x.shape[place], 1):
            return x
        shape = (*x.shape[:place], len(range(start, stop, step)), *x.shape[place + 1 :])
        said: dict[str, Attribute] = {
            "axis": place,
            "start": start,
            "stop": stop,
            **({"step": step} if step != 1 else {}),
        }
        return self.op("slice", x, shape=shape, dtype=x.dtype, attributes=said)

    def reduce(
        self,
        kind: str,
        x: Tensor,
        axes: Sequence[int] | None,
        keep: bool,
        dtype: DType | None = None,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Tensor:
        """Return a reduction over ``axes``; over all dimensions if there are none."""
        over = (
            tuple(range(x.ndim))
            if not axes
            else tuple(sorted(axis % max(x.ndim, 1) for axis in axes))
        )
        if x.ndim == 0:
            over = ()
        shape = tuple(1 if i in over else n for i, n in enumerate(x.shape) if keep or i not in over)
        said = {
            **({"axes": over} if len(over) < x.ndim else {}),
            **({"keepdim": True} if keep else {}),
            **(attributes or {}),
        }
        return self.op(kind, x, shape=shape, dtype=dtype or x.dtype, attributes=said)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the product of two matrices, or of stacks of them."""
        return self.op(
            "matmul",
            a,
            b,
            shape=(
                *broadcast(Tensor("", a.shape[:-2], a.dtype), Tensor("", b.shape[:-2], b.dtype)),
                a.shape[-2],
                b.shape[-1],
            ),
        )

    # --- the end

    def finished(
        self, results: Sequence[Tensor | None], new_name: Callable[[str, Value], str]
    ) -> Translation:
        """Return the translation whose outputs are ``results``.

        ``new_name`` returns a name for an intermediate tensor. Raises PlanError if a result does
        not have the shape that the trace says.
        """
        names: dict[str, str] = {}
        for number, result in zip(self.event.outputs, results, strict=True):
            if number is None or result is None:
                continue
            value = self.values[number]
            if result.shape != value.shape or kind_of(result.dtype) != kind_of(value.dtype):
                said = (
                    f"a {value.dtype} tensor of shape {value.shape}, but its meaning gives "
                    f"{result.dtype} {result.shape}"
                )
                raise PlanError(f"the PyTorch operator {self.event.operator!r} gives {said}")
            name = result.name
            if name not in self._collected.made or name in names:
                name = self.raw("identity", [result], [stored(value)])[0]
            names[name] = self.name_of(number)
        tensors: dict[str, Value] = {}
        for name, (kind, made) in self._collected.made.items():
            if name not in names:
                names[name] = new_name(kind, made)
                tensors[names[name]] = made
        return Translation(
            tuple(_renamed(instance, names) for instance in self._collected.instances), tensors
        )


def _fields(value: Value) -> tuple[tuple[int, ...], DType | Complex]:
    return value.shape, value.dtype


def _renamed(instance: Instance, names: Mapping[str, str]) -> Instance:
    inputs = tuple(
        names.get(operand, operand) if isinstance(operand, str) else operand
        for operand in instance.inputs
    )
    return msgspec.structs.replace(
        instance, inputs=inputs, outputs=tuple(names.get(name, name) for name in instance.outputs)
    )
