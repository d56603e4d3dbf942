"""Gradients that a program clears after it has used them, and that nobody reads again."""

from __future__ import annotations

from collections.abc import Sequence

from pitcheck.frontends.torch.trace import LEFT, Result, Trace, operands


def dead_gradients(traces: Sequence[Trace]) -> set[str]:
    """Return the parameters whose gradients after the step are dead memory in all programs.

    Some program leaves a constant in the gradient, as ``zero_grad`` after the optimizer's step
    does. Every program has by then changed the parameter, which is compared, and none reads the
    gradient in its next call. A gradient that is not used so is compared, also if it is constant.
    """
    cleared = {name for trace in traces for name in _cleared(trace)}
    kept = {name for trace in traces for name in _ends(trace, "gradient").keys() - _stepped(trace)}
    read = {
        given.name.removeprefix(LEFT)
        for trace in traces
        for given in trace.given
        if given.role == "gradient" and not given.idle
    }
    return cleared - kept - read


def _ends(trace: Trace, kind: str) -> dict[str, Result]:
    return {result.name: result for result in trace.results if result.kind == kind}


def _stepped(trace: Trace) -> set[str]:
    """Return the parameters whose values are others after the step."""
    begun = {given.name: given.value for given in trace.given if given.role == "parameter"}
    return {
        name
        for name, result in _ends(trace, "updated").items()
        if result.asked and begun.get(name, result.value) != result.value
    }


def _cleared(trace: Trace) -> set[str]:
    """Return the parameters whose gradients depend on nothing with which the step began."""
    varying = {given.value for given in trace.given if given.role != "constant"}
    for event in trace.events:
        if event.group or not varying.isdisjoint(operands(event.arguments)):
            varying.update(event.tensors)
    return {
        name for name, result in _ends(trace, "gradient").items() if result.value not in varying
    }
