"""Trying mutants of a recorded program: does the float64 replay show another result, and what does
pitcheck say?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod

import numpy as np
from frontends.torch.programs.trace_mutants import Mutant, mutants
from frontends.torch.replay import StuckError, Together, Truth, difference, truth

from pitcheck.commands.checking.pair import checked
from pitcheck.frontends.torch.planning.build import parallel_plan, reference_plan
from pitcheck.frontends.torch.planning.plan_lineage import axes_of
from pitcheck.frontends.torch.recording.record import record
from pitcheck.plan.model import Plan
from pitcheck.report.report import Report
from pitcheck.torch import Options, Part, Spec

CHANGED = 1e-6
"""Relative difference from which on a result is another one; float64 rounds to about 1e-12 here."""
RIGHT = {
    "dropped": {"PIT104", "PIT106", "PIT107", "PIT108", "PIT109", "PIT110", "PIT113"},
    "doubled": {"PIT105"},
    "kind": {"PIT111", "PIT101"},
    "regrouped": {"PIT104", "PIT105", "PIT106", "PIT107"},
    "scaled": {"PIT101", "PIT102"},
    "stale": {"PIT103", "PIT107", "PIT108", "PIT116"},
    "swapped": {"PIT103", "PIT107", "PIT108", "PIT116"},
    "peer": set(),
}
"""By kind of mistake the causes of a mismatch that say what was done."""


@dataclass(frozen=True)
class Tried:
    """A mutant, by how much it changes a result (infinitely where it cannot run), and the report on
    it.
    """

    mutant: Mutant
    change: float
    report: Report

    @property
    def changing(self) -> bool:
        """True if the mutant changes a result."""
        return self.change > CHANGED

    @property
    def code(self) -> str:
        """The code of the first finding that is no warning."""
        return next(
            (finding.code for finding in self.report.findings if finding.verdict != "warning"), ""
        )

    @property
    def right(self) -> bool:
        """True if the first finding names the mistake that was made."""
        return self.report.verdict == "invalid" or self.code in RIGHT[self.mutant.kind]

    @property
    def settled(self) -> bool:
        """Caught if it changes a result; else proven, or refused because it cannot run."""
        if self.code == "PIT900":
            return False
        return self.report.verdict in (
            ("mismatch", "invalid") if self.changing else ("equivalent",)
        )


class Trial:
    """A program with what its mutants are held against. What is wrong with the program as it is
    raises.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        reference = record(spec, "reference", 1)[0]
        self._reference: Plan = reference_plan(reference, spec)
        self._traces = record(spec, "parallel", 2)
        self._truth = _compared(
            truth(spec, gradients=any(result.kind == "gradient" for result in reference.results)),
            self._traces,
        )
        self._together = {
            ("output", name): _together(part, spec.mesh) for name, part in spec.outputs.items()
        }
        self._report(self._traces, "equivalent")
        if self._change(Mutant("", "", self._traces)) > CHANGED:
            raise AssertionError("the program does not compute what the reference does")

    def tried(self, every: int = 1, first: int = 0) -> Iterator[Tried]:
        """All mutants; ``every`` so many of them, from the ``first`` on."""
        for number, mutant in enumerate(mutants(self._traces, self._spec.mesh)):
            if number % every == first:
                yield Tried(mutant, self._change(mutant), self._report(mutant.traces))

    def _report(self, traces: list, verdict: str | None = None) -> Report:
        report = checked(
            [
                lambda: [self._reference],
                lambda: [parallel_plan(traces, self._spec, self._reference)],
            ],
            Options(seed=1, jobs=1),
        )
        if verdict is not None and report.verdict != verdict:
            raise AssertionError((report.verdict, report.findings))
        return report

    def _change(self, mutant: Mutant) -> float:
        try:
            return difference(
                mutant.traces, self._truth.tensors, self._truth.results, together=self._together
            )
        except (StuckError, AssertionError, RuntimeError, ValueError, IndexError):
            # Ranks that wait for ever, disagree on what they do, or have tensors that do not fit.
            return inf


def _compared(true: Truth, traces: list) -> Truth:
    """Return the truth of the results that some rank has."""
    held = {(result.kind, result.name) for trace in traces for result in trace.results}
    return Truth(true.tensors, {key: value for key, value in true.results.items() if key in held})


def _together(part: Part, mesh: Mapping[str, int]) -> Together:
    """The ranks whose terms are added up."""
    if part.split:
        raise NotImplementedError("outputs that ranks hold parts of")
    axes = axes_of(part.sum) or axes_of(part.mean)
    names, sizes = list(mesh), tuple(mesh.values())
    grid = np.moveaxis(
        np.arange(prod(sizes)).reshape(sizes),
        [names.index(axis) for axis in axes],
        range(-len(axes), 0),
    )
    count = prod(mesh[axis] for axis in axes)
    rows = grid.reshape(-1, count).tolist()
    return {rank: row for row in rows for rank in row}, count if part.mean else 1
