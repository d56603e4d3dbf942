"""Parts of a tensor, and tensors joined or padded along an axis.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> x = reals.integers(np.array([[[1, 2, 3, 4]]]))
>>> evaluate(reals, "chunk", [x], {"axis": 0, "count": 2, "position": 1})[0].data.tolist()
[[[[3, 4]]]]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pitcheck.errors import ShapeError
from pitcheck.ops.declaration import Attributes, Pair
from pitcheck.ops.declare import MANY, Lazy, Local, declare
from pitcheck.ops.term import Term, concatenate, needed, normalise, number
from pitcheck.ops.traits import Trait

# --- parts


def _embedded(part: Term, like: Term, axis: int, start: int, step: int = 1) -> Term:
    """Return ``part`` at offset ``start`` along ``axis``, zeros elsewhere, shaped as ``like``."""
    zeros = like.like(0)
    if step != 1:
        return zeros.add_at(axis, part.arange(axis) * step + start, part)
    pieces = (
        zeros.slice(axis, 0, start),
        part,
        zeros.slice(axis, start + part.shape[axis], like.shape[axis]),
    )
    return concatenate([p for p in pieces if p.shape[axis]] or [part], axis)


def _chunk(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [
        inputs[0].part(
            needed(attributes, "axis"), needed(attributes, "count"), needed(attributes, "position")
        )
    ]


def _chunk_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        axis = local.x.axis(local.attributes["axis"])
        size = local.x.shape[axis] // local.attributes["count"]
        return _embedded(local.dy, local.x, axis, size * local.attributes["position"])

    return [gradient]


def _slice_bounds(x: Term, attributes: Attributes) -> tuple[int, int, int, int]:
    axis = x.axis(needed(attributes, "axis"))
    stop = attributes.get("stop")
    return (
        axis,
        attributes.get("start", 0),
        x.shape[axis] if stop is None else stop,
        attributes.get("step", 1),
    )


def _slice(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].slice(*_slice_bounds(inputs[0], attributes))]


def _slice_backward(local: Local) -> Sequence[Lazy | None]:
    axis, start, _, step = _slice_bounds(local.x, local.attributes)
    return [lambda: _embedded(local.dy, local.x, axis, start, step)]


def _select(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].select(needed(attributes, "axis"), needed(attributes, "index"))]


def _select_backward(local: Local) -> Sequence[Lazy | None]:
    axis = local.x.axis(local.attributes["axis"])
    return [lambda: _embedded(local.dy.unsqueeze(axis), local.x, axis, local.attributes["index"])]


def _split(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x, sizes = inputs[0], tuple(needed(attributes, "sizes"))
    axis = x.axis(needed(attributes, "axis"))
    if sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes):
        raise ShapeError(
            f"the sizes {sizes} of a split do not add up to dimension {axis} of {x.shape}"
        )
    ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    return [x.slice(axis, start, stop) for start, stop in pairwise(ends)]


def _split_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: concatenate(local.gradients, local.x.axis(local.attributes["axis"]))]


def _unbind(inputs: list[Term], attributes: Attributes) -> list[Term]:
    axis = inputs[0].axis(needed(attributes, "axis"))
    return [inputs[0].select(axis, i) for i in range(inputs[0].shape[axis])]


def _unbind_backward(local: Local) -> Sequence[Lazy | None]:
    axis = local.x.axis(local.attributes["axis"])
    return [lambda: concatenate([g.unsqueeze(axis) for g in local.gradients], axis)]


# --- joins


def _cat(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [concatenate(inputs, inputs[0].axis(needed(attributes, "axis")))]


def _cat_backward(local: Local) -> Sequence[Lazy | None]:
    axis = local.x.axis(local.attributes["axis"])
    ends = [0]
    for term in local.inputs:
        ends.append(ends[-1] + term.shape[axis])

    def gradient(position: int) -> Lazy:
        return lambda: local.dy.slice(axis, ends[position], ends[position + 1])

    return [gradient(i) for i in range(len(local.inputs))]


def _stack(inputs: list[Term], attributes: Attributes) -> list[Term]:
    axis = normalise(needed(attributes, "axis"), inputs[0].ndim + 1)
    return [concatenate([x.unsqueeze(axis) for x in inputs], axis)]


def _stack_backward(local: Local) -> Sequence[Lazy | None]:
    axis = local.dy.axis(local.attributes["axis"])

    def gradient(position: int) -> Lazy:
        return lambda: local.dy.select(axis, position)

    return [gradient(i) for i in range(len(local.inputs))]


def _pad_sizes(attributes: Attributes) -> tuple[int, int]:
    before, after = attributes.get("before", 0), attributes.get("after", 0)
    if before < 0 or after < 0:
        raise ShapeError(
            f"a pad adds at least 0 elements, not {before} before and {after} after; use slice to "
            f"remove elements"
        )
    return before, after


def _pad(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x = inputs[0]
    axis = x.axis(needed(attributes, "axis"))
    value = number(x.algebra, attributes.get("value", 0), "attributes.value").cast(x.kind)
    before, after = (
        value.expand((*x.shape[:axis], n, *x.shape[axis + 1 :])) for n in _pad_sizes(attributes)
    )
    return [concatenate([t for t in (before, x, after) if t is x or t.shape[axis]], axis)]


def _pad_backward(local: Local) -> Sequence[Lazy | None]:
    axis = local.x.axis(local.attributes["axis"])
    before, _ = _pad_sizes(local.attributes)
    return [lambda: local.dy.slice(axis, before, before + local.x.shape[axis])]


# --- offsets of parts


def _part_begins(pair: Pair) -> object:
    part, position = pair.outputs[pair.result], pair.attributes.get("position")
    return position * part[pair.axis] if part is not None and isinstance(position, int) else None


def _slice_begins(pair: Pair) -> object:
    return pair.attributes.get("start", 0) if pair.attributes.get("step", 1) == 1 else None


def _select_begins(pair: Pair) -> object:
    whole, index = pair.inputs[pair.source], pair.attributes.get("index")
    return (
        index % whole[pair.axis]
        if whole is not None and whole[pair.axis] and isinstance(index, int)
        else None
    )


def _split_begins(pair: Pair) -> object:
    sizes = pair.attributes.get("sizes")
    return (
        sum(size for size in sizes[: pair.result] if isinstance(size, int))
        if isinstance(sizes, tuple)
        else None
    )


def _joined_begins(pair: Pair) -> object:
    """Return where the whole begins, seen from one of its parts."""
    return -sum(shape[pair.axis] for shape in pair.inputs[: pair.source] if shape is not None)


_CUT = (Trait.CUTS, Trait.TOTAL, Trait.ROUNDS_NOTHING)
_SELECTED = (Trait.SELECTS, Trait.TOTAL, Trait.ROUNDS_NOTHING)
_JOINED = (Trait.JOINS, Trait.TOTAL, Trait.ROUNDS_NOTHING)


OPERATORS = (
    declare(
        "chunk",
        _chunk,
        _chunk_backward,
        attributes={"axis": "axis", "count": "value", "position": "value"},
        required=("axis", "count", "position"),
        traits=_CUT,
        offset=_part_begins,
        doc="Part number `position` of `count` equal parts of dimension `axis`.",
    ),
    declare(
        "slice",
        _slice,
        _slice_backward,
        attributes={"axis": "axis", "start": "position", "stop": "position", "step": "literal"},
        required=("axis",),
        traits=_CUT,
        offset=_slice_begins,
        doc="Elements `start` (default 0), `start` + `step` (default 1), ... below `stop` "
        "(default: the size) along `axis`; both offsets lie within 0 .. size.",
    ),
    declare(
        "select",
        _select,
        _select_backward,
        attributes={"axis": "axis", "index": "position"},
        required=("axis", "index"),
        traits=_SELECTED,
        offset=_select_begins,
        doc="The elements at `index` of `axis`, which disappears.",
    ),
    declare(
        "split",
        _split,
        _split_backward,
        attributes={"axis": "axis", "sizes": "position"},
        required=("axis", "sizes"),
        traits=_CUT,
        offset=_split_begins,
        doc="Dimension `axis` cut into parts of `sizes`, one output each.",
    ),
    declare(
        "unbind",
        _unbind,
        _unbind_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_SELECTED,
        doc="One output per element of `axis`, which disappears.",
    ),
    declare(
        "cat",
        _cat,
        _cat_backward,
        inputs=(1, MANY),
        attributes={"axis": "axis"},
        required=("axis",),
        traits=(*_JOINED, Trait.EXTENDS),
        offset=_joined_begins,
        doc="The inputs joined along `axis`.",
    ),
    declare(
        "stack",
        _stack,
        _stack_backward,
        inputs=(1, MANY),
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_JOINED,
        doc="The inputs joined along a new dimension at `axis`.",
    ),
    declare(
        "pad",
        _pad,
        _pad_backward,
        attributes={"axis": "axis", "before": "position", "after": "position", "value": "literal"},
        required=("axis",),
        traits=(Trait.EXTENDS, Trait.ROUNDS_NOTHING),
        doc="`before` and `after` (default 0) elements with `value` (default 0) added along "
        "`axis`.",
    ),
)
