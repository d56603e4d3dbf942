"""Memory that nobody has written to: the outputs that depend on it, and plans with known contents.

``uninitialised`` gives any value, on every coordinate and side. An output that no label of such
memory reaches is the same whatever lies there, so plans are compared with zeros there, for all
other contents at once. An output that a label reaches is never called equivalent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import Any

import numpy as np
from msgspec.structs import replace

from pitcheck.algebra.dependence.taint import TaintAlgebra, Tainted
from pitcheck.algebra.dependence.taint_mask import Labels, joined
from pitcheck.algebra.interface import Kind
from pitcheck.claims.problem import Problem
from pitcheck.errors import UnsupportedError
from pitcheck.graph.cuts import FREE, Box, length
from pitcheck.graph.graph import Graph, Node, kind_of
from pitcheck.graph.grids import Grid, Mask, either, near
from pitcheck.ops.meanings.indexing import UNINITIALISED
from pitcheck.ops.registry import evaluate
from pitcheck.plan.model import Operator, Plan
from pitcheck.report.report import Finding
from pitcheck.stage.batch import Batch, extract
from pitcheck.stage.run_batch import run_batch, step_at

PLUS, MINUS, ZERO, NAN = "plus", "minus", "zero", "nan"
CONTENTS = ((PLUS, MINUS), (MINUS, PLUS), (PLUS, ZERO), (ZERO, PLUS), (PLUS, NAN), (NAN, PLUS))
"""The contents of that memory in the reference and in the parallel plan while a difference is
looked for. Numbers come first: a witness can have them.
"""
REPAIR = "write to all of it before it is read, or use only the part that is written"
"""The advice for such memory."""
REPAIR_OF_COLLECTIVE = (
    "use the result on the root alone (let what reads it, and an 'identity' "
    "for an output, run there: 'where'), or give it to all ranks"
)
"""The advice for what a reduce or gather leaves on ranks other than its root."""
MOST_NAMED = 8
"""The number of outputs that are named because they depend on such memory."""


@dataclass(frozen=True)
class Reached:
    """Memory that ``node`` made and nobody has written to, and what depends on it.

    That is an output of ``side``, or a use there (``used``).
    """

    side: str
    node: Node
    output: str = ""
    used: str = ""
    ranks: tuple[int, ...] = ()
    microbatches: tuple[int, ...] = ()
    of_collective: bool = False
    """True for what a reduce or gather leaves on ranks that are not its root."""

    @property
    def title(self) -> str:
        """Return the dependence as a sentence."""
        made = f"memory that {self.node.operator!r} made and nobody has written to"
        if self.of_collective:
            made = (
                f"what {self.node.operator!r} leaves on ranks that are not its root, which is "
                f"undefined"
            )
        if self.used:
            return f"{self.side} plan: {made} is used as {self.used}: any number may lie there"
        return f"{self.side} plan: {self.output!r} depends on {made}: any value may lie there"

    def finding(self) -> Finding:
        """Return the finding to report if no run shows a difference."""
        return Finding(
            code="PIT207",
            verdict="inconclusive",
            title=self.title,
            output=self.output or None,
            operator=self.node.operator,
            source=self.node.source or None,
            ranks=self.ranks,
            microbatches=self.microbatches,
            repair=self.repair,
        )

    @property
    def repair(self) -> str:
        """Return the advice."""
        return REPAIR_OF_COLLECTIVE if self.of_collective else REPAIR


def reached(problem: Problem) -> list[Reached]:
    """Return the outputs that may depend on memory that nobody has written to, and its misuses.

    A misuse is an integer from there that is an index or a divisor.

    Raises:
        StepError: an operator cannot be followed.
    """
    first, second, expected = problem.reference, problem.parallel, problem.specification.expected
    theirs: dict[int, Mask] = {
        e.cut.reference: np.ones(first.anywhere, dtype=np.bool_) for e in expected
    }
    ours: dict[int, Mask] = {}
    for e in expected:
        ours[e.cut.value] = either(
            ours.get(e.cut.value), near(e.where, second.values[e.cut.value].home)
        )
    found: list[Reached] = []
    if _has_any(first):
        run = _Run("reference", first, theirs)
        for e in expected:
            found += run.reaching(e.name, e.cut.reference, {})
        found += run.misused()
    if _has_any(second):
        run = _Run("parallel", second, ours)
        for e in expected:
            codes = e.cut.lattice.codes(e.where)
            found += run.reaching(
                e.name,
                e.cut.value,
                {int(code): e.cut.parts[int(e.cut.part_of[code])].box for code in codes},
            )
        found += run.misused()
    return found


def _has_any(graph: Graph) -> bool:
    """Return True if a graph has such memory."""
    return any(node.kind == UNINITIALISED for node in graph.nodes)


class _Run:
    """A graph's computation of some values, run on labels at full sizes.

    All that is given from outside is one value without a label.
    """

    def __init__(self, side: str, graph: Graph, targets: Mapping[int, Mask]) -> None:
        self.side = side
        self.graph = graph
        given = np.zeros(graph.anywhere, dtype=np.int64)

        def boundary(value: int) -> Grid | None:
            return None if graph.values[value].writers else given

        self.batch: Batch = extract(graph, targets, boundary)
        if self.batch.missing:
            names = ", ".join(repr(graph.values[value].name) for value in self.batch.missing)
            raise UnsupportedError(
                f"{names} of the {side} plan is needed where nothing computes it"
            )
        self.algebra = TaintAlgebra()
        self.values: dict[int, Tainted] = {}
        if not any(step.kind == UNINITIALISED for step in self.batch.steps):
            return
        inputs = {
            value: self.algebra.clean(graph.values[value].kind, graph.values[value].shape)
            for value in self.batch.inputs
        }
        self.values = run_batch(
            self.batch, self.algebra, inputs, evaluator=self._evaluated, keep=targets.keys()
        )

    def _evaluated(
        self,
        algebra: Any,
        kind: str,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        wanted: Sequence[bool] | None,
    ) -> list[Any]:
        """Evaluate a step; memory that nobody has written to gets the label of its node."""
        if kind != UNINITIALISED:
            return evaluate(algebra, kind, inputs, attributes, wanted)
        step = step_at(self.algebra.site, "")
        label = 0 if step is None else self.batch.steps[step].node + 1
        made: Kind = kind_of(str(attributes.get("dtype", "float32")))
        return [self.algebra.labelled(label, made, attributes["sizes"])]

    def reaching(self, output: str, value: int, boxes: Mapping[int, Box]) -> Iterator[Reached]:
        """Yield the memory of every label that some element of an output has.

        ``boxes``: the parts at the coordinates of the output; none for all coordinates. Padding on
        which nothing may depend is left out.
        """
        held = self.values.get(value)
        if held is None or held.labels is None:
            return
        rows = self.batch.rows[value]
        by_label: dict[int, list[int]] = {}
        known: dict[tuple[int, Box | None], int] = {}
        for code in boxes or np.flatnonzero(rows >= 0).tolist():
            key = 0 if held.labels.rows == 1 else int(rows[code]), boxes.get(code)
            if key not in known:
                known[key] = _label(held.labels, *key)
            if known[key]:
                by_label.setdefault(known[key], []).append(code)
        for label, codes in by_label.items():
            places = [self.graph.place(code) for code in codes]
            ranks, microbatches = (tuple(sorted({place[i] for place in places})) for i in (0, 1))
            yield replaced(
                self._reached(label), output=output, ranks=ranks, microbatches=microbatches
            )

    def misused(self) -> Iterator[Reached]:
        """Yield the memory of every index and divisor that has a label."""
        for label, what in dict.fromkeys(
            (misuse.label, misuse.what) for misuse in self.algebra.misused
        ):
            yield replaced(self._reached(label), used=what)

    def _reached(self, label: int) -> Reached:
        """Return the memory of a label."""
        made = self.graph.nodes[label - 1]
        of_collective = any(
            node.position == made.position and node.kind != UNINITIALISED
            for node in self.graph.nodes
        )
        return Reached(self.side, made, of_collective=of_collective)


def _label(labels: Labels, row: int, box: Box | None) -> int:
    """Return the largest label of a row outside the free padding of a box."""
    left = Labels(labels.cuts, labels.cells[row : row + 1])
    for dim, intervals in enumerate(box or ()):
        if any(start == FREE for start, _ in intervals):
            kept, position = [], 0
            for interval in intervals:
                if interval[0] != FREE:
                    kept.append(left.part(dim, position, position + length(interval)))
                position += length(interval)
            if not kept:
                return 0
            left = joined(kept, dim)
    return int(left.cells.max(initial=0))


# --- something definite in that memory


def filled(plan: Plan, content: str, side: str) -> Plan:
    """Return the plan with definite contents in the memory that nobody has written to.

    ``content``: numbers of one sign, different for every operator and side, or zeros, or NaN.
    """
    dtypes = {tensor.name: tensor.dtype for tensor in plan.tensors}
    operators = tuple(
        _filled(
            operator,
            content,
            2 * number + (side == "parallel"),
            kind_of(dtypes[operator.outputs[0]]),
        )
        if operator.kind == UNINITIALISED
        else operator
        for number, operator in enumerate(plan.operators)
    )
    return replace(plan, operators=operators)


def _filled(operator: Operator, content: str, number: int, kind: Kind) -> Operator:
    """Return an operator that gives a definite number in place of unwritten memory."""
    sign = {MINUS: -1, ZERO: 0}.get(content, 1)
    field = "nan" if content == NAN else f"{sign * (8 * (number % 7) + 5)}/8"
    value = {"field": field, "int": sign * (1009 + number), "bool": int(content in (PLUS, NAN))}[
        kind
    ]
    return replace(operator, kind="full", attributes={**operator.attributes, "value": value})


def blamed(findings: Sequence[Finding], found: Sequence[Reached]) -> list[Finding]:
    """Return the findings of a mismatch in plans that are :func:`filled`, with the true cause.

    Such memory is the cause for every output that it reaches, whatever else looks like one.
    """
    causes = {each.output: each for each in reversed(found)}
    result: list[Finding] = []
    for finding in findings:
        cause = causes.get(finding.output or "")
        if cause is None or finding.verdict != "mismatch":
            result.append(finding)
        elif not any(other.code == "PIT118" and other.output == finding.output for other in result):
            result.append(_caused(finding, cause))
    return result


def _caused(finding: Finding, cause: Reached) -> Finding:
    """Return a finding that names unwritten memory as its cause."""
    said = "the values shown are those with something definite there; other contents give others"
    return replace(
        finding,
        code="PIT118",
        title=cause.title,
        operator=cause.node.operator,
        source=cause.node.source or None,
        cause=said,
        repair=cause.repair,
        edits=(),
    )
