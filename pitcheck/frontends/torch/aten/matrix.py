"""ATen's products of matrices and vectors."""

from __future__ import annotations

from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor, literal
from pitcheck.frontends.torch.aten.row import Row, row


def _bmm(e: Emitter, self: Tensor, mat2: Tensor) -> Tensor:
    return e.op("bmm", self, mat2, shape=e.shape)


def _vectors(e: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """Return the product of a matrix or vector and a vector, or any that ``matmul`` takes."""
    return e.op("matmul", self, other, shape=e.shape)


def _sum(e: Emitter, self: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """Return beta * self + alpha * product; with beta 0 self is not read."""
    if beta == 0:
        return product if alpha == 1 else e.map("mul", product, alpha)
    scaled = self if beta == 1 else e.map("mul", self, beta)
    return e.map("add", scaled, product, attributes={} if alpha == 1 else {"alpha": literal(alpha)})


def _added_product(
    e: Emitter, self: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: float
) -> Tensor:
    return _sum(e, self, e.matmul(mat1, mat2), beta, alpha)


def _added_vector(
    e: Emitter, self: Tensor, mat: Tensor, vec: Tensor, beta: float, alpha: float
) -> Tensor:
    return _sum(e, self, e.op("matmul", mat, vec, shape=e.shape), beta, alpha)


def _added_sum(
    e: Emitter, self: Tensor, batch1: Tensor, batch2: Tensor, beta: float, alpha: float
) -> Tensor:
    return _sum(e, self, e.reduce("sum", e.matmul(batch1, batch2), (0,), False), beta, alpha)


def _outer(e: Emitter, self: Tensor, vec2: Tensor) -> Tensor:
    return e.map("mul", e.unsqueeze(self, 1), vec2)


def _linear(e: Emitter, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return e.op("linear", input, weight, *(() if bias is None else (bias,)), shape=e.shape)


_ADDED = "beta alpha"

TABLE: dict[str, Row] = {
    "mm.default": row(Emitter.matmul, "self mat2"),
    "bmm.default": row(_bmm, "self mat2"),
    "matmul.default": row(_vectors, "self other"),
    "mv.default": row(_vectors, "self vec"),
    "dot.default": row(_vectors, "self tensor"),
    "addmm.default": row(_added_product, f"self mat1 mat2 {_ADDED}"),
    "baddbmm.default": row(_added_product, f"self batch1 batch2 {_ADDED}"),
    "addbmm.default": row(_added_sum, f"self batch1 batch2 {_ADDED}"),
    "addmv.default": row(_added_vector, f"self mat vec {_ADDED}"),
    "outer.default": row(_outer, "self vec2"),
    "linear.default": row(_linear, "input weight bias"),
}
