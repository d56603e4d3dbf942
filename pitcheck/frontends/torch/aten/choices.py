"""ATen's comparisons, logic and choices."""

from __future__ import annotations

from collections.abc import Callable

from pitcheck.frontends.torch.aten.emitter import Emitter, Operand, Tensor
from pitcheck.frontends.torch.aten.row import Row, row


def _boolean(kind: str) -> Callable[[Emitter, Tensor, Operand], Tensor]:
    def meaning(e: Emitter, self: Tensor, other: Operand) -> Tensor:
        return e.map(kind, self, other, dtype="bool")

    return meaning


def _bitwise(kind: str) -> Callable[[Emitter, Tensor, Operand], Tensor]:
    def meaning(e: Emitter, self: Tensor, other: Operand) -> Tensor:
        for name, operand in (("self", self), ("other", other)):
            if not isinstance(operand, bool) and not (
                isinstance(operand, Tensor) and operand.dtype == "bool"
            ):
                raise e.unsupported(name, operand, "bits are known of booleans only")
        return e.map(kind, self, other, dtype="bool")

    return meaning


def _logical_not(e: Emitter, self: Tensor) -> Tensor:
    return e.map("logical_not", self, dtype="bool")


def _bitwise_not(e: Emitter, self: Tensor) -> Tensor:
    if self.dtype != "bool":
        raise e.unsupported("self", self, "bits are known of booleans only")
    return _logical_not(e, self)


def _isnan(e: Emitter, self: Tensor) -> Tensor:
    """Return self != self, which holds for NaN alone."""
    return e.map("ne", self, self, dtype="bool")


def _isinf(e: Emitter, self: Tensor) -> Tensor:
    return e.map("eq", e.map("abs", self, dtype=self.dtype), float("inf"), dtype="bool")


def _where(e: Emitter, condition: Tensor, self: Operand, other: Operand) -> Tensor:
    if not isinstance(self, Tensor) and not isinstance(other, Tensor):
        # The condition alone would make whole numbers integers.
        self = e.full((), self)
    return e.map("where", condition, e.numeric(self), e.numeric(other))


def masked_fill(e: Emitter, self: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """Return the value where the mask holds, elsewhere self."""
    filling = e.view(value, ()) if isinstance(value, Tensor) else value
    return e.like("masked_fill", self, mask, filling)


_TWO = "self other"

TABLE: dict[str, Row] = {
    **{
        f"{kind}.{overload}": row(_boolean(kind), _TWO)
        for kind in ("eq", "ne", "lt", "le", "gt", "ge")
        for overload in ("Tensor", "Scalar")
    },
    **{
        f"logical_{name}.default": row(_boolean(f"logical_{name}"), _TWO)
        for name in ("and", "or", "xor")
    },
    **{
        f"bitwise_{name}.{overload}": row(_bitwise(f"logical_{name}"), _TWO)
        for name in ("and", "or", "xor")
        for overload in ("Tensor", "Scalar")
    },
    "logical_not.default": row(_logical_not, "self"),
    "bitwise_not.default": row(_bitwise_not, "self"),
    "isnan.default": row(_isnan, "self"),
    "isinf.default": row(_isinf, "self"),
    **{
        f"where.{overload}": row(_where, "condition self other")
        for overload in ("self", "ScalarSelf", "ScalarOther", "Scalar")
    },
    **{
        f"masked_fill.{overload}": row(masked_fill, "self mask value")
        for overload in ("Scalar", "Tensor")
    },
}
