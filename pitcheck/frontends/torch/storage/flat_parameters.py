"""The parameters that lie in the flat parameters of FullyShardedDataParallel.

It flattens the parameters of a module, joins them, and gives each rank an equal stretch of the
whole, which may begin in the middle of a row. Elements behind the last parameter are padding.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

from pitcheck.frontends.torch.recording.parameter_lineage import Part

FLAT = "_flat_param"
"""The name of a flat parameter in its module."""
FREE = -1
"""The beginning of an interval of padding."""


class Piece(NamedTuple):
    """The stretch that a rank holds of a parameter which lies in a flat one.

    ``name`` is its name in the module of the flat parameter, "" if it has a name itself.
    ``stretch`` is its first element and the number of its elements in what the rank holds of the
    flat parameter, None for all.
    """

    name: str
    part: Part
    stretch: tuple[int, int] | None


def pieces_of(model: torch.nn.Module) -> dict[int, list[Piece]]:
    """Return the pieces of every flat parameter by the identity of the parameter that has them.

    That is the flat one, or with ``use_orig_params`` each of those that it consists of. A
    parameter of which the rank holds nothing has no piece.
    """
    module = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    if module is None:
        return {}
    found: dict[int, list[Piece]] = {}
    for inner in model.modules():
        handle = inner._handle if isinstance(inner, module.FullyShardedDataParallel) else None
        if handle is None:
            continue
        flat: Any = handle.flat_param
        if flat._params is None:
            found[id(flat)] = _of_flat(flat)
        elif handle.uses_sharded_strategy:
            found |= _of_originals(flat)
    return found


def _of_flat(flat: Any) -> list[Piece]:
    """Return the pieces that a rank holds of a flat parameter; the last has the padding, too."""
    pieces = [
        Piece(name, part, (held.offset_in_shard, held.numel_in_shard))
        for name, held, part in _parts(flat)
    ]
    last = (
        pieces.pop() if pieces else Piece(flat._fqns[-1], Part((flat._numels[-1],), ((),)), (0, 0))
    )
    start, size = last.stretch or (0, 0)
    padding = flat.numel() - start - size
    box = (*last.part.box[0], (FREE, padding)) if padding else last.part.box[0]
    return [*pieces, Piece(last.name, Part(last.part.whole, (box,)), (start, size + padding))]


def _of_originals(flat: Any) -> dict[int, list[Piece]]:
    """Return the pieces of the parameters that show parts of a flat one."""
    held = {name: part for name, _, part in _parts(flat)}
    return {
        id(parameter): [Piece("", held[name], None)] if name in held else []
        for name, parameter in zip(flat._fqns, flat._params, strict=True)
    }


def _parts(flat: Any) -> list[tuple[str, Any, Part]]:
    """Return name, place and part of each parameter of which the rank's stretch has elements."""
    return [
        (
            name,
            held,
            Part(
                (shape.numel(),), (((held.intra_param_start_idx, held.intra_param_end_idx + 1),),)
            ),
        )
        for name, shape, held in zip(flat._fqns, flat._shapes, flat._shard_param_infos, strict=True)
        if held.in_shard
    ]
