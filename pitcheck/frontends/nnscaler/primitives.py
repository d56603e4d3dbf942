"""The operators that the primitives of an adapter run, forward and backward.

They follow ``nnscaler/ir/adapter/prim.py`` and ``nnscaler/runtime/adapter``. The signature of a
primitive says what it runs: nnScaler's code generator writes that. Its class says it, too, but
never runs. Functions of ``nn`` have a forward and a backward half. ``ranks`` is a set: gathering
concatenates, and chunking counts, in ascending order of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.nnscaler.execution_plan import Primitive
from pitcheck.frontends.nnscaler.objects import shown
from pitcheck.plan.model import Number


class Step(NamedTuple):
    """One operator with one tensor in and one out.

    ``group`` has the devices over which it communicates, if it does. ``numbers`` are further
    operands.
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
    return Step(
        "all_gather", {"axis": integer_of(primitive, "dim")}, devices_of(primitive, "ranks")
    )


def _reduce_scatter(primitive: Primitive, _: int) -> Step:
    return Step(
        "reduce_scatter",
        {"axis": integer_of(primitive, "dim"), "reduction": "sum"},
        devices_of(primitive, "ranks"),
    )


def _all_to_all(primitive: Primitive, _: int) -> Step:
    return Step(
        "all_to_all",
        {"split_axis": integer_of(primitive, "odim"), "concat_axis": integer_of(primitive, "idim")},
        devices_of(primitive, "ranks"),
    )


def _all_to_all_back(primitive: Primitive, _: int) -> Step:
    return Step(
        "all_to_all",
        {"split_axis": integer_of(primitive, "idim"), "concat_axis": integer_of(primitive, "odim")},
        devices_of(primitive, "ranks"),
    )


def _chunk(primitive: Primitive, device: int) -> Step:
    ranks = devices_of(primitive, "ranks")
    return Step(
        "chunk",
        {
            "axis": integer_of(primitive, "dim"),
            "count": len(ranks),
            "position": _place(primitive, ranks, device),
        },
    )


def _value_chunk(primitive: Primitive, device: int) -> Step:
    """Return a term of a sum of equal terms: the tensor divided by their number."""
    ranks = devices_of(primitive, "ranks")
    _place(primitive, ranks, device)
    return Step("div", {}, numbers=(Number(len(ranks)),))


def _broadcast(primitive: Primitive, _: int) -> Step:
    ranks = devices_of(primitive, "ranks")
    root = _place(primitive, ranks, integer_of(primitive, "src"))
    return Step("broadcast", {"root": root}, ranks)


def _reduce(primitive: Primitive, _: int) -> Step:
    ranks = devices_of(primitive, "ranks")
    root = _place(primitive, ranks, integer_of(primitive, "dst"))
    return Step("reduce", {"root": root, "reduction": "sum"}, ranks)


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
        "broadcast": (_broadcast, _BUFFER | {"src", "ranks"}),
        "reduce": (_reduce, frozenset({"dst", "ranks"})),
    }
)
"""The functions without a backward half that are one operator, with their parameters."""

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
"""The functions that autograd knows: their forward half, backward half and parameters."""

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
"""The functions that are several operators, or none on some devices, with their parameters."""

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
"""The functions for which nnScaler makes objects of its classes."""


def contradiction(primitive: Primitive) -> str:
    """Return a sentence if the class of a primitive and its signature name different functions.

    Returns "" if they agree.
    """
    if _CLASSES.get(primitive.name, primitive.function) == primitive.function:
        return ""
    return f"{primitive.name} carries the signature {primitive.function[:100]!r}"


def denied_by_tensors(primitive: Primitive) -> bool:
    """Return True if the primitive returns the very tensor that it takes.

    Its signature does so in the forward pass, whatever its class says.
    """
    halves = _HALVES.get(primitive.function)
    same = (
        len(primitive.inputs) == len(primitive.outputs) == 1
        and primitive.inputs[0] == primitive.outputs[0].id
    )
    return same and halves is not None and halves[0] is _identity


def check_call(primitive: Primitive) -> None:
    """Check the function and the keywords of a primitive.

    Raises PlanError for a keyword that the function does not take, UnsupportedError for a function
    without a meaning.
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
    """Return True if gradients flow through a primitive that stands in a segment."""
    return primitive.function in _HALVES


def forward_step(primitive: Primitive, device: int) -> Step | None:
    """Return the operator that ``device`` runs forward; None if it is not one operator.

    Raises PlanError for a missing or wrong keyword.
    """
    found = _STEPS.get(primitive.function) or _HALVES.get(primitive.function)
    return None if found is None else found[0](primitive, device)


def backward_step(primitive: Primitive, device: int) -> Step:
    """Return the operator that ``device`` runs in the backward pass of a differentiable primitive.

    Raises PlanError for a missing or wrong keyword.
    """
    return _HALVES[primitive.function][1](primitive, device)


def keyword(primitive: Primitive, name: str) -> Any:
    """Return a keyword of a primitive. Raises PlanError if it is missing."""
    if name not in primitive.keywords:
        raise PlanError(f"{primitive.name} needs the keyword {name!r}", f".kwargs.{name}")
    return primitive.keywords[name]


def integer_of(primitive: Primitive, name: str) -> int:
    """Return a keyword that is an integer, such as a device or a dimension.

    Raises PlanError for anything else.
    """
    value = keyword(primitive, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(
            f"{primitive.name} needs an integer {name!r}, not {shown(value)}", f".kwargs.{name}"
        )
    return value


def devices_of(primitive: Primitive, name: str) -> tuple[int, ...]:
    """Return a keyword that is a set of devices, in ascending order.

    Raises PlanError for anything else.
    """
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
