"""ATen's random draws.

They come from streams that are named after the state of the generator
(:mod:`pitcheck.frontends.torch.recording.generator_state`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.frontends.torch.trace import Value


def _draws(e: Emitter, stream: str, kind: str = "uniform") -> Tensor:
    """Return draws of the output's shape, by default uniform in [0, 1)."""
    return e.op(kind, e.full(e.shape, 0), shape=e.shape, attributes={"stream": stream})


def _drawn(kind: str) -> Callable[..., Tensor]:
    def meaning(e: Emitter, *arguments: object) -> Tensor:
        return _draws(e, str(arguments[-1]), kind)

    return meaning


def _uniform(
    e: Emitter, _self: Tensor, begin: float, end: float, _generator: None, stream: str
) -> Tensor:
    return _moved(e, _draws(e, stream), end - begin, begin)


def _moved(e: Emitter, x: Tensor, scale: float, shift: float) -> Tensor:
    if scale != 1:
        x = e.map("mul", x, scale)
    return x if shift == 0 else e.map("add", x, shift)


def _normal(e: Emitter, mean: float, std: float, stream: str) -> Tensor:
    if std < 0:
        raise e.unsupported("std", std, "a standard deviation is not negative")
    return _moved(e, _draws(e, stream, "normal"), std, mean)


def _normal_like(
    e: Emitter, _self: Tensor, mean: float, std: float, _generator: None, stream: str
) -> Tensor:
    return _normal(e, mean, std, stream)


def _normal_of_size(e: Emitter, mean: float, std: float, *rest: object) -> Tensor:
    return _normal(e, mean, std, str(rest[-1]))


def _randperm(e: Emitter, *arguments: object) -> Sequence[Tensor | None]:
    """Return the order of as many draws, which are all different."""
    draws = e.op(
        "uniform",
        e.full(e.shape, 0, "float32"),
        shape=e.shape,
        dtype="float32",
        attributes={"stream": str(arguments[-1])},
    )
    return e.ops("sort", draws, outputs=[None, Value(e.shape, e.dtype)], attributes={"axis": 0})[1:]


def _bernoulli(e: Emitter, _self: Tensor, p: float, _generator: None, stream: str) -> Tensor:
    """Return 1 with probability ``p``, else 0."""
    if not 0 <= p <= 1:
        raise e.unsupported("p", p, "a probability lies between 0 and 1")
    if p == 0:
        return e.full(e.shape, 0)
    attributes = {"stream": stream, "probability": str(1 - Fraction(repr(float(p))))}
    return e.cast(
        e.op(
            "dropout_mask",
            e.full(e.shape, 0, "float32"),
            shape=e.shape,
            dtype="bool",
            attributes=attributes,
        ),
        e.dtype,
    )


def _bernoulli_of(e: Emitter, self: Tensor, _generator: None, stream: str) -> Tensor:
    """Return 1 with the probability that each element says, else 0."""
    return e.cast(e.map("lt", _draws(e, stream), self, dtype="bool"), e.dtype)


_MADE = "dtype layout device pin_memory"

TABLE: dict[str, Row] = {
    "rand.default": row(_drawn("uniform"), f"size {_MADE} stream"),
    "rand.generator": row(_drawn("uniform"), f"size generator {_MADE} stream"),
    "rand_like.default": row(_drawn("uniform"), f"self {_MADE} memory_format stream"),
    "randn.default": row(_drawn("normal"), f"size {_MADE} stream"),
    "randn.generator": row(_drawn("normal"), f"size generator {_MADE} stream"),
    "randn_like.default": row(_drawn("normal"), f"self {_MADE} memory_format stream"),
    "normal_functional.default": row(_normal_like, "self mean std generator stream"),
    "normal.float_float": row(_normal_of_size, f"mean std size generator {_MADE} stream"),
    "randperm.default": row(_randperm, f"n {_MADE} stream"),
    "randperm.generator": row(_randperm, f"n generator {_MADE} stream"),
    "uniform.default": row(_uniform, "self from to generator stream"),
    "bernoulli.p": row(_bernoulli, "self p generator stream"),
    "bernoulli.default": row(_bernoulli_of, "self generator stream"),
}
