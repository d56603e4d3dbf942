"""From ATen overloads and collectives to operators of a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from pitcheck.errors import PlanError, UnsupportedError
from pitcheck.frontends.torch.aten import (
    activations,
    arithmetic,
    choices,
    collectives,
    constants,
    indexing,
    layers,
    lists,
    losses,
    matrix,
    random,
    reductions,
    structure,
)
from pitcheck.frontends.torch.aten.emitter import Emitter, Tensor, Translation
from pitcheck.frontends.torch.aten.row import UNREAD, Row
from pitcheck.frontends.torch.aten.without_elements import result_without
from pitcheck.frontends.torch.rewrites import index_bounds, mean_gradients
from pitcheck.frontends.torch.trace import Event, Value

_THEMES = (
    arithmetic,
    activations,
    choices,
    matrix,
    reductions,
    layers,
    losses,
    structure,
    indexing,
    constants,
    lists,
    random,
    collectives,
    index_bounds,
    mean_gradients,
)


@cache
def table() -> Mapping[str, Row]:
    """Return the rows by overload, as "add.Tensor", and by the name of a collective."""
    return MappingProxyType({name: row for theme in _THEMES for name, row in theme.TABLE.items()})


def translated(
    event: Event,
    values: Sequence[Value],
    name_of: Callable[[int], str],
    new_name: Callable[[str, Value], str],
    asynchronous: bool = False,
) -> Translation:
    """Return the operators that an event becomes. No operator makes an output without elements.

    ``name_of`` returns the tensor family of a value's number. ``new_name`` makes a name, from a
    hint, for an intermediate tensor of a shape and dtype. ``asynchronous`` says that a collective
    is waited for elsewhere.

    Raises UnsupportedError, naming overload and argument, for an overload that is not in the table
    and for an argument that its meaning does not cover.
    """
    known = table().get(_plain(event.operator))
    if known is None:
        raise UnsupportedError(
            f"the PyTorch operator {event.operator!r} has no meaning here; the known ones are in "
            f"pitcheck.frontends.torch.aten.operators"
        )
    if len(event.arguments) != len(known.parameters):
        raise PlanError(
            f"the PyTorch operator {event.operator!r} takes {len(known.parameters)} arguments, "
            f"not {len(event.arguments)}"
        )
    if (
        event.outputs
        and not event.group
        and all(number is None or 0 in values[number].shape for number in event.outputs)
    ):
        return Translation((), {})
    emitter = Emitter(event, values, name_of, asynchronous).focus(0)
    read = [name for name in known.parameters if name not in UNREAD]
    given = [
        emitter.argument(value)
        for name, value in zip(known.parameters, event.arguments, strict=True)
        if name not in UNREAD
    ]
    empty = result_without(emitter, _plain(event.operator), read, given)
    results = known.meaning(emitter, *given) if empty is None else empty
    listed = (results,) if results is None or isinstance(results, Tensor) else tuple(results)
    if len(listed) != len(event.outputs):
        raise PlanError(
            f"the PyTorch operator {event.operator!r} has {len(listed)} outputs, not "
            f"{len(event.outputs)}"
        )
    return emitter.finished(listed, new_name)


def _plain(operator: str) -> str:
    """Return the overload that computes the same without an argument for its result."""
    name, _, overload = operator.partition(".")
    if overload == "out":
        return next(
            (other for other in (f"{name}.default", f"{name}.Tensor") if other in table()), operator
        )
    return f"{name}.{overload.removesuffix('_out')}" if overload.endswith("_out") else operator
