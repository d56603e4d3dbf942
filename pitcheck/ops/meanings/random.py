"""Random draws: functions of a stream and of an element's place in it.

Equal places draw equal numbers.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> whole, half = (reals.integers(np.zeros((1, 1, n), dtype=int)) for n in (4, 2))
>>> drawn = evaluate(reals, "uniform", [whole], {"stream": "s"})[0]
>>> part = evaluate(reals, "uniform", [half], {"stream": "s", "start": (2,), "whole": (4,)})[0]
>>> bool((drawn.data[..., 2:] == part.data).all())
True
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from pitcheck.base.numbers import parse_number
from pitcheck.errors import PlanError, ShapeError, UnsupportedError
from pitcheck.ops.declaration import AttributeRole, Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.term import Term, needed, sum_to
from pitcheck.ops.traits import Trait


def _places(like: Term, attributes: Attributes) -> Term:
    """Return the number of every element's draw.

    It is `offset` plus the element's row-major place in the whole tensor.
    """
    whole = tuple(attributes.get("whole", like.shape))
    start = tuple(attributes.get("start", (0,) * like.ndim))
    if (
        len(whole) != like.ndim
        or len(start) != like.ndim
        or any(s < 0 or s + n > w for s, n, w in zip(start, like.shape, whole, strict=True))
    ):
        raise ShapeError(
            f"a part of shape {like.shape} at {start} does not lie within a tensor of shape {whole}"
        )
    place = like.constant(Fraction(int(attributes.get("offset", 0))), "int").expand(like.shape)
    stride = 1
    for axis in reversed(range(like.ndim)):
        place = place + (like.positions(axis) + start[axis]) * stride
        stride *= whole[axis]
    return place


def _drawn(like: Term, attributes: Attributes) -> Term:
    return Term(
        like.algebra,
        like.algebra.draw(str(needed(attributes, "stream")), _places(like, attributes).value),
    )


def _uniform(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [_drawn(inputs[0], attributes)]


def _normal(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [_drawn(inputs[0], attributes).function("normal_quantile")]


def _dropped(attributes: Attributes) -> Fraction:
    """Return the probability of a drop.

    Raises:
        PlanError: if it is not a number from 0 to 1.
        UnsupportedError: if it is a root, or 1, which leaves nothing to scale.
    """
    probability = parse_number(needed(attributes, "probability"), "attributes.probability")
    said = (
        f"a dropout probability is a rational from 0 to below 1, not {attributes['probability']!r}"
    )
    if isinstance(probability, float) or (
        isinstance(probability, Fraction) and not 0 <= probability <= 1
    ):
        raise PlanError(said, "attributes.probability")
    if not isinstance(probability, Fraction) or probability == 1:
        raise UnsupportedError(said)
    return probability


def _probability(x: Term, attributes: Attributes) -> Term:
    return x.constant(_dropped(attributes))


def _dropout_mask(inputs: list[Term], attributes: Attributes) -> list[Term]:
    if not _dropped(attributes):  # no draw is below it, which the residues of a draw do not say
        return [inputs[0].like(1, "bool")]
    return [_drawn(inputs[0], attributes).compare("ge", _probability(inputs[0], attributes))]


def _kept(x: Term, mask: Term, attributes: Attributes) -> Term:
    return x * mask.cast("field") / (1 - _probability(x, attributes))


def _dropout(inputs: list[Term], attributes: Attributes) -> list[Term]:
    return [_kept(inputs[0], inputs[1], attributes)]


def _dropout_backward(local: Local) -> Sequence[Lazy | None]:
    return [
        lambda: sum_to(_kept(local.dy, local.b, local.attributes), local.a.shape),
        lambda: sum_to(
            local.dy * local.a / (1 - _probability(local.a, local.attributes)), local.b.shape
        ),
    ]


_DRAW: dict[str, AttributeRole] = {
    "stream": "value",
    "offset": "literal",
    "start": "literal",
    "whole": "literal",
}

OPERATORS = (
    declare(
        "uniform",
        _uniform,
        attributes=_DRAW,
        required=("stream",),
        random=True,
        doc="Uniform draws in [0, 1) of random stream `stream`, in the shape of the input, whose "
        "values do not matter. The input's shape is that "
        "of the part that begins at `start` (default 0s) of a tensor of shape `whole` (default: "
        "its own); an element gets draw number `offset` (default 0) "
        "+ its row-major place in the whole tensor.",
    ),
    declare(
        "normal",
        _normal,
        attributes=_DRAW,
        required=("stream",),
        random=True,
        doc="Standard normal draws: of each draw of `uniform` the number below which a standard "
        "normal one lies with that probability.",
    ),
    declare(
        "dropout_mask",
        _dropout_mask,
        attributes={**_DRAW, "own": "value", "probability": "literal"},
        required=("stream", "probability"),
        random=True,
        traits=(Trait.READS_SHAPE,),
        doc="True for a kept element: the draw of `uniform` is at least `probability`, the "
        "probability of dropping. With `own` a rank draws the mask of the elements that it holds, "
        "from a stream that is a state of its generator; the reference's mask is taken to consist "
        "of these, and a check finds `start` and `whole`. `own` names the axes along which ranks "
        "may draw the same numbers.",
    ),
    declare(
        "dropout",
        _dropout,
        _dropout_backward,
        inputs=(2, 2),
        attributes={"probability": "literal"},
        required=("probability",),
        in_place=True,
        doc="x * mask / (1 - `probability`), with the mask given.",
    ),
)
