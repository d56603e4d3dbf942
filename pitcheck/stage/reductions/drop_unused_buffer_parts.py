"""Buffers without what a stage does not take out of them.

Flat buffers hold many tensors, so that one collective moves them all. Along the dimension of the
join the collective treats every element separately: joining fewer tensors, and splitting the result
into fewer, gives the same parts. A stage of one tensor so stays as small as if it were moved alone.

>>> from pitcheck.claims.problem import Problem
>>> from pitcheck.plan.example import one_operator
>>> plan = one_operator("exp", [(2, 3)], (2, 3))
>>> batch = Problem.of(plan, plan).whole_stage().parallel
>>> narrowed(batch, {1}) is batch  # there is no buffer
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from pitcheck.ops.registry import has_trait
from pitcheck.ops.traits import Trait
from pitcheck.stage.batch import Argument, Batch, Step
from pitcheck.stage.pruned_batch import pruned
from pitcheck.stage.reductions.protocol import Context, Phase
from pitcheck.stage.stage import Stage

Ends = tuple[int, ...]
"""The places where parts of a dimension begin, and where the last one ends."""

OUTSIDE = -1
"""The number of what writes inputs and reads targets, in place of a step."""


@dataclass(frozen=True)
class _Buffer:
    """The steps that join tensors, move them, and split them again, by number.

    ``joined`` and ``parts``: where the tensors and the parts end along ``axis``.
    """

    join: int
    moves: tuple[int, ...]
    split: int
    axis: int
    joined: Ends
    parts: Ends


class DropUnusedBufferParts:
    """The removal of tensors from flat buffers if the stage reads no part of them.

    Why it decides both ways: along the dimension of the join every element is moved, or added up
    over ranks, separately. So what is read of a buffer does not depend on what else lies in it. It
    assumes that nothing but the one split reads the buffer, which is looked up.
    """

    name = "drop unused buffer parts"
    phase = Phase.CUT_OUT
    refutes = True

    def apply(self, subject: Stage, _: Context) -> Stage | None:
        """Return the stage with smaller buffers; None if all of every buffer is read."""
        parallel = narrowed(
            subject.parallel, dict.fromkeys(target.cut.value for target in subject.targets)
        )
        if parallel is subject.parallel:
            return None
        return subject.with_parallel(parallel)


def narrowed(batch: Batch, targets: Collection[int]) -> Batch:
    """Return ``batch`` with only those tensors in buffers of which something reads a part.

    ``targets`` stay as they are.
    """
    if not any(_leaves_out_parts(step) for step in batch.steps):
        return batch
    steps, shapes = list(batch.steps), dict(batch.shapes)
    for buffer in _Uses(batch, frozenset(targets)).buffers():
        _narrow(batch, buffer, steps, shapes)
    return (
        pruned(replace(batch, steps=steps, shapes=shapes), *targets)
        if shapes != batch.shapes
        else batch
    )


def _leaves_out_parts(step: Step) -> bool:
    """Return True if a step cuts its operand into parts of certain sizes, and some are unused."""
    return (
        "sizes" in step.attributes
        and None in step.outputs
        and has_trait(step.kind, Trait.CUTS, step.attributes)
    )


def _joins_along(step: Step) -> bool:
    """Return True if a step puts its operands side by side along one of their dimensions."""
    return all(
        has_trait(step.kind, trait, step.attributes) for trait in (Trait.JOINS, Trait.EXTENDS)
    )


class _Uses:
    """The steps that write and read every value of a batch."""

    def __init__(self, batch: Batch, targets: frozenset[int]) -> None:
        self._batch = batch
        self._written: dict[int, list[int]] = {value: [OUTSIDE] for value in batch.inputs}
        self._read: dict[int, list[int]] = {value: [OUTSIDE] for value in targets}
        for number, step in enumerate(batch.steps):
            for argument in step.arguments:
                self._read.setdefault(argument.value, []).append(number)
            for output in step.outputs:
                if output is not None:
                    self._written.setdefault(output, []).append(number)

    def buffers(self) -> Iterator[_Buffer]:
        """Yield the buffers that go one way from a join to a split.

        Parts that nothing reads do not count.
        """
        for number, split in enumerate(self._batch.steps):
            if not _leaves_out_parts(split):
                continue
            moves = self._writers((number,))
            joins = self._writers(moves) if OUTSIDE not in moves else ()
            found = (
                self._matched(joins[0], moves, number)
                if len(joins) == 1 and joins[0] != OUTSIDE
                else None
            )
            if found is not None:
                yield found

    def _writers(self, readers: tuple[int, ...]) -> tuple[int, ...]:
        """Return the steps that write the one operand which these steps, and no others, read.

        Return none if there is no such operand.
        """
        read = [self._batch.steps[number].inputs for number in readers]
        values = {o.value if isinstance(o, Argument) else None for inputs in read for o in inputs}
        value = (
            values.pop() if len(values) == 1 and all(len(inputs) == 1 for inputs in read) else None
        )
        return (
            tuple(self._written[value])
            if value is not None and self._read[value] == list(readers)
            else ()
        )

    def _matched(self, join: int, moves: tuple[int, ...], split: int) -> _Buffer | None:
        """Return the buffer if all steps go along with one dimension and the sizes fit, or None."""
        joining, splitting = self._batch.steps[join], self._batch.steps[split]
        values = [operand.value for operand in joining.inputs if isinstance(operand, Argument)]
        sizes, axes = (
            splitting.attributes.get("sizes"),
            (joining.attributes.get("axis"), splitting.attributes.get("axis")),
        )
        if (
            not _joins_along(joining)
            or len(values) != len(joining.inputs)
            or not isinstance(sizes, tuple)
            or not isinstance(axes[0], int)
        ):
            return None
        shapes = [self._batch.shape(value) for value in values]
        axis = axes[0] % len(shapes[0])
        joined, parts = (0, *accumulate(shape[axis] for shape in shapes)), (0, *accumulate(sizes))
        fits = (
            axes[0] == axes[1]
            and joined[-1] == parts[-1]
            and all(
                _leaves_alone(self._batch.steps[number], axis, len(shapes[0])) for number in moves
            )
        )
        return _Buffer(join, moves, split, axis, joined, parts) if fits else None


def _leaves_alone(step: Step, axis: int, rank: int) -> bool:
    """Return True if a step treats dimension ``axis`` of ``rank`` element by element."""
    own = step.attributes.get("axis")
    others = own is None or (isinstance(own, int) and own % rank != axis)
    return others and has_trait(step.kind, Trait.LEAVES_OTHER_AXES, step.attributes)


def _narrow(
    batch: Batch, buffer: _Buffer, steps: list[Step], shapes: dict[int, tuple[int, ...]]
) -> None:
    """Leave out of a buffer the tensors of which no part is read, and parts that become empty."""
    join, split = batch.steps[buffer.join], batch.steps[buffer.split]
    read = [
        part
        for part, output in zip(pairwise(buffer.parts), split.outputs, strict=True)
        if output is not None
    ]
    tensors = list(pairwise(buffer.joined))
    kept = [any(_overlap(tensor, part) for part in read) for tensor in tensors]
    if all(kept):
        return
    left = [
        sum(_overlap(part, tensor) for tensor, keep in zip(tensors, kept, strict=True) if keep)
        for part in pairwise(buffer.parts)
    ]
    stay = [number for number, size in enumerate(left) if size or split.outputs[number] is not None]
    sizes, outputs = tuple(left[n] for n in stay), tuple(split.outputs[n] for n in stay)
    steps[buffer.join] = replace(
        join, inputs=tuple(operand for operand, keep in zip(join.inputs, kept, strict=True) if keep)
    )
    steps[buffer.split] = replace(
        split, attributes={**split.attributes, "sizes": sizes}, outputs=outputs
    )
    for number in (buffer.join, *buffer.moves):
        for output in batch.steps[number].outputs:
            if output is not None:
                shape = batch.shape(output)
                shapes[output] = (*shape[: buffer.axis], sum(sizes), *shape[buffer.axis + 1 :])


def _overlap(first: tuple[int, int], second: tuple[int, int]) -> int:
    """Return the length that two intervals have in common."""
    return max(0, min(first[1], second[1]) - max(first[0], second[0]))
