"""Random programs from seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from random import Random

from hunt.drawing import Draw
from hunt.keyed import KEYED
from hunt.moving import MOVING
from hunt.programs import FLOAT, Output, Program, with_used
from hunt.reducing import RARE, REDUCING

NOT_DIFFERENTIATED = frozenset(
    {"argmax", "argmin", "argsort", "reduce any", "reduce_window max", "scatter multiply"}
)
"""Operators of which JAX takes no gradient, or whose gradient is zero."""


def program_of(seed: int, *, keyed: bool = False) -> Program:
    """Return the program of a seed; with ``keyed``, one that takes random numbers from keys.

    >>> program_of(3) == program_of(3)
    True
    """
    random = Random(seed)
    draw = Draw(random)
    shape = draw.shape()
    draw.argument(shape)
    wanted = random.choice((1, 1, 2, 2, 3, 4))
    while len(draw.steps) < wanted:
        random.choice(_operators(draw, keyed=keyed, left=wanted - len(draw.steps)))(draw)
    outputs = [Output(draw.steps[-1].name, draw.spec(draw.steps[-1].shape, even=True))]
    if len(draw.steps) > 1 and random.random() < 0.2:
        other = draw.steps[-2]
        outputs.append(Output(other.name, draw.spec(other.shape, even=True)))
    found = with_used(
        Program(
            seed,
            draw.mesh,
            draw.order,
            tuple(draw.arguments),
            tuple(draw.steps),
            tuple(outputs),
            gradient=False,
            shardy=random.random() < 0.5,
        )
    )
    return _differentiated(found) if random.random() < 0.35 else found


def _operators(draw: Draw, *, keyed: bool, left: int) -> Sequence[Callable[[Draw], None]]:
    """Return the operators of which the next one is chosen, if so many steps are left."""
    if keyed and (left == 1 or draw.chance(0.5)):
        return KEYED
    return RARE if draw.chance(0.01) else (*MOVING, *REDUCING)


def _differentiated(program: Program) -> Program:
    """Return the gradient of a program, if it has one that is not zero."""

    if NOT_DIFFERENTIATED.intersection(program.operators):
        return program
    if all(a.kind != FLOAT or not prod(a.shape) for a in program.arguments):
        return program
    return replace(program, gradient=True)
