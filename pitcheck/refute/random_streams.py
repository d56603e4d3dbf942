"""The random draws that an output depends on.

Two plans can be compared if the parallel one takes no other draws than the reference.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pitcheck.algebra.reals.real import RealAlgebra
from pitcheck.algebra.value import Value
from pitcheck.errors import ShapeError
from pitcheck.graph.graph import Graph, Node
from pitcheck.ops.registry import evaluate, operator_kind
from pitcheck.refute.placed_draws import BY_ORDER, OWN
from pitcheck.refute.whole_run import WholeRun
from pitcheck.stage.batch import Argument, Batch, Step, needed_steps
from pitcheck.stage.stage import Target

Numbers = NDArray[np.int64]

BY_IMPORT = " import at "
"""The part of the name of a stream that a file draws from while it is imported."""


class _Recorder(RealAlgebra):
    """A float64 algebra that notes the numbers of the draws taken from every stream."""

    def __init__(self) -> None:
        super().__init__(np, 0, [0])
        self.taken: dict[str, list[Numbers]] = {}

    def draw(self, stream: str, index: Value) -> Value:
        """Note the numbers of some draws, and return 0.5 for each."""
        if index.kind != "int":
            raise ShapeError(f"the index of a draw is an int value, not a {index.kind} value")
        self.taken.setdefault(stream, []).append(np.unique(index.data))
        return Value("field", np.broadcast_to(0.5, index.data.shape))


def _draws_of(batch: Batch, target: int, known: Collection[str] = ()) -> dict[str, Numbers]:
    """Return the numbers of the draws that enter a value, by stream, ascending, at full shapes.

    Draws that have their places in a stream of ``known`` are left out: which numbers are the
    reference's is no question there.
    """
    recorder = _Recorder()
    seen: set[tuple[object, ...]] = set()
    numbers, _ = needed_steps(batch, target)
    for step in (batch.steps[number] for number in numbers):
        if not operator_kind(step.kind).random or _is_placed(step, known):
            continue
        shape = _shape(batch.graph, step)
        key = step.kind, repr(sorted(step.attributes.items())), shape
        if key not in seen:
            seen.add(key)
            evaluate(
                recorder,
                step.kind,
                [Value("field", np.broadcast_to(0.0, (1, 1, 1, *shape)))],
                step.attributes,
            )
    return {stream: np.unique(np.concatenate(found)) for stream, found in recorder.taken.items()}


def _is_placed(step: Step, known: Collection[str]) -> bool:
    return step.attributes.get(OWN) is True and step.attributes.get("stream") in known


def _shape(graph: Graph, step: Step) -> tuple[int, ...]:
    """Return the full shape of a step's first operand."""
    operand = step.inputs[0]
    return graph.values[operand.value].shape if isinstance(operand, Argument) else ()


@dataclass(frozen=True)
class Unlike:
    """A difference between draws.

    ``same_streams``: only numbers differ, so that it is known which draws are the same. ``node``:
    what draws in the parallel plan, if the user's program says where; ``advice``: the ways out.
    """

    why: str
    same_streams: bool
    node: Node | None = None
    advice: str = ""


def unlike_draws(run: WholeRun, target: Target) -> Unlike | None:
    """Return what the parallel plan draws for an output that the reference does not draw, or None.

    If all its numbers are among the reference's, a difference is real: the output is another
    function of the same numbers.
    """
    for step in _drawing(run.stage.parallel, target.cut.value):
        if step.attributes.get(OWN) == BY_ORDER:
            node = _node(run.stage.parallel, step)
            why = f"several masks of the reference fit that of dropout at {node.source}"
            return Unlike(why, False, node, "draw them in the order in which the reference does")
    reference = _draws_of(run.stage.reference, target.cut.reference)
    parallel = _draws_of(run.stage.parallel, target.cut.value, reference)
    if parallel.keys() - reference.keys():
        in_program = _in_program(run, target, parallel.keys() - reference.keys())
        if in_program is not None:
            return in_program
        why = (
            f"the reference draws from {_named(reference)}, the parallel plan from "
            f"{_named(parallel)}; name the streams alike to have them compared"
        )
        return Unlike(why, same_streams=False)
    for stream, taken in sorted(parallel.items()):
        wanted = reference[stream]
        if not np.isin(taken, wanted).all():
            why = (
                f"of stream {stream!r} the reference takes {_ranges(wanted)}, the parallel plan "
                f"{_ranges(taken)}; each element must take the same number"
            )
            return Unlike(why, same_streams=True)
    return None


def _in_program(run: WholeRun, target: Target, others: Collection[str]) -> Unlike | None:
    """Return what draws from streams that the reference lacks, by its line; None without a line.

    The names of such streams are made of calls and states of generators, and mean nothing to their
    author. A name that a plan gives is a word; one of a draw by an import has its line.
    """
    stage, cut = run.stage, target.cut
    steps = _drawing(stage.parallel, cut.value)
    step = next((s for s in steps if s.attributes.get("stream") in others), None)
    wanted = _drawing(stage.reference, cut.reference)
    if step is None or not wanted:
        return None
    node = _node(stage.parallel, step)
    if not node.source or not any(" " in stream and BY_IMPORT not in stream for stream in others):
        return None
    like = next((s for s in wanted if _node(stage.reference, s).source == node.source), wanted[0])
    shapes = _shape(stage.parallel.graph, step), _shape(stage.reference.graph, like)
    values = stage.parallel.graph.values
    mask = all(values[output].kind == "bool" for output in step.outputs if output is not None)
    what, numbers = ("dropout", "mask") if mask else (node.kind, "set of numbers")
    if shapes[0] != shapes[1]:
        said = f"draws a {shapes[0]} {numbers} on each rank, the reference one of {shapes[1]}"
        first_way = f"draw the whole {numbers} on every rank and slice it"
        if mask:
            first_way = f"say in Spec.dropout that ranks draw their own, {first_way}"
    else:
        said = f"draws another {shapes[0]} {numbers} than the reference"
        first_way = "seed the generators of both programs alike"
    why = f"{what} at {node.source} {said}: the {'masks' if mask else 'numbers'} cannot be compared"
    last = "or set p=0 for the check" if mask else "or leave it out for the check"
    return Unlike(why, False, node, f"{first_way}, pass the {numbers} as an input, {last}")


def _drawing(batch: Batch, target: int) -> list[Step]:
    """Return the steps that draw what enters a value, in their order."""
    steps = (batch.steps[number] for number in needed_steps(batch, target)[0])
    return [step for step in steps if operator_kind(step.kind).random]


def _node(batch: Batch, step: Step) -> Node:
    return batch.graph.nodes[step.node]


def _named(streams: dict[str, Any]) -> str:
    """Return streams as text."""
    return (
        f"stream{'s' if len(streams) > 1 else ''} {', '.join(map(repr, sorted(streams)))}"
        if streams
        else "no stream"
    )


def _ranges(numbers: Numbers) -> str:
    """Return numbers as text: the first three of their runs."""
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts, lasts = numbers[np.r_[0, breaks + 1]], numbers[np.r_[breaks, len(numbers) - 1]]
    spelled = [
        f"{a}" if a == b else f"{a} to {b}"
        for a, b in zip(firsts[:3].tolist(), lasts[:3].tolist(), strict=True)
    ]
    return f"draws {', '.join(spelled)}{' and more' if len(firsts) > 3 else ''}"
