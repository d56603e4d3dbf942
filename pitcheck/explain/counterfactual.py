"""Whether all outputs would be right if one reduction did something else: the plan is run again so,
on the same inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import numpy as np

from pitcheck.claims.conjecture import real_differences
from pitcheck.errors import PitcheckError
from pitcheck.explain import messages
from pitcheck.explain.diagnosis import Diagnosis
from pitcheck.explain.evidence import SAME, Evidence
from pitcheck.explain.hypotheses import REDUCTIONS, factor, members_of, repeated_reduction
from pitcheck.refute.whole_run import WholeRun
from pitcheck.stage.evaluate import compare_target
from pitcheck.stage.run_batch import run_batch

MOST_RUNS = 12


def mended_by_a_reduction(
    evidence: Evidence, run: WholeRun, differing: Sequence[int]
) -> Diagnosis | None:
    """A reduction that adds up what is whole already, or takes a mean where a sum is due: where
    that alone makes every output right.
    """
    if run.blocks is not None or run.targets_only:
        return None
    for number, reduction in islice(_candidates(evidence), MOST_RUNS):
        if _right(run, number, reduction, differing):
            step = run.stage.parallel.steps[number]
            (value,) = evidence.outputs(step)
            of = messages.SUM_OF_EQUALS_TIMES if reduction == "avg" else messages.MEAN_FOR_SUM
            facts = {
                "operator": evidence.operator(step),
                "meaning": factor(evidence, Fraction(members_of(evidence, step))),
            }
            return Diagnosis(of, facts, evidence.codes(value), step, value)
    return None


def _candidates(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """(number of a step, the reduction that it might have to be) of reductions that no right output
    depends on. The mean of equal members is one of them.
    """
    for number, step in enumerate(evidence.batch.steps):
        outputs = evidence.outputs(step)
        if step.kind not in REDUCTIONS or len(outputs) != 1 or outputs[0] in evidence.behind_right:
            continue
        reduction = step.attributes.get("reduction", "sum")
        if reduction == "avg":
            yield number, "sum"
        elif (
            reduction == "sum"
            and step.kind != "reduce_scatter"
            and repeated_reduction(evidence, outputs[0])
        ):
            yield number, "avg"


def _right(run: WholeRun, number: int, reduction: str, differing: Sequence[int]) -> bool:
    """Whether the outputs are right where step ``number`` reduces so."""
    batch, before = run.stage.parallel, run.evaluated
    attributes = list(run.shaped.attributes[1])
    attributes[number] = {**attributes[number], "reduction": reduction}
    try:
        with np.errstate(all="ignore"):
            after = run_batch(
                batch,
                before.algebra,
                {value: before.parallel[value] for value in batch.inputs},
                attributes,
            )
            compared = [
                compare_target(run.shaped, replace(before, parallel=after), n) for n in differing
            ]
    except PitcheckError:  # an operator may refuse other numbers: then nothing is shown
        return False
    return all(
        not (np.where(c.judged[:1], real_differences(c.actual, c.expected), 0.0) > SAME).any()
        for c in compared
    )
