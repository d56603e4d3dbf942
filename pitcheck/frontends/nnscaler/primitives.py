"""What the primitives of an adapter run, forward and backward (``nnscaler/ir/adapter/prim.py`` and
``nnscaler/runtime/adapter``).

The signature of a primitive says what it runs: nnScaler's code generator writes that, and the
class, which says it too, never runs. Functions of ``nn`` have a forward and a backward half.
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
    """One operator with one tensor in and one out: over the devices of ``group`` where it
    communicates; ``numbers`` are further operands.
    """

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
    return Step(
        "reduce_scatter",
        {"axis": _integer(primitive, "dim"), "reduction": "sum"},
        devices_of(primitive, "ranks"),
    )


def _all_to_all(primitive: Primitive, _: int) -> Step:
    return Step(
        "all_to_all",
        {"split_axis": _integer(primitive, "odim"), "concat_axis": _integer(primitive, "idim")},
        devices_of(primitive, "ranks"),
    )


def _all_to_all_back(primitive: Primitive, _: int) -> Step:
    return Step(
        "all_to_all",
        {"split_axis": _integer(primitive, "idim"), "concat_axis": _integer(primitive, "odim")},
        devices_of(primitive, "ranks"),
    )


def _chunk(primitive: Primitive, device: int) -> Step:
    ranks = devices_of(primitive, "ranks")
    return Step(
        "chunk",
        {
            "axis": _integer(primitive, "dim"),
            "count": len(ranks),
            "position": _place(primitive, ranks, device),
        },
    )


def _value_chunk(primitive: Primitive, device: int) -> Step:
    """A term of a sum of equal terms: the tensor divided by their number."""
    ranks = devices_of(primitive, "ranks")
    _place(primitive, ranks, device)
    return Step("div", {}, numbers=(Number(len(ranks)),))


def _broadcast(source: str) -> Rule:
    def rule(primitive: Primitive, _: int) -> Step:
        ranks = devices_of(primitive, "ranks")
        return Step(
            "broadcast", {"root": _place(primitive, ranks, _integer(primitive, source))}, ranks
        )

    return rule


def _reduce(target: str) -> Rule:
    def rule(primitive: Primitive, _: int) -> Step:
        ranks = devices_of(primitive, "ranks")
        return Step(
            "reduce",
            {"root": _place(primitive, ranks, _integer(primitive, target)), "reduction": "sum"},
            ranks,
        )

    return rule


_RANKS = frozenset({"ranks"})
_ALONG = frozenset({"dim", "ranks"})
_BUFFER = frozenset({"shape", "dtype"})

_STEPS: Mapping[str, tuple[Rule, frozenset[str]]] = MappingProxyType(
    {
        "identity": (_identity, frozenset()),
        "all_reduce": (_all_reduce, _RANKS),
        "all_gather": (_all_gather, _ALONG),
        "reduce_scatter": (_reduce_scatter, _ALONG),
        "all_to_all": (_all_to_all, frozenset({"idim", "odim", "ranks"})),
        "chunk": (_chunk, _ALONG),
        "vchunk": (_value_chunk, _RANKS),
        "broadcast": (_broadcast("src"), _BUFFER | {"src", "ranks"}),
        "reduce": (_reduce("dst"), frozenset({"dst", "ranks"})),
    }
)
"""Functions without a backward half that are one operator; and their parameters."""

_HALVES: Mapping[str, tuple[Rule, Rule, frozenset[str]]] = MappingProxyType(
    {
        "nn.identity_allreduce": (_identity, _all_reduce, _RANKS),
        "nn.allreduce_identity": (_all_reduce, _identity, _RANKS),
        "nn.allreduce_allreduce": (_all_reduce, _all_reduce, _RANKS),
        "nn.reducescatter_allgather": (_reduce_scatter, _all_gather, _ALONG),
        "nn.allgather_reducescatter": (_all_gather, _reduce_scatter, _ALONG),
        "nn.allgather_split": (_all_gather, _chunk, _ALONG),
        "nn.split_allgather": (_chunk, _all_gather, _ALONG),
        "nn.alltoall_alltoall": (
            _all_to_all,
            _all_to_all_back,
            frozenset({"idim", "odim", "ranks"}),
        ),
    }
)
"""Functions that autograd knows: what they run forward and backward; and their parameters."""

_SEVERAL: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "move": _BUFFER | {"src", "dst"},
        "rdscatter": _BUFFER | {"dim", "src", "dsts"},
        "rdgather": _BUFFER | {"dim", "srcs", "dst"},
        "smerge": frozenset({"dim"}),
        "vmerge": frozenset(),
        "select": frozenset({"indmap", "valmap"}),
    }
)
"""Functions that are more than one operator, or no operator on some devices; and their
parameters.
"""

_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "IdentityPrim": "identity",
        "SelectPrim": "select",
        "MergeDimPrim": "smerge",
        "SumPrim": "vmerge",
        "MovePrim": "move",
        "RDScatterPrim": "rdscatter",
        "RVScatterPrim": "rvscatter",
        "RDGatherPrim": "rdgather",
        "RVGatherPrim": "rvgather",
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
        "ReduceScatterAllGatherPrim": "nn.reducescatter_allgather",
        "AllGatherReduceScatterPrim": "nn.allgather_reducescatter",
        "AllGatherSplitPrim": "nn.allgather_split",
        "SplitAllGatherPrim": "nn.split_allgather",
        "AllToAllAllToAllPrim": "nn.alltoall_alltoall",
    }
)
"""The function that objects of nnScaler's classes are made with."""


def contradiction(primitive: Primitive) -> str:
    """Return a sentence where the class of a primitive and its signature name different functions,
    else "".
    """
    if _CLASSES.get(primitive.name, primitive.function) == primitive.function:
        return ""
    return f"{primitive.name} carries the signature {primitive.function[:100]!r}"


def denied_by_tensors(primitive: Primitive) -> bool:
    """Return whether the primitive gives the very tensor that it takes, as its signature does in
    the forward pass whatever its class says.
    """
    halves = _HALVES.get(primitive.function)
    same = (
        len(primitive.inputs) == len(primitive.outputs) == 1
        and primitive.inputs[0] == primitive.outputs[0].id
    )
    return same and halves is not None and halves[0] is _identity


def check_call(primitive: Primitive) -> None:
    """Raise PlanError for an argument that the function does not take, UnsupportedError for a
    function without a meaning here.
    """
    function = primitive.function
    known = _SEVERAL.get(function)
    if known is None:
        found = _STEPS.get(function) or _HALVES.get(function)
        if found is None:
            raise UnsupportedError(
                f"{primitive.name[:60]} runs {function[:100]!r}, which has no meaning here"
            )
        known = found[-1]
    if more := [name for name in primitive.keywords if name not in known]:
        raise PlanError(
            f"{primitive.name} has the keyword {more[0]!r}, which {function} does not take",
            f".kwargs.{more[0]}",
        )


def is_differentiable(primitive: Primitive) -> bool:
    """Return whether gradients flow through a primitive that stands in a segment."""
    return primitive.function in _HALVES


def forward_step(primitive: Primitive, device: int) -> Step | None:
    """Return what ``device`` runs forward; None where that is not one operator. Raises PlanError
    for a missing or wrong keyword.
    """
    found = _STEPS.get(primitive.function) or _HALVES.get(primitive.function)
    return None if found is None else found[0](primitive, device)


def backward_step(primitive: Primitive, device: int) -> Step:
    """Return what ``device`` runs in the backward pass of a differentiable primitive. Raises
    PlanError for a missing or wrong keyword.
    """
    return _HALVES[primitive.function][1](primitive, device)


def keyword(primitive: Primitive, name: str) -> Any:
    """A keyword of a primitive. Raises PlanError where it is missing."""
    if name not in primitive.keywords:
        raise PlanError(f"{primitive.name} needs the keyword {name!r}", f".kwargs.{name}")
    return primitive.keywords[name]


def _integer(primitive: Primitive, name: str) -> int:
    value = keyword(primitive, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(
            f"{primitive.name} needs an integer {name!r}, not {shown(value)}", f".kwargs.{name}"
        )
    return value


def device_of(primitive: Primitive, name: str) -> int:
    """A keyword that names a device."""
    return _integer(primitive, name)


def devices_of(primitive: Primitive, name: str) -> tuple[int, ...]:
    """A keyword that is a set of devices, in ascending order."""
    value = keyword(primitive, name)
    if not isinstance(value, tuple) or not value or any(type(entry) is not int for entry in value):
        raise PlanError(
            f"{primitive.name} needs {name!r}, a list of devices, not {shown(value)}",
            f".kwargs.{name}",
        )
    return tuple(sorted(value))


def _place(primitive: Primitive, ranks: tuple[int, ...], device: int) -> int:
    if device not in ranks:
        raise PlanError(
            f"{primitive.name} runs with device {device}, which is not in its ranks {list(ranks)}",
            ".kwargs.ranks",
        )
    return ranks.index(device)
