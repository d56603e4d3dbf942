"""ATen's random draws, from streams that are named after the state of the generator (:mod:`pitcheck.frontends.torch.generators`)."""

from __future__ import annotations

from fractions import Fraction

from pitcheck.frontends.torch.emitter import Emitter, Tensor
from pitcheck.frontends.torch.row import Row, row


def _draws(e: Emitter, stream: str) -> Tensor:
    """Uniform in [0, 1), of the output's shape."""
    return e.op("uniform", e.full(e.shape, 0), shape=e.shape, attributes={"stream": stream})


def _rand(e: Emitter, *arguments: object) -> Tensor:
    return _draws(e, str(arguments[-1]))


def _uniform(e: Emitter, _self: Tensor, begin: float, end: float, _generator: None, stream: str) -> Tensor:
    x = _draws(e, stream)
    if end - begin != 1:
        x = e.map("mul", x, end - begin)
    return x if begin == 0 else e.map("add", x, begin)


def _bernoulli(e: Emitter, _self: Tensor, p: float, _generator: None, stream: str) -> Tensor:
    """1 with probability ``p``."""
    if not 0 <= p <= 1:
        raise e.unsupported("p", p, "a probability lies between 0 and 1")
    if p == 0:
        return e.full(e.shape, 0)
    attributes = {"stream": stream, "probability": str(1 - Fraction(repr(float(p))))}
    return e.cast(e.op("dropout_mask", e.full(e.shape, 0, "float32"), shape=e.shape, dtype="bool", attributes=attributes), e.dtype)


def _bernoulli_of(e: Emitter, self: Tensor, _generator: None, stream: str) -> Tensor:
    """1 with the probability that each element says."""
    return e.cast(e.map("lt", _draws(e, stream), self, dtype="bool"), e.dtype)


_MADE = "dtype layout device pin_memory"

TABLE: dict[str, Row] = {
    "rand.default": row(_rand, f"size {_MADE} stream"),
    "rand.generator": row(_rand, f"size generator {_MADE} stream"),
    "rand_like.default": row(_rand, f"self {_MADE} memory_format stream"),
    "uniform.default": row(_uniform, "self from to generator stream"),
    "bernoulli.p": row(_bernoulli, "self p generator stream"),
    "bernoulli.default": row(_bernoulli_of, "self generator stream"),
}
