"""Plans in mixed precision: a builder whose dtypes flow as PyTorch's do, and dtypes for
any plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from zoo.builder import Builder, Spec

from pitcheck.base.dtypes import DType
from pitcheck.ops.registry import kinds_with
from pitcheck.ops.traits import Trait
from pitcheck.plan.model import Operand, Operator, Plan, Tensor, Use
from pitcheck.precision.side import BITS

WIDE: Literal["float32"] = "float32"
NARROW: Literal["bfloat16"] = "bfloat16"
ARRANGED = kinds_with(
    Trait.SHOWS_ALL, Trait.CUTS, Trait.SELECTS, Trait.JOINS, Trait.EXTENDS, Trait.CARRIES
)
MATRIX = ("linear", "matmul", "bmm", "einsum", "scaled_dot_product_attention")


def names(inputs: Sequence[Operand]) -> list[str]:
    return [
        each.tensor if isinstance(each, Use) else each
        for each in inputs
        if isinstance(each, (str, Use))
    ]


def promoted(tensors: Sequence[Tensor]) -> DType | None:
    """The widest of floating-point operands."""
    return max(
        (tensor.dtype for tensor in tensors if tensor.dtype in BITS),
        key=BITS.__getitem__,
        default=None,
    )


class Mixed(Builder):
    """Appends operators; a result has the widest dtype of its operands, a cast its own."""

    def op(
        self,
        kind: str,
        *inputs: Operand,
        out: Any = "",
        where: Any = (),
        group: Any = None,
        hint: Spec = None,
        **attributes: Any,
    ) -> Any:
        result = super().op(
            kind, *inputs, out=out, where=where, group=group, hint=hint, **attributes
        )
        dtype = (
            attributes["dtype"]
            if kind == "cast"
            else promoted([self.tensors[name] for name in names(inputs)])
        )
        for name in [result] if isinstance(result, str) else result:
            if name and dtype is not None and self.tensors[name].dtype in BITS:
                self._mark(name, dtype=dtype)
        return result

    def cast(self, x: str, dtype: DType, out: str = "", where: Any = ()) -> str:
        """``x`` in another dtype."""
        name: str = self.op("cast", x, out=out, where=where, dtype=dtype)
        return name

    def weight(
        self, name: str, shape: Sequence[int], spec: Spec = None, dtype: DType = WIDE
    ) -> str:
        return self._given(name, shape, "parameter", spec, dtype, {})


def narrow_products(plan: Plan) -> Plan:
    """The plan with products of matrices in a narrow dtype and all else in a wide one; what moves
    or adds up over ranks and micro-batches leaves the dtype.
    """
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    # what is received is as wide as what of its shape is sent, by an operator before or behind it
    # in the list
    for _ in range(4):
        sent = {
            tensors[name].shape: tensors[name].dtype
            for operator in plan.operators
            if operator.kind == "send"
            for name in names(operator.inputs)
        }
        for operator in plan.operators:
            _label(operator, tensors, sent)
    return msgspec.structs.replace(plan, tensors=tuple(tensors.values()))


def _label(
    operator: Operator, tensors: dict[str, Tensor], sent: dict[tuple[int, ...], DType]
) -> None:
    kind = operator.kind.removesuffix(".backward")
    handed_on = (
        kind in ARRANGED
        or operator.group is not None
        or kind in ("accumulate", "multiref", "detach", "wait")
    )
    dtype = (
        NARROW
        if kind in MATRIX
        else promoted([tensors[name] for name in names(operator.inputs)])
        if handed_on
        else WIDE
    )
    for name in operator.outputs:
        wanted = sent.get(tensors[name].shape) if name and operator.kind == "receive" else dtype
        if name and wanted is not None and tensors[name].dtype in BITS:
            tensors[name] = msgspec.structs.replace(tensors[name], dtype=wanted)
