"""Steps under several routings as one: each with names, values and messages of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec.structs import replace as changed

from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.rewrites.needed_events import renumbered
from pitcheck.frontends.torch.routing import Routing
from pitcheck.frontends.torch.trace import Event, Trace


def named(name: str, routing: str) -> str:
    """Return the name that a tensor has under a routing, if there are several."""
    return f"{name} [{routing}]"


def side_by_side(traces: Mapping[str, Trace]) -> Trace:
    """Return the steps of one rank, by routing, one after the other.

    They share nothing: each begins with tensors of its own, of any value.
    """
    if len(traces) == 1:
        return next(iter(traces.values()))
    parts = []
    values = batches = 0
    for routing, trace in traces.items():
        parts.append(_moved(trace, routing, values, batches))
        values += len(trace.values)
        batches += max((event.batch or 0 for event in trace.events), default=0)
    first = parts[0]
    return Trace(
        first.rank,
        tuple(value for part in parts for value in part.values),
        tuple(event for part in parts for event in part.events),
        tuple(given for part in parts for given in part.given),
        tuple(result for part in parts for result in part.results),
        tuple(dict.fromkeys(line for part in parts for line in part.assumptions)),
    )


def specification(spec: Spec, routings: Sequence[str]) -> Spec:
    """Return the specification with the names that tensors have under each routing."""
    if len(routings) == 1:
        return spec
    return replace(
        spec,
        batch={named(n, each): given for each in routings for n, given in spec.batch.items()},
        outputs={named(n, each): part for each in routings for n, part in spec.outputs.items()},
    )


def assumed(routings: Sequence[Routing]) -> list[str]:
    """Return the sentences that say what is assumed of routers."""
    names = ", ".join(repr(routing.name) for routing in routings)
    plural = "s" if len(routings) > 1 else ""
    return [
        f"tokens choose experts as the routing{plural} {names} {'say' if plural else 'says'}: the "
        f"scores of every router are compared, and from equal scores both programs choose the "
        f"same experts"
    ]


def _moved(trace: Trace, routing: str, values: int, batches: int) -> Trace:
    """Return a trace with the names of a routing, and numbers that begin after those of others."""
    numbers = {number: number + values for number in range(len(trace.values))}

    def event(old: Event) -> Event:
        batch = None if old.batch is None else old.batch + batches
        return changed(renumbered(old, numbers), batch=batch)

    return changed(
        trace,
        events=tuple(map(event, trace.events)),
        given=tuple(
            changed(
                given,
                value=given.value + values,
                name=named(given.name, routing) if given.name else "",
            )
            for given in trace.given
        ),
        results=tuple(
            changed(result, value=result.value + values, name=named(result.name, routing))
            for result in trace.results
        ),
    )
