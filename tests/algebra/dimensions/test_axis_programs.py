"""Random programs: at reduced sizes they run in NumPy, with the shapes that were foretold."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from algebra.dimensions.numpy_algebra_shapes import NumpyShapes
from hypothesis import given
from hypothesis import strategies as st

from pitcheck.algebra.dimensions.axes import AxisAlgebra, AxisSystem, AxisValue
from pitcheck.ops.axis_attributes import reduce_attributes, symbolic_attributes
from pitcheck.ops.registry import evaluate

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 30, 48, 64)


@dataclass
class Step:
    kind: str
    inputs: list[int]
    attributes: dict[str, Any]
    outputs: list[int]


@dataclass
class Program:
    axes: AxisAlgebra
    values: list[AxisValue]
    given: int
    steps: list[Step]

    def run(self, kind: str, inputs: list[int], **attributes: Any) -> None:
        results = evaluate(
            self.axes, kind, [self.values[i] for i in inputs], symbolic_attributes(kind, attributes)
        )
        outputs = list(range(len(self.values), len(self.values) + len(results)))
        self.values += results
        self.steps.append(Step(kind, inputs, attributes, outputs))


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def grow(data: st.DataObject, program: Program) -> None:
    """Add one operator that fits."""
    number = data.draw(st.integers(0, len(program.values) - 1))
    value = program.values[number]
    shape = tuple(int(n) for n in value.shape)
    choice = data.draw(
        st.sampled_from(
            [
                "split",
                "merge",
                "transpose",
                "slice",
                "chunk",
                "cat",
                "add",
                "sum",
                "linear",
                "flip",
                "repeat",
            ]
        )
    )
    axis = data.draw(st.integers(0, len(shape) - 1)) if shape else 0
    if not shape or 0 in shape:
        return
    if choice == "split":
        outer = data.draw(st.sampled_from(divisors(shape[axis])))
        program.run(
            "view", [number], sizes=(*shape[:axis], outer, shape[axis] // outer, *shape[axis + 1 :])
        )
    elif choice == "merge" and axis + 1 < len(shape):
        program.run("view", [number], sizes=(*shape[:axis], -1, *shape[axis + 2 :]))
    elif choice == "transpose":
        program.run(
            "transpose", [number], dim0=axis, dim1=data.draw(st.integers(0, len(shape) - 1))
        )
    elif choice == "slice":
        start = data.draw(st.integers(0, shape[axis] - 1))
        program.run(
            "slice",
            [number],
            axis=axis,
            start=start,
            stop=data.draw(st.integers(start + 1, shape[axis])),
        )
    elif choice == "chunk":
        count = data.draw(st.sampled_from(divisors(shape[axis])))
        program.run(
            "chunk", [number], axis=axis, count=count, position=data.draw(st.integers(0, count - 1))
        )
    elif choice in ("cat", "add"):
        same = [i for i, v in enumerate(program.values) if v.shape == shape]
        other = data.draw(st.sampled_from(same))
        program.run(choice, [number, other], **({"axis": axis} if choice == "cat" else {}))
    elif choice == "sum":
        program.run("sum", [number], axes=(axis,))
    elif choice == "linear":
        weights = [
            i for i, v in enumerate(program.values) if len(v.dims) == 2 and v.shape[1] == shape[-1]
        ]
        if weights:
            program.run("linear", [number, data.draw(st.sampled_from(weights))])
    elif choice == "flip":
        program.run("flip", [number], axes=(axis,))
    elif choice == "repeat" and shape[axis] < 30:
        program.run("repeat_interleave", [number], axis=axis, count=data.draw(st.integers(1, 5)))


def make(data: st.DataObject) -> Program:
    axes = AxisAlgebra(AxisSystem())
    shapes = data.draw(
        st.lists(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3), min_size=1, max_size=3)
    )
    shapes += [[n, shape[-1]] for shape in shapes[:1] for n in (8, 24)]
    program = Program(axes, [axes.tensor(s) for s in shapes], len(shapes), [])
    for _ in range(data.draw(st.integers(1, 8))):
        grow(data, program)
    for _ in range(data.draw(st.integers(0, 3))):
        nodes = [d for v in program.values for d in v.dims]
        one = data.draw(st.sampled_from(nodes))
        wider = [d for d in nodes if d.size >= one.size]
        whole = data.draw(st.sampled_from(wider))
        axes.system.tie(
            one,
            whole,
            data.draw(st.integers(0, whole.size // one.size - 1)) * one.size if one.size else 0,
        )
    return program


@given(st.data())
def test_reduced_programs_run_with_the_shapes_foretold(data: st.DataObject) -> None:
    program = make(data)
    numbers = NumpyShapes()
    for sizes in (
        program.axes.system.solve(0),
        program.axes.system.solve(1),
        program.axes.system.full(),
    ):
        small = [tuple(sizes.size(d) for d in v.dims) for v in program.values]
        arrays: dict[int, Any] = {i: np.broadcast_to(0.0, small[i]) for i in range(program.given)}
        for step in program.steps:
            inputs, outputs = (
                [program.values[i] for i in step.inputs],
                [program.values[i] for i in step.outputs],
            )
            attributes = reduce_attributes(step.kind, step.attributes, inputs, outputs, sizes)
            results = evaluate(numbers, step.kind, [arrays[i] for i in step.inputs], attributes)  # type: ignore[arg-type]
            for i, result in zip(step.outputs, results, strict=True):
                assert result.shape == small[i], (step, sizes.describe())
                arrays[i] = result
        for value, shape in zip(program.values, small, strict=True):
            for node, n in zip(value.dims, shape, strict=True):
                assert n == node.size or 3 <= n < node.size
                assert sizes.position(node, node.size) == n
                assert sizes.full_position(node, n) == node.size


@given(st.integers(2, 12), st.integers(2, 40), st.integers(1, 38))
def test_near_misses_keep_the_class_whole(count: int, size: int, shift: int) -> None:
    """Reduce equal shards to equal ones, but keep one whole that is moved by less than a shard."""
    good, bad = AxisSystem(), AxisSystem()
    wholes = [system.dimension(count * size) for system in (good, bad)]
    for i in range(count):
        good.tie(good.dimension(size), wholes[0], i * size)
        bad.tie(bad.dimension(size), wholes[1], i * size - (shift % size if i == count - 1 else 0))
    assert good.solve(0).size(wholes[0]) == count * min(3, size)
    unit = int(np.gcd(size, shift % size))
    assert bad.solve(0).size(wholes[1]) == count * (size // unit) * min(3, unit)


@given(st.data())
def test_variants_differ_wherever_something_was_reduced(data: st.DataObject) -> None:
    program = make(data)
    system = program.axes.system
    first, second = system.solve(0), system.solve(1)
    for number, own in system.classes():
        node = own.members[0]
        if own.inner is None and own.total and first.size(node) != node.size:
            assert second.size(node) != first.size(node), number
