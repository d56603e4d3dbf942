"""Rules on outputs: they must exist, be written, and be named once."""

from __future__ import annotations

from collections.abc import Iterator

from pitcheck.plan.model import Output, Plan
from pitcheck.plan.rules.violations import Violation
from pitcheck.plan.schedule.run_order import EXTERNAL_ROLES


def check_outputs(plan: Plan, reference: Plan | None) -> Iterator[Violation]:
    """Yield PIT011 for the outputs, and for the names in ``gradient_of`` and ``updated``."""
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    written = {name for operator in plan.operators for name in operator.outputs}
    known = None if reference is None else {tensor.name for tensor in reference.tensors}
    first: dict[str, int] = {}
    for number, output in enumerate(plan.outputs):
        place = f"outputs[{number}]"
        tensor = tensors.get(output.tensor)
        if tensor is None:
            yield Violation(
                "PIT011",
                f"{place}.tensor",
                f"{output.tensor!r} is no tensor of the plan",
                tensor=output.tensor,
            )
        elif tensor.role not in EXTERNAL_ROLES and output.tensor not in written:
            yield Violation(
                "PIT011",
                f"{place}.tensor",
                f"nothing writes {output.tensor!r}",
                tensor=output.tensor,
            )
        compared = (output.reference or output.tensor) if reference is not None else output.tensor
        if compared in first:
            yield Violation(
                "PIT011",
                place,
                f"{compared!r} is already compared by outputs[{first[compared]}]",
                tensor=output.tensor,
            )
        first.setdefault(compared, number)
        if known is not None:
            yield from _check_reference(output, place, known)
    for number, tensor in enumerate(plan.tensors):
        for field, name in (("gradient_of", tensor.gradient_of), ("updated", tensor.updated)):
            if name is not None and name not in tensors:
                yield Violation(
                    "PIT011",
                    f"tensors[{number}].{field}",
                    f"{name!r} is no tensor of the plan",
                    tensor=tensor.name,
                )


def _check_reference(output: Output, place: str, known: set[str]) -> Iterator[Violation]:
    compared = output.reference or output.tensor
    if compared not in known:
        message = (
            f"{compared!r} is no tensor of the reference plan; name in 'reference' the one "
            f"that {output.tensor!r} must equal"
        )
        yield Violation("PIT011", f"{place}.reference", message, tensor=output.tensor)
    if output.lineage is not None and output.lineage.reference not in ("", compared):
        message = (
            f"the output must equal {compared!r}, but its lineage says {output.lineage.reference!r}"
        )
        yield Violation("PIT011", f"{place}.lineage.reference", message, tensor=output.tensor)
