"""ATen's reductions, sorting and running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor, is_floating, literal
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.frontends.torch.trace import Value
from pitcheck.ops.meanings.cast import NARROW
from pitcheck.plan.model import Attribute


def _as_output(e: Emitter, x: Tensor) -> Tensor:
    """Return ``x`` cast to the kind of the output.

    Booleans are summed as integers, and integers may be summed as floating-point numbers. Raises
    UnsupportedError for narrow integers.
    """
    if e.dtype in NARROW:
        raise e.unsupported(
            "dtype", e.dtype, "sums that do not fit into narrow integers wrap around"
        )
    return (
        x
        if is_floating(x.dtype) == is_floating(e.dtype) and x.dtype != "bool"
        else e.cast(x, e.dtype)
    )


def _sum(
    e: Emitter, self: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False
) -> Tensor:
    return e.reduce("sum", _as_output(e, self), dim, keepdim)


def _mean(
    e: Emitter, self: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False
) -> Tensor:
    return e.reduce("mean", _as_output(e, self), dim, keepdim)


def _correction(correction: float | None) -> dict[str, Attribute]:
    return {} if correction is None else {"correction": literal(correction)}


def _variance(
    e: Emitter, self: Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool
) -> Tensor:
    return e.reduce("var", self, dim, keepdim, attributes=_correction(correction))


def _deviation(
    e: Emitter, self: Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool
) -> Tensor:
    return e.map("sqrt", _variance(e, self, dim, correction, keepdim))


def _variance_and_mean(
    e: Emitter, self: Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    return _variance(e, self, dim, correction, keepdim), e.reduce("mean", self, dim, keepdim)


_OF_BOOLEANS = {"amax": "any", "amin": "all"}


def _over(kind: str) -> Callable[..., Tensor]:
    """Return the meaning of a reduction over some dimensions; over all if none is named.

    The greatest of booleans is "any" of them, the least "all".
    """

    def meaning(
        e: Emitter, self: Tensor, dim: Sequence[int] | int | None = None, keepdim: bool = False
    ) -> Tensor:
        said = _OF_BOOLEANS.get(kind, kind) if self.dtype == "bool" else kind
        if kind in ("any", "all") and not isinstance(dim, int) and dim is not None and not dim:
            raise e.unsupported("dim", dim, "at least one dimension is reduced")
        return e.reduce(
            said,
            self,
            (dim,) if isinstance(dim, int) else dim,
            keepdim,
            "bool" if said in ("any", "all") else None,
        )

    return meaning


def _least_and_greatest(
    e: Emitter, self: Tensor, dim: int | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    over = None if dim is None else (dim,)
    return e.reduce("amin", self, over, keepdim), e.reduce("amax", self, over, keepdim)


def _reduced(shape: tuple[int, ...], axis: int, keepdim: bool) -> tuple[int, ...]:
    return (*shape[:axis], *((1,) if keepdim else ()), *shape[axis + 1 :])


def _along(kind: str) -> Callable[..., Sequence[Tensor | None]]:
    def meaning(e: Emitter, self: Tensor, dim: int, keepdim: bool) -> Sequence[Tensor | None]:
        axis = _ordered(e, self, dim)
        shape = _reduced(self.shape, axis, keepdim)
        outputs = [Value(shape, self.dtype), Value(shape, "int64")]
        return e.ops(kind, self, outputs=outputs, attributes=_one_axis(axis, keepdim))

    return meaning


def _ordered(e: Emitter, x: Tensor, dim: int) -> int:
    if x.dtype == "bool":
        raise e.unsupported("self", x, "booleans have no order here")
    return e.axis(x, dim)


def _one_axis(axis: int, keepdim: bool) -> dict[str, Attribute]:
    return {"axis": axis, **({"keepdim": True} if keepdim else {})}


def _position(kind: str) -> Callable[..., Tensor]:
    def meaning(e: Emitter, self: Tensor, dim: int | None, keepdim: bool) -> Tensor:
        if dim is None:
            if keepdim:
                raise e.unsupported("keepdim", keepdim, "the position is that among all elements")
            return e.op(kind, self, shape=(), dtype="int64")
        axis = _ordered(e, self, dim)
        shape = _reduced(self.shape, axis, keepdim)
        return e.op(kind, self, shape=shape, dtype="int64", attributes=_one_axis(axis, keepdim))

    return meaning


def norm(
    e: Emitter,
    self: Tensor,
    ord: float | None = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Return the 2-norm, the sum of absolute values (1) or the greatest of these (inf)."""
    if ord is None or ord == 2:
        return e.map("sqrt", e.reduce("sum", e.map("square", self, dtype=e.dtype), dim, keepdim))
    if ord == 1:
        return e.reduce("sum", e.map("abs", self, dtype=e.dtype), dim, keepdim)
    if ord == float("inf"):
        return e.reduce("amax", e.map("abs", self, dtype=e.dtype), dim, keepdim)
    raise e.unsupported("ord", ord, "the known norms are 1, 2 and inf")


def _topk(
    e: Emitter, self: Tensor, k: int, dim: int, largest: bool, _sorted: bool
) -> Sequence[Tensor | None]:
    """Return the k greatest elements and their places, in order.

    ``sorted`` False leaves their order open; it is taken to be the sorted one.
    """
    axis = _ordered(e, self, dim)
    shape = (*self.shape[:axis], k, *self.shape[axis + 1 :])
    said: dict[str, Attribute] = {"k": k, "axis": axis, **({} if largest else {"largest": False})}
    return e.ops(
        "topk", self, outputs=[Value(shape, self.dtype), Value(shape, "int64")], attributes=said
    )


def _sort(e: Emitter, self: Tensor, dim: int, descending: bool) -> Sequence[Tensor | None]:
    said: dict[str, Attribute] = {
        "axis": _ordered(e, self, dim),
        **({"descending": True} if descending else {}),
    }
    return e.ops(
        "sort",
        self,
        outputs=[Value(self.shape, self.dtype), Value(self.shape, "int64")],
        attributes=said,
    )


def _stable_sort(
    e: Emitter, self: Tensor, _stable: bool | None, dim: int, descending: bool
) -> Sequence[Tensor | None]:
    """Return the elements in order; equal ones keep their order.

    If stability is not asked for, that is still one of the orders that are allowed.
    """
    return _sort(e, self, dim, descending)


def _cumsum(e: Emitter, self: Tensor, dim: int) -> Tensor:
    return e.op(
        "cumsum", _as_output(e, self), shape=self.shape, attributes={"axis": e.axis(self, dim)}
    )


def _logsumexp(e: Emitter, self: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
    if len(dim) != 1:
        raise e.unsupported("dim", dim, "the sum runs over one dimension")
    axis = e.axis(self, dim[0])
    return e.op(
        "logsumexp",
        self,
        shape=_reduced(self.shape, axis, keepdim),
        attributes=_one_axis(axis, keepdim),
    )


_DIM = "self dim keepdim"

TABLE: dict[str, Row] = {
    "sum.default": row(_sum, "self dtype"),
    "sum.dim_IntList": row(_sum, f"{_DIM} dtype"),
    "mean.default": row(_mean, "self dtype"),
    "mean.dim": row(_mean, f"{_DIM} dtype"),
    "var.correction": row(_variance, "self dim correction keepdim"),
    "std.correction": row(_deviation, "self dim correction keepdim"),
    "var_mean.correction": row(_variance_and_mean, "self dim correction keepdim"),
    **{f"{kind}.default": row(_over(kind), _DIM) for kind in ("amax", "amin")},
    "max.default": row(_over("amax"), "self"),
    "min.default": row(_over("amin"), "self"),
    "aminmax.default": row(_least_and_greatest, _DIM),
    **{f"{kind}.dim": row(_along(kind), _DIM) for kind in ("max", "min")},
    **{f"{kind}.default": row(_position(kind), _DIM) for kind in ("argmax", "argmin")},
    **{
        f"{kind}.{overload}": row(_over(kind), "self" if overload == "default" else _DIM)
        for kind in ("any", "all")
        for overload in ("default", "dim", "dims")
    },
    "linalg_vector_norm.default": row(norm, "self ord dim keepdim dtype"),
    "norm.Scalar": row(norm, "self p"),
    "norm.ScalarOpt_dim": row(norm, "self p dim keepdim"),
    "norm.ScalarOpt_dim_dtype": row(norm, "self p dim keepdim dtype"),
    "topk.default": row(_topk, "self k dim largest sorted"),
    "sort.default": row(_sort, "self dim descending"),
    "sort.stable": row(_stable_sort, "self stable dim descending"),
    "cumsum.default": row(_cumsum, "self dim dtype"),
    "logsumexp.default": row(_logsumexp, _DIM),
}
