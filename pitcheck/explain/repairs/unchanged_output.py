"""Outputs that are what the plan is given, with nothing done: the term or the operator that is
missing.
"""

from __future__ import annotations

import numpy as np

from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.repairs.missing_operator import applied, left_out
from pitcheck.explain.repairs.missing_term_or_factor import called_alike
from pitcheck.explain.rerun import Read, Rerun

MOST_TERMS = 64
"""Tensors that are tried as the missing term."""


def not_changed(rerun: Rerun, number: int) -> Diagnosis | None:
    """The term without which an output is what was given (of a parameter its update), or the
    operator. None where it is computed, or none makes it right.
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
    # What nothing reads any more is rather what is missing.
    for term in sorted(
        terms,
        key=lambda v: (
            v in evidence.readers,
            -called_alike(evidence.name(v), name),
            -graph.depth(v),
        ),
    )[:MOST_TERMS]:
        for kind in ("sub", "add"):
            result = rerun.one(kind, {}, [Read(value, codes), Read(term, codes)], len(codes))
            if result is not None and rerun.is_output(number, result, codes):
                of = messages.NOT_UPDATED if kind == "add" else messages.NOT_UPDATED_NEGATED
                facts = {
                    "output": evidence.run.comparisons[number].target.name,
                    "result": name,
                    "term": evidence.name(term),
                }
                return Diagnosis(
                    of, facts, codes, next(iter(evidence.writers.get(term, [])), None), value
                )
    return None
