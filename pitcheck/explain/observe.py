"""The place where a mistake begins, and its cause, as the values of one run show them.

Three places are looked at in turn: the first operator that reads what it should and computes
something else, the values on the way to the outputs, and the outputs themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pitcheck.errors import PitcheckError
from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.observations.observation import (
    AtOperator,
    AtOutput,
    Observation,
    OnTheWay,
    View,
)
from pitcheck.explain.observations.operators import other_operator
from pitcheck.explain.ratios import ratio_cause
from pitcheck.explain.table import AT_OPERATOR, AT_OUTPUT, ON_THE_WAY
from pitcheck.explain.wrong_values import WrongValues
from pitcheck.refute.whole_run import WholeRun
from pitcheck.stage.batch import Step

READS_RIGHT = Kind(
    "PIT100",
    "what operator {operator!r} reads is right and its result {called} is not what it should be; "
    "no known cause explains it",
)
READS_UNKNOWN = Kind(
    "PIT100",
    "nothing says that what operator {operator!r} reads is wrong, but its result {called} is not "
    "what it should be; no known cause explains it",
)
RESULT_UNKNOWN = Kind(
    "PIT100",
    "what operator {operator!r} reads is right and its result {called} is no part of any tensor of "
    "the reference; nothing says what it should be, and no known cause explains it",
)
BOTH_UNKNOWN = Kind(
    "PIT100",
    "nothing says that what operator {operator!r} reads is wrong, and its result {called} is no "
    "part of any tensor of the reference; no known cause explains it",
)
NOT_LOOKED_AT = Kind("PIT100", "cause not found: the values could not be looked at ({error})")
NOT_FOUND = Kind("PIT100", "cause not found: none of the known causes explains the values")
LEFT_AS_GIVEN = Kind(
    "PIT108",
    "{output!r} is {result!r} as it was given: no rank does what {left_out!r} ({function}) of the "
    "reference does",
    "run {function} on {result!r}: does its gradient reach the operator that updates it?",
    edits=("+ {function} of {result!r}, as {left_out!r} of the reference",),
)


@dataclass(frozen=True)
class Located:
    """A diagnosis with its value and coordinates, and the step at fault (None: nothing writes it).

    ``number``: the output that shows it.
    """

    number: int
    diagnosis: Diagnosis
    value: int
    others: tuple[Located, ...] = ()
    """The further places where the same mistake was made."""

    def operator(self, evidence: Evidence) -> str | None:
        """Return the plan's operator at fault; None if nothing computes what is wrong."""
        return None if self.diagnosis.step is None else evidence.operator(self.diagnosis.step)


def at(evidence: Evidence, number: int, step: Step | None, value: int, found: Diagnosis) -> Located:
    """Return a diagnosis located at output ``number``.

    ``step`` and ``value`` fill in what the diagnosis leaves open, and so do the coordinates of its
    value.
    """
    value = value if found.value is None else found.value
    codes = found.codes if found.codes is not None else evidence.codes(value)
    return Located(number, dataclasses.replace(found, codes=codes, step=found.step or step), value)


def located(evidence: Evidence, run: WholeRun, differing: Sequence[int]) -> Located:
    """Return the mistake at the first value from which an output goes wrong.

    If the values cannot be looked at, it only says that an output differs.
    """
    try:
        return _located(evidence, run, differing)
    except PitcheckError as error:
        number = _nearest(evidence, run, differing)[0]
        unknown = Diagnosis(NOT_LOOKED_AT, {"error": error})
        return at(evidence, number, None, run.comparisons[number].target.cut.value, unknown)


def cause_at(view: AtOperator) -> Diagnosis:
    """Return the cause of a wrong result at the operator where it begins; PIT100 if none shows."""
    cause = _first(AT_OPERATOR, view)
    if cause is None:
        reads_right = view.expected.compares(view.step, view.codes)
        facts = {
            "operator": view.evidence.operator(view.step),
            "called": view.evidence.called(view.value),
        }
        known = (READS_UNKNOWN, READS_RIGHT)
        unknown = (BOTH_UNKNOWN, RESULT_UNKNOWN)
        cause = Diagnosis((unknown if view.due is None else known)[reads_right], facts)
    return cause if cause.codes is not None else dataclasses.replace(cause, codes=view.codes)


def _first(observations: Iterable[Observation[View]], view: View) -> Diagnosis | None:
    """Return what the first observation sees that sees anything."""
    seen = (observation.see(view) for observation in observations)
    return next((diagnosis for diagnosis in seen if diagnosis is not None), None)


def _nearest(evidence: Evidence, run: WholeRun, differing: Sequence[int]) -> list[int]:
    """Return the outputs in the order of the program."""
    return sorted(
        differing, key=lambda n: evidence.second.depth(run.comparisons[n].target.cut.value)
    )


def _located(evidence: Evidence, run: WholeRun, differing: Sequence[int]) -> Located:
    expected = WrongValues(evidence)
    rooted, sure = _rooted(expected, run, differing)
    if rooted is not None and (sure or expected.hinted):
        return rooted
    if not expected.hinted:
        # Every factor may be one that should not be there.
        again, sure = _rooted(WrongValues(evidence, unscaled=True), run, differing)
        if again is not None and sure:
            return again
    found = _on_the_way(evidence, run, differing) or _at_outputs(evidence, run, differing)
    return rooted if rooted is not None and not found.diagnosis.explains else found


def _rooted(
    expected: WrongValues, run: WholeRun, differing: Sequence[int]
) -> tuple[Located | None, bool]:
    """Return the mistake at the first wrong operator.

    Returns:
        The mistake, None if there is no such operator; True if it has a cause before the outputs.
    """
    evidence = expected.evidence
    for n in _nearest(evidence, run, differing):
        root = next(iter(expected.roots([run.comparisons[n].target.cut.value])), None)
        if root is not None:
            cause = cause_at(AtOperator(expected, root))
            value = root.value if cause.value is None else cause.value
            sure = cause.explains and not expected.is_output(value)
            return at(evidence, n, root.step, root.value, cause), sure
    return None, False


# --- on the way


def _on_the_way(evidence: Evidence, run: WholeRun, differing: Sequence[int]) -> Located | None:
    """Return the first mistake that a value on the way to the outputs shows."""
    suspects = _suspects(evidence, run, differing)
    # A value that a collective reduces is looked at last: the mistake may come after that.
    for step, value in sorted(suspects, key=lambda s: bool(evidence.reductions_of(s[1]))):
        cause = _cause_inside(evidence, run, value)
        if cause is not None and (not cause.reduced or not _explained(evidence, run, differing)):
            return at(evidence, _nearest(evidence, run, differing)[0], step, value, cause)
    return None


def _explained(evidence: Evidence, run: WholeRun, differing: Sequence[int]) -> bool:
    """Return True if the outputs themselves show a cause."""
    return any(_first(AT_OUTPUT, AtOutput(evidence, run.comparisons[n])) for n in differing)


def _cause_inside(evidence: Evidence, run: WholeRun, value: int) -> Diagnosis | None:
    """Return the mistake that a value shows; None for an output that holds parts of its tensor."""
    cut = evidence.cuts.get(value)
    target = next((c.target for c in run.comparisons if c.target.cut.value == value), None)
    if target is not None and (cut is None or target.cut.reference == cut.reference):
        return None
    return _first(ON_THE_WAY, OnTheWay(evidence, value))


def _suspects(
    evidence: Evidence, run: WholeRun, differing: Sequence[int]
) -> list[tuple[Step, int]]:
    """Return the values to look at and their writers, in the order of computation.

    These are the values through which outputs go wrong, what those are computed from, and before
    that parts that are doubled.
    """
    wrong = set().union(*(_chain(evidence, run.comparisons[n].target.cut.value) for n in differing))
    needed = {
        source
        for value in wrong
        for step in evidence.writers.get(value, [])
        for source in evidence.inputs(step)
    }
    stack = [value for value in needed if value not in wrong]
    while stack:
        for step in evidence.writers.get(stack.pop(), []):
            for source in evidence.inputs(step):
                if source in needed or source not in evidence.cuts:
                    continue
                if _cause_inside(evidence, run, source) is not None:
                    needed.add(source)
                    stack.append(source)
    found: dict[int, Step] = {}
    for step in evidence.batch.steps:
        for output in evidence.outputs(step):
            if output in wrong or output in needed:
                found.setdefault(output, step)
    return [(step, value) for value, step in found.items()]


def _chain(evidence: Evidence, value: int) -> set[int]:
    """Return the values back from an output through what is not known to be right."""
    chain, stack = {value}, [value]
    while stack:
        for step in evidence.writers.get(stack.pop(), []):
            for source in evidence.inputs(step):
                known = evidence.is_true(source) or source in evidence.unused(step)
                if source not in chain and not known:
                    chain.add(source)
                    stack.append(source)
    return chain


# --- at the outputs


def _at_outputs(evidence: Evidence, run: WholeRun, differing: Sequence[int]) -> Located:
    """Return the mistake that the outputs themselves show; the first cause counts."""
    given = _left_as_given(evidence, run, differing)
    if given is not None:
        return given
    number, *_ = outputs = _nearest(evidence, run, differing)
    origin = _first_computed_wrong(evidence, run, number)
    cause = _cause_of_first(evidence, run, number, origin)
    if cause is not None and origin is not None:
        return at(evidence, number, *origin, cause)
    for n in outputs:
        cause = _first(AT_OUTPUT, AtOutput(evidence, run.comparisons[n]))
        if cause is not None:
            value = run.comparisons[n].target.cut.value
            return at(evidence, n, _last_writer(evidence, value), value, cause)
    value = run.comparisons[number].target.cut.value
    step, value = origin or (_last_writer(evidence, value), value)
    cause = None
    if origin is None and step is not None:
        cause = other_operator(evidence, step, evidence.holds)
    return at(evidence, number, step, value, cause or Diagnosis(NOT_FOUND))


def _last_writer(evidence: Evidence, value: int) -> Step | None:
    return evidence.writers[value][-1] if value in evidence.writers else None


def _left_as_given(evidence: Evidence, run: WholeRun, differing: Sequence[int]) -> Located | None:
    """Return outputs that should be computed and are given, as one mistake.

    None if some of those that differ are computed.
    """
    found = []
    for n in differing:
        cut, steps = run.comparisons[n].target.cut, run.stage.reference.steps
        step = next((step for step in steps if cut.reference in step.outputs), None)
        if cut.value in evidence.writers or step is None:
            return None
        node = evidence.first.nodes[step.node]
        facts = {
            "output": run.comparisons[n].target.name,
            "result": evidence.name(cut.value),
            "left_out": node.operator,
            "function": node.kind,
        }
        found.append(at(evidence, n, None, cut.value, Diagnosis(LEFT_AS_GIVEN, facts)))
    return dataclasses.replace(found[0], others=tuple(found[1:]))


def _first_computed_wrong(
    evidence: Evidence, run: WholeRun, number: int
) -> tuple[Step, int] | None:
    """Return the first value on the way to an output that is no part of any reference value."""
    suspects = _suspects(evidence, run, [number])
    return next((each for each in suspects if not evidence.is_true(each[1])), None)


def _cause_of_first(
    evidence: Evidence, run: WholeRun, number: int, origin: tuple[Step, int] | None
) -> Diagnosis | None:
    """Return the mistake of the first wrong operator: unlike the reference's, or a factor."""
    if origin is None:
        return None
    step, value = origin
    cause = other_operator(evidence, step, evidence.holds)
    cut = evidence.cuts.get(value)
    inside = value != run.comparisons[number].target.cut.value
    if cause is None and inside and cut is not None and cut.scale != 1:
        cause = ratio_cause(evidence, value, cut.scale, evidence.codes(value))
    return cause
