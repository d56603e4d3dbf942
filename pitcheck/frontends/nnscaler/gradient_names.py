"""The names of gradients.

nnScaler gives one name to all gradients of a tensor that several operators read, and to the
gradients of its copies. If a name stands for several gradients, each is named after the operator
through which it comes, by the name of that operator's result: ``gadd_1.mul_5``. The reference and
the parallel plan run operators of the same names, so that the names of such gradients agree,
whatever each plan does in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from pitcheck.frontends.nnscaler.execution_plan import Compute, Derive, ExecutionPlan
from pitcheck.frontends.nnscaler.families import base_of


def gradient_names(plan: ExecutionPlan) -> dict[int, str]:
    """Return the name of every gradient that an operator computes, by the id of its full tensor."""
    nodes = [node for cell in plan.cells for node in cell.nodes]
    forward = {node.id: node for node in nodes if isinstance(node, Compute)}
    bases: dict[int, str] = {}
    through: dict[int, dict[str, None]] = {}
    originals: dict[int, int] = {}
    for derive in (node for node in nodes if isinstance(node, Derive)):
        operator = forward.get(derive.mirror)
        for result in derive.results:
            bases[result.full] = base_of(result)
            if operator is not None and operator.results:
                through.setdefault(result.full, {})[operator.results[0].tensor.name] = None
        if (
            operator is not None
            and operator.kind == "identity"
            and derive.results
            and operator.results[0].gradient_full is not None
        ):
            originals[operator.results[0].gradient_full] = derive.results[0].full
    meant: dict[str, set[int]] = {}
    for full, base in bases.items():
        meant.setdefault(base, set()).add(_original(full, originals))
    return {
        full: _name(base, through.get(_original(full, originals), {}), len(meant[base]) > 1)
        for full, base in bases.items()
    }


def _name(base: str, through: Iterable[str], several: bool) -> str:
    operators = [name for name in through if f"g{name}" != base]
    return f"{base}.{operators[0]}" if several and len(operators) == 1 else base


def _original(full: int, originals: dict[int, int]) -> int:
    seen: set[int] = set()
    while full in originals and full not in seen:
        seen.add(full)
        full = originals[full]
    return full
