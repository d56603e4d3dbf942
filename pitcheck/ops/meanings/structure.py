"""Operators that move elements without computing: views, slices, joins and copies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pitcheck.errors import PlanError, ShapeError
from pitcheck.ops.declaration import Attributes, Pair
from pitcheck.ops.declare import MANY, Backward, Formula, Lazy, Local, declare
from pitcheck.ops.term import Term, concatenate, needed, normalise, number, sum_to
from pitcheck.ops.traits import Trait

# --- views


def _view(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].reshape(tuple(needed(attributes, "sizes")))]


def _view_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy.reshape(local.x.shape)]


def _transpose(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].swap(needed(attributes, "dim0"), needed(attributes, "dim1"))]


def _transpose_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy.swap(local.attributes["dim0"], local.attributes["dim1"])]


def _permute(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].permute(needed(attributes, "permutation"))]


def _permute_backward(local: Local) -> Sequence[Lazy | None]:
    order = local.x.axes(local.attributes["permutation"])
    return [lambda: local.dy.permute(tuple(order.index(i) for i in range(len(order))))]


def _unsqueeze(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].unsqueeze(needed(attributes, "axis"))]


def _squeeze(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [inputs[0].squeeze(needed(attributes, "axis"))]


def _expand(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x, sizes = inputs[0], tuple(needed(attributes, "sizes"))
    extra = len(sizes) - x.ndim
    if (
        extra < 0
        or any(n < 0 for n in sizes[:extra])
        or any(m not in (n, -1) and n != 1 for m, n in zip(sizes[extra:], x.shape, strict=True))
    ):
        raise ShapeError(f"a tensor of shape {x.shape} cannot be expanded to {sizes}")
    return [
        x.expand(
            sizes[:extra]
            + tuple(n if m == -1 else m for m, n in zip(sizes[extra:], x.shape, strict=True))
        )
    ]


def _expand_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: sum_to(local.dy, local.x.shape)]


# --- copies


def _identity(inputs: list[Term], _: Attributes) -> list[Term]:
    return inputs


def _identity_backward(local: Local) -> Sequence[Lazy | None]:
    return [lambda: local.dy]


def _no_gradient(local: Local) -> Sequence[Lazy | None]:
    return [None] * len(local.inputs)


def _multiref(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return inputs * _at_least_one(attributes, "count")


def _multiref_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        total = local.dy
        for another in local.gradients[1:]:
            total = total + another
        return total

    return [gradient]


def _at_least_one(attributes: Attributes, name: str) -> int:
    count = int(needed(attributes, name))
    if count < 1:
        raise PlanError(f"{name} is at least 1, not {count}", f"attributes.{name}")
    return count


def _repeat_interleave(inputs: list[Term], attributes: Attributes) -> list[Term]:
    x, count = inputs[0], _at_least_one(attributes, "count")
    axis = x.axis(needed(attributes, "axis"))
    return [repeated(x, axis, count)]


def repeated(x: Term, axis: int, count: int) -> Term:
    """Every element along ``axis`` ``count`` times, one after the other."""
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    return (
        x.unsqueeze(axis + 1)
        .expand((*before, count, *after))
        .reshape((*before[:-1], before[-1] * count, *after))
    )


def unrepeated(gradient: Term, axis: int, count: int) -> Term:
    """The sum over the repetitions that :func:`repeated` made."""
    before, after = gradient.shape[:axis], gradient.shape[axis + 1 :]
    return gradient.reshape((*before, gradient.shape[axis] // count, count, *after)).sum(axis + 1)


def _repeat_interleave_backward(local: Local) -> Sequence[Lazy | None]:
    return [
        lambda: unrepeated(
            local.dy, local.x.axis(local.attributes["axis"]), int(local.attributes["count"])
        )
    ]


# --- parts


def _embedded(part: Term, like: Term, axis: int, start: int, step: int = 1) -> Term:
    """``part`` at offset ``start`` along ``axis``, zeros elsewhere, in the shape of ``like``."""
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


# --- orders


def _flip(x: Term, attributes: Attributes) -> Term:
    for axis in x.axes(needed(attributes, "axes")):
        x = x.flip(axis)
    return x


def _rolled(x: Term, attributes: Attributes, sign: int) -> Term:
    axis = x.axis(needed(attributes, "axis"))
    size = x.shape[axis]
    shift = sign * int(needed(attributes, "shift")) % size if size else 0
    return (
        concatenate([x.slice(axis, size - shift, size), x.slice(axis, 0, size - shift)], axis)
        if shift
        else x
    )


# --- triangles


def _triangle(x: Term, attributes: Attributes, upper: bool) -> Term:
    if x.ndim < 2:
        raise ShapeError(f"a triangle needs at least two dimensions, not shape {x.shape}")
    column, row = x.positions(-1), x.positions(-2) + int(attributes.get("diagonal", 0))
    return column.compare("ge" if upper else "le", row).where(x, x.like(0, x.kind))


def _triangular(upper: bool) -> Formula:
    return lambda inputs, attributes: [_triangle(inputs[0], attributes, upper)]


def _triangular_backward(upper: bool) -> Backward:
    return lambda local: [lambda: _triangle(local.dy, local.attributes, upper)]


# --- where parts begin


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


_SHOWN = (Trait.SHOWS_ALL, Trait.TOTAL, Trait.KEEPS_POSITIVE, Trait.ROUNDS_NOTHING)
"""Of every operator that shows all of its operand and nothing else, in whatever places."""
_ARRANGED = (*_SHOWN, Trait.REARRANGES)
_ORDERED = (*_ARRANGED, Trait.KEEPS_ORDER)
_HANDED_ON = (Trait.KEEPS_ORDER, Trait.TOTAL, Trait.KEEPS_POSITIVE, Trait.ROUNDS_NOTHING)
_CUT = (Trait.CUTS, Trait.TOTAL, Trait.ROUNDS_NOTHING)
_SELECTED = (Trait.SELECTS, Trait.TOTAL, Trait.ROUNDS_NOTHING)
_JOINED = (Trait.JOINS, Trait.TOTAL, Trait.ROUNDS_NOTHING)
_PLACED = (Trait.ROUNDS_NOTHING,)


OPERATORS = (
    *(
        declare(
            name,
            _view,
            _view_backward,
            attributes={"sizes": "sizes"},
            required=("sizes",),
            permutes=True,
            traits=_ORDERED,
            doc="The same elements, row-major, in shape `sizes`; one size may be -1.",
        )
        for name in ("view", "reshape")
    ),
    declare(
        "transpose",
        _transpose,
        _transpose_backward,
        attributes={"dim0": "axis", "dim1": "axis"},
        required=("dim0", "dim1"),
        traits=_ARRANGED,
        doc="Dimensions `dim0` and `dim1` exchanged.",
    ),
    declare(
        "permute",
        _permute,
        _permute_backward,
        attributes={"permutation": "value"},
        required=("permutation",),
        traits=_ARRANGED,
        doc="Dimension i of the result is dimension `permutation`[i] of x.",
    ),
    declare(
        "unsqueeze",
        _unsqueeze,
        _view_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_ORDERED,
        doc="A dimension of size 1 inserted at `axis`.",
    ),
    declare(
        "squeeze",
        _squeeze,
        _view_backward,
        attributes={"axis": "axis"},
        required=("axis",),
        traits=_ORDERED,
        doc="Dimension `axis`, of size 1, removed.",
    ),
    declare(
        "expand",
        _expand,
        _expand_backward,
        attributes={"sizes": "sizes"},
        required=("sizes",),
        traits=_SHOWN,
        doc="x broadcast to shape `sizes`; -1 keeps a size; dimensions may be added in front.",
    ),
    *(
        declare(name, _identity, _identity_backward, traits=_ORDERED, copies=True, doc="x itself.")
        for name in ("identity", "contiguous")
    ),
    declare(
        "detach",
        _identity,
        _no_gradient,
        traits=_HANDED_ON,
        copies=True,
        doc="x itself, without a gradient.",
    ),
    declare(
        "multiref",
        _multiref,
        _multiref_backward,
        attributes={"count": "value"},
        required=("count",),
        copies=True,
        traits=_HANDED_ON,
        doc="x itself, `count` times; the gradient is the sum of the gradients of the copies.",
    ),
    declare(
        "repeat_interleave",
        _repeat_interleave,
        _repeat_interleave_backward,
        attributes={"count": "literal", "axis": "axis"},
        required=("count", "axis"),
        traits=_PLACED,
        doc="Every element along `axis` `count` times, one after the other.",
    ),
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
    declare(
        "flip",
        lambda inputs, attributes: [_flip(inputs[0], attributes)],
        lambda local: [lambda: _flip(local.dy, local.attributes)],
        attributes={"axes": "axes"},
        required=("axes",),
        permutes=True,
        traits=_PLACED,
        doc="The order along each of `axes` reversed.",
    ),
    declare(
        "roll",
        lambda inputs, attributes: [_rolled(inputs[0], attributes, 1)],
        lambda local: [lambda: _rolled(local.dy, local.attributes, -1)],
        attributes={"axis": "axis", "shift": "literal"},
        required=("axis", "shift"),
        permutes=True,
        traits=_PLACED,
        doc="The element at i moves to i + `shift`, modulo the size, along `axis`.",
    ),
    *(
        declare(
            name,
            _triangular(upper),
            _triangular_backward(upper),
            attributes={"diagonal": "literal"},
            traits=_PLACED,
            doc=f"Zeros where column - row {sign} `diagonal` (default 0), in the last two "
            f"dimensions.",
        )
        for name, upper, sign in (("tril", False, ">"), ("triu", True, "<"))
    ),
)
