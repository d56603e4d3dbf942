"""The functional collectives.

Each gives a new tensor, which may be read after ``wait_tensor`` has been called on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.communication.calls import (
    Communication,
    Handler,
    members_of,
    reduction_of,
)
from pitcheck.frontends.torch.recording.arguments import signature
from pitcheck.frontends.torch.trace import Ref

Named = dict[str, Any]
READING = ("all_gather", "reduce_scatter", "all_to_all")
"""The collectives that use their operand itself, and no copy, until they are waited for."""
Collective = Callable[[Communication, torch.Tensor, Named], int]
"""A function that records a collective of a tensor, and returns the number of its value."""


def _all_reduce(to: Communication, tensor: torch.Tensor, named: Named) -> int:
    reduction, group = reduction_of(named["reduce_op"]), members_of(named["group_name"])
    return to.all_reduce(to.read(tensor), reduction, tensor, group)


def _all_gather(to: Communication, tensor: torch.Tensor, named: Named) -> int:
    return to.all_gather(tensor, members_of(named["group_name"]))


def _reduce_scatter(to: Communication, tensor: torch.Tensor, named: Named) -> int:
    group = members_of(named["group_name"])
    shape = (tensor.shape[0] // len(group), *tensor.shape[1:])
    return to.emit(
        "reduce_scatter",
        (Ref(to.read(tensor)), reduction_of(named["reduce_op"])),
        shape,
        tensor,
        group,
    )


def _all_to_all(to: Communication, tensor: torch.Tensor, named: Named) -> int:
    sent, received = named["input_split_sizes"], named["output_split_sizes"]
    group = members_of(named["group_name"])
    return to.all_to_all(to.read(tensor), sent, received, tensor, group)


def _broadcast(to: Communication, tensor: torch.Tensor, named: Named) -> int:
    return to.broadcast(tensor, named["src"], members_of(named["group_name"]))


def _run(collective: Collective) -> Handler:
    def handle(
        to: Communication, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        named = {parameter.name: value for parameter, value in signature(func).bound(args, kwargs)}
        given = named["inputs"] if "inputs" in named else [named["input"]]
        values = [collective(to, tensor, named) for tensor in given]
        result = func(*args, **kwargs)
        results = list(result) if isinstance(result, tuple | list) else [result]
        name = func._schema.name.partition("::")[2]
        landings = [
            to.as_whole(value, tensor) for tensor, value in zip(results, values, strict=True)
        ]
        # The other collectives begin with a copy of their operand.
        to.land(name, None, landings, given if name.startswith(READING) else [])
        return result

    return handle


def _wait(to: Communication, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    value = to.wait_tensor(args[0])
    result = func(*args, **kwargs)
    to.store(result, value)
    return result


def _unknown(_: Communication, func: OpOverload, *__: Any) -> Any:
    raise UnsupportedError(
        f"{func} is not known; use torch.distributed.isend, irecv or batch_isend_irecv"
    )


_COLLECTIVES: dict[str, Collective] = {
    "all_reduce": _all_reduce,
    "all_reduce_": _all_reduce,
    "all_reduce_coalesced": _all_reduce,
    "all_reduce_coalesced_": _all_reduce,
    "all_gather_into_tensor": _all_gather,
    "all_gather_into_tensor_out": _all_gather,
    "all_gather_into_tensor_coalesced": _all_gather,
    "reduce_scatter_tensor": _reduce_scatter,
    "reduce_scatter_tensor_out": _reduce_scatter,
    "reduce_scatter_tensor_coalesced": _reduce_scatter,
    "all_to_all_single": _all_to_all,
    "broadcast": _broadcast,
    "broadcast_": _broadcast,
}

FUNCTIONAL: dict[tuple[str, str], Handler] = {
    **{("_c10d_functional", name): _run(collective) for name, collective in _COLLECTIVES.items()},
    **{("_c10d_functional", name): _unknown for name in ("isend", "irecv", "batch_p2p_ops")},
    ("_c10d_functional", "wait_tensor"): _wait,
}
