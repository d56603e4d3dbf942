"""Loss functions.

>>> import numpy as np
>>> from pitcheck.algebra.reals.real import RealAlgebra
>>> from pitcheck.ops.registry import evaluate
>>> reals = RealAlgebra(np, seed=0, trials=(0,))
>>> evaluate(reals, "mse_loss", [reals.constant(1.0), reals.constant(4.0)], {})[0].data.item()
9.0
"""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.errors import ShapeError, UnsupportedError
from pitcheck.ops.declaration import AttributeRole, Attributes
from pitcheck.ops.declare import Lazy, Local, declare
from pitcheck.ops.meanings.normalization import log_sum_exp_of, softmax_of
from pitcheck.ops.term import Term, sum_to
from pitcheck.ops.traits import Trait

REDUCTIONS = ("none", "sum", "mean")


def _reduction(attributes: Attributes) -> str:
    reduction = str(attributes.get("reduction", "mean"))
    if reduction not in REDUCTIONS:
        raise UnsupportedError(
            f"the reduction {reduction!r} has no meaning here; known are {', '.join(REDUCTIONS)}"
        )
    return reduction


class _Classes:
    """Scores with the classes last, (..., classes), and for every place its class.

    ``counts`` says which places count; None if all do.
    """

    def __init__(self, scores: Term, target: Term, attributes: Attributes) -> None:
        if target.kind != "int":
            raise UnsupportedError(
                "a loss over classes takes class numbers as its target; class probabilities have "
                "no meaning here"
            )
        self.axis = 1 if scores.ndim > 1 else 0
        if (
            scores.ndim < 1
            or scores.shape[: self.axis] + scores.shape[self.axis + 1 :] != target.shape
        ):
            raise ShapeError(
                f"a loss over classes takes scores (n, classes, ...) and a target (n, ...), not "
                f"{scores.shape} and {target.shape}"
            )
        self.scores = scores.move(self.axis, -1)
        self.reduction = _reduction(attributes)
        ignored = attributes.get("ignore_index")
        self.counts = None if ignored is None else target.compare("ne", int(ignored))
        self.target = (
            target if self.counts is None else self.counts.where(target, target.like(0, "int"))
        )

    def _counted(self, values: Term) -> Term:
        return values if self.counts is None else self.counts.where(values, values.like(0))

    def _count(self) -> Term:
        """Return the number of places that count: an extent, or a count if some may be ignored."""
        return self.target.extent() if self.counts is None else self.counts.cast("field").sum()

    def picked(self) -> Term:
        """Return the score of the target's class, (...)."""
        return self.scores.take_along(-1, self.target.unsqueeze(-1)).squeeze(-1)

    def reduced(self, losses: Term) -> Term:
        """Return the losses of all places combined; an ignored one is 0 and does not count."""
        counted = self._counted(losses)
        if self.reduction == "none":
            return counted
        return counted.sum() / self._count() if self.reduction == "mean" else counted.sum()

    def spread(self, dy: Term) -> Term:
        """Return the gradient of every place's loss, from that of the result."""
        each = dy / self._count() if self.reduction == "mean" else dy
        return self._counted(each.expand(self.target.shape))

    def at_targets(self, values: Term) -> Term:
        """Return ``values`` at the targets' classes and zeros elsewhere, (..., classes)."""
        return self.scores.like(0).add_along(-1, self.target.unsqueeze(-1), values.unsqueeze(-1))

    def restored(self, gradient: Term) -> Term:
        """Return a gradient (..., classes) with the classes back in their place."""
        return gradient.move(-1, self.axis)


def _cross_entropy(inputs: list[Term], attributes: Attributes) -> list[Term]:
    classes = _Classes(inputs[0], inputs[1], attributes)
    return [classes.reduced(log_sum_exp_of(classes.scores, -1).squeeze(-1) - classes.picked())]


def _cross_entropy_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        classes = _Classes(local.a, local.b, local.attributes)
        each = classes.spread(local.dy)
        return classes.restored(
            softmax_of(classes.scores, -1) * each.unsqueeze(-1) - classes.at_targets(each)
        )

    return [gradient, None]


def _nll(inputs: list[Term], attributes: Attributes) -> list[Term]:
    classes = _Classes(inputs[0], inputs[1], attributes)
    return [classes.reduced(-classes.picked())]


def _nll_backward(local: Local) -> Sequence[Lazy | None]:
    def gradient() -> Term:
        classes = _Classes(local.a, local.b, local.attributes)
        return classes.restored(-classes.at_targets(classes.spread(local.dy)))

    return [gradient, None]


def _mse(inputs: list[Term], attributes: Attributes) -> list[Term]:
    difference = inputs[0] - inputs[1]
    squares = difference * difference
    reduction = _reduction(attributes)
    return [
        squares if reduction == "none" else squares.sum() if reduction == "sum" else squares.mean()
    ]


def _mse_backward(local: Local) -> Sequence[Lazy | None]:
    def slope() -> Term:
        difference = local.a - local.b
        each = (
            local.dy / difference.extent() if _reduction(local.attributes) == "mean" else local.dy
        )
        return 2 * difference * each

    return [lambda: sum_to(slope(), local.a.shape), lambda: -sum_to(slope(), local.b.shape)]


_OVER_CLASSES: dict[str, AttributeRole] = {"reduction": "value", "ignore_index": "literal"}
_IGNORED = (
    "Places whose target is `ignore_index` give 0 and do not count; without that attribute "
    "every target is a class. `reduction` is none, sum or mean (default)."
)

OPERATORS = (
    declare(
        "cross_entropy",
        _cross_entropy,
        _cross_entropy_backward,
        inputs=(2, 2),
        attributes=_OVER_CLASSES,
        traits=(Trait.NORMALIZES,),
        doc=f"Scores x (n, classes, ...) or (classes,), int target t (n, ...) or (): log sum "
        f"exp(x) - x[t] at every place. {_IGNORED}",
    ),
    declare(
        "nll_loss",
        _nll,
        _nll_backward,
        inputs=(2, 2),
        attributes=_OVER_CLASSES,
        traits=(Trait.NORMALIZES,),
        doc=f"Log probabilities x (n, classes, ...) or (classes,), int target t (n, ...) or (): "
        f"-x[t] at every place. {_IGNORED}",
    ),
    declare(
        "mse_loss",
        _mse,
        _mse_backward,
        inputs=(2, 2),
        attributes={"reduction": "value"},
        traits=(
            Trait.COMMUTES,
            Trait.NORMALIZES,
        ),
        doc="(a - b)^2; `reduction` is none, sum or mean (default).",
    ),
)
