"""``pitcheck plan``: one plan shown, validated or converted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path

from pitcheck.commands.reading import PLAN_SUFFIXES, read
from pitcheck.errors import UsageError
from pitcheck.plan.files import write_plan
from pitcheck.plan.model import Plan, Tensor
from pitcheck.plan.validate import validate as violations_of
from pitcheck.report.places import describe_ranks
from pitcheck.report.text import printable
from pitcheck.report.write import print_bytes

INVALID = 2


def show(file: str) -> int:
    """Print what is in the plan. Raises PlanError for a file that cannot be read."""
    _print(_description(read(file)))
    return 0


def validate(file: str) -> int:
    """Print every violation; return 2 where one makes the plan invalid, else 0. Raises PlanError for a file that cannot be read."""
    plan = read(file)
    violations = violations_of(plan)
    sizes = {axis.name: axis.size for axis in plan.mesh}
    for each in violations:
        ranks = describe_ranks(each.ranks, sizes)
        _print([f"{each}" + (f" ({ranks})" if ranks else "")])
    if any(each.severity == "error" for each in violations):
        return INVALID
    _print(["valid"])
    return 0


def convert(source: str, target: str) -> int:
    """Write the plan in ``source`` as ``target``. Raises UsageError for another suffix than those of plan files, PlanError where ``source`` cannot be read."""
    if not target.endswith(PLAN_SUFFIXES):
        raise UsageError(f"{target}: a plan is written as {' or '.join(PLAN_SUFFIXES)}; name the target so")
    write_plan(read(source), Path(target))
    return 0


def _description(plan: Plan) -> Iterator[str]:
    sizes = {axis.name: axis.size for axis in plan.mesh}
    if plan.name:
        yield f"name           {plan.name}"
    yield f"mesh           {' '.join(f'{axis}={size}' for axis, size in sizes.items()) or 'one device'} ({prod(sizes.values())} ranks)"
    yield f"micro-batches  {plan.microbatches}"
    yield f"tensors        {len(plan.tensors)}: {_counts(tensor.role for tensor in plan.tensors)}"
    yield f"operators      {len(plan.operators)}"
    for kind, number in sorted(Counter(operator.kind for operator in plan.operators).items()):
        yield f"  {number:>6}  {kind}"
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    yield f"outputs        {len(plan.outputs)}"
    for output in plan.outputs:
        named = f" = {output.reference}" if output.reference and output.reference != output.tensor else ""
        yield f"  {output.tensor}{named}{_shape(tensors.get(output.tensor))}"
    for assumption in plan.assumptions:
        yield f"assuming       {assumption}"


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(Counter(names).items()))


def _shape(tensor: Tensor | None) -> str:
    return "" if tensor is None else f"  {list(tensor.shape)} {tensor.dtype}"


def _print(lines: Iterable[str]) -> None:
    print_bytes("".join(printable(line) + "\n" for line in lines).encode("utf-8"))
