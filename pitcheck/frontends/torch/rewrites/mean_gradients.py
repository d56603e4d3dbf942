"""Derivatives of means: the gradient spread over what the mean was taken of, and divided by a
number, which is how many elements that are.

In a trace that number is one like any other, and dimensions that it may mean keep their sizes. That
it is the count of what the gradient was spread over is plain to see, and is said.
"""

from __future__ import annotations

from math import prod

from msgspec.structs import replace

from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor
from pitcheck.frontends.torch.aten.row import Row, row
from pitcheck.frontends.torch.trace import Argument, Event, Ref, Trace
from pitcheck.plan.model import Attribute

SPREAD_MEAN = "spread_mean"


def with_means(trace: Trace) -> Trace:
    """The trace in which a gradient that is spread and divided by how often is that of a mean."""
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
    """Of what ``like`` has in common with the mean's operand, its shape is all that matters."""
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(like.shape))
    said: dict[str, Attribute] = {
        "axes": axes,
        "keepdim": True,
        "forward_inputs": 1,
        "forward_outputs": 0,
    }
    return e.op("mean.backward", like, e.view(gradient, kept), shape=like.shape, attributes=said)


TABLE: dict[str, Row] = {SPREAD_MEAN: row(_spread_mean, "like gradient axes")}
