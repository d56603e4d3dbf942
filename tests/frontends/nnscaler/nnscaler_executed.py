"""Runs the pickle of a plan as the planner's runtime would: a thread for each rank, PyTorch in
float64, autograd for the backward passes.

Nothing of the package but its safe unpickler is used, so that the verdict owes nothing to how the
package lowers a plan. What runs of a primitive is its signature. One rank runs at a time, in turn,
until it waits for others, so that every run goes alike and ranks that wait for each other are found
at once.
"""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pitcheck.frontends.nnscaler.pickles import Stub, loaded

ADAPTERS = "nnscaler.runtime.adapter."


class StoppedError(Exception):
    """The plan does not run to its end."""


def kind(thing: object) -> str:
    return type(thing).origin[1] if isinstance(thing, Stub) else type(thing).__name__


def is_tensor(thing: object) -> bool:
    return kind(thing) == "IRSubTensor"


def tensors(things: Any) -> list[Any]:
    return [thing for thing in things if is_tensor(thing)]


def plain(value: Any) -> Any:
    """A number of NumPy, which the unpickler leaves as its bytes, as an integer; sequences of such
    likewise.
    """
    if kind(value) == "scalar":
        return int.from_bytes(value.__dict__["__arguments__"][1], "little", signed=True)
    if isinstance(value, list | tuple):
        return type(value)(plain(entry) for entry in value)
    return value


def box_of(tensor: Any) -> tuple[tuple[int, int], ...]:
    return tuple((start, stop) for start, stop in plain(tensor._indmap._indices))


class World:
    """The place in which ranks meet; a message is handed over when both sides are there."""

    def __init__(self, ranks: int) -> None:
        self.go = [threading.Semaphore(0) for _ in range(ranks)]
        self.back = threading.Semaphore(0)
        self.failed = ""
        self.waits: dict[int, tuple[Any, int]] = {}
        self.done: set[int] = set()
        self.meetings: dict[Any, dict[int, Any]] = defaultdict(dict)
        self.turns: dict[Any, int] = defaultdict(int)

    def meet(self, place: Any, rank: int, members: frozenset[int], what: Any) -> dict[int, Any]:
        """Return the part of every member, by rank, when all have come to ``place`` equally often.

        Raises StoppedError if the rank is no member, or another rank has failed.
        """
        if rank not in members:
            raise StoppedError(f"rank {rank} is not in the group {sorted(members)}")
        key = (place, self.turns[place, rank])
        self.turns[place, rank] += 1
        meeting = self.meetings[key]
        meeting[rank] = what
        while len(meeting) < len(members):
            self.waits[rank] = (key, len(members))
            self.back.release()
            self.go[rank].acquire()
            if self.failed:
                raise StoppedError(self.failed)
        self.waits.pop(rank, None)
        return meeting

    def run(self, programs: list[Any]) -> None:
        """Run every rank's program to its end. Raises StoppedError where one stops, or where all
        that are left wait for each other.
        """
        threads = [
            threading.Thread(target=self._body, args=(rank, program), daemon=True)
            for rank, program in enumerate(programs)
        ]
        for thread in threads:
            thread.start()
        while len(self.done) < len(programs):
            ready = [
                r
                for r in range(len(programs))
                if r not in self.done
                and (
                    r not in self.waits or len(self.meetings[self.waits[r][0]]) == self.waits[r][1]
                )
            ]
            if not ready and not self.failed:
                self.failed = (
                    f"ranks wait for each other: "
                    f"{ {rank: str(key[0]) for rank, (key, _) in self.waits.items()} }"
                )
            for rank in (
                ready
                if not self.failed
                else [r for r in range(len(programs)) if r not in self.done]
            ):
                self.go[rank].release()
                self.back.acquire()
        for thread in threads:
            thread.join()
        if self.failed:
            raise StoppedError(self.failed)

    def _body(self, rank: int, program: Any) -> None:
        self.go[rank].acquire()
        try:
            if not self.failed:
                program()
        except (
            StoppedError,
            RuntimeError,
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            StopIteration,
        ) as error:
            self.failed = self.failed or f"rank {rank}: {type(error).__name__}: {error}"
        self.done.add(rank)
        self.waits.pop(rank, None)
        self.back.release()


# --- what the runtime's functions do


class Adapters:
    """The functions of adapters on one rank."""

    def __init__(self, world: World, rank: int) -> None:
        self.world = world
        self.rank = rank

    def call(self, name: str, value: Any, keywords: dict[str, Any]) -> Any:
        if name.startswith("nn."):
            return _Paired.apply(value, self, name.removeprefix("nn."), keywords)
        return getattr(self, f"do_{name}")(value, **keywords)

    def _gathered(self, value: torch.Tensor, ranks: Any, what: str) -> list[torch.Tensor]:
        members = sorted(set(ranks))
        if len(members) != len(list(ranks)):
            raise StoppedError(f"a rank stands twice in {list(ranks)}")
        met = self.world.meet(
            ("group", tuple(members)), self.rank, frozenset(members), (what, value.detach().clone())
        )
        if (
            len(
                {
                    (said, tuple(part.shape) if "buffer" not in said else part.numel(), part.dtype)
                    for said, part in met.values()
                }
            )
            != 1
        ):
            raise StoppedError(f"the members of {members} do not do the same")
        return [met[member][1] for member in members]

    def do_identity(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def do_all_reduce(self, value: torch.Tensor, ranks: Any) -> torch.Tensor:
        return torch.stack(self._gathered(value, ranks, "all_reduce")).sum(0)

    def do_all_gather(self, value: torch.Tensor, dim: int, ranks: Any) -> torch.Tensor:
        return torch.cat(self._gathered(value, ranks, "all_gather"), dim)

    def do_reduce_scatter(self, value: torch.Tensor, dim: int, ranks: Any) -> torch.Tensor:
        total = torch.stack(self._gathered(value, ranks, "reduce_scatter")).sum(0)
        return self._own(total, dim, ranks)

    def do_all_to_all(self, value: torch.Tensor, idim: int, odim: int, ranks: Any) -> torch.Tensor:
        return torch.cat(
            [
                self._own(part, odim, ranks)
                for part in self._gathered(value, ranks, f"all_to_all {idim} {odim}")
            ],
            idim,
        )

    def _own(self, value: torch.Tensor, dim: int, ranks: Any) -> torch.Tensor:
        if self.rank not in ranks:
            raise StoppedError(f"rank {self.rank} is not in {list(ranks)}")
        return value.detach().chunk(len(ranks), dim)[sorted(ranks).index(self.rank)].clone()

    do_chunk = _own

    def do_broadcast(
        self, value: torch.Tensor | None, shape: Any, dtype: Any, src: int, ranks: Any
    ) -> torch.Tensor:
        is_source = self.rank == src
        mine = (
            value.detach()
            if is_source and isinstance(value, torch.Tensor)
            else torch.zeros(shape, dtype=dtype_of(dtype))
        )
        parts = self._gathered(mine, ranks, f"broadcast {src} buffer")
        return mine if is_source else parts[sorted(ranks).index(src)].reshape(mine.shape)

    def do_move(self, value: Any, shape: Any, dtype: Any, src: int, dst: int) -> torch.Tensor:
        met = self._handed((src, dst), value, torch.empty(shape, dtype=dtype_of(dtype)), src, dst)
        return value if self.rank == src else met

    def _handed(
        self, place: Any, value: Any, buffer: torch.Tensor, src: int, dst: int
    ) -> torch.Tensor:
        if self.rank not in (src, dst) or src == dst:
            raise StoppedError(f"rank {self.rank} moves from {src} to {dst}")
        met = self.world.meet(
            ("pair", place),
            self.rank,
            frozenset((src, dst)),
            value.detach().clone() if self.rank == src else buffer,
        )
        sent = met[src]
        if met[dst].numel() != sent.numel() or met[dst].dtype != sent.dtype:
            raise StoppedError(
                f"{tuple(sent.shape)} of {sent.dtype} is sent, {tuple(met[dst].shape)} of "
                f"{met[dst].dtype} received"
            )
        return sent.reshape(met[dst].shape)

    def do_rdscatter(
        self, value: Any, shape: Any, dtype: Any, dim: int, src: int, dsts: Any
    ) -> torch.Tensor:
        sizes = list(shape)
        sizes[dim] //= len(dsts)
        buffer = torch.empty(sizes, dtype=dtype_of(dtype))
        if self.rank != src:
            return self._handed(
                (src, self.rank), None, buffer, src, self.rank if self.rank in dsts else -1
            )
        for part, dst in zip(value.chunk(len(dsts), dim), dsts, strict=False):
            self._handed((src, dst), part, buffer, src, dst)
        return value

    def do_rdgather(
        self, value: Any, shape: Any, dtype: Any, dim: int, srcs: Any, dst: int
    ) -> torch.Tensor:
        buffer = torch.empty(shape, dtype=dtype_of(dtype))
        if self.rank == dst:
            return torch.cat(
                [self._handed((src, dst), None, buffer, src, dst) for src in srcs], dim
            )
        self._handed((self.rank, dst), value, buffer, self.rank if self.rank in srcs else -1, dst)
        return value

    def do_vmerge(self, values: Any) -> torch.Tensor:
        return torch.stack([value.detach() for value in values]).sum(0)

    def do_smerge(self, values: Any, dim: int) -> torch.Tensor:
        return torch.cat([value.detach() for value in values], dim)

    def do_select(self, value: torch.Tensor, indmap: Any, valmap: int) -> torch.Tensor:
        return (
            value.detach()[
                tuple(slice(*plain(part.__dict__["__arguments__"])) for part in indmap)
            ].clone()
            / valmap
        )


HALVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "split": "chunk",
}


class _Paired(torch.autograd.Function):
    """A function of ``nnscaler.runtime.adapter.nn``: what its name says, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, adapters: Adapters, name: str, keywords: dict[str, Any]
    ) -> torch.Tensor:
        there, back = (HALVES.get(half, half) for half in name.split("_"))
        ctx.adapters, ctx.back, ctx.keywords = adapters, back, keywords
        return _half(adapters, there, value, keywords)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        keywords = dict(ctx.keywords)
        if ctx.back == "all_to_all":
            keywords["idim"], keywords["odim"] = keywords["odim"], keywords["idim"]
        return _half(ctx.adapters, ctx.back, gradient, keywords), None, None, None


def _half(
    adapters: Adapters, name: str, value: torch.Tensor, keywords: dict[str, Any]
) -> torch.Tensor:
    return (
        value.view_as(value)
        if name == "identity"
        else getattr(adapters, f"do_{name}")(value, **keywords)
    )


class _Custom(torch.autograd.Function):
    """An adapter that is one function with another adapter as its backward pass."""

    @staticmethod
    def forward(ctx: Any, rank: Rank, adapter: Any, *values: torch.Tensor) -> Any:
        ctx.rank, ctx.adapter = rank, adapter
        results = rank.primitives(
            adapter, dict(zip([t._id for t in tensors(adapter._inputs)], values, strict=True))
        )
        return results if len(results) != 1 else results[0]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        mirror = ctx.adapter._mirror
        given = dict(zip([t._id for t in tensors(mirror._inputs)], gradients, strict=True))
        return None, None, *ctx.rank.primitives(mirror, given)


def dtype_of(said: Any) -> torch.dtype:
    """float64 in place of float32, so that rounding does not count."""
    name = said if isinstance(said, str) else ".".join(said.origin)
    return torch.float64 if name == "torch.float32" else getattr(torch, name.removeprefix("torch."))


FUNCTIONS = {
    "nnscaler.runtime.function.identity": lambda x: x,
    "nnscaler.runtime.function.multiref": lambda x, times: (
        tuple(x for _ in range(times)) if times > 1 else x
    ),
    "builtins.iter": iter,
    "builtins.next": next,
    "builtins.float": float,
    "builtins.int": int,
    "_operator.getitem": lambda x, place: x[place],
    "torch.Tensor.size": torch.Tensor.size,
}


def function_of(signature: str) -> Any:
    """A function that a model calls: of the list, or of PyTorch by its name."""
    if signature in FUNCTIONS:
        return FUNCTIONS[signature]
    first, *rest = signature.split(".")
    if first != "torch" or not all(
        part.isidentifier() and not part.startswith("_") for part in rest
    ):
        raise StoppedError(f"{signature} is not run")
    found: Any = torch
    for part in rest:
        found = getattr(found, part)
    return found


# --- one rank


@dataclass
class Rank:
    """The state of one rank.

    It has variables by the ids of the tensors, and what the runtime saves of forward calls.
    """

    rank: int
    shift: int
    replicas: int
    devices: int
    microbatches: int
    adapters: Adapters
    given: Given
    variables: dict[int, Any] = field(default_factory=dict)
    parameters: dict[int, torch.Tensor] = field(default_factory=dict)
    names: dict[int, Any] = field(default_factory=dict)
    saved: dict[int, list[list[tuple[Any, Any]]]] = field(default_factory=lambda: defaultdict(list))
    loads: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def run(self, sequence: Any) -> None:
        for item in sequence:
            cell = item._cell if kind(item) == "ExeReuseCell" else item
            name = kind(cell)
            if name == "IRDataOperation":
                self._load(item, cell)
            elif name == "IRWeightReducer":
                self._reduce(cell)
            elif name == "IRAdapter":
                self._adapter(item, cell)
            elif any(
                kind(node) == "IRBpOperation" or (kind(node) == "IRAdapter" and not node._forward)
                for node in cell._nodes
            ):
                self._backward(item, cell)
            else:
                self._forward(item, cell)

    def _load(self, item: Any, cell: Any) -> None:
        number = self.loads[cell._id]
        self.loads[cell._id] += 1
        block = (self.shift // self.devices) * self.microbatches + number
        for tensor in tensors(item._outputs):
            name = tensor._full_tensor.name
            self.variables[tensor._id] = self.given.block(
                name, tuple(plain(tensor._shape)), block, self.replicas * self.microbatches
            )

    def _read(self, tensor: Any, variables: dict[int, Any]) -> Any:
        if not tensor._is_attr:
            if tensor._id not in variables:
                raise StoppedError(f"{tensor._id} is read before it is written")
            return variables[tensor._id]
        if tensor._id not in self.parameters:
            self.names[tensor._id] = tensor
            part = self.given.part(
                tensor._full_tensor.name, tuple(plain(tensor._full_tensor._shape)), box_of(tensor)
            )
            self.parameters[tensor._id] = part.requires_grad_(bool(tensor._requires_grad))
        return self.parameters[tensor._id]

    def _watched(self, item: Any) -> bool:
        return any(tensor._requires_grad for tensor in tensors(item._outputs))

    def _forward(self, item: Any, cell: Any) -> None:
        given = [
            self._read(tensor, self.variables)
            for tensor in tensors(item._inputs)
            if not tensor._is_attr
        ]
        inner = [tensor._id for tensor in tensors(cell._inputs) if not tensor._is_attr]
        watched = self._watched(item)
        if watched:
            fresh = {
                id(value): value.detach().requires_grad_() for value in given if value.requires_grad
            }
            before, given = given, [fresh.get(id(value), value) for value in given]
            self.saved[cell._id].append(list(zip(before, given, strict=True)))
        local = dict(zip(inner, given, strict=True))
        with torch.set_grad_enabled(watched):
            for node in cell._nodes:
                self._node(node, local)
        for mine, outer in zip(tensors(cell._outputs), tensors(item._outputs), strict=True):
            self.variables[outer._id] = self._read(mine, local)

    def _node(self, node: Any, local: dict[int, Any]) -> None:
        if kind(node) == "IRAdapter":
            if node._differentiable and node.custom:
                values = [self._read(tensor, local) for tensor in tensors(node._inputs)]
                results = _Custom.apply(self, node, *values)
                results = results if isinstance(results, tuple) else (results,)
                local.update(
                    {
                        tensor._id: value
                        for tensor, value in zip(tensors(node._outputs), results, strict=True)
                    }
                )
            else:
                self._primitives(node, local)
            return
        arguments = [self._value(value, local) for value in node._inputs]
        keywords = {name: self._value(value, local) for name, value in node._kwargs.items()}
        results = function_of(node.signature)(*arguments, **keywords)
        results = results if len(node._outputs) != 1 else (results,)
        local.update(
            {thing._id: value for thing, value in zip(node._outputs, results, strict=True)}
        )

    def _value(self, value: Any, local: dict[int, Any]) -> Any:
        if is_tensor(value):
            return self._read(value, local)
        if kind(value) == "IRObject":
            return local[value._id]
        return (
            type(value)(self._value(entry, local) for entry in value)
            if isinstance(value, list | tuple)
            else value
        )

    def primitives(self, adapter: Any, local: dict[int, Any]) -> tuple[torch.Tensor, ...]:
        """The results of an adapter that is given ``local``."""
        self._primitives(adapter, local)
        return tuple(local[tensor._id] for tensor in tensors(adapter._outputs))

    def _primitives(self, adapter: Any, local: dict[int, Any]) -> None:
        for primitive in adapter._prims:
            values = [self._read(tensor, local) for tensor in primitive._inputs]
            keywords = {
                name: self._shifted(name, value) for name, value in primitive.kwargs.items()
            }
            function = str(primitive.signature).removeprefix(ADAPTERS)
            value = (
                values[0]
                if len(values) == 1 and function not in ("vmerge", "smerge")
                else values or None
            )
            result = self.adapters.call(function, value, keywords)
            for tensor in primitive._outputs:
                local[tensor._id] = result

    def _shifted(self, name: str, value: Any) -> Any:
        value = plain(value)
        if name in ("src", "dst"):
            return value + self.shift
        return [rank + self.shift for rank in value] if name in ("ranks", "srcs", "dsts") else value

    def _adapter(self, item: Any, cell: Any) -> None:
        inner = [tensor._id for tensor in tensors(cell._inputs)]
        local = dict(
            zip(
                inner,
                [self._read(tensor, self.variables) for tensor in tensors(item._inputs)],
                strict=True,
            )
        )
        watched = self._watched(item)
        with torch.set_grad_enabled(watched):
            self._primitives(cell, local)
        for mine, outer in zip(tensors(cell._outputs), tensors(item._outputs), strict=True):
            value = self._read(mine, local)
            self.variables[outer._id] = (
                value.requires_grad_() if watched and value.is_floating_point() else value
            )

    def _backward(self, item: Any, cell: Any) -> None:
        mirror = item._mirror
        known = {
            tensor._grad._id: tensor
            for tensor in [*tensors(mirror._inputs), *tensors(mirror._outputs)]
            if is_tensor(tensor._grad)
        }
        gradients = tensors(item._inputs)
        outputs = [
            self._read(known[tensor._id], self.variables)
            for tensor in gradients
            if tensor._id in known
        ]
        given = [
            None if getattr(tensor._full_tensor, "_is_loss", False) else self._read_gradient(tensor)
            for tensor in gradients
        ]
        queue = self.saved[cell._mirror._id]
        if not queue:
            raise StoppedError("a backward pass without its forward pass")
        saved, names = queue.pop(0), tensors(item._outputs)
        # The runtime warns here, and stops later where an input needs a gradient; the rule is the
        # same for all stages.
        if any(
            all(self._read(known[name._id], self.variables) is not before for before, _ in saved)
            for name in names
            if name._id in known
        ):
            raise StoppedError("saved inputs are taken first in, first out")
        inputs = [value for _, value in saved if value.requires_grad]
        for value in inputs:
            value.retain_grad()
        pairs = {
            (id(output), id(gradient)): (output, gradient)
            for output, gradient in zip(outputs, given, strict=False)
        }
        if not pairs:
            return
        torch.autograd.backward(
            [output for output, _ in pairs.values()], [gradient for _, gradient in pairs.values()]
        )
        results = [value.grad for value in inputs]
        if any(result is None for result in results):
            raise StoppedError("an input of the segment gets no gradient")
        for tensor in names:
            self.variables.pop(tensor._id, None)
        if results and names:
            if len(results) != len(names):
                raise StoppedError("there are more or fewer gradients than names")
            self.variables.update(
                {tensor._id: result for tensor, result in zip(names, results, strict=True)}
            )

    def _read_gradient(self, tensor: Any) -> torch.Tensor:
        if tensor._id not in self.variables:
            raise StoppedError(f"the gradient {tensor._id} is read before it is written")
        return self.variables[tensor._id]

    def _reduce(self, cell: Any) -> None:
        """Sum the gradients of weights over the devices of a reducer in all replicas."""
        ranks = sorted(
            device + n * self.devices for device in cell._device for n in range(self.replicas)
        )
        for tensor in tensors(cell._inputs):
            weight = self._read(tensor, self.variables)
            present = torch.zeros_like(weight) if weight.grad is None else weight.grad
            weight.grad = self.adapters.do_all_reduce(present, ranks)


# --- a whole plan


@dataclass
class Given:
    """The reference's inputs and parameters, by name; made when they are first asked for, equal for
    equal names and shapes.
    """

    whole: dict[str, torch.Tensor] = field(default_factory=dict)

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name not in self.whole:
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            self.whole[name] = torch.randn(shape, generator=generator, dtype=torch.float64) / 4 + (
                1 if len(shape) == 1 else 0
            )
        if tuple(self.whole[name].shape) != shape:
            raise StoppedError(
                f"{name} has shape {shape} here and {tuple(self.whole[name].shape)} in the "
                f"reference"
            )
        return self.whole[name]

    def part(self, name: str, shape: tuple[int, ...], box: Any) -> torch.Tensor:
        whole = self.tensor(name, shape)
        return whole[tuple(slice(start, stop) for start, stop in box)].clone()

    def block(self, name: str, shape: tuple[int, ...], number: int, count: int) -> torch.Tensor:
        whole = self.tensor(name, (shape[0] * count, *shape[1:]))
        return whole[number * shape[0] : (number + 1) * shape[0]].clone()


@dataclass
class Result:
    """The result of a run.

    It is the loss that every rank returns, summed over micro-batches, and the gradients that every
    rank holds, by name and box.
    """

    losses: dict[int, torch.Tensor]
    gradients: dict[int, dict[tuple[str, tuple[tuple[int, int], ...]], torch.Tensor | None]]
    devices: int


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Change = Callable[[Any], None]
"""Changes the objects of a file in place, after they are read."""


def executed(path: Path, given: Given, change: Change | None = None) -> Result:
    """Run the plan in a file, changed. Raises StoppedError where it stops."""
    with loaded(path) as root, one_thread():
        if change is not None:
            change(root)
        sequences, devices, ranks = root.execplan._seq, len(root.devices), root.runtime_ndevs
        runs = [
            [
                sum(1 for item in sequence if getattr(item, "_cell", item) is cell)
                for cell in _data(sequence)
            ]
            for sequence in sequences.values()
        ]
        microbatches = max([1, *(count for counts in runs for count in counts)])
        world = World(ranks)
        made = [
            Rank(
                r,
                r - r % devices,
                ranks // devices,
                devices,
                microbatches,
                Adapters(world, r),
                given,
            )
            for r in range(ranks)
        ]
        world.run([lambda rank=rank: rank.run(sequences[rank.rank % devices]) for rank in made])
        outputs = [thing._id for thing in tensors(root.execplan._outputs)]
        losses = {}
        for rank in made:
            if missing := [name for name in outputs if name not in rank.variables]:
                raise StoppedError(f"rank {rank.rank} returns {missing}, which is not there")
            losses[rank.rank] = torch.stack(
                [rank.variables[name].detach().reshape(()) for name in outputs]
            ).sum()
        return Result(losses, {rank.rank: _gradients(rank) for rank in made}, devices)


def _data(sequence: Any) -> list[Any]:
    cells = [getattr(item, "_cell", item) for item in sequence]
    return list({id(cell): cell for cell in cells if kind(cell) == "IRDataOperation"}.values())


def _gradients(rank: Rank) -> dict[tuple[str, tuple[tuple[int, int], ...]], torch.Tensor | None]:
    """The gradient of each part of a parameter that the rank holds: those of parts that it holds
    twice are one after the other.
    """
    found = {}
    for number, tensor in rank.names.items():
        found[tensor._full_tensor.name, box_of(tensor)] = rank.parameters[number].grad
    return found


def wrong(reference: Path, parallel: Path, change: Change | None = None) -> str:
    """Why a parallel plan, changed, does not compute what its reference computes; ""
    where it does.
    """
    given = Given()
    expected = executed(reference, given)
    try:
        found = executed(parallel, given, change)
    except StoppedError as error:
        return f"stops: {error}"
    loss = expected.losses[0]
    totals: dict[int, Any] = defaultdict(float)
    for rank, value in found.losses.items():
        totals[rank % found.devices] += value
    if bad := {
        device: float(total)
        for device, total in totals.items()
        if not torch.allclose(total, loss, rtol=1e-9, atol=1e-9)
    }:
        return f"the loss is {bad} instead of {float(loss)}"
    whole = {
        name: gradient
        for (name, _), gradient in expected.gradients[0].items()
        if gradient is not None
    }
    seen = set()
    for rank, gradients in found.gradients.items():
        for (name, box), gradient in gradients.items():
            seen.add(name)
            if name not in whole and gradient is None:
                continue
            if name not in whole or gradient is None:
                return f"rank {rank} has no gradient of {name}"
            part = whole[name][tuple(slice(start, stop) for start, stop in box)]
            # Rounding of a sum is relative to its largest terms, and differs between processors.
            close = max(1e-9, 1e-8 * float(part.abs().max())) if part.numel() else 1e-9
            if not torch.allclose(gradient, part, rtol=1e-8, atol=close):
                return f"rank {rank} has another gradient of {name}"
    return f"no gradient of {sorted(whole.keys() - seen)}" if whole.keys() - seen else ""
