"""ATen's reading and writing by index."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from pitcheck.frontends.torch.aten.emitter import Emitter, Operand, Tensor, broadcast, is_floating
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.plan.model import Attribute

Indices = Sequence[Tensor | None]

# --- by several indices at once, one for each of the dimensions ``axis``, ``axis`` + 1, ...


def _indexed(e: Emitter, indices: Indices) -> tuple[int, list[Tensor]]:
    """Return the first of the dimensions that are indexed, and their indices.

    Raises UnsupportedError if these dimensions do not follow one another, and for a mask.
    """
    places = [place for place, index in enumerate(indices) if index is not None]
    if not places or places != list(range(places[0], places[0] + len(places))):
        raise e.unsupported(
            "indices", _shown(indices), "the dimensions that are indexed follow one another"
        )
    found = [index for index in indices if index is not None]
    for index in found:
        if index.dtype not in ("int64", "int32"):
            raise e.unsupported(
                "indices", _shown(indices), "what a mask selects has a shape that depends on values"
            )
    return places[0], found


def _shown(indices: Indices) -> list[str]:
    return ["None" if index is None else f"{index.dtype} {index.shape}" for index in indices]


def _beside(e: Emitter, index: Tensor, shape: tuple[int, ...], before: int, dims: int) -> Tensor:
    """Return an index of shape S (after broadcasting) as one of shape (..., *S, 1, ...).

    It has ``before`` dimensions in front of S and is broadcast to ``shape``, but for a size of 1
    behind S.
    """
    kept = (1,) * (dims - index.ndim) + index.shape
    spread = e.view(index, (1,) * before + kept + (1,) * (len(shape) - before - dims))
    place = before + dims
    return e.expand(spread, (*shape[:place], 1, *shape[place + 1 :]))


def _index(e: Emitter, self: Tensor, indices: Indices) -> Tensor:
    return _read_at(e, self, *_indexed(e, indices))


def _read_at(e: Emitter, self: Tensor, axis: int, found: Sequence[Tensor]) -> Tensor:
    """Return the elements at indices of the dimensions ``axis``, ``axis`` + 1, ..."""
    common = broadcast(*found)
    first = e.expand(found[0], common)
    behind = self.shape[axis + 1 :]
    x = e.op(
        "index_select",
        self,
        first,
        shape=(*self.shape[:axis], *common, *behind),
        dtype=self.dtype,
        attributes={"axis": axis},
    )
    place = axis + len(common)
    for index in found[1:]:
        at = _beside(e, index, x.shape, axis, len(common))
        x = e.squeeze(
            e.op("gather", x, at, shape=at.shape, dtype=x.dtype, attributes={"axis": place}), place
        )
    return x


def _added(e: Emitter, base: Tensor, axis: int, found: Sequence[Tensor], source: Tensor) -> Tensor:
    """Return ``base`` with ``source``, of shape (..., *S, ...), added at indices of shape S.

    The last index comes first; each adds into zeros of one dimension more.
    """
    common = broadcast(*found)
    place = axis + len(common)
    for number in range(len(found) - 1, 0, -1):
        shape = (*source.shape[:place], base.shape[axis + number], *source.shape[place:])
        at = _beside(e, found[number], shape, axis, len(common))
        source = e.op(
            "scatter_add",
            e.full(shape, 0, base.dtype),
            at,
            e.unsqueeze(source, place),
            shape=shape,
            dtype=base.dtype,
            attributes={"axis": place},
        )
    return e.like("index_add", base, e.expand(found[0], common), source, attributes={"axis": axis})


def _index_put(
    e: Emitter, self: Tensor, indices: Indices, values: Tensor, accumulate: bool
) -> Tensor:
    if any(index is not None and index.dtype == "bool" for index in indices):
        return _put_where(e, self, indices, values, accumulate)
    axis, found = _indexed(e, indices)
    common = broadcast(*found)
    part = (*self.shape[:axis], *common, *self.shape[axis + len(found) :])
    if accumulate:
        return _added(e, self, axis, found, e.expand(values, part))
    one = prod(values.shape) == 1
    _writes_floats(e, self, one)
    hits = _added(e, e.full(self.shape, 0, "int64"), axis, found, e.full(part, 1, "int64"))
    if one:
        return _chosen(e, hits, e.view(values, ()), self)
    source = _written_once(e, e.expand(values, part), _read_at(e, hits, axis, found))
    return _chosen(e, hits, _added(e, e.full(self.shape, 0, self.dtype), axis, found, source), self)


def _put_where(
    e: Emitter, self: Tensor, indices: Indices, values: Tensor, accumulate: bool
) -> Tensor:
    """Return ``self`` with one value written wherever a mask over the first dimensions holds."""
    mask = indices[0]
    if mask is None or mask.dtype != "bool" or any(index is not None for index in indices[1:]):
        raise e.unsupported(
            "indices",
            _shown(indices),
            "a mask covers the first dimensions, and no other index stands beside it",
        )
    if accumulate:
        raise e.unsupported("accumulate", accumulate, "a mask is among the indices")
    if prod(values.shape) != 1:
        raise e.unsupported("values", values, "only a single value is written where a mask holds")
    spread = e.view(mask, mask.shape + (1,) * (self.ndim - mask.ndim))
    return e.like("masked_fill", self, spread, e.view(values, ()))


def _writes_floats(e: Emitter, x: Tensor, one: bool = False) -> None:
    """Raise UnsupportedError for integers: an element that is written twice is NaN here."""
    if not one and not is_floating(x.dtype):
        raise e.unsupported(
            "self", x, "an integer that is written at a repeated index may be either value"
        )


def _chosen(e: Emitter, hits: Tensor, written: Operand, base: Tensor) -> Tensor:
    return e.map("where", e.map("gt", hits, 0, dtype="bool"), written, base, dtype=base.dtype)


def _written_once(e: Emitter, source: Tensor, writers: Tensor) -> Tensor:
    """Return ``source`` with NaN for elements that share their place with others.

    PyTorch leaves the result of such writes open. 1 // writers is 1 or 0, and 0 / 0 is NaN. A
    condition would have to be seen with both outcomes, although most programs never write twice.
    """
    alone = e.cast(e.map("floor_divide", 1, writers, dtype="int64"), source.dtype)
    return e.map("mul", source, e.map("div", alone, alone, dtype=source.dtype), dtype=source.dtype)


# --- along one dimension


def _along(e: Emitter, x: Tensor, dim: int) -> dict[str, Attribute]:
    return {"axis": e.axis(x, dim)}


def _index_select(e: Emitter, self: Tensor, dim: int, index: Tensor) -> Tensor:
    return e.op(
        "index_select",
        self,
        e.view(index, (prod(index.shape),)),
        shape=e.shape,
        dtype=self.dtype,
        attributes=_along(e, self, dim),
    )


def _index_add(
    e: Emitter, self: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float
) -> Tensor:
    scaled = source if alpha == 1 else e.map("mul", source, alpha, dtype=source.dtype)
    return e.like(
        "index_add",
        self,
        e.view(index, (prod(index.shape),)),
        scaled,
        attributes=_along(e, self, dim),
    )


def _index_copy(e: Emitter, self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Return ``self`` with slices of a dimension written at indices of it."""
    places = (*[None] * e.axis(self, dim), e.view(index, (prod(index.shape),)))
    return _index_put(e, self, places, source, accumulate=False)


def _index_fill(e: Emitter, self: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    """Return ``self`` with one number written at indices of a dimension."""
    return _index_copy(e, self, dim, index, e.full((), value, self.dtype))


def _gather(e: Emitter, self: Tensor, dim: int, index: Tensor, _sparse_grad: bool) -> Tensor:
    return e.op(
        "gather", self, index, shape=index.shape, dtype=self.dtype, attributes=_along(e, self, dim)
    )


def _read(e: Emitter, src: Tensor, index: Tensor) -> Tensor:
    """Return the part of ``src`` that has an index."""
    for axis, size in enumerate(index.shape):
        src = e.slice(src, axis, 0, size)
    return src


def _scatter_add(e: Emitter, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return e.like("scatter_add", self, index, _read(e, src, index), attributes=_along(e, self, dim))


def _scatter_value(e: Emitter, self: Tensor, dim: int, index: Tensor, value: float) -> Tensor:
    along = _along(e, self, dim)
    if self.dtype != "bool":
        return e.like("scatter_value", self, index, value, attributes=along)
    counted = e.cast(self, "int64")
    written = e.like("scatter_value", counted, index, int(bool(value)), attributes=along)
    return e.cast(written, "bool")


def _scatter(e: Emitter, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    _writes_floats(e, self)
    along = _along(e, self, dim)
    ones, zeros = e.full(index.shape, 1, "int64"), e.full(self.shape, 0, "int64")
    hits = e.op(
        "scatter_add", zeros, index, ones, shape=self.shape, dtype="int64", attributes=along
    )
    writers = e.op("gather", hits, index, shape=index.shape, dtype="int64", attributes=along)
    source = _written_once(e, _read(e, src, index), writers)
    cleared = e.like("scatter_value", self, index, 0, attributes=along)
    return e.op(
        "scatter_add", cleared, index, source, shape=self.shape, dtype=self.dtype, attributes=along
    )


def _scatter_reduce(
    e: Emitter, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    if reduce != "sum":
        raise e.unsupported("reduce", reduce, "only 'sum' is known")
    if not include_self:
        raise e.unsupported("include_self", include_self, "only True is known")
    return _scatter_add(e, self, dim, index, src)


# --- embedding


def _embedding(
    e: Emitter,
    weight: Tensor,
    indices: Tensor,
    _padding_idx: int,
    _scale_grad_by_freq: bool,
    _sparse: bool,
) -> Tensor:
    """Look up rows. The other arguments matter to the derivative, which is another operator."""
    return e.op("embedding", indices, weight, shape=e.shape, dtype=weight.dtype)


def _embedding_backward(
    e: Emitter,
    grad_output: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Tensor:
    if scale_grad_by_freq:
        raise e.unsupported("scale_grad_by_freq", scale_grad_by_freq, "only False is known")
    gradient = grad_output
    if padding_idx >= 0:
        padded = e.map("eq", indices, padding_idx, dtype="bool")
        gradient = e.map("where", e.unsqueeze(padded, -1), 0, grad_output)
    shape = (num_weights, grad_output.shape[-1])
    return e.op(
        "index_add", e.full(shape, 0), indices, gradient, shape=shape, attributes={"axis": 0}
    )


def _bincount(e: Emitter, self: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
    if weights is not None:
        raise e.unsupported("weights", weights, "weights are not known")
    if e.shape != (minlength,):
        raise e.unsupported(
            "minlength", minlength, f"the number of bins, {e.shape[0]}, depends on values"
        )
    return e.reduce(
        "sum",
        e.op("one_hot", self, shape=(*self.shape, minlength), attributes={"classes": minlength}),
        (0,),
        False,
    )


_ALONG = "self dim index"

TABLE: dict[str, Row] = {
    **{f"{name}.Tensor": row(_index, "self indices") for name in ("index", "_unsafe_index")},
    **{
        f"{name}.default": row(_index_put, "self indices values accumulate")
        for name in ("index_put", "_unsafe_index_put")
    },
    "index_select.default": row(_index_select, _ALONG),
    "index_add.default": row(_index_add, f"{_ALONG} source alpha"),
    "index_copy.default": row(_index_copy, f"{_ALONG} source"),
    "index_fill.int_Scalar": row(_index_fill, f"{_ALONG} value"),
    "gather.default": row(_gather, f"{_ALONG} sparse_grad"),
    "scatter_add.default": row(_scatter_add, f"{_ALONG} src"),
    "scatter.src": row(_scatter, f"{_ALONG} src"),
    "scatter.value": row(_scatter_value, f"{_ALONG} value"),
    "scatter_reduce.two": row(_scatter_reduce, f"{_ALONG} src reduce include_self"),
    "embedding.default": row(_embedding, "weight indices padding_idx scale_grad_by_freq sparse"),
    "embedding_dense_backward.default": row(
        _embedding_backward, "grad_output indices num_weights padding_idx scale_grad_by_freq"
    ),
    "bincount.default": row(_bincount, "self weights minlength"),
}
