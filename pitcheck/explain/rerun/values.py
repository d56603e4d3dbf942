"""The values of a run, and operators evaluated on them at any coordinates.

How much is evaluated is bounded and counted in operators, not in seconds, so that the same plans
give the same answer everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
from pitcheck.algebra.value import Value
from pitcheck.claims.real_numbers import Floats
from pitcheck.errors import BudgetError, PitcheckError, PlanError, UnsupportedError
from pitcheck.explain.evidence import Evidence
from pitcheck.explain.rerun.changes import (
    Due,
    Given,
    Held,
    Read,
    given_at,
)
from pitcheck.graph.graph import Node
from pitcheck.graph.grids import Codes
from pitcheck.graph.parts import Box
from pitcheck.ops.registry import BACKWARD, divided, evaluate, forward_attributes
from pitcheck.stage.batch import distinct_columns
from pitcheck.stage.drawn_inputs import take_box
from pitcheck.stage.run_batch import literal_operand

MOST_OPERATORS = 6_000
"""Operators that are evaluated at most for one explanation."""
MOST_UNREAD = 60
"""Operators in a row, on which no output depends, that are evaluated for one operand."""


@dataclass
class PlanValues:
    """The values of a run of the parallel plan, with the changes that are taken for made."""

    evidence: Evidence
    spent: int = 0
    most: int = MOST_OPERATORS
    changes: dict[int, Held] = field(default_factory=dict)
    """Values after the repairs that are taken for made."""
    due: dict[int, Due] = field(default_factory=dict)
    """The numbers that values should hold, where these are known."""

    def __post_init__(self) -> None:
        run = self.evidence.run
        self.algebra = run.evaluated.algebra
        self.graph = self.evidence.second
        self.attributes: dict[int, Mapping[str, Any]] = {
            step.node: own
            for step, own in zip(run.stage.parallel.steps, run.shaped.attributes[1], strict=True)
        }
        self._held: dict[int, Held] = {}
        self._fitting: dict[str, bool] = {}
        self._filling = 0

    def held(self, value: int) -> Held | None:
        """Return a value after all changes made so far; None if it was not computed."""
        if value in self.changes:
            return self.changes[value]
        if value not in self._held:
            batch, known = self.evidence.batch, self.evidence.run.evaluated.parallel
            if value in known:
                self._held[value] = Held(known[value], batch.rows[value], batch.count(value))
        return self._held.get(value)

    def data(self, value: int) -> Floats | None:
        """Return a floating-point value at all its coordinates, shape (trials, codes, *shape).

        None if it was not computed, or is no floating-point value.
        """
        held = self.held(value)
        if held is None or held.value.kind != "field":
            return None
        return self.numbers(self.algebra.gather(held.value, held.rows[held.rows >= 0]))

    def numbers(self, value: Value) -> Floats:
        """Return the numbers of a value for every trial, shape (trials, rows, *shape)."""
        data = np.asarray(value.data, dtype=np.float64)[0]
        return np.broadcast_to(data, (len(self.algebra.trials), *data.shape[1:]))

    def shape(self, value: int) -> tuple[int, ...] | None:
        """Return the shape of a value in this run; None if it was not computed."""
        held = self.held(value)
        return None if held is None else tuple(held.value.data.shape[3:])

    def codes(self, value: int) -> Codes:
        """Return the coordinates that have a value, shape (codes,)."""
        held = self.held(value)
        return np.zeros(0, dtype=np.int64) if held is None else np.flatnonzero(held.rows >= 0)

    def fill(self, value: int, codes: Codes) -> bool:
        """Compute a value at coordinates where no output needs it.

        Returns:
            True if it is there now. Raises BudgetError if too much was computed.
        """
        held = self.held(value)
        absent = codes if held is None else codes[held.rows[codes] < 0]
        if not len(absent):
            return True
        if self._filling >= MOST_UNREAD or value in self.changes:
            return False
        self._filling += 1
        try:
            return self._filled(value, np.unique(absent))
        finally:
            self._filling -= 1

    def _filled(self, value: int, absent: Codes) -> bool:
        if not self.graph.values[value].writers:
            given = self._initial(value, absent)
            if given is not None:
                self._held[value] = self._with(self.held(value), given, absent)
            return given is not None
        for number in self.graph.values[value].writers:
            node = self.graph.nodes[number]
            codes = absent[node.mask[absent]]
            results = self.computed(node, codes) if len(codes) else {}
            if results is None or (len(codes) and value not in results):
                return False
            if len(codes):
                self._held[value] = self._with(self.held(value), results[value], codes)
        held = self.held(value)
        return held is not None and bool((held.rows[absent] >= 0).all())

    def _initial(self, value: int, codes: Codes) -> Value | None:
        """Return what the plan is given at coordinates where nothing needs it; None if unknown."""
        cut = self.evidence.specification.initial.get(value)
        if cut is None or cut.group_of is not None or (cut.part_of[codes] < 0).any():
            return None
        return self.boxes(cut.reference, [cut.parts[int(part)].box for part in cut.part_of[codes]])

    def boxes(self, reference: int, boxes: Sequence[Box]) -> Value | None:
        """Return parts of a reference value, one row each; None if the reduced sizes lack them."""
        run = self.evidence.run
        if reference not in run.evaluated.reference or any(
            start < 0 for box in boxes for intervals in box for start, _ in intervals
        ):
            return None
        whole, rows = run.evaluated.reference[reference], []
        nodes, sizes = run.symbolic.reference.values[reference].dims, run.shaped.sizes
        try:
            for box in boxes:
                reduced = tuple(
                    tuple((sizes.position(node, a), sizes.position(node, b)) for a, b in i)
                    for i, node in zip(box, nodes, strict=True)
                )
                rows.append(take_box(self.algebra, whole, reduced, "free"))
        except PitcheckError:
            return None
        return rows[0] if len(rows) == 1 else self.algebra.join(rows)  # type: ignore[no-any-return]

    def _with(self, before: Held | None, data: Value, codes: Codes) -> Held:
        """Return a value after its rows at coordinates were written anew."""
        if before is not None and before.value.data.shape[3:] != data.data.shape[3:]:
            before = None
        rows = (
            np.full(self.graph.codes, -1, dtype=np.int64) if before is None else before.rows.copy()
        )
        # A copy of rows that nobody reads any more would cost as much as the operator.
        if before is not None and _plain(before.value) and _plain(data, before.value):
            rows[codes] = -1
            if not (rows >= 0).any():
                before = None
        count = 0 if before is None else before.count
        rows[codes] = count + np.arange(len(codes))
        joined = (
            data if before is None else self.algebra.join([before.value, data], [count, len(codes)])
        )
        return Held(joined, rows, count + len(codes))

    def reads(self, node: Node, codes: Codes) -> list[Given]:
        """Return the operands of a node at coordinates."""
        return [given_at(operand, codes) for operand in node.inputs]

    def stand_at(self, node: Node) -> None:
        """Let what is decided from now on be noted as the node's, with its line."""
        line = f" at {node.source}" if node.source else ""
        self.algebra.site = f"{node.operator!r} ({node.kind}){line}"

    def computed(
        self, node: Node, codes: Codes, known: Mapping[int, Held] | None = None
    ) -> dict[int, Value] | None:
        """Return by value what a node of the plan writes at coordinates.

        None if its operands cannot be had. Raises BudgetError if too much was computed.
        """
        self.stand_at(node)
        results = self.evaluate(
            node.kind,
            self.attributes_of(node),
            self.reads(node, codes),
            len(codes),
            known,
            node.outputs,
        )
        return (
            None
            if results is None
            else {
                output: result
                for output, result in zip(node.outputs, results, strict=False)
                if output is not None and result is not None
            }
        )

    def attributes_of(self, node: Node) -> Mapping[str, Any]:
        """Return the attributes of a node at the sizes of this run."""
        number = (
            next(
                (
                    n
                    for n in self.graph.values[node.outputs[0]].writers
                    if self.graph.nodes[n] is node
                ),
                -1,
            )
            if node.outputs[0] is not None
            else -1
        )
        return self.attributes.get(number, node.attributes)

    def spend(self) -> None:
        """Count one operator. Raises BudgetError if too many were evaluated."""
        self.spent += 1
        if self.spent > self.most:
            raise BudgetError("too many operators were tried")

    def evaluate(
        self,
        kind: str,
        attributes: Mapping[str, Any],
        given: Sequence[Given],
        count: int,
        known: Mapping[int, Held] | None = None,
        outputs: Sequence[int | None] = (None,),
    ) -> list[Value | None] | None:
        """Return the results of an operator at coordinates; None if it has no value there.

        Args:
            kind: the operator, also the derivative of one.
            attributes: its attributes, at the sizes of this run.
            given: its operands.
            count: the number of coordinates, which is the number of rows of each result.
            known: values that it sees in place of the plan's.
            outputs: one entry per result; None for results that nobody wants.

        Raises:
            BudgetError: too many operators were evaluated.
        """
        self.spend()
        flat = [
            read
            for operand in given
            if isinstance(operand, (Read, tuple))
            for read in (operand if isinstance(operand, tuple) else (operand,))
        ]
        for read in flat:
            if (read.codes < 0).any() or (
                read.value not in (known or {})
                and not self.fill(read.value, read.codes.reshape(-1))
            ):
                return None
        helds = [(known or {}).get(read.value) or self.held(read.value) for read in flat]
        columns = []
        for read, held in zip(flat, helds, strict=True):
            if held is None or (held.rows[read.codes] < 0).any():
                return None
            columns.append(held.rows[read.codes])
        first, which = distinct_columns(columns, count)
        values = iter(zip(helds, columns, strict=True))
        try:
            with np.errstate(all="ignore"):
                operands = [
                    self._operand(operand, values, first)
                    if isinstance(operand, (Read, tuple))
                    else None
                    for operand in given
                ]
                discrete = bool(operands) and "field" not in {
                    self.algebra.kind(o) for o in operands if o is not None
                }
                filled = [
                    o if o is not None else literal_operand(self.algebra, g, discrete)  # type: ignore[arg-type]
                    for o, g in zip(operands, given, strict=True)
                ]
                wanted = (
                    tuple(output is not None for output in outputs)
                    if kind.endswith(BACKWARD)
                    else None
                )
                if not self._fit(kind, attributes, filled, given, discrete, wanted):
                    return None
                results: list[Value | None] = evaluate(
                    self.algebra, kind, filled, attributes, wanted
                )
                return [
                    result
                    if result is None
                    else self.algebra.gather(self._dense(result, len(first)), which)
                    for result in results
                ]
        # Another operand or attribute may have no meaning; it is no repair then.
        except PitcheckError:
            return None

    def _fit(
        self,
        kind: str,
        attributes: Mapping[str, Any],
        operands: Sequence[Value],
        given: Sequence[Given],
        discrete: bool,
        wanted: Sequence[bool] | None,
    ) -> bool:
        """Return True if an operator takes operands of these shapes and kinds.

        A run on dimensions alone shows it, once per combination.
        """
        shapes = [
            (self.algebra.shape(o), self.algebra.kind(o)) if isinstance(g, (Read, tuple)) else None
            for o, g in zip(operands, given, strict=True)
        ]
        literals = [repr(g) for g in given if not isinstance(g, (Read, tuple))]
        key = repr((kind, sorted(attributes.items()), shapes, literals, wanted))
        if key not in self._fitting:
            self._fitting[key] = self._runs(kind, attributes, shapes, given, discrete, wanted)
        return self._fitting[key]

    def _runs(
        self,
        kind: str,
        attributes: Mapping[str, Any],
        shapes: Sequence[Any],
        given: Sequence[Given],
        discrete: bool,
        wanted: Sequence[bool] | None,
    ) -> bool:
        axes = AxisAlgebra(AxisSystem())
        operands = [
            axes.tensor(*s) if s is not None else literal_operand(axes, g, discrete)  # type: ignore[arg-type]
            for s, g in zip(shapes, given, strict=True)
        ]
        try:
            if kind.endswith(BACKWARD):
                count, results, _ = divided(attributes, len(operands))
                forward = evaluate(
                    axes,
                    kind.removesuffix(BACKWARD),
                    operands[:count],
                    forward_attributes(attributes),
                )
                if results and [o.shape for o in forward] != [
                    o.shape for o in operands[count : count + results]
                ]:
                    return False
            evaluate(axes, kind, operands, attributes, wanted)
        except PlanError:
            return False
        except UnsupportedError:  # dimensions alone do not show it
            return True
        return True

    def one(
        self, kind: str, attributes: Mapping[str, Any], given: Sequence[Given], count: int
    ) -> Value | None:
        """Return the only result of an operator; None if it has no value. See ``evaluate``."""
        results = self.evaluate(kind, attributes, given, count)
        return None if results is None else results[0]

    def _dense(self, value: Value, rows: int) -> Value:
        return value if value.data.shape[2] in (1, rows) else self.algebra.join([value], [rows])

    def _operand(self, operand: Read | tuple[Read, ...], values: Any, first: Codes) -> Value:
        members = []
        for _ in operand if isinstance(operand, tuple) else (operand,):
            held, column = next(values)
            picked = (
                self.algebra.stack(held.value, column[first])
                if column.ndim == 2
                else self.algebra.gather(held.value, column[first])
            )
            members.append(picked)
        if not isinstance(operand, tuple):
            return members[0]  # type: ignore[no-any-return]
        rows = [self.algebra.reshape(m, (1, *self.algebra.shape(m))) for m in members]
        return self.algebra.concatenate(rows, 0)  # type: ignore[no-any-return]


def _plain(value: Value, like: Value | None = None) -> bool:
    """Return True if a value is its numbers alone, of the kind of ``like``."""
    return (
        value.special is None
        and not value.logs
        and value.square is None
        and (like is None or (value.kind, value.nonnegative) == (like.kind, like.nonnegative))
    )
