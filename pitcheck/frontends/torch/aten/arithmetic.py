"""ATen's arithmetic, element by element."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from pitcheck.frontends.torch.aten.emitter import Emitter, Operand, Tensor, is_floating, literal
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.ops.meanings.cast import NARROW
from pitcheck.plan.model import Attribute

_LONGEST_PRODUCT = 8


def arithmetic(e: Emitter, kind: str, *operands: Operand, alpha: float = 1) -> Tensor:
    """Return the result of an operator of arithmetic in the output's dtype.

    Raises UnsupportedError for narrow integers, which wrap around.
    """
    if e.dtype in NARROW:
        raise e.unsupported(
            "dtype", e.dtype, "numbers that do not fit into narrow integers wrap around"
        )
    attributes: dict[str, Attribute] = {} if alpha == 1 else {"alpha": literal(alpha)}
    return e.map(kind, *(e.numeric(x) for x in operands), attributes=attributes)


def _pairs(e: Emitter, name: str, *operands: Operand) -> tuple[Tensor, ...]:
    """Return operands as complex tensors with the output's number of dimensions.

    Raises UnsupportedError for an operand that is not complex.
    """
    pairs = []
    for x in operands:
        if not isinstance(x, Tensor) or not x.is_complex:
            raise e.unsupported(name, x, "the other operand is complex")
        pairs.append(e.view(x, (1,) * (len(e.shape) - x.ndim) + x.shape))
    return tuple(pairs)


def add(e: Emitter, self: Operand, other: Operand, alpha: float = 1) -> Tensor:
    """Return self + alpha * other; of booleans True if either holds."""
    if e.dtype == "bool":
        if alpha != 1:
            raise e.unsupported("alpha", alpha, "the operands are booleans")
        return e.map("logical_or", self, other)
    if e.target.dtype in ("complex64", "complex128"):
        if alpha != 1:
            raise e.unsupported("alpha", alpha, "the operands are complex")
        a, b = _pairs(e, "other", self, other)
        return _on_parts(e, "add", a, b)
    return arithmetic(e, "add", self, other, alpha=alpha)


def sub(e: Emitter, self: Operand, other: Operand, alpha: float = 1) -> Tensor:
    """Return self - alpha * other."""
    return arithmetic(e, "sub", self, other, alpha=alpha)


def rsub(e: Emitter, self: Tensor, other: Operand, alpha: float = 1) -> Tensor:
    """Return other - alpha * self."""
    return arithmetic(e, "sub", other, self, alpha=alpha)


def mul(e: Emitter, self: Operand, other: Operand) -> Tensor:
    """Return self * other; of booleans True if both hold."""
    if e.dtype == "bool":
        return e.map("logical_and", self, other)
    if e.target.dtype in ("complex64", "complex128"):
        return _complex_product(e, self, other)
    return arithmetic(e, "mul", self, other)


def div(e: Emitter, self: Operand, other: Operand) -> Tensor:
    """Return self / other, of integers too."""
    return arithmetic(e, "div", self, other)


def _div_mode(e: Emitter, self: Operand, other: Operand, rounding_mode: str | None) -> Tensor:
    if rounding_mode is None:
        return div(e, self, other)
    if rounding_mode != "floor":
        raise e.unsupported("rounding_mode", rounding_mode, "only 'floor' of integers is known")
    return _floor_divide(e, self, other)


def _floor_divide(e: Emitter, self: Operand, other: Operand) -> Tensor:
    if is_floating(e.dtype):
        raise e.unsupported("self", self, "a quotient is rounded down of integers only")
    return arithmetic(e, "floor_divide", self, other)


def _remainder(e: Emitter, self: Operand, other: Operand) -> Tensor:
    if is_floating(e.dtype):
        raise e.unsupported("self", self, "a remainder is known of integers only")
    return arithmetic(e, "remainder", self, other)


# --- complex numbers


def _part(e: Emitter, x: Tensor, which: int) -> Tensor:
    """Return the real (0) or imaginary (1) parts of pairs, in a last dimension of size 1."""
    whole = as_real(x)
    return e.slice(whole, -1, which, which + 1)


def as_real(x: Tensor) -> Tensor:
    """Return a complex tensor with its pairs as the last dimension.

    In the plan it is the same tensor.
    """
    return Tensor(x.name, (*x.shape, 2), "float64" if x.dtype == "complex128" else "float32")


def as_complex(x: Tensor) -> Tensor:
    """Return a tensor with its last dimension, of size 2, as pairs.

    In the plan it is the same tensor.
    """
    return Tensor(x.name, x.shape[:-1], "complex128" if x.dtype == "float64" else "complex64")


def _on_parts(e: Emitter, kind: str, *operands: Operand) -> Tensor:
    parts = [as_real(x) if isinstance(x, Tensor) and x.is_complex else x for x in operands]
    dtype = next(x.dtype for x in parts if isinstance(x, Tensor))
    return as_complex(e.map(kind, *parts, dtype=dtype))


def _complex_product(e: Emitter, self: Operand, other: Operand) -> Tensor:
    """Return the product of two operands, at least one complex.

    (a + bi)(c + di) turns the pair (a, b) by (c, d), as rotary embedding does. A real factor scales
    both parts.
    """
    if not isinstance(self, Tensor) or not self.is_complex:
        self, other = other, self
    if not isinstance(self, Tensor):
        raise e.unsupported("self", self, "a complex product has a complex operand")
    if not isinstance(other, Tensor):
        return _on_parts(e, "mul", self, other)
    if not other.is_complex:
        return _on_parts(e, "mul", self, e.unsqueeze(other, -1))
    x = e.expand(self, e.shape)
    whole = as_real(x)
    turned = e.like(
        "rotary",
        whole,
        _part(e, other, 0),
        _part(e, other, 1),
        attributes={"convention": "interleaved"},
    )
    return as_complex(turned)


def _conjugate(e: Emitter, self: Tensor) -> Tensor:
    if not self.is_complex:
        return self
    real, imaginary = _part(e, self, 0), _part(e, self, 1)
    negative = e.map("neg", imaginary, dtype=real.dtype)
    return as_complex(
        e.op(
            "cat",
            real,
            negative,
            shape=(*self.shape, 2),
            dtype=real.dtype,
            attributes={"axis": self.ndim},
        )
    )


def _complex(e: Emitter, real: Tensor, imag: Tensor) -> Tensor:
    parts = [e.expand(x, e.shape) for x in (real, imag)]
    return as_complex(
        e.op(
            "stack",
            *parts,
            shape=(*e.shape, 2),
            dtype=real.dtype,
            attributes={"axis": len(e.shape)},
        )
    )


def _polar(e: Emitter, abs: Tensor, angle: Tensor) -> Tensor:
    turned = [e.map(kind, angle, dtype=angle.dtype) for kind in ("cos", "sin")]
    return _complex(e, *(e.map("mul", abs, x, dtype=abs.dtype) for x in turned))


# --- functions of one tensor


def unary(kind: str) -> Callable[[Emitter, Tensor], Tensor]:
    """Return the meaning of an ATen operator of one tensor that is the operator ``kind`` of a plan.

    Integers become floating-point numbers if the output's are.
    """

    def meaning(e: Emitter, self: Tensor) -> Tensor:
        if self.is_complex and kind == "neg":
            return _on_parts(e, kind, self)
        return arithmetic(e, kind, self)

    return meaning


def _log1p(e: Emitter, self: Tensor) -> Tensor:
    return e.map("log", arithmetic(e, "add", self, 1))


def _expm1(e: Emitter, self: Tensor) -> Tensor:
    return e.map("sub", arithmetic(e, "exp", self), 1)


def power(e: Emitter, self: Tensor, exponent: float) -> Tensor:
    """Return self to a power that is a number.

    Raises UnsupportedError unless the exponent is a multiple of 1/2, and for integers not negative.
    """
    if isinstance(exponent, Tensor):
        raise e.unsupported("exponent", exponent, "exponents are numbers")
    halves = 2 * exponent
    if halves != int(halves):
        raise e.unsupported("exponent", exponent, "exponents are multiples of 1/2")
    exact = Fraction(int(halves), 2)
    if exact < 0 and not is_floating(e.dtype):
        raise e.unsupported("exponent", exponent, "the base is an integer")
    if e.dtype in NARROW:
        raise e.unsupported(
            "self", self, "numbers that do not fit into narrow integers wrap around"
        )
    if not is_floating(e.dtype):
        return _whole_power(e, self, exact.numerator)
    return e.map(
        "pow",
        e.numeric(self),
        attributes={"exponent": int(exact) if exact.denominator == 1 else str(exact)},
    )


def _whole_power(e: Emitter, self: Tensor, exponent: int) -> Tensor:
    """Return a power of integers as a product."""
    if exponent > _LONGEST_PRODUCT:
        raise e.unsupported(
            "exponent", exponent, f"powers of integers are known up to {_LONGEST_PRODUCT}"
        )
    result = e.full(self.shape, 1) if exponent == 0 else self
    for _ in range(exponent - 1):
        result = arithmetic(e, "mul", result, self)
    return result


def number_to(e: Emitter, base: float, exponent: Tensor) -> Tensor:
    """Return a positive number to powers: exp(exponent * log(base))."""
    if isinstance(base, Tensor) or base <= 0:
        raise e.unsupported(
            "self", base, "powers with a tensor as exponent are known of positive numbers only"
        )
    if not is_floating(e.dtype):
        raise e.unsupported("exponent", exponent, "the result is an integer")
    logarithm = e.op("log", float(base), shape=())
    return e.map("exp", e.map("mul", e.numeric(exponent), logarithm))


def clamp(
    e: Emitter, self: Tensor, min: Operand | None = None, max: Operand | None = None
) -> Tensor:
    """Return min(max(self, min), max). At least one bound is given."""
    x = e.numeric(self)
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        x = x if min is None else e.map("maximum", x, e.numeric(min))
        return x if max is None else e.map("minimum", x, e.numeric(max))
    bounds: dict[str, Attribute] = {
        name: literal(value) for name, value in (("min", min), ("max", max)) if value is not None
    }
    if not bounds:
        raise e.unsupported("min", None, "at least one bound is needed")
    return e.map("clamp", x, attributes=bounds)


def _clamp_max(e: Emitter, self: Tensor, max: Operand) -> Tensor:
    return clamp(e, self, None, max)


def _maximum(e: Emitter, self: Tensor, other: Operand) -> Tensor:
    if e.dtype == "bool":
        return e.map("logical_or", self, other)
    return e.map("maximum", e.numeric(self), e.numeric(other))


def _minimum(e: Emitter, self: Tensor, other: Operand) -> Tensor:
    if e.dtype == "bool":
        return e.map("logical_and", self, other)
    return e.map("minimum", e.numeric(self), e.numeric(other))


# --- several steps at once


def addcmul(
    e: Emitter, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Operand = 1
) -> Tensor:
    """Return self + value * tensor1 * tensor2."""
    return _plus(e, self, arithmetic(e, "mul", tensor1, tensor2), value)


def addcdiv(
    e: Emitter, self: Tensor, tensor1: Tensor, tensor2: Tensor, value: Operand = 1
) -> Tensor:
    """Return self + value * tensor1 / tensor2."""
    return _plus(e, self, arithmetic(e, "div", tensor1, tensor2), value)


def _plus(e: Emitter, self: Tensor, other: Tensor, factor: Operand) -> Tensor:
    if isinstance(factor, Tensor):
        return arithmetic(e, "add", self, arithmetic(e, "mul", other, factor))
    return arithmetic(e, "add", self, other, alpha=factor)


def lerp(e: Emitter, self: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """Return self + weight * (end - self)."""
    return arithmetic(e, "add", self, arithmetic(e, "mul", arithmetic(e, "sub", end, self), weight))


def _logaddexp(e: Emitter, self: Tensor, other: Tensor) -> Tensor:
    """Return log(exp(self) + exp(other))."""
    return e.map("log", e.map("add", e.map("exp", self), e.map("exp", other)))


def _square(e: Emitter, self: Tensor) -> Tensor:
    return arithmetic(e, "square", self)


_TWO = "self other"
UNARY = (
    "neg",
    "abs",
    "sign",
    "reciprocal",
    "sqrt",
    "rsqrt",
    "exp",
    "log",
    "sigmoid",
    "tanh",
    "erf",
    "cos",
    "sin",
)
"""The operators of one tensor whose names ATen and pitcheck share, with overloads over lists."""

TABLE: dict[str, Row] = {
    **{f"add.{overload}": row(add, "self other alpha") for overload in ("Tensor", "Scalar")},
    **{f"sub.{overload}": row(sub, "self other alpha") for overload in ("Tensor", "Scalar")},
    **{f"rsub.{overload}": row(rsub, "self other alpha") for overload in ("Tensor", "Scalar")},
    **{f"mul.{overload}": row(mul, _TWO) for overload in ("Tensor", "Scalar")},
    **{f"div.{overload}": row(div, _TWO) for overload in ("Tensor", "Scalar")},
    **{
        f"div.{overload}": row(_div_mode, "self other rounding_mode")
        for overload in ("Tensor_mode", "Scalar_mode")
    },
    **{f"floor_divide.{overload}": row(_floor_divide, _TWO) for overload in ("default", "Scalar")},
    **{f"remainder.{overload}": row(_remainder, _TWO) for overload in ("Tensor", "Scalar")},
    **{f"{name}.default": row(unary(name), "self") for name in (*UNARY, "relu", "silu")},
    "sgn.default": row(unary("sign"), "self"),
    "square.default": row(_square, "self"),
    "log1p.default": row(_log1p, "self"),
    "expm1.default": row(_expm1, "self"),
    "logaddexp.default": row(_logaddexp, _TWO),
    "pow.Tensor_Scalar": row(power, "self exponent"),
    "pow.Scalar": row(number_to, "self exponent"),
    **{f"clamp.{overload}": row(clamp, "self min max") for overload in ("default", "Tensor")},
    **{f"clamp_min.{overload}": row(clamp, "self min") for overload in ("default", "Tensor")},
    **{f"clamp_max.{overload}": row(_clamp_max, "self max") for overload in ("default", "Tensor")},
    "maximum.default": row(_maximum, _TWO),
    "minimum.default": row(_minimum, _TWO),
    "max.other": row(_maximum, _TWO),
    "min.other": row(_minimum, _TWO),
    "addcmul.default": row(addcmul, "self tensor1 tensor2 value"),
    "addcdiv.default": row(addcdiv, "self tensor1 tensor2 value"),
    **{f"lerp.{overload}": row(lerp, "self end weight") for overload in ("Scalar", "Tensor")},
    **{
        f"{name}.default": row(_conjugate, "self")
        for name in ("_conj", "_conj_physical", "conj_physical")
    },
    "complex.default": row(_complex, "real imag"),
    "polar.default": row(_polar, "abs angle"),
}
