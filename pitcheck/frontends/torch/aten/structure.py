"""ATen's operators that move elements without computing: views, parts, joins and copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from pitcheck.frontends.torch.aten.arithmetic import as_complex, as_real
from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor, literal
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.frontends.torch.trace import Value
from pitcheck.plan.model import Attribute

# --- views


def _itself(_: Emitter, self: Tensor) -> Tensor:
    return self


def cast(e: Emitter, self: Tensor) -> Tensor:
    """Return ``self`` in the dtype of the output."""
    return e.cast(self, e.dtype)


def _view(e: Emitter, self: Tensor, *_: object) -> Tensor:
    """Return the elements in the output's shape, which all arguments only describe."""
    return e.view(self, e.shape)


def _expand(e: Emitter, self: Tensor, _size: Sequence[int], _implicit: bool) -> Tensor:
    return e.expand(self, e.shape)


def _transpose(e: Emitter, self: Tensor, dim0: int, dim1: int) -> Tensor:
    return e.transpose(self, dim0, dim1) if self.ndim else self


def _turned(e: Emitter, self: Tensor) -> Tensor:
    return e.transpose(self, 0, 1) if self.ndim > 1 else self


def _permute(e: Emitter, self: Tensor, dims: Sequence[int]) -> Tensor:
    order = tuple(dim % self.ndim for dim in dims)
    shape = tuple(self.shape[dim] for dim in order)
    whole = (*order, self.ndim) if self.is_complex else order
    return (
        e.op("permute", self, shape=shape, dtype=self.dtype, attributes={"permutation": whole})
        if order
        else self
    )


# --- parts


def _bounds(size: int, start: int | None, end: int | None, step: int) -> tuple[int, int]:
    first, stop, _ = slice(start, end, step).indices(size)
    return first, max(first, stop)


def _slice(
    e: Emitter, self: Tensor, dim: int, start: int | None, end: int | None, step: int
) -> Tensor:
    return e.slice(self, dim, *_bounds(self.shape[dim], start, end, step), step)


def select(e: Emitter, x: Tensor, dim: int, index: int) -> Tensor:
    """Return the elements at an index of a dimension, which disappears."""
    axis = dim % x.ndim
    said: dict[str, Attribute] = {"axis": axis, "index": index % x.shape[axis]}
    return e.op(
        "select", x, shape=(*x.shape[:axis], *x.shape[axis + 1 :]), dtype=x.dtype, attributes=said
    )


def parts(e: Emitter, x: Tensor, sizes: Sequence[int], dim: int) -> Sequence[Tensor | None]:
    """Return dimension ``dim`` cut into parts of ``sizes``; None for a part without elements."""
    axis = dim % x.ndim
    kept = tuple(n for n in sizes if n)
    shapes = [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in kept]
    said: dict[str, Attribute] = {"axis": axis, "sizes": kept}
    cut = iter(
        (x,)
        if len(kept) == 1
        else e.ops("split", x, outputs=[Value(shape, x.dtype) for shape in shapes], attributes=said)
    )
    return tuple(next(cut) if n else None for n in sizes)


def _split(e: Emitter, self: Tensor, split_size: int, dim: int) -> Sequence[Tensor | None]:
    size = self.shape[dim]
    if split_size < 1:
        raise e.unsupported("split_size", split_size, "a part has at least one element")
    return parts(
        e, self, [min(split_size, size - start) for start in range(0, size, split_size)], dim
    )


def _unbind(e: Emitter, self: Tensor, dim: int) -> Sequence[Tensor | None]:
    axis = dim % self.ndim
    shape = (*self.shape[:axis], *self.shape[axis + 1 :])
    return e.ops(
        "unbind",
        self,
        outputs=[Value(shape, self.dtype)] * self.shape[axis],
        attributes={"axis": axis},
    )


def _pad(e: Emitter, x: Tensor, axis: int, before: int, after: int, value: float = 0) -> Tensor:
    if not before and not after:
        return x
    shape = (*x.shape[:axis], before + x.shape[axis] + after, *x.shape[axis + 1 :])
    said: dict[str, Attribute] = {
        "axis": axis,
        **({"before": before} if before else {}),
        **({"after": after} if after else {}),
    }
    return e.op(
        "pad",
        x,
        shape=shape,
        dtype=x.dtype,
        attributes={**said, **({"value": literal(value)} if value != 0 else {})},
    )


def _slice_backward(
    e: Emitter,
    grad_output: Tensor,
    input_sizes: Sequence[int],
    dim: int,
    start: int,
    end: int,
    step: int,
) -> Tensor:
    axis = dim % len(input_sizes)
    first, stop = _bounds(input_sizes[axis], start, end, step)
    if grad_output.is_empty:
        return e.full(tuple(input_sizes), 0)
    if step == 1:
        return _pad(e, grad_output, axis, first, input_sizes[axis] - stop)
    if grad_output.is_complex:
        raise e.unsupported("step", step, "the gradient is complex")
    said: dict[str, Attribute] = {
        "axis": axis,
        "start": first,
        "stop": stop,
        "step": step,
        "forward_inputs": 1,
        "forward_outputs": 0,
    }
    return e.op(
        "slice.backward",
        e.full(tuple(input_sizes), 0),
        grad_output,
        shape=tuple(input_sizes),
        attributes=said,
    )


def _select_backward(
    e: Emitter, grad_output: Tensor, input_sizes: Sequence[int], dim: int, index: int
) -> Tensor:
    axis, size = dim % len(input_sizes), input_sizes[dim]
    return _pad(e, e.unsqueeze(grad_output, axis), axis, index % size, size - 1 - index % size)


def _slice_scatter(
    e: Emitter, self: Tensor, src: Tensor, dim: int, start: int | None, end: int | None, step: int
) -> Tensor:
    """Return ``self`` with a slice of it replaced by ``src``."""
    if step != 1:
        raise e.unsupported("step", step, "only 1 is known")
    axis = dim % self.ndim
    first, stop = _bounds(self.shape[axis], start, end, step)
    pieces = [e.cast(src, self.dtype)] if first < stop else []
    if first > 0:
        pieces.insert(0, e.slice(self, axis, 0, first))
    if stop < self.shape[axis]:
        pieces.append(e.slice(self, axis, stop, self.shape[axis]))
    return joined(e, pieces, axis)


def _select_scatter(e: Emitter, self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    axis = dim % self.ndim
    place = index % self.shape[axis]
    return _slice_scatter(e, self, e.unsqueeze(src, axis), axis, place, place + 1, 1)


# --- joins


def joined(e: Emitter, pieces: Sequence[Tensor], axis: int) -> Tensor:
    """Return tensors joined along a dimension, counted from the front."""
    if len(pieces) == 1:
        return pieces[0]
    first = pieces[0].shape
    shape = (*first[:axis], sum(piece.shape[axis] for piece in pieces), *first[axis + 1 :])
    return e.op("cat", *pieces, shape=shape, dtype=pieces[0].dtype, attributes={"axis": axis})


def _cat(e: Emitter, tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Return tensors joined; those without elements are left out."""
    return joined(e, [e.cast(x, e.dtype) for x in tensors if not x.is_empty], dim % len(e.shape))


def _stack(e: Emitter, tensors: Sequence[Tensor], dim: int) -> Tensor:
    return e.op(
        "stack",
        *(e.cast(x, e.dtype) for x in tensors),
        shape=e.shape,
        attributes={"axis": dim % len(e.shape)},
    )


def _chunk_cat(e: Emitter, tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
    """Return tensors in chunks; row i has the i-th chunk of each.

    Every tensor is padded with zeros to chunks of one size, which are flattened.
    """
    if dim != 0:
        raise e.unsupported("dim", dim, "only 0 is known")
    rows = []
    for x in tensors:
        padded = _pad(e, e.cast(x, e.dtype), 0, 0, -x.shape[0] % num_chunks)
        rows.append(e.view(padded, (num_chunks, prod(padded.shape) // num_chunks)))
    return e.view(joined(e, rows, 1), e.shape)


def _padded(e: Emitter, self: Tensor, pad: Sequence[int], value: float) -> Tensor:
    """Return ``self`` padded by pairs (before, after) from the last dimension on.

    Negative numbers cut off.
    """
    x = self
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.ndim - 1 - place
        x = e.slice(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0))
        x = _pad(e, x, axis, max(before, 0), max(after, 0), value)
    return x


# --- other orders, and copies


def _repeat(e: Emitter, self: Tensor, repeats: Sequence[int]) -> Tensor:
    sizes = (1,) * (len(repeats) - self.ndim) + self.shape
    x = e.view(self, tuple(n for size in sizes for n in (1, size)))
    return e.view(
        e.expand(x, tuple(n for pair in zip(repeats, sizes, strict=True) for n in pair)), e.shape
    )


def _repeat_interleave(e: Emitter, self: Tensor, repeats: int, dim: int | None) -> Tensor:
    x = e.view(self, (prod(self.shape),)) if dim is None else self
    return e.op(
        "repeat_interleave",
        x,
        shape=e.shape,
        dtype=x.dtype,
        attributes={"count": repeats, "axis": 0 if dim is None else dim % x.ndim},
    )


def _flip(e: Emitter, self: Tensor, dims: Sequence[int]) -> Tensor:
    if not dims:
        return self
    return e.like("flip", self, attributes={"axes": tuple(dim % self.ndim for dim in dims)})


def _roll(e: Emitter, self: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    x = self if dims else e.view(self, (prod(self.shape),))
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        x = e.like("roll", x, attributes={"axis": dim % x.ndim, "shift": shift})
    return e.view(x, self.shape)


def _triangle(kind: str) -> Callable[[Emitter, Tensor, int], Tensor]:
    def meaning(e: Emitter, self: Tensor, diagonal: int) -> Tensor:
        return e.like(kind, self, attributes={} if diagonal == 0 else {"diagonal": diagonal})

    return meaning


def _copy(e: Emitter, self: Tensor, src: Tensor) -> Tensor:
    return e.expand(e.cast(src, e.dtype), self.shape)


_COPYING = "self dtype layout device pin_memory non_blocking memory_format"

TABLE: dict[str, Row] = {
    **{
        f"{name}.default": row(_itself, "self")
        for name in (
            "detach",
            "alias",
            "lift_fresh",
            "lift",
            "lift_fresh_copy",
            "detach_copy",
            "alias_copy",
        )
    },
    "clone.default": row(_itself, "self memory_format"),
    "contiguous.default": row(_itself, "self memory_format"),
    "_to_copy.default": row(cast, _COPYING),
    "copy.default": row(_copy, "self src non_blocking"),
    **{
        f"{name}.default": row(_view, "self size") for name in ("view", "_unsafe_view", "view_copy")
    },
    "reshape.default": row(_view, "self shape"),
    "_reshape_alias.default": row(_view, "self size stride"),
    "squeeze.default": row(_view, "self"),
    **{f"squeeze.{overload}": row(_view, "self dim") for overload in ("dim", "dims")},
    "unsqueeze.default": row(Emitter.unsqueeze, "self dim"),
    "expand.default": row(_expand, "self size implicit"),
    "transpose.int": row(_transpose, "self dim0 dim1"),
    "t.default": row(_turned, "self"),
    "permute.default": row(_permute, "self dims"),
    "view_as_real.default": row(lambda _, self: as_real(self), "self"),
    "view_as_complex.default": row(lambda _, self: as_complex(self), "self"),
    "slice.Tensor": row(_slice, "self dim start end step"),
    "select.int": row(select, "self dim index"),
    **{
        f"{name}.default": row(parts, "self split_sizes dim")
        for name in ("split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes")
    },
    **{f"{name}.Tensor": row(_split, "self split_size dim") for name in ("split", "unsafe_split")},
    "unbind.int": row(_unbind, "self dim"),
    "slice_backward.default": row(_slice_backward, "grad_output input_sizes dim start end step"),
    "select_backward.default": row(_select_backward, "grad_output input_sizes dim index"),
    "slice_scatter.default": row(_slice_scatter, "self src dim start end step"),
    "select_scatter.default": row(_select_scatter, "self src dim index"),
    "cat.default": row(_cat, "tensors dim"),
    "stack.default": row(_stack, "tensors dim"),
    "_chunk_cat.default": row(_chunk_cat, "tensors dim num_chunks"),
    "constant_pad_nd.default": row(_padded, "self pad value"),
    "repeat.default": row(_repeat, "self repeats"),
    "repeat_interleave.self_int": row(_repeat_interleave, "self repeats dim output_size"),
    "flip.default": row(_flip, "self dims"),
    "roll.default": row(_roll, "self shifts dims"),
    **{f"{kind}.default": row(_triangle(kind), "self diagonal") for kind in ("tril", "triu")},
}
