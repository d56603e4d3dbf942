"""The state of both programs that is compared.

It is what either program has changed, if the other has it, too. Otherwise the programs cannot be
compared, and an error says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.planning.compared_beginnings import check_beginnings
from pitcheck.frontends.torch.planning.dead_gradients import dead_gradients
from pitcheck.frontends.torch.planning.families import GRADIENT, UPDATED
from pitcheck.frontends.torch.planning.padding import without_padding
from pitcheck.frontends.torch.program import Spec
from pitcheck.frontends.torch.trace import AGAIN, LEFT, Event, Given, Result, Trace

Key = tuple[str, str]
NAMED = frozenset({"buffer", "gradient", "kept"})
"""The roles of values that a call leaves for the next, which the reference need not have."""
KINDS = (
    ("parameter", "parameter", "parameters"),
    ("buffer", "buffer", "buffers"),
    ("optimizer_state", "optimizer state", "optimizer states"),
    ("kept", "kept tensor", "kept tensors"),
)
"""The singular and the plural for each role."""


def matched(reference: Trace, traces: Sequence[Trace], spec: Spec) -> tuple[Trace, list[Trace]]:
    """Return both programs, in which all results that are to be compared are asked for.

    Raises:
        UnsupportedError: for state that only one of them has, or that one changes and the other
            does not have.
        PlanError: for ranks that cannot begin with equal parameters and state.
    """
    check_beginnings(reference, traces)
    reference = _with_passes(reference, traces)
    theirs = {_key(result) for result in reference.results}
    begun = {given.name for given in reference.given}
    traces = without_padding(traces, begun)
    dead = dead_gradients([reference, *traces])
    for trace in traces:
        _check_stated(trace, spec)
        _check_given(trace, begun, reference)
        _check_results(trace, theirs, begun - dead)
    reference, traces = _with_numbers(reference, traces)
    _check_accumulated(reference, traces)
    asked = {
        _key(result) for trace in (reference, *traces) for result in trace.results if result.asked
    } - {("gradient", name) for name in dead}
    read = {given.name for trace in traces for given in trace.given if not given.idle}
    single = _asking(reference, asked, read)
    return replace(
        single, assumptions=(*single.assumptions, *_said(reference, traces, asked, dead))
    ), [_asking(trace, asked, ()) for trace in traces]


def _with_passes(reference: Trace, traces: Sequence[Trace]) -> Trace:
    """Return the reference with the scores of its routers once for each pass that a rank makes."""
    known = {result.name: result for result in reference.results if result.kind == "scores"}
    passes = {
        result.name: replace(known[first], name=result.name)
        for trace in traces
        for result in trace.results
        if result.kind == "scores"
        and result.name not in known
        and (first := result.name.partition(AGAIN)[0]) in known
    }
    return replace(reference, results=(*reference.results, *passes.values()))


def compared(trace: Trace) -> Trace:
    """Return a trace with only the results that are asked for, and the givens that these need."""
    results = tuple(result for result in trace.results if result.asked)
    # The gradient of a parameter that nobody reads, such as of an expert without tokens, is zero.
    ends = {result.name for result in results if result.kind in ("updated", "gradient")}
    given = tuple(own for own in trace.given if not own.idle or own.name in ends)
    return replace(trace, results=results, given=given)


def _key(result: Result) -> Key:
    return result.kind, result.name


def _asking(trace: Trace, asked: Collection[Key], read: Collection[str]) -> Trace:
    results = tuple(replace(result, asked=_key(result) in asked) for result in trace.results)
    return replace(
        trace,
        results=results,
        given=tuple(
            replace(given, idle=given.idle and given.name not in read) for given in trace.given
        ),
    )


def _place(trace: Trace, value: int) -> str:
    """Return the line that writes a value, as " at file:line"; "" without one."""
    lines = [event.source for event in trace.events if value in event.outputs and event.source]
    return f" at {lines[0]}" if lines else ""


def _check_stated(trace: Trace, spec: Spec) -> None:
    """Raise UnsupportedError if ranks hold other parts of state after the step than before.

    Each call must leave what the next one is assumed to find.
    """
    for given in trace.given:
        name = given.name.removeprefix(LEFT) if given.role == "gradient" else given.name
        output = f"{GRADIENT if given.role == 'gradient' else UPDATED}{name}"
        if given.role != "input" and not given.idle and output in spec.outputs:
            raise UnsupportedError(
                f"rank {trace.rank} begins the next call with {name!r} as it is held before this "
                f"one, but Spec.outputs says otherwise of {output!r}; "
                "make it so in the step"
            )


def _check_given(trace: Trace, begun: Collection[str], reference: Trace) -> None:
    for given in trace.given:
        if given.role in NAMED and not given.idle and given.name not in begun:
            left = next((result for result in trace.results if result.name == given.name), None)
            raise UnsupportedError(_alone(trace, given, left, reference))


def _alone(trace: Trace, given: Given, left: Result | None, reference: Trace) -> str:
    changed = _changed(trace)
    if given.role == "gradient" and reference.accumulated and changed and not _changed(reference):
        first = changed[0]
        return (
            f"rank {trace.rank} changes the parameter {first.name!r}{_place(trace, first.value)}, "
            f"and the reference changes none. So only rank {trace.rank} is taken to train on with "
            f"the gradients that its call before left, to which both add. If the parameter is to "
            f"change, change it in both programs; if not, see what is passed there, such as a "
            f"parameter for its gradient. Or zero the gradients in both"
        )
    if given.role == "gradient":
        return (
            f"rank {trace.rank} adds to {given.name!r}, the gradient that its call before left, "
            f"and the reference has none by then; "
            "zero the gradients in both programs"
        )
    written = "" if left is None else _place(trace, left.value)
    return (
        f"rank {trace.rank} reads {given.name!r}, which its call before left, and changes "
        f"it{written}; the reference has no such state, so it is not compared; "
        "name it in Program.state of both programs"
    )


def _check_results(trace: Trace, theirs: Collection[Key], begun: Collection[str]) -> None:
    for result in trace.results:
        passing = result.own or result.kind in ("output", "scores")
        if not result.asked or passing or _key(result) in theirs:
            continue
        written = _place(trace, result.value)
        if result.kind == "updated":
            raise UnsupportedError(
                f"rank {trace.rank} changes {result.name!r}{written}, which the reference does "
                f"not have; it is changed and not compared"
            )
        if result.name in begun:
            raise UnsupportedError(
                f"rank {trace.rank} leaves a gradient of {result.name!r}{written}, which has none "
                f"in the reference; it is changed and not compared"
            )


def _with_numbers(reference: Trace, traces: Sequence[Trace]) -> tuple[Trace, list[Trace]]:
    """Return both programs, whose results have each known number that goes on and differs.

    Raises UnsupportedError for a number that one program alone has or changes, or that is of
    another dtype or shape.
    """
    known = {number.name: number for number in reference.numbers}
    differ: dict[str, None] = {}
    for trace in traces:
        for number in trace.numbers:
            there = known.get(number.name)
            at = f" at {number.source}" if number.source else ""
            if there is None:
                raise UnsupportedError(
                    f"rank {trace.rank} changes {number.name!r}{at}, which the reference does not "
                    f"have or leaves as it is"
                )
            if there.text != number.text:
                if there.value != number.value or None in (there.filled, number.filled):
                    raise UnsupportedError(
                        f"{number.name!r} is {number.text} after the step of rank "
                        f"{trace.rank}{at}, and {there.text} in the reference"
                    )
                differ[number.name] = None
    missing = known.keys() - {number.name for trace in traces for number in trace.numbers}
    if missing:
        raise UnsupportedError(
            f"the reference changes {min(missing)!r}, which no rank has or changes"
        )
    return _with_results(reference, differ), [_with_results(trace, differ) for trace in traces]


def _with_results(trace: Trace, names: Collection[str]) -> Trace:
    """Return a program whose results have some of its known numbers."""
    for number in trace.numbers:
        if number.name in names:
            value, place = number.value, len(trace.values)
            filled = (value.shape, number.filled, value.dtype, None, None, None)
            made = Event("full.default", filled, (place,), source=number.source)
            trace = replace(
                trace,
                values=(*trace.values, value),
                events=(*trace.events, made),
                results=(*trace.results, Result(place, "updated", number.name)),
            )
    return trace


def _check_accumulated(reference: Trace, traces: Sequence[Trace]) -> None:
    """Raise UnsupportedError if a rank adds to old gradients and the reference does not.

    This applies to a reference that changes no parameter, whose gradients nobody need zero.
    """
    if _changed(reference):
        return
    ends = {result.name for result in reference.results if result.kind == "gradient"}
    for trace in traces:
        differ = sorted(ends & set(trace.accumulated) - set(reference.accumulated))
        if differ:
            raise UnsupportedError(
                f"rank {trace.rank} adds to the gradient of {differ[0]!r} that its call before "
                f"left, and the reference does not; zero it in the step"
            )


def _changed(trace: Trace) -> list[Result]:
    """Return the parameters that a step changes."""
    parameters = {given.name for given in trace.given if given.role == "parameter"}
    return [
        result
        for result in trace.results
        if result.kind == "updated" and result.asked and result.name in parameters
    ]


def _said(
    reference: Trace, traces: Sequence[Trace], asked: Collection[Key], dead: Collection[str]
) -> list[str]:
    """Return the sentences that say what is proven, and about which state."""
    roles = {given.name: given.role for trace in (*traces, reference) for given in trace.given}
    counts: Counter[str] = Counter(
        roles[name] for kind, name in asked if kind == "updated" and name in roles
    )
    numbers = len(reference.numbers)
    found = [(counts[role], one, many) for role, one, many in KINDS]
    found += [
        (sum(kind == "gradient" for kind, _ in asked), "gradient", "gradients"),
        (numbers, "known number as of that call", "known numbers as of that call"),
    ]
    parts = [f"{count} {one if count == 1 else many}" for count, one, many in found if count]
    said = [
        "what is proven is the second call of step, and every later one that runs the same "
        "operators, "
        f"from equal parameters and state on all ranks; compared of what it leaves: "
        f"{', '.join(parts) or 'nothing'}"
    ]
    if dead:
        said.append(
            f"gradients that are cleared after their parameters were changed, and read by no "
            f"later call, are not compared: {min(dead)!r}, {len(dead)} in all"
        )
    if reference.accumulated:
        said.append(
            "step adds to the gradients and changes no parameter: gradients are taken to be "
            "zeroed between its calls"
        )
    return said
