"""A row for every part that an all-to-all moves: parts that never meet are computed separately.

After an all-to-all a tensor holds one part from every member. As long as operators treat the
dimension of the parts as a batch dimension, no part meets another. Here every tensor of that kind
becomes as many rows as it has parts. The all-to-all itself then says which row goes where, and
nothing is computed for it. A result that one rank needs so depends only on the parts that the rank
has, in the batch as in the plan.

It is the same computation. Along a batch dimension every element is computed separately. The
gradient of an operand that all parts share is the sum of the parts' gradients. What treats the
dimension in any other way gets the tensor joined together again.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> stage = Problem.of(plan, plan).whole_stage()
>>> taken_apart(stage) is stage  # there is no all-to-all
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pitcheck.graph.graph import GraphValue
from pitcheck.graph.grids import Codes
from pitcheck.ops.axis_templates import Templates
from pitcheck.ops.registry import evaluate
from pitcheck.stage.batch import Argument, Batch, Step, StepOperand, distinct_columns, values_of
from pitcheck.stage.pruned_batch import begins, pruned
from pitcheck.stage.reductions.part_effects import Form, PartEffects, Passed, exchanges_parts
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.stage import Stage


@dataclass(frozen=True)
class _Parts:
    """The value that has the parts of another one.

    ``rows``: the row of every part by row of that one, shape (rows, parts); -1 if it is not split.
    """

    value: int
    form: Form
    rows: Codes


class SplitAllToAll:
    """The conversion of every part that an all-to-all moves into a row.

    Why it decides both ways: operators that treat the dimension of the parts as a batch dimension
    compute every part by itself, and all others get the tensor joined together again. What fails is
    looked at once more as the plan has it all the same, so that a finding names the plan's own
    rows. It assumes that a partial target is a sum already.
    """

    name = "split all-to-all"
    phase = Phase.ROWS
    refutes = True

    def apply(self, subject: Stage, context: Context) -> Stage:
        """Return the stage with parts as rows."""
        return taken_apart(subject, context.templates)


def taken_apart(stage: Stage, templates: Templates | None = None) -> Stage:
    """Return the stage with its parallel side split into parts.

    Return the stage itself if no all-to-all gives parts in the order of the members.
    """
    batch = stage.parallel
    if not any(moved_form(step, batch) for step in batch.steps):
        return stage
    rewritten = _Rewriting(batch, templates or Templates(evaluate)).done(
        [target.cut.value for target in stage.targets]
    )
    return stage.with_parallel(rewritten)


def moved_form(step: Step, batch: Batch) -> Form | None:
    """Return how an all-to-all splits its operand.

    Return None if the parts do not stand in the order of the members afterwards.
    """
    operand = step.inputs[0] if exchanges_parts(step.kind) else None
    if not isinstance(operand, Argument) or operand.rows.ndim != 2:
        return None
    shape, count = batch.shape(operand.value), operand.rows.shape[1]
    split, joined = (
        int(step.attributes[name]) % len(shape) for name in ("split_axis", "concat_axis")
    )
    return Form(split, count) if split == joined and shape[split] % count == 0 else None


class _Rewriting:
    """The steps so far, and for every old row where it is: whole, in parts, or both."""

    def __init__(self, batch: Batch, templates: Templates) -> None:
        self._old = batch
        self._meanings = PartEffects(batch, templates)
        self._values: list[GraphValue] = list(batch.graph.values)
        self._steps: list[Step] = []
        self._counts = {value: len(parts) for value, parts in batch.inputs.items()}
        self._whole: dict[int, Codes] = {}
        self._parts: dict[int, _Parts] = {}
        for value, rows in batch.inputs.items():
            self._places(value)[: len(rows)] = np.arange(len(rows))

    def done(self, targets: Sequence[int]) -> Batch:
        """Return the batch, once all steps are rewritten."""
        for step, first in zip(self._old.steps, begins(self._old), strict=True):
            if not self._moved(step, first) and not self._passed(step, first):
                self._kept(step, first)
        for value in targets:
            self._joined(Argument(value, np.arange(self._old.count(value))))
        graph = self._old.graph.with_values(self._values)
        grids = {
            value: np.where(grid >= 0, self._whole[value][grid], -1)
            for value, grid in self._old.grids.items()
            if value in self._whole
        }
        return pruned(
            replace(self._old, graph=graph, steps=self._steps, grids=grids, counts=self._counts),
            *targets,
        )

    # --- steps

    def _kept(self, step: Step, first: Mapping[int, int]) -> None:
        """Keep a step as it is, on whole tensors.

        Rows that were made of different parts may be equal now: they are computed once.
        """
        operands = tuple(self._whole_operand(operand) for operand in step.inputs)
        chosen, which = distinct_columns(
            [argument.rows for argument in values_of(operands)], step.count
        )
        self._add(
            replace(
                step, inputs=tuple(_at(operand, chosen) for operand in operands), count=len(chosen)
            )
        )
        for output, begin in first.items():
            self._places(output)[begin : begin + step.count] = self._more(output, len(chosen))[
                which
            ]

    def _moved(self, step: Step, first: Mapping[int, int]) -> bool:
        """Rewrite an all-to-all: parts change hands. Return False if that is not possible.

        A tensor that is whole is cut into its parts first.
        """
        form = moved_form(step, self._old)
        # A constant has no operand.
        if form is None or not step.inputs:
            return False
        operand, output = step.inputs[0], step.outputs[0]
        if output is None or not isinstance(operand, Argument):
            return False
        position = int(step.attributes["position"])
        held = self._parts_of(operand)
        if held is not None and held.form == form:
            return self._enter(
                output, first[output], held.value, form, held.rows[operand.rows][..., position]
            )
        own = self._own(output, form)
        if own is None:
            return False
        members, which = np.unique(self._joined(operand).rows, return_inverse=True)
        length = self._old.shape(operand.value)[form.dim] // form.count
        cut = {"axis": form.dim, "start": position * length, "stop": (position + 1) * length}
        self._add(
            Step(step.node, "slice", cut, (Argument(operand.value, members),), (own,), len(members))
        )
        return self._enter(
            output,
            first[output],
            own,
            form,
            self._more(own, len(members))[which.reshape(operand.rows.shape)],
        )

    def _passed(self, step: Step, first: Mapping[int, int]) -> bool:
        """Rewrite a step that treats parts one by one. Return False for any other step."""
        held = [
            self._parts_of(operand) if isinstance(operand, Argument) else None
            for operand in step.inputs
        ]
        forms = tuple(None if own is None else own.form for own in held)
        counts = {form.count for form in forms if form is not None}
        passed = (
            self._meanings.of(step, forms)
            if len(counts) == 1 and not any(isinstance(o, tuple) for o in step.inputs)
            else None
        )
        if passed is None:
            return False
        (count,) = counts
        owners = {
            output: self._own(output, Form(passed.dims[place], count))
            for place, output in enumerate(step.outputs)
            if output is not None and passed.dims[place] >= 0
        }
        if None in owners.values():
            return False
        given = [
            self._operand(operand, own, count)
            for operand, own in zip(step.inputs, held, strict=True)
        ]
        chosen, which = distinct_columns(
            [operand.rows for operand in given if isinstance(operand, Argument)], step.count * count
        )
        operands = tuple(
            Argument(operand.value, operand.rows[chosen])
            if isinstance(operand, Argument)
            else operand
            for operand in given
        )
        table = which.reshape(step.count, count)
        one = replace(step, attributes=passed.attributes, inputs=operands, count=len(chosen))
        self._taken(one, owners, passed, first, table)
        for place, output in enumerate(step.outputs):
            if output is not None and passed.dims[place] < 0:
                self._summed(one, place, first[output], table)
        return True

    def _taken(
        self,
        step: Step,
        owners: Mapping[int, int | None],
        passed: Passed,
        first: Mapping[int, int],
        table: Codes,
    ) -> None:
        """Enter the results of a step that are split as its operands are."""
        if not owners:
            return
        self._add(
            replace(
                step,
                outputs=tuple(
                    None if output is None else owners.get(output) for output in step.outputs
                ),
            )
        )
        for place, output in enumerate(step.outputs):
            own = None if output is None else owners.get(output)
            if output is not None and own is not None:
                self._enter(
                    output,
                    first[output],
                    own,
                    Form(passed.dims[place], table.shape[1]),
                    self._more(own, step.count)[table],
                )

    def _summed(self, step: Step, place: int, begin: int, table: Codes) -> None:
        """Enter the gradient of an operand that all parts share: their terms, and the sum."""
        output = step.outputs[place]
        if output is None:
            return
        terms = self._fresh(output, self._old.shape(output))
        self._add(
            replace(
                step, outputs=tuple(terms if n == place else None for n in range(len(step.outputs)))
            )
        )
        rows = self._more(terms, step.count)[table]
        self._add(Step(step.node, "accumulate", {}, (Argument(terms, rows),), (output,), len(rows)))
        self._write(output, begin, len(rows))

    def _add(self, step: Step) -> None:
        """Append a step."""
        self._steps.append(step)

    # --- rows

    def _places(self, value: int) -> Codes:
        """Return by old row the new one that has the whole tensor; -1 if there is none."""
        return self._whole.setdefault(value, np.full(self._old.count(value), -1, dtype=np.int64))

    def _more(self, value: int, count: int) -> Codes:
        """Return the rows that a step appends to a value."""
        before = self._counts.get(value, 0)
        self._counts[value] = before + count
        return np.arange(before, before + count)

    def _write(self, value: int, begin: int, count: int) -> None:
        """Enter whole tensors, as the last step gives them, for old rows from ``begin`` on."""
        self._places(value)[begin : begin + count] = self._more(value, count)

    def _enter(self, value: int, begin: int, own: int, form: Form, rows: Codes) -> bool:
        """Enter parts for old rows from ``begin`` on.

        Return False if other rows of the value have other parts.
        """
        known = self._parts.setdefault(
            value,
            _Parts(own, form, np.full((self._old.count(value), form.count), -1, dtype=np.int64)),
        )
        if (known.value, known.form) != (own, form):
            return False
        known.rows[begin : begin + len(rows)] = rows
        return True

    def _own(self, value: int, form: Form) -> int | None:
        """Return the value that has the parts of ``value``; None if it has other parts."""
        known = self._parts.get(value)
        if known is not None:
            return known.value if known.form == form else None
        shape = list(self._old.shape(value))
        shape[form.dim] //= form.count
        return self._fresh(value, tuple(shape))

    def _fresh(self, value: int, shape: tuple[int, ...]) -> int:
        """Return a new value, named as another one."""
        self._values.append(replace(self._old.graph.values[value], shape=shape))
        return len(self._values) - 1

    def _parts_of(self, operand: Argument) -> _Parts | None:
        """Return where an operand's parts are; None if it is not split, or not all of it."""
        known = self._parts.get(operand.value)
        return known if known is not None and (known.rows[operand.rows] >= 0).all() else None

    def _operand(self, operand: StepOperand, held: _Parts | None, count: int) -> StepOperand:
        """Return an operand for every old row and part, in this order.

        Of a stack it is the same part of all members.
        """
        if not isinstance(operand, Argument):
            return operand
        if held is None:
            whole = self._joined(operand)
            return Argument(whole.value, np.repeat(whole.rows, count, axis=0))
        rows = held.rows[operand.rows]
        return Argument(
            held.value,
            rows.reshape(-1)
            if rows.ndim == 2
            else rows.transpose(0, 2, 1).reshape(-1, rows.shape[1]),
        )

    def _whole_operand(self, operand: StepOperand) -> StepOperand:
        """Return an operand with whole tensors."""
        if isinstance(operand, tuple):
            return tuple(self._joined(argument) for argument in operand)
        return self._joined(operand) if isinstance(operand, Argument) else operand

    def _joined(self, operand: Argument) -> Argument:
        """Return an argument with whole tensors: parts are joined if there are no others."""
        places = self._places(operand.value)
        lacking = np.unique(operand.rows[places[operand.rows] < 0])
        if len(lacking):
            held = self._parts[operand.value]
            node = self._old.graph.values[operand.value].writers[0]
            chosen, which = distinct_columns([held.rows[lacking]], len(lacking))
            self._add(
                Step(
                    node,
                    "all_gather",
                    {"axis": held.form.dim},
                    (Argument(held.value, held.rows[lacking[chosen]]),),
                    (operand.value,),
                    len(chosen),
                )
            )
            places[lacking] = self._more(operand.value, len(chosen))[which]
        return Argument(operand.value, places[operand.rows])


def _at(operand: StepOperand, rows: Codes) -> StepOperand:
    """Return an operand at some of the rows of its step."""
    if isinstance(operand, tuple):
        return tuple(Argument(argument.value, argument.rows[rows]) for argument in operand)
    return Argument(operand.value, operand.rows[rows]) if isinstance(operand, Argument) else operand
