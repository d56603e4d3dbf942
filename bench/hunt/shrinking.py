"""Smaller programs on which XLA still disagrees with itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from math import prod

from hunt.judging import ABORTED, FAULTS, FOUND
from hunt.processes import Worker
from hunt.programs import FLOAT, MOVED, Argument, Output, Program, Spec, with_used

Holds = Callable[[Program], bool]


KEPT = 40
"""The first letters of the reason of an abort that a smaller program must have, too."""


def shrunk(program: Program) -> Program:
    """Return a smaller program on which XLA disagrees with itself, or aborts, too."""
    with Worker(1.0, checked=False) as worker:

        def symptom(each: Program) -> str:
            record = worker.tried(each)
            if record["class"] == ABORTED:
                return str(record["reason"])[:KEPT]
            return FOUND if record["class"] in FAULTS else ""

        wanted = symptom(program)
        return smallest(program, lambda each: symptom(each) == wanted) if wanted else program


def smallest(program: Program, holds: Holds) -> Program:
    """Return the smallest program that is found by single changes and for which ``holds``."""
    tried = {program}
    while True:
        for candidate in _smaller(program):
            if candidate not in tried:
                tried.add(candidate)
                if holds(candidate):
                    program = candidate
                    break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    """Yield programs with one thing less, large things first."""
    if program.gradient:
        yield replace(program, gradient=False)
    yield from _shorter(program)
    yield from _with_fewer_axes(program)
    yield from _less_sharded(program)
    if program.order != tuple(range(program.devices)):
        yield replace(program, order=tuple(range(program.devices)))
    if not program.shardy:
        yield replace(program, shardy=True)
    yield from _with_smaller_sizes(program)


def _shorter(program: Program) -> Iterator[Program]:
    """Yield programs that begin later, end earlier, or leave a step out."""
    shapes = program.shapes()
    for output in program.outputs:
        if len(program.outputs) > 1:
            yield with_used(replace(program, outputs=(output,)))
    for step in program.steps[:-1]:
        yield with_used(
            replace(program, outputs=(Output(step.name, _fitting(program, step.shape, step.spec)),))
        )
    for number, step in enumerate(program.steps):
        rest = (*program.steps[:number], *program.steps[number + 1 :])
        spec = _fitting(program, step.shape, step.spec)
        given = Argument(step.name, step.shape, FLOAT, 0, spec)
        used = any(step.name in other.inputs for other in rest)
        if used:
            yield with_used(replace(program, steps=rest, arguments=(*program.arguments, given)))
        for name in step.inputs:
            if shapes[name] == step.shape and used:
                same = replace(step, source=name, inputs=(name,), operator="copy")
                if step.source != name:
                    yield with_used(
                        replace(
                            program,
                            steps=(*program.steps[:number], same, *program.steps[number + 1 :]),
                        )
                    )


def _fitting(program: Program, shape: tuple[int, ...], spec: Spec | None) -> Spec:
    """Return a sharding if it divides a shape, or the part of it that does."""
    sizes = dict(program.mesh)
    if spec is None:
        return ((),) * len(shape)
    return tuple(
        () if size % prod(sizes[axis] for axis in axes) else axes
        for size, axes in zip(shape, spec, strict=True)
    )


def _with_fewer_axes(program: Program) -> Iterator[Program]:
    """Yield programs on smaller meshes."""
    for axis, size in program.mesh:
        without = tuple(each for each in program.mesh if each[0] != axis)
        if without:
            yield _on_mesh(program, without)
        if size > 2:
            yield _on_mesh(program, tuple((n, s // 2 if n == axis else s) for n, s in program.mesh))


def _on_mesh(program: Program, mesh: tuple[tuple[str, int], ...]) -> Program:
    names = {name for name, _ in mesh}

    def kept(spec: Spec) -> Spec:
        return tuple(tuple(axis for axis in axes if axis in names) for axes in spec)

    return replace(
        program,
        mesh=mesh,
        order=tuple(range(prod(size for _, size in mesh))),
        arguments=tuple(replace(a, spec=kept(a.spec)) for a in program.arguments),
        steps=tuple(s if s.spec is None else replace(s, spec=kept(s.spec)) for s in program.steps),
        outputs=tuple(replace(o, spec=kept(o.spec)) for o in program.outputs),
    )


def _less_sharded(program: Program) -> Iterator[Program]:
    """Yield programs with a sharding less."""
    for number, step in enumerate(program.steps):
        if step.spec is not None:
            before, after = program.steps[:number], program.steps[number + 1 :]
            yield replace(program, steps=(*before, replace(step, spec=None), *after))
            for spec in _fewer(step.spec):
                yield replace(program, steps=(*before, replace(step, spec=spec), *after))
    for number, argument in enumerate(program.arguments):
        for spec in _fewer(argument.spec):
            arguments = list(program.arguments)
            arguments[number] = replace(argument, spec=spec)
            yield replace(program, arguments=tuple(arguments))
    for number, output in enumerate(program.outputs):
        for spec in _fewer(output.spec):
            outputs = list(program.outputs)
            outputs[number] = replace(output, spec=spec)
            yield replace(program, outputs=tuple(outputs))


def _with_smaller_sizes(program: Program) -> Iterator[Program]:
    """Yield programs with a dimension less long, in one argument or in all of that length.

    Shapes of steps are left as they are: JAX refuses what does not fit. Indices would no longer lie
    within, so programs with indices are left out.
    """
    if any(argument.kind not in MOVED for argument in program.arguments):
        return
    lengths = sorted({size for a in program.arguments for size in a.shape if size > 1})
    for length in reversed(lengths):
        for size in sorted({length // 2, length - 1}):
            yield _resized(program, {(a.name, d) for a, d in _places(program, length)}, size)
            for argument, dimension in _places(program, length):
                yield _resized(program, {(argument.name, dimension)}, size)


def _places(program: Program, length: int) -> list[tuple[Argument, int]]:
    """Return the dimensions of arguments that have a length."""
    return [
        (argument, dimension)
        for argument in program.arguments
        for dimension, size in enumerate(argument.shape)
        if size == length
    ]


def _resized(program: Program, places: Set[tuple[str, int]], size: int) -> Program:
    def shape(argument: Argument) -> tuple[int, ...]:
        return tuple(
            size if (argument.name, d) in places else old for d, old in enumerate(argument.shape)
        )

    return replace(program, arguments=tuple(replace(a, shape=shape(a)) for a in program.arguments))


def _fewer(spec: Spec) -> Iterator[Spec]:
    """Yield a sharding without one of its axes."""
    for number, axes in enumerate(spec):
        for axis in axes:
            less = tuple(each for each in axes if each != axis)
            yield (*spec[:number], less, *spec[number + 1 :])
