"""What the primitives of an adapter run, forward and backward (``nnscaler/ir/adapter/prim.py`` and ``nnscaler/runtime/adapter``).

The class of a primitive says what it runs; those with two halves in their name run the first in the forward pass and the second in the backward pass.
``ranks`` is a set: gathering concatenates, and chunking counts, in ascending order of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.nnscaler.objects import shown
from pitcheck.frontends.nnscaler.program import Primitive
from pitcheck.plan.model import Number


class Step(NamedTuple):
    """One operator with one tensor in and one out: over the devices of ``group`` where it communicates; ``numbers`` are further operands."""

    kind: str
    attributes: dict[str, Any]
    group: tuple[int, ...] | None = None
    numbers: tuple[Number, ...] = ()


Rule = Callable[[Primitive, int], Step]


def _identity(_: Primitive, __: int) -> Step:
    return Step("identity", {})


def _all_reduce(primitive: Primitive, _: int) -> Step:
    return Step("all_reduce", {"reduction": "sum"}, devices_of(primitive, "ranks"))


def _all_gather(primitive: Primitive, _: int) -> Step:
    return Step("all_gather", {"axis": _integer(primitive, "dim")}, devices_of(primitive, "ranks"))


def _reduce_scatter(primitive: Primitive, _: int) -> Step:
    return Step("reduce_scatter", {"axis": _integer(primitive, "dim"), "reduction": "sum"}, devices_of(primitive, "ranks"))


def _all_to_all(primitive: Primitive, _: int) -> Step:
    return Step("all_to_all", {"split_axis": _integer(primitive, "odim"), "concat_axis": _integer(primitive, "idim")}, devices_of(primitive, "ranks"))


def _all_to_all_back(primitive: Primitive, _: int) -> Step:
    return Step("all_to_all", {"split_axis": _integer(primitive, "idim"), "concat_axis": _integer(primitive, "odim")}, devices_of(primitive, "ranks"))


def _chunk(primitive: Primitive, device: int) -> Step:
    ranks = devices_of(primitive, "ranks")
    return Step("chunk", {"axis": _integer(primitive, "dim"), "count": len(ranks), "position": _place(primitive, ranks, device)})


def _value_chunk(primitive: Primitive, device: int) -> Step:
    """A term of a sum of equal terms: the tensor divided by their number."""
    ranks = devices_of(primitive, "ranks")
    _place(primitive, ranks, device)
    return Step("div", {}, numbers=(Number(len(ranks)),))


def _broadcast(source: str) -> Rule:
    def rule(primitive: Primitive, _: int) -> Step:
        ranks = devices_of(primitive, "ranks")
        return Step("broadcast", {"root": _place(primitive, ranks, _integer(primitive, source))}, ranks)

    return rule


def _reduce(target: str) -> Rule:
    def rule(primitive: Primitive, _: int) -> Step:
        ranks = devices_of(primitive, "ranks")
        return Step("reduce", {"root": _place(primitive, ranks, _integer(primitive, target)), "reduction": "sum"}, ranks)

    return rule


_FORWARD: Mapping[str, Rule] = MappingProxyType(
    {
        "IdentityPrim": _identity,
        "AllReducePrim": _all_reduce,
        "AllGatherPrim": _all_gather,
        "ReduceScatterPrim": _reduce_scatter,
        "AllToAllPrim": _all_to_all,
        "ChunkPrim": _chunk,
        "VChunkPrim": _value_chunk,
        "BroadcastPrim": _broadcast("src"),
        "ReducePrim": _reduce("dst"),
    }
)

_HALVES: Mapping[str, tuple[Rule, Rule]] = MappingProxyType(
    {
        "IdentityAllreducePrim": (_identity, _all_reduce),
        "AllReduceIdentityPrim": (_all_reduce, _identity),
        "AllReduceAllReducePrim": (_all_reduce, _all_reduce),
        "ReduceScatterAllGatherPrim": (_reduce_scatter, _all_gather),
        "AllGatherReduceScatterPrim": (_all_gather, _reduce_scatter),
        "AllGatherSplitPrim": (_all_gather, _chunk),
        "SplitAllGatherPrim": (_chunk, _all_gather),
        "AllToAllAllToAllPrim": (_all_to_all, _all_to_all_back),
        "ReduceBroadcastPrim": (_reduce("dst"), _broadcast("dst")),
        "BroadcastRedducePrim": (_broadcast("src"), _reduce("src")),
        "IdentityPrim": (_identity, _identity),
    }
)
"""Forward and backward halves; the spelling is nnScaler's."""


_BY_SIGNATURE: Mapping[str, str] = MappingProxyType(
    {
        "identity_allreduce": "IdentityAllreducePrim",
        "allreduce_identity": "AllReduceIdentityPrim",
        "allreduce_allreduce": "AllReduceAllReducePrim",
        "reducescatter_allgather": "ReduceScatterAllGatherPrim",
        "allgather_reducescatter": "AllGatherReduceScatterPrim",
        "allgather_split": "AllGatherSplitPrim",
        "split_allgather": "SplitAllGatherPrim",
        "alltoall_alltoall": "AllToAllAllToAllPrim",
    }
)


def contradiction(primitive: Primitive) -> str:
    """A sentence where the class of a primitive and its signature name different functions, else ""."""
    other = _BY_SIGNATURE.get(primitive.signature, primitive.name)
    if primitive.name not in _HALVES or other == primitive.name:
        return ""
    return f"{primitive.name} carries the signature {primitive.signature!r}; its class is taken to say what runs"


def is_step(primitive: Primitive) -> bool:
    """Whether a primitive is one operator with one tensor in and one out."""
    return primitive.name in _FORWARD or primitive.name in _HALVES


def forward_step(primitive: Primitive, device: int) -> Step:
    """What ``device`` runs in the forward pass, or in an adapter that stands by itself. Raises PlanError for a missing or wrong keyword."""
    if primitive.name not in _HALVES:
        return _FORWARD[primitive.name](primitive, device)
    forward, backward = _HALVES[primitive.name]
    named_forward, named_backward = _HALVES[_BY_SIGNATURE.get(primitive.signature, primitive.name)]
    # No class is identity in both directions. One whose two halves both contradict its signature, and which gives the very tensor that it takes, stands for an
    # identity that has lost its backward half: nnScaler, which calls the signature, runs an identity here.
    unchanged = len(primitive.inputs) == len(primitive.outputs) == 1 and primitive.inputs[0] == primitive.outputs[0].id
    if unchanged and named_forward is _identity and forward is not named_forward and backward is not named_backward:
        return _identity(primitive, device)
    return forward(primitive, device)


def backward_step(primitive: Primitive, device: int) -> Step:
    """What ``device`` runs in the backward pass of a primitive of the forward pass.

    Raises PlanError for a missing or wrong keyword, UnsupportedError for a primitive through which no gradient flows.
    """
    if primitive.name not in _HALVES:
        raise UnsupportedError(f"{primitive.name} has no backward half; nnScaler differentiates only {', '.join(_HALVES)}")
    return _HALVES[primitive.name][1](primitive, device)


def keyword(primitive: Primitive, name: str) -> Any:
    """A keyword of a primitive. Raises PlanError where it is missing."""
    if name not in primitive.keywords:
        raise PlanError(f"{primitive.name} needs the keyword {name!r}", f".kwargs.{name}")
    return primitive.keywords[name]


def _integer(primitive: Primitive, name: str) -> int:
    value = keyword(primitive, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(f"{primitive.name} needs an integer {name!r}, not {shown(value)}", f".kwargs.{name}")
    return value


def device_of(primitive: Primitive, name: str) -> int:
    """A keyword that names a device."""
    return _integer(primitive, name)


def devices_of(primitive: Primitive, name: str) -> tuple[int, ...]:
    """A keyword that is a set of devices, in ascending order."""
    value = keyword(primitive, name)
    if not isinstance(value, tuple) or not value or any(type(entry) is not int for entry in value):
        raise PlanError(f"{primitive.name} needs {name!r}, a list of devices, not {shown(value)}", f".kwargs.{name}")
    return tuple(sorted(value))


def _place(primitive: Primitive, ranks: tuple[int, ...], device: int) -> int:
    if device not in ranks:
        raise PlanError(f"{primitive.name} runs with device {device}, which is not in its ranks {list(ranks)}", ".kwargs.ranks")
    return ranks.index(device)
