"""ATen's activation functions that have parameters, and the derivatives of all of them."""

from __future__ import annotations

from collections.abc import Callable

from pitcheck.frontends.torch.aten.emitter import Emitter, Operand, Tensor
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.plan.model import Attribute

_THRESHOLD = 20


def derivative(
    e: Emitter,
    kind: str,
    x: Tensor,
    gradient: Tensor,
    attributes: dict[str, Attribute] | None = None,
) -> Tensor:
    """Return the gradient of the only input of an operator with one output.

    The output is computed anew, from ``x``.
    """
    return e.op(
        f"{kind}.backward",
        x,
        gradient,
        shape=x.shape,
        dtype=gradient.dtype,
        attributes={**(attributes or {}), "forward_inputs": 1, "forward_outputs": 0},
    )


def _approximation(e: Emitter, approximate: str) -> dict[str, Attribute]:
    if approximate not in ("none", "tanh"):
        raise e.unsupported(
            "approximate", approximate, "the known approximations are 'none' and 'tanh'"
        )
    return {"approximate": "tanh"} if approximate == "tanh" else {}


def _gelu(e: Emitter, self: Tensor, approximate: str) -> Tensor:
    return e.map("gelu", self, attributes=_approximation(e, approximate))


def _gelu_backward(e: Emitter, grad_output: Tensor, self: Tensor, approximate: str) -> Tensor:
    return derivative(e, "gelu", self, grad_output, _approximation(e, approximate))


def _silu_backward(e: Emitter, grad_output: Tensor, self: Tensor) -> Tensor:
    return derivative(e, "silu", self, grad_output)


def _from_result(
    slope: Callable[[Emitter, Tensor], Tensor],
) -> Callable[[Emitter, Tensor, Tensor], Tensor]:
    def meaning(e: Emitter, grad_output: Tensor, output: Tensor) -> Tensor:
        return e.map("mul", grad_output, slope(e, output))

    return meaning


def _sigmoid_slope(e: Emitter, y: Operand) -> Tensor:
    """Return y (1 - y)."""
    return e.map("mul", y, e.map("sub", 1, y))


def _tanh_slope(e: Emitter, y: Tensor) -> Tensor:
    """Return 1 - y^2."""
    return e.map("sub", 1, e.map("square", y))


def _threshold_backward(e: Emitter, grad_output: Tensor, self: Tensor, threshold: float) -> Tensor:
    return e.map("where", e.map("gt", self, threshold, dtype="bool"), grad_output, 0)


def _default_softplus(e: Emitter, beta: float, threshold: float) -> None:
    if beta != 1:
        raise e.unsupported("beta", beta, "only 1 is known")
    if threshold != _THRESHOLD:
        raise e.unsupported(
            "threshold",
            threshold,
            f"only {_THRESHOLD}, beyond which float32 rounds softplus to its argument, is known",
        )


def _softplus(e: Emitter, self: Tensor, beta: float, threshold: float) -> Tensor:
    _default_softplus(e, beta, threshold)
    return e.map("softplus", self)


def _softplus_backward(
    e: Emitter, grad_output: Tensor, self: Tensor, beta: float, threshold: float
) -> Tensor:
    _default_softplus(e, beta, threshold)
    return derivative(e, "softplus", self, grad_output)


def _log_sigmoid(e: Emitter, self: Tensor) -> tuple[Tensor, None]:
    """Return -softplus(-x).

    The second output is a buffer that only the derivative reads, whose formula here does without
    it.
    """
    return e.map("neg", e.map("softplus", e.map("neg", self))), None


def _log_sigmoid_backward(e: Emitter, grad_output: Tensor, self: Tensor, _buffer: Tensor) -> Tensor:
    return e.map("mul", grad_output, e.map("sigmoid", e.map("neg", self)))


def _halves(e: Emitter, x: Tensor, dim: int) -> tuple[int, Tensor, Tensor]:
    axis = dim % x.ndim
    half = x.shape[axis] // 2
    return axis, e.slice(x, axis, 0, half), e.slice(x, axis, half, 2 * half)


def _glu(e: Emitter, self: Tensor, dim: int) -> Tensor:
    _, value, gate = _halves(e, self, dim)
    return e.map("mul", value, e.map("sigmoid", gate))


def _glu_backward(e: Emitter, grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    axis, value, gate = _halves(e, self, dim)
    s = e.map("sigmoid", gate)
    to_gate = e.map("mul", e.map("mul", grad_output, value), _sigmoid_slope(e, s))
    return e.op(
        "cat", e.map("mul", grad_output, s), to_gate, shape=self.shape, attributes={"axis": axis}
    )


TABLE: dict[str, Row] = {
    "gelu.default": row(_gelu, "self approximate"),
    "gelu_backward.default": row(_gelu_backward, "grad_output self approximate"),
    "silu_backward.default": row(_silu_backward, "grad_output self"),
    "sigmoid_backward.default": row(_from_result(_sigmoid_slope), "grad_output output"),
    "tanh_backward.default": row(_from_result(_tanh_slope), "grad_output output"),
    "threshold_backward.default": row(_threshold_backward, "grad_output self threshold"),
    "softplus.default": row(_softplus, "self beta threshold"),
    "softplus_backward.default": row(_softplus_backward, "grad_output self beta threshold"),
    "log_sigmoid_forward.default": row(_log_sigmoid, "self"),
    "log_sigmoid_backward.default": row(_log_sigmoid_backward, "grad_output self buffer"),
    "glu.default": row(_glu, "self dim"),
    "glu_backward.default": row(_glu_backward, "grad_output self dim"),
}
