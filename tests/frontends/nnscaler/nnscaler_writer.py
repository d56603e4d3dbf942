"""Writes pickles like nnScaler's from little: objects of classes that exist for the
pickler alone.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import ModuleType
from typing import Any

MODULE = "nnscaler.written"
FUNCTIONS = {
    "IdentityPrim": "identity",
    "SelectPrim": "select",
    "MergeDimPrim": "smerge",
    "SumPrim": "vmerge",
    "MovePrim": "move",
    "RDScatterPrim": "rdscatter",
    "RDGatherPrim": "rdgather",
    "RVScatterPrim": "rvscatter",
    "BroadcastPrim": "broadcast",
    "ReducePrim": "reduce",
    "AllReducePrim": "all_reduce",
    "AllGatherPrim": "all_gather",
    "ReduceScatterPrim": "reduce_scatter",
    "AllToAllPrim": "all_to_all",
    "ChunkPrim": "chunk",
    "VChunkPrim": "vchunk",
    "IdentityAllreducePrim": "nn.identity_allreduce",
    "AllReduceIdentityPrim": "nn.allreduce_identity",
    "AllReduceAllReducePrim": "nn.allreduce_allreduce",
    "AllGatherSplitPrim": "nn.allgather_split",
    "SplitAllGatherPrim": "nn.split_allgather",
    "AllGatherReduceScatterPrim": "nn.allgather_reducescatter",
    "ReduceScatterAllGatherPrim": "nn.reducescatter_allgather",
    "AllToAllAllToAllPrim": "nn.alltoall_alltoall",
}
"""The functions that nnScaler gives primitives of these classes as their signatures."""


class Thing:
    """An object with any attributes; ``kind`` is the name of its class in the pickle."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def thing(kind: str, **attributes: Any) -> Any:
    module = _module()
    if not hasattr(module, kind):
        setattr(module, kind, type(kind, (Thing,), {"__module__": MODULE, "__qualname__": kind}))
    return getattr(module, kind)(**attributes)


def _module() -> ModuleType:
    return sys.modules.setdefault(MODULE, ModuleType(MODULE))


@contextmanager
def written_modules() -> Iterator[None]:
    """The classes are importable only inside."""
    sys.modules.setdefault("nnscaler", ModuleType("nnscaler"))
    _module()
    try:
        yield
    finally:
        sys.modules.pop(MODULE, None)
        sys.modules.pop("nnscaler", None)


class Writer:
    """Makes objects with fresh ids."""

    def __init__(self) -> None:
        self.ids = count(1)

    def tensor(
        self, name: str, shape: tuple[int, ...], *, parameter: bool = False, loss: bool = False
    ) -> Any:
        """A whole sub-tensor with its gradient."""
        gradient = self._tensor(f"g{name}", shape, parameter, loss, True)
        value = self._tensor(name, shape, parameter, loss, False)
        value._grad, value._full_tensor._grad = gradient, gradient._full_tensor
        return value

    def _tensor(
        self, name: str, shape: tuple[int, ...], parameter: bool, loss: bool, gradient: bool
    ) -> Any:
        full = thing(
            "IRFullTensor", _id=next(self.ids), name=name, _shape=shape, _is_loss=loss, _grad=None
        )
        return self.part(
            full, tuple((0, size) for size in shape), parameter=parameter, gradient=gradient
        )

    def part(
        self,
        full: Any,
        box: tuple[tuple[int, int], ...],
        *,
        parameter: bool = False,
        gradient: bool = False,
        term: tuple[int, int] = (0, 1),
    ) -> Any:
        return thing(
            "IRSubTensor",
            _id=next(self.ids),
            _shape=tuple(stop - start for start, stop in box),
            _full_tensor=full,
            _indmap=thing("IndexMap", _indices=box),
            _valmap=thing("ValueMap", _weight=term),
            _dtype="torch.float32",
            _grad=None,
            _is_attr=parameter,
            _is_grad=gradient,
            _requires_grad=True,
        )

    def compute(
        self, signature: str, inputs: list[Any], outputs: list[Any], **keywords: Any
    ) -> Any:
        return self._cell("IRDimops", inputs, outputs, signature=signature, _kwargs=keywords)

    def derive(self, forward: Any, given: list[Any], results: list[Any]) -> Any:
        return self._cell("IRBpOperation", given, results, mirror=forward)

    def data(self, outputs: list[Any]) -> Any:
        return self._cell("IRDataOperation", [], outputs)

    def segment(
        self, nodes: list[Any], inputs: list[Any], outputs: list[Any], mirror: Any = None
    ) -> Any:
        return self._cell("IRSegment", inputs, outputs, mirror=mirror, _nodes=nodes)

    def adapter(self, primitives: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
        return self._cell(
            "IRAdapter",
            inputs,
            outputs,
            _prims=primitives,
            _forward=True,
            _differentiable=False,
            custom=True,
        )

    def primitive(self, kind: str, inputs: list[Any], outputs: list[Any], **keywords: Any) -> Any:
        return self.signed(
            kind,
            f"nnscaler.runtime.adapter.{FUNCTIONS.get(kind, kind)}",
            inputs,
            outputs,
            **keywords,
        )

    def signed(
        self,
        kind: str,
        signature: str | None,
        inputs: list[Any],
        outputs: list[Any],
        **keywords: Any,
    ) -> Any:
        """A primitive of a class with any signature."""
        return thing(kind, _inputs=inputs, _outputs=outputs, kwargs=keywords, signature=signature)

    def value(self, known: Any = None) -> Any:
        """An object that is no tensor."""
        return thing("IRObject", _id=next(self.ids), _value=known)

    def python(self, signature: str, inputs: list[Any], outputs: list[Any], **keywords: Any) -> Any:
        """An operator of the model's code that gives no tensor."""
        return self._cell("IRPyFunc", inputs, outputs, signature=signature, _kwargs=keywords)

    def reducer(self, weights: list[Any], devices: tuple[int, ...]) -> Any:
        return self._cell("IRWeightReducer", weights, [], _device=devices)

    def call(self, cell: Any, inputs: list[Any], outputs: list[Any], mirror: Any = None) -> Any:
        return self._cell("ExeReuseCell", inputs, outputs, mirror=mirror, _cell=cell)

    def _cell(
        self,
        kind: str,
        inputs: list[Any],
        outputs: list[Any],
        mirror: Any = None,
        **attributes: Any,
    ) -> Any:
        return thing(
            kind, _id=next(self.ids), _inputs=inputs, _outputs=outputs, _mirror=mirror, **attributes
        )

    def root(self, sequences: dict[int, list[Any]], ranks: int) -> bytes:
        plan = thing("ExecutionPlan", _seq=sequences)
        return pickle.dumps(
            thing(
                "ModuleCodeGen",
                devices=tuple(sorted(sequences)),
                runtime_ndevs=ranks,
                execplan=plan,
            )
        )
