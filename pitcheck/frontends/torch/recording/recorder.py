"""The recorder: it sees every operator that runs, and records pure functions of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    FakeTensor,
)
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from pitcheck.errors import PitcheckError, UnsupportedError
from pitcheck.frontends.torch.communication.c10d import COMMUNICATION
from pitcheck.frontends.torch.communication.calls import Communication
from pitcheck.frontends.torch.communication.functional import FUNCTIONAL
from pitcheck.frontends.torch.formulas.attention import OF_GPUS
from pitcheck.frontends.torch.recording.arguments import (
    Parameter,
    Signature,
    dtype_name,
    flat,
    literal,
    signature,
    tensors_in,
)
from pitcheck.frontends.torch.recording.decompositions import DECOMPOSED, decompose_foreach
from pitcheck.frontends.torch.recording.generator_state import drawn
from pitcheck.frontends.torch.recording.grouped_products import grouped_product
from pitcheck.frontends.torch.recording.mask_positions import selected, with_positions
from pitcheck.frontends.torch.recording.numberless import NUMBERLESS, Numberless
from pitcheck.frontends.torch.recording.tape import Kind, Tape
from pitcheck.frontends.torch.recording.writes import Writes
from pitcheck.frontends.torch.routers.choices import Choice, Routers
from pitcheck.frontends.torch.storage.imported_draws import Drawn, adopted
from pitcheck.frontends.torch.storage.storages import Storages, view_of
from pitcheck.frontends.torch.trace import Argument, Ref

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)
"""The types of tensors on which operators run; calls on other classes are split into such calls."""
COMPOSITE = "CompositeImplicitAutograd"
"""The dispatch key of the operators that consist of others."""
SAME = frozenset({"detach", "alias", "lift", "lift_fresh"})
"""The operators that return their operand."""
SILENT = frozenset(
    {
        "is_same_size",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "sym_storage_offset",
        "sym_is_contiguous",
        "is_contiguous",
        "is_strides_like_format",
        "is_non_overlapping_and_dense",
        "record_stream",
        "set_",
        "resize_",
        "device",
        "size",
        "stride",
        "storage_offset",
        "numel",
        "dim",
        "layout",
        "check_for_nan",
        "_has_same_storage_numel",
    }
)
"""The operators that compute nothing.

They tell shapes, or change the place of a tensor, which is looked up whenever it is read.
"""


ADDING = frozenset({"addmm", "addmv", "addbmm", "baddbmm", "addr"})
"""The operators that add a product to ``self``.

With ``beta`` 0 they do not read ``self``, which may be memory that nobody has written to.
"""
CHOICES = {"topk": 5, "max": 3, "argmax": 3}
"""The operators by which routers choose experts, with the number of their parameters."""
CHOOSING = frozenset({"index", "masked_select"})
"""The operators that take the elements at which a mask holds; the mask alone tells their count."""
LOOKING_UP = frozenset({"bucketize", "searchsorted"})
"""The operators without a meaning in a plan that find integers, such as the document of a token.

Of known numbers their results are constants of the program.
"""


class Recorder(TorchDispatchMode):
    """A mode that records every operator on a tape.

    It is entered within the mode ``fake``, which gives shapes.
    """

    def __init__(self, tape: Tape, fake: Numberless) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = tape
        self.storages = Storages(tape)
        self.communication = Communication(tape, self.storages)
        self.fake = fake
        fake.refuse = tape.unsupported
        self.writes = Writes(tape, fake)
        self.thread = get_ident()
        self.building = True
        """The program is being built; none of its steps has begun."""
        self.routers: Routers | None = None
        """Routers whose choices a routing says."""
        self.drawn: tuple[Drawn, str] = {}, ""
        """The draws of the file's import, by memory, and the name of the process."""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if any(kind not in PLAIN for kind in types):
            # A subclass such as DTensor splits the call into calls on plain tensors, which come
            # here again.
            return self._spread(func, types, args, kwargs or {})
        try:
            return self._call(func, args, _on_the_cpu(kwargs or {}))
        except PitcheckError as error:
            self.tape.refuse(error)
            raise
        except NUMBERLESS as error:
            raise self.tape.unsupported(
                f"{func} needs numbers, which nobody has while a program is recorded: {error}"
            ) from error

    def _spread(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any],
        given: Mapping[str, Any],
    ) -> Any:
        """Leave a call to a subclass, or run it as DTensor has rules for it."""
        kernel = OF_GPUS.get(func) if DTensor in types else None
        if kernel is None:
            return NotImplemented
        with self:
            return kernel(*args, **given)

    def _call(self, func: OpOverload, args: Sequence[Any], given: dict[str, Any]) -> Any:
        space, name = func._schema.name.split("::")
        self.writes.check_call(func, args, given)
        if name in SILENT or space in ("prim", "profiler"):
            return func(*args, **given)
        tensors = tensors_in([*args, *given.values()])
        if not all(isinstance(tensor, FakeTensor) for tensor in tensors):
            args, given = tree_map_only(torch.Tensor, self._without_numbers, (list(args), given))
        handler = COMMUNICATION.get((space, name)) or FUNCTIONAL.get((space, name))
        if handler is not None:
            return handler(self.communication, func, args, given)
        if space in ("c10d", "_c10d_functional"):
            raise UnsupportedError(
                f"{self.tape.where()}: {func} is a communication that is not known"
            )
        decided = torch.Tag.dynamic_output_shape in func.tags and name not in CHOOSING
        if decided and (space, name) not in DECOMPOSED:
            return self._decided(func, args, given)
        if name in LOOKING_UP and all(
            self._read(tensor) in self.tape.known for tensor in tensors_in((args, given))
        ):
            return self._decided(func, args, given)
        decomposed = self._decomposed(func, args, given)
        return (
            self._operator(func, name, args, given) if decomposed is NotImplemented else decomposed
        )

    def _decomposed(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a call that consists of other calls, which are recorded, and return its result.

        Returns NotImplemented for a call that is to be recorded itself.
        """
        space, name = func._schema.name.split("::")
        # OpOverload has methods without types.
        call: Any = func
        with self:
            if torch._C._dispatch_has_kernel_for_dispatch_key(call.name(), COMPOSITE):
                return call.decompose(*args, **kwargs)
            if (space, name) in DECOMPOSED:
                return DECOMPOSED[space, name](*args, **kwargs)
            if name.startswith("_foreach_"):
                return decompose_foreach(func, args, kwargs)
            if (space, name) == ("aten", "_grouped_mm"):
                return grouped_product(self._known, self.tape.where(), args, kwargs)
            positions = with_positions(name, args, self._known)
            if positions is not None:
                return call(*positions, **kwargs)
            return selected(name, args, self._known)

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
        self.tape.reads.check(arguments)
        arguments += drawn(func, said.operator, bound)
        if said.writes:
            return self._write(func, said, arguments, targets, args, kwargs)
        if name == "_local_scalar_dense":
            return self.tape.number(_operand(arguments[0]))
        result = self._run(func, args, kwargs)
        if _is_operand(result, args):
            self.storages.alias(result, _operand(arguments[0]))
        elif not self._routed(name, bound, arguments, result):
            self._put(said.operator, arguments, result, [value for _, value in bound])
        return result

    def _routed(
        self,
        name: str,
        bound: Sequence[tuple[Parameter, Any]],
        arguments: tuple[Argument, ...],
        result: Any,
    ) -> bool:
        """Record the call of a router, whose indices a routing says.

        The values that it gives are those at the indices. Returns False for any other call.
        """
        if self.routers is None or len(bound) != CHOICES.get(name):
            return False
        given = {parameter.name: value for parameter, value in bound}
        scores = _operand(arguments[0])
        last = given.get("dim") in (-1, len(self.tape.kinds[scores].shape) - 1)
        if not last:
            return False
        choice = Choice(scores, given.get("k", 1), given.get("largest", True))
        numbers = self.routers.choose(choice, name)
        if numbers is None:
            return False
        values, indices = result if isinstance(result, tuple | list) else (None, result)
        rows = (*self.tape.kinds[scores].shape[:-1], choice.k)
        with _disable_current_modes():
            chosen = numbers.reshape(rows)
        number = self.tape.chosen(chosen)
        if values is not None:
            read = self.tape.one(
                "gather.default", (Ref(scores), -1, Ref(number), False), rows, values.dtype
            )
            self.storages.write(values, self._shaped(read, values))
        self.storages.write(indices, self._shaped(number, indices))
        return True

    def _shaped(self, number: int, target: torch.Tensor) -> int:
        shape, kind = tuple(target.shape), self.tape.kinds[number]
        if kind.shape == shape:
            return number
        return self.tape.one("view.default", (Ref(number), shape), shape, kind.dtype)

    def _touch(self, func: OpOverload, read: Sequence[Any], written: Sequence[Any]) -> None:
        """Raise PlanError if a call uses memory in which communication is in flight.

        A call that makes a view uses no memory.
        """
        if func.is_view or torch.Tag.inplace_view in func.tags:
            return
        where, name = self.tape.where(), func._schema.name.partition("::")[2]
        for values, writes in ((read, False), (written, True)):
            for tensor in tensors_in(values):
                self.communication.flights.touch(tensor, writes, name, where)

    def _run(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a call on tensors without numbers, which tells shapes.

        If shapes or decisions depend on numbers, run it on those; they must be known.
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
        # The masks alone tell how many elements are chosen, so that their numbers suffice.
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
        """Run a call for which even the number of results depends on numbers.

        The numbers must be known. So are the results then, and they are constants of the program.
        """
        real_args, real_kwargs = tree_map_only(torch.Tensor, self.known, (list(args), kwargs))
        with _disable_current_modes(), torch.no_grad():
            real = func(*real_args, **real_kwargs)
        read = {self._read(tensor) for tensor in tensors_in([*args, *kwargs.values()])}
        made = self.tape.constant if self.tape.routed.isdisjoint(read) else self.tape.chosen
        return tree_map_only(torch.Tensor, partial(self._constant, made), real)

    def constant(self, real: torch.Tensor) -> torch.Tensor:
        """Return a tensor whose numbers are part of the program."""
        return self._constant(self.tape.constant, real)

    def _constant(self, made: Callable[[torch.Tensor], int], real: torch.Tensor) -> torch.Tensor:
        result = torch.empty(real.shape, dtype=real.dtype)
        self.storages.write(result, made(real))
        return result

    def _known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the numbers of a tensor at which the program looks; None if they are not known."""
        value = self._read(tensor)
        numbers = self.tape.numbers(value)
        if numbers is not None:
            self.tape.looked_at.add(value)
        return numbers

    def known(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the numbers of a tensor.

        Raises UnsupportedError if they depend on what is not known, PlanError if communication into
        the tensor is in flight.
        """
        self.communication.flights.touch(tensor, False, "a decision", self.tape.where())
        value = self._read(tensor)
        numbers = self.tape.numbers(value)
        if numbers is None:
            raise UnsupportedError(
                f"{self.tape.where()}: a shape or a decision depends on the values of a tensor of "
                f"shape {tuple(tensor.shape)} that are not known; "
                "give Input.values where they come from integers of the batch"
            )
        self.tape.looked_at.add(value)
        return numbers

    def _put(
        self, operator: str, arguments: tuple[Argument, ...], result: Any, inputs: Sequence[Any]
    ) -> None:
        """Record a call that writes nothing.

        Its results are new values, or views of its operands.
        """
        kinds = [
            Kind(tuple(item.shape), item.dtype) if isinstance(item, torch.Tensor) else None
            for item in flat(result)
        ]
        memory = {tensor.untyped_storage()._cdata for tensor in tensors_in(inputs)}
        numbers = self.tape.emit(operator, arguments, kinds)
        for item, number in zip(tensors_in(result), numbers, strict=True):
            # DTensor works out shapes on tensors whose elements share memory; nobody reads them.
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
        """Record a call that writes, as the pure operator.

        The operator's results become the contents of the targets.
        """
        written = tensors_in(targets)
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
        """Return shapes and dtypes of the pure operator's results.

        A dtype may be wider than that of the tensor in which the result is stored.
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
        return [Kind(tuple(item.shape), item.dtype) for item in tensors_in(result)]

    def _fitted(self, number: int, target: torch.Tensor) -> int:
        """Return a value cast and expanded to fit the tensor that is to store it."""
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
        """Run ``as_strided``, whose meaning depends on the layout of its operand in memory.

        Nothing is recorded: a read of the result is built from what lies there.
        """
        result: torch.Tensor = func(*args, **kwargs)
        return result

    def _same(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        value = self._read(args[0])
        result = func(*args, **kwargs)
        if self.storages.has(result):
            self.storages.alias(result, value)
        else:
            self.storages.write(result, value)
        return result

    def check(self, tensor: torch.Tensor) -> None:
        """Check a tensor that is looked at between calls, as one that an operator reads.

        Raises UnsupportedError if something that no operator tells of has written to it.
        """
        self.writes.check(tensor)
        self.writes.check_numbers(tensor)

    def _unread(self, tensor: torch.Tensor) -> int:
        return self.storages.undefined(tuple(tensor.shape), tensor.dtype)

    def _read(self, tensor: torch.Tensor) -> int:
        self.writes.check_numbers(tensor)
        self._adopt(tensor)
        return self.storages.read(tensor)

    def _without_numbers(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what stands for a tensor that has numbers, as one made before the recording."""
        if isinstance(tensor, FakeTensor):
            return tensor
        self._adopt(tensor)
        with _disable_current_modes():
            return self.fake.from_tensor(tensor)

    def _adopt(self, tensor: torch.Tensor) -> None:
        """Take in a tensor that has numbers; what stands for it lies in the same memory."""
        if isinstance(tensor, FakeTensor) or self.storages.has(tensor):
            return
        whole = _memory_of(tensor)
        value = adopted(self.tape, whole, *self.drawn)
        self.storages.write(whole, self.tape.constant(whole) if value is None else value)
        with _disable_current_modes():
            fake = self.fake.from_tensor(tensor)
        self.writes.lift(fake, tensor)
        self.storages.join(fake, tensor)


def _memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return all memory in which a tensor with numbers lies, which is often the tensor itself."""
    held, size = tensor.untyped_storage(), tensor.element_size()
    if tensor.nbytes == held.nbytes() or held.nbytes() % size:
        return tensor
    with _disable_current_modes(), torch.no_grad():
        row = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return row.set_(held, 0, (held.nbytes() // size,), (1,))


def _on_the_cpu(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call in which the CPU has no number.

    A tensor that is made on "cpu:0" lies on "cpu"; one without numbers would keep the number.
    """
    device = kwargs.get("device")
    if isinstance(device, torch.device) and device.type == "cpu":
        return {**kwargs, "device": torch.device("cpu")}
    return dict(kwargs)


def _is_operand(result: Any, args: Sequence[Any]) -> bool:
    """Return True for a view that shows its operand as it is, such as an expansion to its own size.

    A conjugate lies in the same memory, and is another value.
    """
    operand = args[0] if args else None
    return (
        isinstance(result, torch.Tensor)
        and isinstance(operand, torch.Tensor)
        and result is not operand
        and result.dtype == operand.dtype
        and result.untyped_storage()._cdata == operand.untyped_storage()._cdata
        and view_of(result) == view_of(operand)
        and not view_of(result).repeats
        and result.is_conj() == operand.is_conj()
        and result.is_neg() == operand.is_neg()
    )


def _operand(argument: Argument) -> int:
    if not isinstance(argument, Ref):
        raise UnsupportedError("an operator that gives a number has no tensor to take it from")
    return argument.value
