"""Outputs that are what the plan is given, with nothing done to it."""

from __future__ import annotations

import numpy as np

from pitcheck.explain.diagnosis import Diagnosis, Kind
from pitcheck.explain.repairs.missing_operator import applied, left_out
from pitcheck.explain.repairs.missing_term_or_factor import called_alike
from pitcheck.explain.rerun.changes import Read
from pitcheck.explain.rerun.rerun import Rerun

NOT_UPDATED = Kind(
    "PIT108",
    "{output!r} is {result!r} as it was given, without the term {term!r}",
    "add {term!r} once",
    edits=("+ add {term!r} to {result!r}",),
)
NOT_UPDATED_NEGATED = Kind(
    "PIT108",
    NOT_UPDATED.said,
    "take away {term!r} once",
    edits=("+ subtract {term!r} from {result!r}",),
)


MOST_TERMS = 64
"""Tensors that are tried as the missing addend."""


def not_changed(rerun: Rerun, number: int) -> Diagnosis | None:
    """Find the addend, or the operator, without which an output is what was given.

    Of a parameter the addend is its update. None if the output is computed, or nothing makes it
    right.
    """
    evidence, graph = rerun.evidence, rerun.graph
    value = evidence.run.comparisons[number].target.cut.value
    held = rerun.held(value)
    if graph.values[value].writers or held is None:
        return None
    codes, form, name = np.flatnonzero(held.rows >= 0), graph.values[value], evidence.name(value)
    for step, made in applied(rerun, value):
        if rerun.is_output(number, made, evidence.codes(value)):
            of, facts = left_out(evidence, value, step)
            return Diagnosis(of, facts, codes, None, value)
    terms = [
        v
        for v, own in enumerate(graph.values)
        if own.writers and own.shape == form.shape and own.kind == form.kind
    ]
    # A value that nothing reads any more is the likeliest one to be missing.
    for term in sorted(
        terms,
        key=lambda v: (
            v in evidence.readers,
            -called_alike(evidence.name(v), name),
            -graph.depth(v),
        ),
    )[:MOST_TERMS]:
        for kind, of in (("sub", NOT_UPDATED_NEGATED), ("add", NOT_UPDATED)):
            result = rerun.one(kind, {}, [Read(value, codes), Read(term, codes)], len(codes))
            if result is not None and rerun.is_output(number, result, codes):
                facts = {
                    "output": evidence.run.comparisons[number].target.name,
                    "result": name,
                    "term": evidence.name(term),
                }
                return Diagnosis(
                    of, facts, codes, next(iter(evidence.writers.get(term, [])), None), value
                )
    return None
