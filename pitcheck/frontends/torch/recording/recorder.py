"""Seeing every operator that a program runs, and writing it down as a pure function of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    FakeTensor,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.frontends.torch.arguments import Signature, dtype_name, flat, literal, signature
from pitcheck.frontends.torch.communication.c10d import COMMUNICATION
from pitcheck.frontends.torch.communication.calls import Communication
from pitcheck.frontends.torch.communication.functional import FUNCTIONAL
from pitcheck.frontends.torch.recording.decompositions import OPENED, open_foreach
from pitcheck.frontends.torch.recording.generator_state import drawn
from pitcheck.frontends.torch.recording.mask_positions import with_positions
from pitcheck.frontends.torch.recording.numberless import NUMBERLESS, Numberless
from pitcheck.frontends.torch.recording.writes import Writes
from pitcheck.frontends.torch.storage.storages import Storages, view_of
from pitcheck.frontends.torch.tape import Kind, Tape
from pitcheck.frontends.torch.trace import Argument, Ref

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)
COMPOSITE = "CompositeImplicitAutograd"
SAME = frozenset({"detach", "alias", "lift", "lift_fresh"})
"""Operators whose result is their operand."""
SILENT = frozenset(
    {
        *(
            "is_same_size",
            "sym_size",
            "sym_stride",
            "sym_numel",
            "sym_storage_offset",
            "is_contiguous",
            "is_strides_like_format",
            "is_non_overlapping_and_dense",
        ),
        *(
            "record_stream",
            "set_",
            "resize_",
            "device",
            "size",
            "stride",
            "storage_offset",
            "numel",
            "_has_same_storage_numel",
        ),
        *("check_for_nan", "dim", "layout", "sym_is_contiguous"),
    }
)
"""Operators that compute nothing: they tell shapes, or change where a tensor lies, which is looked
up whenever it is read.
"""


ADDING = frozenset({"addmm", "addmv", "addbmm", "baddbmm", "addr"})
"""Operators that add a product to ``self``, which they do not read where ``beta`` is 0: it may be
memory that nobody has written to.
"""
CHOOSING = frozenset({"index", "masked_select"})
"""Operators that take elements wherever a mask holds: how many there are, the mask alone tells."""


class Recorder(TorchDispatchMode):
    """Records on a tape. To be entered within a FakeTensorMode, which gives shapes."""

    def __init__(self, tape: Tape, fake: Numberless) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = tape
        self.storages = Storages(tape)
        self.communication = Communication(tape, self.storages)
        self.fake = fake
        fake.refuse = tape.unsupported
        self.writes = Writes(tape, fake)
        self.thread = get_ident()

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if any(kind not in PLAIN for kind in types):
            # A subclass such as DTensor takes the call apart into calls on plain tensors, which
            # come here again.
            return NotImplemented
        try:
            return self._call(func, args, dict(kwargs or {}))
        except PitcheckError as error:
            self.tape.refuse(error)
            raise
        except NUMBERLESS as error:
            raise self.tape.unsupported(
                f"{func} needs numbers, which nobody has while a program is recorded: {error}"
            ) from error

    def _call(self, func: OpOverload, args: Sequence[Any], given: dict[str, Any]) -> Any:
        space, name = func._schema.name.split("::")
        self.writes.check_call(func, args, given)
        if name in SILENT or space in ("prim", "profiler"):
            return func(*args, **given)
        handler = COMMUNICATION.get((space, name)) or FUNCTIONAL.get((space, name))
        if handler is not None:
            return handler(self.communication, func, args, given)
        if space in ("c10d", "_c10d_functional"):
            raise UnsupportedError(
                f"{self.tape.where()}: {func} is a communication that is not known"
            )
        if torch.Tag.dynamic_output_shape in func.tags and name not in CHOOSING:
            return self._decided(func, args, given)
        taken_apart = self._taken_apart(func, args, given)
        return (
            self._operator(func, name, args, given)
            if taken_apart is NotImplemented
            else taken_apart
        )

    def _taken_apart(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of a call that consists of others, which are recorded; NotImplemented for a
        call that is one itself.
        """
        space, name = func._schema.name.split("::")
        # Its methods have no types.
        call: Any = func
        with self:
            if torch._C._dispatch_has_kernel_for_dispatch_key(call.name(), COMPOSITE):
                return call.decompose(*args, **kwargs)
            if (space, name) in OPENED:
                return OPENED[space, name](*args, **kwargs)
            if name.startswith("_foreach_"):
                return open_foreach(func, args, kwargs)
            positions = with_positions(name, args, self._known)
            if positions is not None:
                return call(*positions, **kwargs)
        return NotImplemented

    def _operator(
        self, func: OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        if name in SAME:
            return self._same(func, args, kwargs)
        if name == "copy_":
            return self._copy(args[0], args[1])
        if name in ("as_strided", "as_strided_"):
            return self._strided(func, args, kwargs)
        said = signature(func)
        bound = said.bound(args, kwargs)
        targets = [value for parameter, value in bound if parameter.written]
        unread = (
            "self"
            if name.removesuffix("_") in ADDING
            and ("beta", 0) in ((parameter.name, value) for parameter, value in bound)
            else ""
        )
        self._touch(
            func,
            [
                value
                for parameter, value in bound
                if not parameter.stores and parameter.name != unread
            ],
            targets,
        )
        arguments = tuple(
            literal(value, self._unread if parameter.name == unread else self._read)
            for parameter, value in bound
            if not parameter.stores
        )
        arguments += drawn(func, said.operator, bound)
        if said.writes:
            return self._write(func, said, arguments, targets, args, kwargs)
        if name == "_local_scalar_dense":
            return self.tape.number(_operand(arguments[0]))
        result = self._run(func, args, kwargs)
        self._put(said.operator, arguments, result, [value for _, value in bound])
        return result

    def _touch(self, func: OpOverload, read: Sequence[Any], written: Sequence[Any]) -> None:
        """Raise PlanError where a call uses memory in which communication is in flight. Views use
        none.
        """
        if func.is_view or torch.Tag.inplace_view in func.tags:
            return
        flights, where, name = (
            self.communication.flights,
            self.tape.where(),
            func._schema.name.partition("::")[2],
        )
        for values, writes in ((read, False), (written, True)):
            for tensor in flat(list(values)):
                if isinstance(tensor, torch.Tensor):
                    flights.touch(tensor, writes, name, where)

    def _run(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The call on tensors without numbers, which tells shapes; where these, or what is decided,
        depends on numbers, on those.
        """
        name = func._schema.name
        if (
            torch.Tag.dynamic_output_shape not in func.tags
            and torch.Tag.data_dependent_output not in func.tags
        ):
            return func(*args, **kwargs)
        if name == "aten::index" and not any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        ):
            return func(*args, **kwargs)
        # The masks tell how many elements are chosen, whatever these are.
        chosen_from = {0} if name.removeprefix("aten::") in CHOOSING else set()
        with _disable_current_modes():
            stand_in = torch.zeros(()).expand(args[0].shape) if chosen_from else None
        real_args = [
            stand_in if place in chosen_from else tree_map_only(torch.Tensor, self.known, arg)
            for place, arg in enumerate(args)
        ]
        real_kwargs = tree_map_only(torch.Tensor, self.known, kwargs)
        with _disable_current_modes(), torch.no_grad():
            real = func(*real_args, **real_kwargs)
        dtype = args[0].dtype if chosen_from else None
        return tree_map_only(
            torch.Tensor,
            lambda tensor: torch.empty(tensor.shape, dtype=dtype or tensor.dtype),
            real,
        )

    def _decided(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call of which even the number of results depends on numbers: these must be known, and
        so are the results, which are constants of the program.
        """
        real_args, real_kwargs = tree_map_only(torch.Tensor, self.known, (list(args), kwargs))
        with _disable_current_modes(), torch.no_grad():
            real = func(*real_args, **real_kwargs)
        return tree_map_only(torch.Tensor, self._constant, real)

    def _constant(self, real: torch.Tensor) -> torch.Tensor:
        result = torch.empty(real.shape, dtype=real.dtype)
        self.storages.write(result, self.tape.constant(real))
        return result

    def _known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        value = self._read(tensor)
        if value in self.tape.known:
            self.tape.looked_at.add(value)
        return self.tape.known.get(value)

    def known(self, tensor: torch.Tensor) -> torch.Tensor:
        """The numbers of a tensor; UnsupportedError where they depend on what is not known."""
        self.communication.flights.touch(tensor, False, "a decision", self.tape.where())
        value = self._read(tensor)
        if value not in self.tape.known:
            raise UnsupportedError(
                f"{self.tape.where()}: a shape or a decision depends on the values of a tensor of "
                f"shape {tuple(tensor.shape)} that are not known; "
                "give Input.values where they come from integers of the batch"
            )
        self.tape.looked_at.add(value)
        return self.tape.known[value]

    def _put(
        self, operator: str, arguments: tuple[Argument, ...], result: Any, inputs: Sequence[Any]
    ) -> None:
        """Record a call that writes nothing: its results are new values, or views of what its
        operands hold.
        """
        results = flat(result)
        kinds = [
            Kind(tuple(item.shape), item.dtype) if isinstance(item, torch.Tensor) else None
            for item in results
        ]
        memory = {
            tensor.untyped_storage()._cdata
            for tensor in flat(inputs)
            if isinstance(tensor, torch.Tensor)
        }
        numbers = iter(self.tape.emit(operator, arguments, kinds))
        for item in results:
            if isinstance(item, torch.Tensor):
                number = next(numbers)
                # DTensor works out shapes on tensors whose elements share memory; nobody reads
                # them.
                if item.untyped_storage()._cdata in memory or view_of(item).repeats:
                    self.storages.alias(item, number)
                else:
                    self.storages.write(item, number)

    def _write(
        self,
        func: OpOverload,
        said: Signature,
        arguments: tuple[Argument, ...],
        targets: Sequence[Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """Record a call that writes: the pure operator, and then its results as new contents of
        what was written to.
        """
        written = [target for target in flat(targets) if isinstance(target, torch.Tensor)]
        if len(written) != 1 and not all(
            parameter.stores for parameter in said.parameters if parameter.written
        ):
            raise UnsupportedError(f"{self.tape.where()}: {func} writes to several tensors")
        kinds = self._kinds(said, args, kwargs, written)
        numbers = self.tape.emit(said.operator, arguments, kinds)
        # An output that is given may grow to its size, and a view may be changed in place.
        result = func(*args, **kwargs)
        for target, number in zip(written, numbers, strict=True):
            if torch.Tag.inplace_view in func.tags:
                self.storages.alias(target, number)
            else:
                self.storages.write(target, self._fitted(number, target))
        return result

    def _kinds(
        self,
        said: Signature,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        written: Sequence[torch.Tensor],
    ) -> list[Kind]:
        """Shapes and dtypes of the pure operator's results, which may be of a wider dtype than what
        they are stored in.
        """
        if said.functional is None:
            return [Kind(tuple(target.shape), target.dtype) for target in written]
        names = {parameter.name for parameter in said.parameters if parameter.stores}
        bound = [
            (parameter, value)
            for parameter, value in said.bound(args, kwargs)
            if parameter.name not in names
        ]
        positional = [value for parameter, value in bound if not parameter.by_name]
        by_name = {parameter.name: value for parameter, value in bound if parameter.by_name}
        result = said.functional(*positional, **by_name)
        return [
            Kind(tuple(item.shape), item.dtype)
            for item in flat(result)
            if isinstance(item, torch.Tensor)
        ]

    def _fitted(self, number: int, target: torch.Tensor) -> int:
        """A value as a tensor stores it: in its dtype and of its shape."""
        kind = self.tape.kinds[number]
        shape = tuple(target.shape)
        if kind.dtype != target.dtype:
            number = self.tape.one(
                "_to_copy.default",
                (Ref(number), dtype_name(target.dtype), None, None, None, False, None),
                kind.shape,
                target.dtype,
            )
        if kind.shape != shape:
            number = self.tape.one(
                "expand.default", (Ref(number), shape, False), shape, target.dtype
            )
        return number

    def _copy(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        self._touch(torch.ops.aten.copy_.default, [source], [target])
        value = self._read(source)
        torch.ops.aten.copy_.default(target, source)
        if not (
            source.untyped_storage()._cdata == target.untyped_storage()._cdata
            and view_of(source) == view_of(target)
        ):
            self.storages.write(target, self._fitted(value, target))
        return target

    def _strided(
        self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """Its meaning depends on how its operand lies in memory; what lies there is put together
        when it is read.
        """
        result: torch.Tensor = func(*args, **kwargs)
        if not isinstance(args[0], FakeTensor):
            with _disable_current_modes():
                real = func(*args, **kwargs)
            self.storages.write(result, self.tape.constant(real))
        return result

    def _same(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        value = self._read(args[0])
        result = func(*args, **kwargs)
        if not isinstance(args[0], FakeTensor):
            self.writes.lift(result, args[0])
        if self.storages.has(result):
            self.storages.alias(result, value)
        else:
            self.storages.write(result, value)
        return result

    def _unread(self, tensor: torch.Tensor) -> int:
        return self.storages.undefined(tuple(tensor.shape), tensor.dtype)

    def _read(self, tensor: torch.Tensor) -> int:
        self.writes.check_numbers(tensor)
        if not isinstance(tensor, FakeTensor) and not self.storages.has(tensor):
            self.storages.write(tensor, self.tape.constant(tensor))
        return self.storages.read(tensor)


def _operand(argument: Argument) -> int:
    if not isinstance(argument, Ref):
        raise UnsupportedError("an operator that gives a number has no tensor to take it from")
    return argument.value
