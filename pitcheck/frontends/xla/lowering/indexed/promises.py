"""Promises of gathers and scatters: that no index is there twice, or that indices count up.

XLA makes faster code of a promise, which writes anything where it is broken. The user, or JAX,
makes it in the program; the partitioner may keep it, and must make none.
"""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.text.module import Instruction, Module

_PROMISES = ("unique_indices", "indices_are_sorted")

ASSUMED = "indices are unique, or sorted, where the program before the partitioner promises it"


def assumed_promises(before: Module, after: Module) -> tuple[str, ...]:
    """Return the assumption that promises in both programs are kept; none if there are none.

    Raises UnsupportedError for one that is in the partitioned program alone.
    """
    made = {(promise, *_origin(each)) for promise, each in _promises(before)}
    kept = list(_promises(after))
    for promise, each in kept:
        if (promise, *_origin(each)) not in made:
            raise UnsupportedError(
                f"{after.file}:{each.line}: {each.name} promises {promise}, which no {each.opcode} "
                f"of this origin does before the program was partitioned"
            )
    return (ASSUMED,) if kept else ()


def _origin(instruction: Instruction) -> tuple[str, str]:
    return instruction.opcode, instruction.metadata.name


def _promises(module: Module) -> Iterator[tuple[str, Instruction]]:
    """Yield the promises of a program, each with the instruction that makes it."""
    for computation in module.computations.values():
        for instruction in computation.instructions.values():
            for promise in _PROMISES:
                if instruction.get(promise, False):
                    yield promise, instruction
