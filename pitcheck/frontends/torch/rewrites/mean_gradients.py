"""Derivatives of means.

A gradient is spread over the elements that the mean was taken of, and divided by their number. In a
trace that number is one like any other, and a dimension to which it may refer keeps its size. The
number of elements over which the gradient was spread says that it is their count.
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.frontends.torch.trace import Argument, Event, Ref, Trace
from pitcheck.plan.model import Attribute

SPREAD_MEAN = "spread_mean"
"""The operator (like, gradient, axes) that is the derivative of a mean over ``axes``."""


def with_means(trace: Trace) -> Trace:
    """Return the trace with the derivatives of means as such.

    They are gradients that are spread and divided by the number of copies.
    """
    spread = {
        event.outputs[0]: event for event in trace.events if event.operator == "expand.default"
    }

    def changed(event: Event) -> Event:
        if event.operator not in ("div.Scalar", "div.Tensor") or not isinstance(
            event.arguments[0], Ref
        ):
            return event
        whole, number = event.arguments[0], event.arguments[1]
        before = spread.get(whole.value)
        given = before.arguments[0] if before is not None else None
        if (
            not isinstance(given, Ref)
            or isinstance(number, bool)
            or not isinstance(number, int | float)
        ):
            return event
        old, new = trace.values[given.value].shape, trace.values[whole.value].shape
        padded = (1,) * (len(new) - len(old)) + old
        axes = tuple(
            axis for axis, (one, size) in enumerate(zip(padded, new, strict=True)) if one != size
        )
        if not axes or prod(new[axis] for axis in axes) != number:
            return event
        arguments: tuple[Argument, ...] = (whole, given, axes)
        return replace(event, operator=SPREAD_MEAN, arguments=arguments)

    return replace(trace, events=tuple(map(changed, trace.events)))


def _spread_mean(e: Emitter, like: Tensor, gradient: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Translate the derivative of a mean.

    Of ``like``, which stands for the operand of the mean, only the shape matters.
    """
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(like.shape))
    said: dict[str, Attribute] = {
        "axes": axes,
        "keepdim": True,
        "forward_inputs": 1,
        "forward_outputs": 0,
    }
    return e.op("mean.backward", like, e.view(gradient, kept), shape=like.shape, attributes=said)


TABLE: dict[str, Row] = {SPREAD_MEAN: row(_spread_mean, "like gradient axes")}
