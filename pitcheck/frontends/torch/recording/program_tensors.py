"""The tensors of a program by their names in the reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parallel import DistributedDataParallel

from pitcheck.errors import PlanError
from pitcheck.frontends.torch.known_names import check_known
from pitcheck.frontends.torch.names.module_paths import paths_in_reference
from pitcheck.frontends.torch.names.stated_parts import StatedParts
from pitcheck.frontends.torch.program import Program
from pitcheck.frontends.torch.recording.parameter_lineage import (
    Part,
    cut,
    local,
    part_of,
    stretch_of,
)
from pitcheck.frontends.torch.recording.recorder import Recorder
from pitcheck.frontends.torch.storage.flat_parameters import FLAT, Piece, pieces_of
from pitcheck.frontends.torch.storage.reachable import reachable

WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.", "_fsdp_wrapped_module.")
"""The parts of names that wrappers of torch add."""


class Held(NamedTuple):
    """A tensor of a program, with its name in the reference and the part of it that it is.

    ``stretch`` is the first element and the number of elements of a tensor that lies in a flat
    one, ``tensor``, together with others.
    """

    name: str
    tensor: torch.Tensor
    part: Part
    stretch: tuple[int, int] | None = None

    def memory(self, recorder: Recorder) -> torch.Tensor:
        """Return what this rank holds of the tensor, as it lies in memory, without gradient.

        A tensor without numbers stands for itself: it is checked as by an operator, but none is
        run, which takes most of the time of looking at a large model.
        """
        held = local(self.tensor)
        if self.stretch is None and isinstance(held, FakeTensor):
            recorder.check(held)
            return held
        held = held.detach()
        return held if self.stretch is None else held.view(-1).narrow(0, *self.stretch)


class Names:
    """The names of a program's tensors, and the parts of the reference's tensors that they are.

    ``mesh`` and ``coordinate`` are those of the rank; both are empty for the reference.
    """

    def __init__(
        self, program: Program, mesh: Mapping[str, int], coordinate: Mapping[str, int]
    ) -> None:
        self._program = program
        self._stated = StatedParts(program.parts, mesh, coordinate)
        self.partitions: dict[int, list[Held]] = {}
        """The stretches of parameters of which a tensor of an optimizer is a copy, by its id."""
        model = program.model
        models = list(model) if isinstance(model, Sequence) else [model]
        self.replicated = any(isinstance(item, DistributedDataParallel) for item in models)
        self.models = [
            item.module if isinstance(item, DistributedDataParallel) else item for item in models
        ]
        self.scattered = self._renamed_scattered()

    def _renamed_scattered(self) -> dict[str, tuple[int, int]]:
        """Return ``Program.scattered`` by names in the reference.

        Raises PlanError for a name that no parameter has.
        """
        said, names = self._program.scattered, self._program.names or (lambda here: here)
        if said:
            known = [here for here, _ in self._plain_parameters()]
            check_known(said, known, "Program.scattered")
        return {names(here): (int(first), int(stop)) for here, (first, stop) in said.items()}

    def check_parts(self) -> None:
        """Raise PlanError if ``Program.parts`` names something else than a tensor of the program.

        It may name parameters, buffers, optimizer state, and what ``Program.state`` names.
        """
        if self._program.parts:
            known = {here for here, _ in (*self._plain_parameters(), *self._plain_buffers())}
            self._stated.check(
                known
                | {held.name for held in (*self.passing_buffers(), *self.stated(), *self.states())}
            )

    def modules(self) -> dict[int, str]:
        """Return the path of each module in the reference, by the module's id.

        It is told by the names of the parameters below it. Layers of pipeline stages that count
        their own from 0 then have different paths.
        """
        names = self._program.names or (lambda here: here)
        here = [name for name, _ in self._plain_parameters()]
        path_of = paths_in_reference({name: names(name) for name in here})
        twice = len(self._unplaced()) > len({name for _, name, _ in self._unplaced()})
        return {
            id(module): path_of(_plain(f"{index}.{path}" if twice else path))
            for index, model in enumerate(self.models)
            if isinstance(model, torch.nn.Module)
            for path, module in model.named_modules()
        }

    def parameters(self) -> list[Held]:
        """Return all parameters; one that is shared is listed once.

        Of a flat parameter, the parameters that it consists of are listed.
        """
        pieces = {
            number: found
            for model in self.models
            if isinstance(model, torch.nn.Module)
            for number, found in pieces_of(model).items()
        }
        plain, flat = [], []
        for here, tensor in self._plain_parameters():
            if id(tensor) in pieces:
                flat += [self._piece(here, tensor, piece) for piece in pieces[id(tensor)]]
            else:
                plain.append((here, tensor))
        held = [*self._held(plain), *flat]
        _check_distinct([item.name for item in held])
        return held

    def _piece(self, here: str, tensor: torch.Tensor, piece: Piece) -> Held:
        """Return a parameter, or the stretch of one, that lies in a flat parameter."""
        name = f"{here.removesuffix(FLAT)}{piece.name}" if piece.name else here
        return Held(
            self._program.names(name) if self._program.names else name,
            tensor,
            piece.part,
            piece.stretch,
        )

    def _plain_parameters(self) -> list[tuple[str, torch.Tensor]]:
        return called(self._unplaced())

    def _unplaced(self) -> list[tuple[int, str, torch.Tensor]]:
        found: list[tuple[int, str, torch.Tensor]] = []
        for index, model in enumerate(self.models):
            named = (
                model.named_parameters() if isinstance(model, torch.nn.Module) else _tensors(model)
            )
            found.extend((index, name, tensor) for name, tensor in named)
        return found

    def buffers(self) -> list[Held]:
        """Return the floating-point buffers that a checkpoint would restore.

        Their numbers are not those that the program's text gives them. The numbers of integer
        buffers are.
        """
        return self._held(self._plain_buffers())

    def _plain_buffers(self) -> list[tuple[str, torch.Tensor]]:
        found: list[tuple[int, str, torch.Tensor]] = []
        for index, model in enumerate(self.models):
            if isinstance(model, torch.nn.Module):
                saved = _saved(model)
                found.extend(
                    (index, name, buffer)
                    for name, buffer in model.named_buffers()
                    if name in saved and buffer.dtype.is_floating_point
                )
        return called(found)

    def passing_buffers(self) -> list[Held]:
        """Return all other buffers: those that no checkpoint has, and integers."""
        saved = {id(tensor) for _, tensor in self._plain_buffers()}
        found = [
            (index, name, buffer)
            for index, model in enumerate(self.models)
            if isinstance(model, torch.nn.Module)
            for name, buffer in model.named_buffers()
            if id(buffer) not in saved
        ]
        return [self._one(here, buffer, self._renamed(here)) for here, buffer in called(found)]

    def gradients(self) -> list[Held]:
        """Return the gradients that parameters have now, by the names of the parameters."""
        found = []
        for held in self.parameters():
            gradient = (
                held.tensor.grad
                if held.tensor.grad is not None
                else getattr(held.tensor, "main_grad", None)
            )
            if gradient is not None:
                part = part_of(gradient)
                found.append(
                    Held(held.name, gradient, part if part != Part() else held.part, held.stretch)
                )
        return [self._stretch(held) for held in found]

    def _stretch(self, held: Held) -> Held:
        """Return the stretch of a gradient that is this rank's, all of it if nothing is said.

        Raises PlanError for a stretch that the gradient does not have.
        """
        said = self.scattered.get(held.name)
        if said is None:
            return held
        (first, stop), gradient = said, local(held.tensor)
        if held.stretch or not 0 <= first <= stop <= gradient.numel():
            raise PlanError(
                f"Program.scattered gives the elements {first} to {stop} of the gradient of "
                f"{held.name!r}, which has {gradient.numel()} in one piece"
            )
        part = stretch_of(held.part, gradient.shape, first, stop)
        return Held(held.name, held.tensor, part, (first, stop - first))

    def stated(self) -> list[Held]:
        """Return the tensors that ``Program.state`` says the step keeps.

        Raises PlanError for something that is no tensor.
        """
        given = self._program.state
        state = (given() if callable(given) else given) or {}
        found = []
        for name, tensor in state.items():
            if not isinstance(tensor, torch.Tensor):
                raise PlanError(
                    f"Program.state has {name!r} as {type(tensor).__name__}; give tensors by name"
                )
            found.append(self._one(name, tensor, name))
        return found

    def kept(self) -> list[Held]:
        """Return every other tensor that the program holds, named after the way to it."""
        model = self.models[0] if len(self.models) == 1 else self.models
        roots = {"model": model, "step": self._program.step, "optimizer": self._program.optimizer}
        return [
            Held(_plain(path), tensor, part_of(tensor)) for path, tensor in reachable(roots).items()
        ]

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimizers that the program steps."""
        given = self._program.optimizer
        if given is None:
            return []
        steppers = list(given) if isinstance(given, Sequence) else [given]
        # ZeroRedundancyOptimizer keeps the state in an inner optimizer, which has the rank's share
        # of the parameters.
        inner = [getattr(item, "optim", None) for item in steppers]
        return [
            within if isinstance(within, torch.optim.Optimizer) else item
            for item, within in zip(steppers, inner, strict=True)
        ]

    def states(self) -> Iterator[Held]:
        """Yield the tensors in the state of optimizers, named after their parameters.

        Raises PlanError for state of a tensor that is neither a parameter nor rows of one.
        """
        parameters = self.parameters()
        by_tensor = _by_tensor(parameters)
        for optimizer in self.optimizers():
            for parameter, state in optimizer.state.items():
                helds = (
                    by_tensor.get(id(parameter))
                    or self.partitions.get(id(parameter))
                    or [part for own in parameters if (part := _within(parameter, own))][:1]
                )
                if not helds:
                    raise PlanError(
                        f"an optimizer has state of a tensor of shape {tuple(parameter.shape)} "
                        f"that is no parameter of Program.model, and no elements of one"
                    )
                for held, (key, value) in product(helds, state.items()):
                    if isinstance(value, torch.Tensor):
                        yield self._state(key, value, held)

    def _state(self, key: str, value: torch.Tensor, held: Held) -> Held:
        """Return a tensor in the state of an optimizer.

        It is spread as ``Program.parts`` says of "KEY:PARAMETER", else as its parameter is.
        """
        name = f"{key}:{held.name}"
        part = self._stated.of_state(name, local(value).shape)
        if part is not None:
            return Held(name, value, part)
        if local(value).shape == local(held.tensor).shape:
            return Held(name, value, held.part, held.stretch)
        return Held(name, value, part_of(value))

    def strangers(self) -> list[torch.Tensor]:
        """Return the tensors that optimizers step, and that lie in the memory of no parameter."""
        parameters = self.parameters()
        by_tensor = _by_tensor(parameters)
        return [
            tensor
            for optimizer in self.optimizers()
            for group in optimizer.param_groups
            for tensor in group["params"]
            if id(tensor) not in by_tensor and not any(_within(tensor, own) for own in parameters)
        ]

    def _held(self, found: list[tuple[str, torch.Tensor]]) -> list[Held]:
        held = [
            self._one(here, tensor, self._program.names(here) if self._program.names else here)
            for here, tensor in found
        ]
        _check_distinct([item.name for item in held])
        return held

    def _one(self, here: str, tensor: torch.Tensor, name: str) -> Held:
        part = self._stated.of(here, local(tensor).shape)
        return Held(name, tensor, part_of(tensor) if part is None else part)

    def _renamed(self, here: str) -> str:
        """Return the reference's name of a buffer.

        It is the buffer's own name if ``Program.names`` does not know it.
        """
        try:
            return self._program.names(here) if self._program.names else here
        except LookupError:
            return here


def _by_tensor(parameters: Sequence[Held]) -> dict[int, list[Held]]:
    found: dict[int, list[Held]] = defaultdict(list)
    for held in parameters:
        found[id(held.tensor)].append(held)
    return found


def _within(tensor: torch.Tensor, held: Held) -> Held | None:
    """Return ``tensor`` as rows or neighbouring elements of a parameter; None if it is neither."""
    return _rows_of(tensor, held) or _elements_of(tensor, held)


def _rows_of(tensor: torch.Tensor, held: Held) -> Held | None:
    """Return ``tensor`` as rows of a parameter; None if it is not some rows in the same memory.

    An optimizer that steps a share of a parameter has such tensors.
    """
    whole, part = local(held.tensor), local(tensor)
    if (
        not whole.dim()
        or whole.shape[1:] != part.shape[1:]
        or whole.untyped_storage()._cdata != part.untyped_storage()._cdata
    ):
        return None
    row = whole[:1].numel()
    offset = part.storage_offset() - whole.storage_offset()
    rows = offset // max(row, 1), offset // max(row, 1) + part.shape[0]
    if (
        not row
        or offset % row
        or not 0 <= rows[0] < rows[1] <= whole.shape[0]
        or not whole.is_contiguous()
        or not part.is_contiguous()
    ):
        return None
    box = held.part.box or tuple(((0, size),) for size in whole.shape)
    return Held(held.name, tensor, Part(held.part.whole, (cut(box[0], *rows), *box[1:])))


def _elements_of(tensor: torch.Tensor, held: Held) -> Held | None:
    """Return ``tensor`` as neighbouring elements of a flattened parameter in the same memory.

    None if it is not. They may begin in the middle of a row.
    """
    whole, part = local(held.tensor), local(tensor)
    first = int(part.storage_offset() - whole.storage_offset())
    if (
        part.dim() != 1
        or not part.numel()
        or held.stretch is not None
        or whole.untyped_storage()._cdata != part.untyped_storage()._cdata
        or not 0 <= first <= first + part.numel() <= whole.numel()
        or not whole.is_contiguous()
        or not part.is_contiguous()
        or whole.dtype != part.dtype
    ):
        return None
    return Held(held.name, tensor, stretch_of(held.part, whole.shape, first, first + part.numel()))


def called(found: Sequence[tuple[int, str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """Return tensors by their names.

    If names of several models are the same, each begins with the place of its model.
    """
    names = [name for _, name, _ in found]
    twice = len(set(names)) < len(names)
    return [(_plain(f"{index}.{name}" if twice else name), tensor) for index, name, tensor in found]


def _check_distinct(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise PlanError(
                f"two tensors of Program.model are called {name!r}; give Program.names so that "
                f"each has the name it has in the reference"
            )


def _plain(name: str) -> str:
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _tensors(model: Any) -> list[tuple[str, torch.Tensor]]:
    if not isinstance(model, Mapping):
        raise PlanError(
            f"Program.model is a {type(model).__name__}; give a module, a list of modules, or "
            f"tensors by name"
        )
    return list(model.items())


def _saved(model: torch.nn.Module) -> set[str]:
    found = set()
    for prefix, module in model.named_modules():
        for name in module._buffers:
            if name not in module._non_persistent_buffers_set:
                found.add(f"{prefix}.{name}" if prefix else name)
    return found
