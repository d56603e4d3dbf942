"""Inputs that stand for outputs of the same plans, as the state of a loop does.

Proofs are about inputs that are finite numbers. What an iteration gives may be infinite, or have no
value. Then a proof for all inputs says nothing of the next iteration.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> from pitcheck.prove.proof import Settings
>>> from pitcheck.prove.prover import Prover
>>> import numpy as np
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> prover = Prover(Problem.of(plan, plan), Settings(np, 1, -64.0, 1, False, 1 << 30))
>>> prover.refusal_of(prover.run({}), {"x0": ("y",)})
''
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pitcheck.claims.problem import Problem
from pitcheck.graph.cuts import Cut
from pitcheck.prove.domains.reference_signs import Signs
from pitcheck.prove.domains.without_value import Claim, WithoutValue
from pitcheck.prove.proof import Settings


class OfOutput(Claim, Protocol):
    """An obligation, which names the output that it is; "" between outputs."""

    @property
    def output(self) -> str: ...


def refusal(
    problem: Problem,
    signs: Signs,
    without_value: WithoutValue,
    claims: Sequence[OfOutput],
    usable: Mapping[int, Cut],
    settings: Settings,
    states: Mapping[str, Sequence[str]],
) -> str:
    """Return why outputs may not be taken for inputs; "" if they may.

    Args:
        problem: both plans.
        signs: the signs of the reference's values.
        without_value: what they may lack.
        claims: the proven obligations, each before those that it stands on.
        usable: the cuts that they stand on.
        settings: those of the proofs.
        states: by the name of an input of the reference, the outputs that it stands for.
    """
    given = {
        value.tensor.name: number
        for number, value in enumerate(problem.reference.values)
        if not value.writers
    }
    standing: dict[int, list[int]] = {}
    for name, outputs in states.items():
        if name not in given:
            return f"{name!r} is no input"
        standing[given[name]] = []
        for output in outputs:
            shown = [claim.target.cut.reference for claim in claims if claim.output == output]
            if not shown:
                return f"{output!r} is not proven"
            if any(map(signs.may_be_infinite, shown)):
                return f"{output!r} may be infinite"
            standing[given[name]] += shown
    if not without_value.returns(claims, usable, settings, standing):
        return "the parallel plan may lack a value that the reference has, where a state lacks one"
    return ""
