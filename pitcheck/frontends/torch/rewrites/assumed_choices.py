"""Choices between two numbers whose condition is an outcome of tests for infinity and NaN.

A program may leave out an update by ``torch.where`` or ``masked_fill`` and never look at the
outcome. Of finite numbers the condition has one outcome, so the choice is the number that it takes.
This is assumed of numbers alone with which no infinity has been computed. Any other choice stays as
it is, and is proven with infinity as a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pitcheck.frontends.torch.reads.finite_tests import CHOICES, Outcome
from pitcheck.frontends.torch.recording.tape import Tape
from pitcheck.frontends.torch.trace import Event, Ref, Result, with_operands


def without_assumed_choices(tape: Tape, start: int, results: Sequence[Result]) -> list[Result]:
    """Take what is chosen for each choice of a step that began with event ``start``.

    The tape notes what is assumed by that. Waits for other ranks if they communicate a condition.

    Returns:
        The results in terms of the values that remain.
    """
    final = _Final()
    for place in range(start, len(tape.events)):
        event = tape.events[place] = with_operands(tape.events[place], final)
        taken = _taken(tape, event)
        if taken is not None and event.outputs[0] is not None:
            final[event.outputs[0]] = taken
    return [msgspec.structs.replace(result, value=final[result.value]) for result in results]


def _taken(tape: Tape, event: Event) -> int | None:
    """Return the value that a choice takes; None if no outcome tells it."""
    outcome = _outcome(tape, event)
    if outcome is None or outcome.touched.made:
        return None
    taken = tape.finite.taken(event, outcome)
    if len(taken) != 1 or not isinstance(taken[0], Ref) or event.outputs[0] is None:
        return None
    if tape.kinds[taken[0].value] != tape.kinds[event.outputs[0]]:
        return None
    tape.choose(outcome)
    return taken[0].value


def _outcome(tape: Tape, event: Event) -> Outcome | None:
    places = CHOICES.get(event.operator.partition(".")[0])
    condition = None if places is None else event.arguments[places[0]]
    if not isinstance(condition, Ref) or tape.numbers(condition.value) is not None:
        return None
    return tape.finite.outcomes.get(condition.value)


class _Final(dict[int, int]):
    """A mapping from values to those that replace them; others stay."""

    def __missing__(self, value: int) -> int:
        return value
