"""The operator that a called computation of two numbers is: a sum, an extremum, and so on."""

from __future__ import annotations

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.xla.text.module import Computation, Instruction, Module

_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or"})
REPLACE = "replace"
"""The region that gives its second argument: what is written replaces what was there."""


def reduction_of(module: Module, instruction: Instruction) -> str:
    """Return the opcode that ``to_apply`` of an instruction is, or REPLACE.

    Raises UnsupportedError for a computation that is none of these.
    """
    return reduction_in(module, module.computations[instruction.calls[0]])


def reduction_in(module: Module, called: Computation) -> str:
    """Return the opcode that a computation is, or REPLACE.

    Raises UnsupportedError for a computation that is none of these.
    """
    root = called.result
    parameters = called.parameters
    passed = 0
    while root.opcode == "copy":
        root = called.instructions[root.operands[0]]
        passed += 1
    if len(parameters) == 2 and root.name == parameters[1]:
        return REPLACE
    if (
        len(parameters) == 2
        and root.opcode in _COMMUTATIVE
        and len(called.instructions) == 3 + passed
        and sorted(root.operands) == sorted(parameters)
    ):
        return root.opcode
    raise UnsupportedError(
        f"{module.file}:{called.line}: the computation {called.name} is no sum, product, extremum, "
        f"conjunction or disjunction of two numbers; other reductions have no meaning in a plan"
    )
