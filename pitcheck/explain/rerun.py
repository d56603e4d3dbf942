"""The parallel plan run again on the same numbers, with one thing done otherwise: what that
changes, and which outputs are right then.

Only what depends on the change is computed anew, coordinate by coordinate. How much is computed is
bounded and counted in operators, not in seconds, so that the same plans give the same answer
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem
from pitcheck.algebra.value import Value
from pitcheck.base.numbers import Literal
from pitcheck.claims.conjecture import Floats, real_differences
from pitcheck.errors import BudgetError, PitcheckError, PlanError, UnsupportedError
from pitcheck.explain.evidence import SAME, Evidence
from pitcheck.graph.graph import Node, Operand, Source, Stacked, sources_of
from pitcheck.graph.grids import Codes
from pitcheck.graph.parts import Box
from pitcheck.ops.registry import BACKWARD, divided, evaluate, forward_attributes
from pitcheck.stage.batch import distinct_columns
from pitcheck.stage.drawn_inputs import take_box
from pitcheck.stage.evaluate import expected_parts, judged_elements
from pitcheck.stage.run_batch import literal_operand
from pitcheck.stage.stage import Target

MOST_OPERATORS = 6_000
"""Operators that are evaluated for one explanation at most."""
MOST_UNREAD = 60
"""Operators one behind the other that no output depends on, which are evaluated to have one
operand.
"""
MOST_IDLE = 8
"""Values computed for nothing that are tried before those that are nearer."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Read:
    """An operand: a value at codes, shape (n,), or (n, members) where a group's are stacked."""

    value: int
    codes: Codes


Given = Read | tuple[Read, ...] | Literal
"""An operand at the codes of an operator; a tuple is a stack of different values."""


@dataclass
class Held:
    """A value: ``rows`` says which row of ``value`` every code has (-1: none); there are ``count``
    rows, of which constants store one.
    """

    value: Value
    rows: Codes
    count: int


def held_at(data: Value, codes: Codes, count: int) -> Held:
    """A value that is there at codes, of ``count``, one row each."""
    rows = np.full(count, -1, dtype=np.int64)
    rows[codes] = np.arange(len(codes))
    return Held(data, rows, len(codes))


@dataclass(frozen=True)
class Override:
    """What a value is at codes, one row each, in place of what the plan computes."""

    value: int
    codes: Codes
    data: Value


Draft = tuple[str, Mapping[str, Any], Sequence[Given]]
"""What runs in the place of a node: kind, attributes, operands."""


@dataclass(frozen=True)
class Redo:
    """What runs in the place of a node, at codes, on what its operands are by then. ``known``:
    values that are others for this node alone.
    """

    node: int
    draft: Callable[[Node, Codes], Draft | None]
    known: Mapping[int, Held] = field(default_factory=dict)


Change = Override | Redo


@dataclass(frozen=True)
class Due:
    """What a value should hold at codes, shape (trials, codes, *shape); ``sums``: which sum every
    code is a term of, where it is.
    """

    codes: Codes
    data: Floats
    sums: Codes | None


@dataclass
class _Wanted:
    """An output that is compared: at which codes (a row of codes for a sum), with what."""

    target: Target
    codes: Codes
    expected: Value
    judged: Mask


@dataclass
class Rerun:
    """The values of a run, and what becomes of them."""

    evidence: Evidence
    spent: int = 0
    most: int = MOST_OPERATORS
    changes: dict[int, Held] = field(default_factory=dict)
    """Values of repairs that are taken for made."""
    due: dict[int, Due] = field(default_factory=dict)
    """What values should hold, where that is known."""

    def __post_init__(self) -> None:
        run = self.evidence.run
        self.algebra = run.evaluated.algebra
        self.graph = self.evidence.second
        self.attributes: dict[int, Mapping[str, Any]] = {
            step.node: own
            for step, own in zip(run.stage.parallel.steps, run.shaped.attributes[1], strict=True)
        }
        self.steps = {step.node: step for step in run.stage.parallel.steps}
        self._held: dict[int, Held] = {}
        self._fitting: dict[str, bool] = {}
        self._filling = 0
        self._wanted: dict[int, _Wanted] = {}
        self._readers: dict[int, list[int]] = {}
        for number in self.steps:
            for operand in self.graph.nodes[number].inputs:
                for source in sources_of(operand):
                    self._readers.setdefault(source.value, []).append(number)
        self._behind: dict[int, frozenset[int]] = {}

    # --- values

    def held(self, value: int) -> Held | None:
        """A value as the plan computes it, with what was repaired so far; None where it cannot be
        had.
        """
        if value in self.changes:
            return self.changes[value]
        if value not in self._held:
            batch, known = self.evidence.batch, self.evidence.run.evaluated.parallel
            if value in known:
                self._held[value] = Held(known[value], batch.rows[value], batch.count(value))
        return self._held.get(value)

    def data(self, value: int) -> Floats | None:
        """A floating-point value at all codes at which it is there, shape (trials, codes,
        *shape).
        """
        held = self.held(value)
        if held is None or held.value.kind != "field":
            return None
        return self.numbers(self.algebra.gather(held.value, held.rows[held.rows >= 0]))

    def numbers(self, value: Value) -> Floats:
        """The numbers of a value for every trial."""
        data = np.asarray(value.data, dtype=np.float64)[0]
        return np.broadcast_to(data, (len(self.algebra.trials), *data.shape[1:]))

    def shape(self, value: int) -> tuple[int, ...] | None:
        """The shape that a value has in this run."""
        held = self.held(value)
        return None if held is None else tuple(held.value.data.shape[3:])

    def codes(self, value: int) -> Codes:
        """The codes at which a value is there."""
        held = self.held(value)
        return np.zeros(0, dtype=np.int64) if held is None else np.flatnonzero(held.rows >= 0)

    @cached_property
    def idle(self) -> frozenset[int]:
        """Values that are computed and that no output depends on: what should have read them may
        read something else.
        """
        needed = self.evidence.run.evaluated.parallel
        return frozenset(
            v for v, held in enumerate(self.graph.values) if held.writers and v not in needed
        )

    def nearest(self, values: Iterable[int], rank: int, most: int) -> list[int]:
        """Of values some that are computed for nothing, and those that are nearest to a place in
        the program.
        """
        near = sorted(values, key=lambda v: abs(self.graph.depth(v) - rank))
        return list(dict.fromkeys([*[v for v in near if v in self.idle][:MOST_IDLE], *near[:most]]))

    def fill(self, value: int, codes: Codes) -> bool:
        """Compute a value at codes where no output needs it; whether that was possible."""
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
        """What the plan is given, at codes where nothing needs it."""
        cut = self.evidence.specification.initial.get(value)
        if cut is None or cut.group_of is not None or (cut.part_of[codes] < 0).any():
            return None
        return self.boxes(cut.reference, [cut.parts[int(part)].box for part in cut.part_of[codes]])

    def boxes(self, reference: int, boxes: Sequence[Box]) -> Value | None:
        """Parts of a reference value, one row each; None where they cannot be had."""
        run = self.evidence.run
        # padding
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
        """What a value is after its rows at codes were written anew."""
        if before is not None and before.value.data.shape[3:] != data.data.shape[3:]:
            before = None
        rows = (
            np.full(self.graph.codes, -1, dtype=np.int64) if before is None else before.rows.copy()
        )
        count = 0 if before is None else before.count
        rows[codes] = count + np.arange(len(codes))
        joined = (
            data if before is None else self.algebra.join([before.value, data], [count, len(codes)])
        )
        return Held(joined, rows, count + len(codes))

    # --- operators

    def reads(self, node: Node, codes: Codes) -> list[Given]:
        """The operands of a node at codes."""
        return [_given(operand, codes) for operand in node.inputs]

    def computed(
        self, node: Node, codes: Codes, known: Mapping[int, Held] | None = None
    ) -> dict[int, Value] | None:
        """What a node of the plan writes at codes; None where its operands cannot be had."""
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
        """A node's attributes at the sizes of this run."""
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

    def evaluate(
        self,
        kind: str,
        attributes: Mapping[str, Any],
        given: Sequence[Given],
        count: int,
        known: Mapping[int, Held] | None = None,
        outputs: Sequence[int | None] = (None,),
    ) -> list[Value | None] | None:
        """An operator at ``count`` coordinates; None where it cannot be computed. Raises
        BudgetError where too much was computed already.
        """
        self.spent += 1
        if self.spent > self.most:
            raise BudgetError("too many operators were tried")
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
        # another operand or attribute may have no meaning: then it is no repair
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
        """Return True if operands and attributes have the shapes and kinds that an operator takes,
        as a run on dimensions alone shows.
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
        """The only result of an operator."""
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

    # --- outputs

    def wanted(self, number: int) -> _Wanted:
        """What output ``number`` of the run must be."""
        if number not in self._wanted:
            run = self.evidence.run
            target = run.comparisons[number].target
            codes, parts = target.codes, target.cut.part_of[target.codes]
            groups = target.cut.group_of
            if groups is not None:
                order = np.argsort(groups[codes], kind="stable")
                terms = int(np.unique(groups[codes], return_counts=True)[1].max())
                codes, parts = (
                    codes[order].reshape(-1, terms),
                    parts[order].reshape(-1, terms)[:, 0],
                )
            reference = run.evaluated.reference[target.cut.reference]
            with np.errstate(all="ignore"):
                expected = expected_parts(self.algebra, run.shaped, number, reference, parts)
            judged = judged_elements(
                run.shaped.boxes[number], parts, tuple(expected.data.shape[3:])
            )
            self._wanted[number] = _Wanted(target, codes, expected, judged)
        return self._wanted[number]

    def behind(self, number: int) -> frozenset[int]:
        """The nodes that output ``number`` is computed by."""
        if number not in self._behind:
            stack, nodes, seen = (
                [self.evidence.run.comparisons[number].target.cut.value],
                set(),
                set(),
            )
            while stack:
                value = stack.pop()
                if value in seen:
                    continue
                seen.add(value)
                for step in self.evidence.writers.get(value, []):
                    nodes.add(step.node)
                    stack.extend(self.evidence.inputs(step))
            self._behind[number] = frozenset(nodes)
        return self._behind[number]

    def right(self, changes: Sequence[Change], numbers: Iterable[int]) -> list[int]:
        """Which of the outputs are right with the changes."""
        asked = list(numbers)
        changed = self.after(changes, asked)
        return [
            number for number in asked if changed is not None and self._is_right(number, changed)
        ]

    def _is_right(self, number: int, changed: Mapping[int, Held]) -> bool:
        wanted = self.wanted(number)
        held = changed.get(wanted.target.cut.value) or self.held(wanted.target.cut.value)
        if held is None:
            return False
        rows = held.rows[wanted.codes]
        if (rows < 0).any():
            return False
        actual = (
            self.algebra.sum(self.algebra.stack(held.value, rows), (0,))
            if rows.ndim == 2
            else self.algebra.gather(held.value, rows)
        )
        if actual.data.shape[3:] != wanted.expected.data.shape[3:]:
            return False
        differences = real_differences(actual, wanted.expected)
        return not (np.where(wanted.judged, differences, 0.0) > SAME).any()

    def is_output(self, number: int, data: Value, codes: Codes) -> bool:
        """Whether output ``number`` is right if its value is this at codes."""
        return self._is_right(
            number, {self.wanted(number).target.cut.value: held_at(data, codes, self.graph.codes)}
        )

    def after(
        self,
        changes: Sequence[Change],
        numbers: Iterable[int],
        seen: Callable[[int, Held], bool] | None = None,
    ) -> dict[int, Held] | None:
        """What the values that depend on the changes are then, as far as these outputs need them;
        None where an operator cannot be computed.

        ``seen`` is told of every value that is another one then, in the order of the program, and
        says whether to go on; None where it says no.
        """
        changed: dict[int, Held] = {}
        dirty: dict[int, Mask] = {}
        redone = {change.node: change for change in changes if isinstance(change, Redo)}
        for override in (change for change in changes if isinstance(change, Override)):
            before = changed.get(override.value) or self.held(override.value)
            changed[override.value] = self._with(before, override.data, override.codes)
            dirty.setdefault(override.value, np.zeros(self.graph.codes, dtype=np.bool_))[
                override.codes
            ] = True
        fixed = {value: mask.copy() for value, mask in dirty.items()}
        needed = frozenset().union(*(self.behind(number) for number in numbers))
        again = [
            output
            for number in redone
            for output in self.graph.nodes[number].outputs
            if output is not None
        ]
        following = sorted(
            {*self._downstream([*fixed, *again], needed), *redone.keys()},
            key=self.graph.rank.__getitem__,
        )
        last = {
            output: number
            for number in following
            for output in self.graph.nodes[number].outputs
            if output is not None
        }
        if seen is not None and not all(
            seen(value, changed[value]) for value in fixed if value not in last
        ):
            return None
        for number in following:
            if not self._computed_after(number, changed, dirty, fixed, redone.get(number)):
                return None
            if seen is not None and not all(
                seen(value, changed[value])
                for value in self.graph.nodes[number].outputs
                if value in changed and last[value] == number
            ):
                return None
        return changed

    def _computed_after(
        self,
        number: int,
        changed: dict[int, Held],
        dirty: dict[int, Mask],
        fixed: Mapping[int, Mask],
        redo: Redo | None,
    ) -> bool:
        """Compute a node anew where what it reads is another one, or it is done otherwise; whether
        that was possible.
        """
        node = self.graph.nodes[number]
        codes = np.flatnonzero(node.mask) if redo is not None else self._dirty_codes(node, dirty)
        codes = codes[[self._there(node, int(code)) for code in codes]] if len(codes) else codes
        if not len(codes):
            return True
        as_it_is: Draft = (
            node.kind,
            self.attributes.get(number, node.attributes),
            self.reads(node, codes),
        )
        draft = as_it_is if redo is None else redo.draft(node, codes)
        known = {**changed, **redo.known} if redo is not None else changed
        results = None if draft is None else self.evaluate(*draft, len(codes), known, node.outputs)
        if results is None:
            return False
        for output, result in zip(node.outputs, results, strict=False):
            if output is None or result is None:
                continue
            free = ~fixed[output][codes] if output in fixed else np.ones(len(codes), dtype=np.bool_)
            if free.any():
                changed[output] = self._with(
                    changed.get(output) or self.held(output),
                    self.algebra.gather(result, np.flatnonzero(free)),
                    codes[free],
                )
                dirty.setdefault(output, np.zeros(self.graph.codes, dtype=np.bool_))[
                    codes[free]
                ] = True
        return True

    def _there(self, node: Node, code: int) -> bool:
        """Whether a node's results were needed at a code."""
        return any(
            held.rows[code] >= 0
            for output in node.outputs
            if output is not None and (held := self.held(output)) is not None
        )

    def _downstream(self, values: Collection[int], needed: Collection[int]) -> list[int]:
        stack, found = list(values), set()
        while stack:
            for number in self._readers.get(stack.pop(), []):
                if number in needed and number not in found:
                    found.add(number)
                    stack.extend(
                        output for output in self.graph.nodes[number].outputs if output is not None
                    )
        return sorted(found, key=self.graph.rank.__getitem__)

    def _dirty_codes(self, node: Node, dirty: Mapping[int, Mask]) -> Codes:
        codes = np.flatnonzero(node.mask)
        touched = np.zeros(len(codes), dtype=np.bool_)
        for source in (
            s for operand in node.inputs for s in sources_of(operand) if s.value in dirty
        ):
            read = source.at(codes)
            touched |= (dirty[source.value][read] & (read >= 0)).reshape(len(codes), -1).any(axis=1)
        found: Codes = codes[touched]
        return found


def _given(operand: Operand, codes: Codes) -> Given:
    if isinstance(operand, Source):
        return Read(operand.value, operand.at(codes))
    if isinstance(operand, Stacked):
        return tuple(Read(source.value, source.at(codes)) for source in operand.members)
    return operand
