"""ATen's tensors that are made from numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pitcheck.frontends.torch.aten.emitter import Emitter, Operand, Tensor, is_floating
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.plan.model import Attribute


def _filled(value: float) -> Callable[..., Tensor]:
    """Return the meaning of an operator whose output is filled with a number.

    Its arguments only say the shape.
    """

    def meaning(e: Emitter, *_: object) -> Tensor:
        return e.full(e.shape, value)

    return meaning


def _full(e: Emitter, _shape: Sequence[int] | Tensor, fill_value: float) -> Tensor:
    return e.full(e.shape, fill_value)


def _new_full(e: Emitter, _self: Tensor, _size: Sequence[int], fill_value: float) -> Tensor:
    return e.full(e.shape, fill_value)


def _scalar(e: Emitter, s: float) -> Tensor:
    return e.full((), s)


def _fill(e: Emitter, self: Tensor, value: Operand) -> Tensor:
    if not isinstance(value, Tensor):
        return e.full(self.shape, value)
    return e.expand(e.view(e.cast(value, e.dtype), ()), self.shape)


def _empty(e: Emitter, *_: object) -> Tensor:
    """Return memory that nobody has written to, which may be any value."""
    return e.uninitialised()


def _arange(e: Emitter, _end: float) -> Tensor:
    return _positions(e, 0, 1)


def _arange_from(e: Emitter, start: float, _end: float, step: float = 1) -> Tensor:
    return _positions(e, start, step)


def _positions(e: Emitter, start: float, step: float) -> Tensor:
    """Return start, start + step, ...

    A start that is a multiple of the length is a place between equal shards, which the attribute
    ``offset`` says.
    """
    length = e.shape[0]
    offset = (
        step == 1 and isinstance(start, int) and start > 0 and length > 0 and start % length == 0
    )
    said: dict[str, Attribute] = {"axis": 0, **({"offset": int(start)} if offset else {})}
    places = e.op(
        "positions", e.full(e.shape, 0, "int64"), shape=e.shape, dtype="int64", attributes=said
    )
    whole = all(isinstance(n, int) for n in (start, step))
    if not whole and not is_floating(e.dtype):
        raise e.unsupported("step", step, "an integer tensor is made of integers")
    x = places if whole else e.cast(places, e.dtype)
    if step != 1:
        x = e.map("mul", x, step, dtype=x.dtype)
    if start != 0 and not offset:
        x = e.map("add", x, start, dtype=x.dtype)
    return e.cast(x, e.dtype)


def _eye(e: Emitter, *_: object) -> Tensor:
    rows, columns = (
        e.op(
            "positions",
            e.full(e.shape, 0, "int64"),
            shape=(n,),
            dtype="int64",
            attributes={"axis": axis},
        )
        for axis, n in enumerate(e.shape)
    )
    return e.cast(e.map("eq", e.unsqueeze(rows, 1), columns, dtype="bool"), e.dtype)


_MADE = "dtype layout device pin_memory"
_LIKE = f"{_MADE} memory_format"

TABLE: dict[str, Row] = {
    **{
        f"{name}.default": row(_filled(value), f"size {_MADE}")
        for name, value in (("zeros", 0), ("ones", 1))
    },
    **{
        f"{name}_like.default": row(_filled(value), f"self {_LIKE}")
        for name, value in (("zeros", 0), ("ones", 1))
    },
    **{
        f"new_{name}.default": row(_filled(value), f"self size {_MADE}")
        for name, value in (("zeros", 0), ("ones", 1))
    },
    "full.default": row(_full, f"size fill_value {_MADE}"),
    "full_like.default": row(_full, f"self fill_value {_LIKE}"),
    "new_full.default": row(_new_full, f"self size fill_value {_MADE}"),
    "scalar_tensor.default": row(_scalar, f"s {_MADE}"),
    **{f"fill.{overload}": row(_fill, "self value") for overload in ("Scalar", "Tensor")},
    "zero.default": row(_filled(0), "self"),
    "empty.memory_format": row(_empty, f"size {_LIKE}"),
    "empty_like.default": row(_empty, f"self {_LIKE}"),
    "empty_strided.default": row(_empty, f"size stride {_MADE}"),
    "empty_permuted.default": row(_empty, f"size physical_layout {_MADE}"),
    "new_empty.default": row(_empty, f"self size {_MADE}"),
    "new_empty_strided.default": row(_empty, f"self size stride {_MADE}"),
    "arange.default": row(_arange, f"end {_MADE}"),
    "arange.start": row(_arange_from, f"start end {_MADE}"),
    "arange.start_step": row(_arange_from, f"start end step {_MADE}"),
    "eye.default": row(_eye, f"n {_MADE}"),
    "eye.m": row(_eye, f"n m {_MADE}"),
}
