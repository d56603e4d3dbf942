"""Pairs of a reference and a parallel program on small models, and how they are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from pitcheck.base.options import Options
from pitcheck.engine.check import check
from pitcheck.execution.judge import judge
from pitcheck.models.config import Attention, Batch, Model
from pitcheck.models.presets import preset
from pitcheck.models.reference import reference_plan
from pitcheck.plan.model import Plan
from pitcheck.plan.validate import validate
from pitcheck.programs.layout import Layout
from pitcheck.programs.parallel_plan import flat_parameters, parallel_plan
from pitcheck.prove.prover import Ledger, Prover
from pitcheck.report.report import Report


@dataclass(frozen=True)
class Case:
    """A model, its batch, and how it is spread."""

    model: Model
    batch: Batch
    layout: Layout

    def plans(self) -> tuple[Plan, Plan]:
        """The reference and the parallel plan."""
        flat = flat_parameters(self.model, self.batch, self.layout)
        return reference_plan(self.model, self.batch, flat=flat), parallel_plan(
            self.model, self.batch, self.layout
        )


def llama(layers: int = 2, **changes: Any) -> Model:
    """Four query heads share two key-value heads."""
    return replace(preset("llama3-8b-tiny"), layers=layers, **changes)


def gpt(layers: int = 2, multiple: int = 2) -> Model:
    """Learned positions, a tied embedding, biases, a fused weight."""
    return replace(preset("gpt3-175b-tiny"), layers=layers, vocabulary=39).padded(multiple)


FUSED = Attention(4, 2, 4, fused=True)


def case(model: Model, sequences: int = 4, length: int = 8, **layout: Any) -> Case:
    """A case by its layout's fields."""
    return Case(model, Batch(sequences, length), Layout(**layout))


SLOWLY = ([pytest.mark.slow], [pytest.mark.slow, pytest.mark.nightly])
"""In CI, and in a nightly job alone."""


def layouts(fast: Mapping[str, Case], slow: Mapping[str, Case]) -> list[Any]:
    """Return cases by name as parameters of one test. CI runs every sixth of the slow ones; random
    combinations, too, have what is in them.
    """
    return [
        *(pytest.param(case, id=name) for name, case in fast.items()),
        *(
            pytest.param(case, id=name, marks=SLOWLY[place % 6 > 0])
            for place, (name, case) in enumerate(slow.items())
        ),
    ]


def assert_right(case: Case) -> None:
    """Valid, right by the independent executor, and equivalent, proven along the hints alone."""
    reference, parallel = case.plans()
    assert [str(violation) for violation in validate(parallel, reference)] == []
    judgement = judge(reference, parallel, 0)
    assert judgement.same, judgement
    found: list[bool] = []

    def spied(prover: Prover, cuts: Any) -> Ledger | None:
        ledger = hope(prover, cuts)
        found.append(ledger is not None)
        return ledger

    hope = Prover.hope
    with patch.object(Prover, "hope", spied):
        report = check(reference, parallel, Options(seed=1))
    assert report.verdict == "equivalent", said(report)
    assert report.outputs.proven == len(reference.outputs)
    assert found == [True], "hints did not carry the proof"


def said(report: Report) -> str:
    """The verdict and the first findings."""
    return f"{report.verdict}: " + "; ".join(
        f"{f.code} {f.title} ({f.operator})" for f in report.findings[:3]
    )
