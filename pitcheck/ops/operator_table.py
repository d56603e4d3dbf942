"""The table of all operators, for ``docs/operators.md``.

>>> "| `exp` | 1 |  | yes | e to the power x. |" in operator_table()
True
"""

from __future__ import annotations

from pitcheck.ops.declaration import OperatorKind
from pitcheck.ops.declare import MANY
from pitcheck.ops.registry import operator_themes

_HEAD = """# Operators

This page lists the operators that a plan can have, by theme. It is written from their declarations
(`pitcheck/ops/operator_table.py`). A plan that needs an operator or an attribute that is not here
is inconclusive: nothing is guessed.

*Inputs* is the number of inputs. *Attributes* are given with their role in the reduction of shapes,
those that are required in bold. *Gradient* says whether the derivative `NAME.backward` exists: its
inputs are the operator's inputs, then its outputs, then the gradients of its outputs (attributes
`forward_inputs`, `forward_outputs`, and `gradients`, the numbers of the outputs whose gradients are
given; with `forward_outputs` 0 the outputs are computed anew); its outputs are the gradients of the
operator's inputs. Operands of different kinds become one kind: bool, then int, then floating. Axes
may be negative. The gradient of an operand that was broadcast is summed to the operand's shape. An
attribute named `position` of a collective is the member's place; the plan does not give it. `axes`
of a reduction are all dimensions by default; with `keepdim` they stay with size 1.
"""


def operator_table() -> str:
    """Return the operators as Markdown, a table for each theme."""
    sections = [_HEAD]
    for theme, kinds in operator_themes().items():
        lines = [
            f"## {theme.rstrip('.')}",
            "",
            "| operator | inputs | attributes | gradient | meaning |",
            "|---|---|---|---|---|",
        ]
        lines.extend(_row(kind) for kind in kinds)
        sections.append("\n".join(lines) + "\n")
    return "\n".join(sections)


def _row(kind: OperatorKind) -> str:
    least, most = kind.inputs
    count = (
        str(least)
        if least == most
        else f"{least} or more"
        if most == MANY
        else f"{least} to {most}"
    )
    inputs = "stack" if kind.collective else count
    attributes = ", ".join(
        f"**{name}** ({role})" if name in kind.required else f"{name} ({role})"
        for name, role in kind.attributes.items()
    )
    gradient = "yes" if kind.derivative else "no"
    return (
        f"| `{kind.name}` | {inputs} | {attributes} | {gradient} | "
        f"{kind.doc.replace('|', '&#124;')} |"
    )
