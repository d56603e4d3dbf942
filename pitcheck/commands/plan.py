"""``pitcheck plan``: one plan shown, validated or converted, or a configuration's plans made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

import msgspec

from pitcheck.commands.reading import read, read_all, read_pair
from pitcheck.commands.writing import write_pair
from pitcheck.errors import UsageError
from pitcheck.frontends.builtin import PLAN_SUFFIXES
from pitcheck.plan.files import write_plan
from pitcheck.plan.model import Plan, Tensor
from pitcheck.plan.rules.violations import Violation
from pitcheck.programs.frontend import CONFIGURATION_SUFFIX, CONFIGURATIONS
from pitcheck.report.coordinate_names import describe_ranks
from pitcheck.report.destinations import print_bytes
from pitcheck.report.lines import printable

INVALID = 2


def show(file: str) -> int:
    """Print what is in the plan.

    Raises PlanError for a file that cannot be read.
    """
    _print(_description(read(file)))
    return 0


def validate(files: Sequence[str], reference: str | None) -> int:
    """Print every violation of every plan in ``files``; return 2 if a plan is invalid, else 0.

    With ``reference`` lineage is held against that plan. Raises PlanError, before anything is
    printed, for all files that cannot be read.
    """
    from pitcheck.plan.validate import validate as violations_of  # noqa: PLC0415  the other commands need not wait for it

    every = read_all([*files, *([] if reference is None else [reference])])
    specification = None if reference is None else every[-1]
    codes = []
    for file, plan in zip(files, every, strict=False):
        violations = violations_of(plan, specification)
        valid = all(each.severity != "error" for each in violations)
        sizes = {axis.name: axis.size for axis in plan.mesh}
        _print(
            [
                *(_violation(each, sizes) for each in violations),
                f"{file}: {'valid' if valid else 'invalid'}",
            ]
        )
        codes.append(0 if valid else INVALID)
    return max(codes)


def _violation(violation: Violation, sizes: Mapping[str, int]) -> str:
    ranks = describe_ranks(violation.ranks, sizes)
    return f"{violation}" + (f" ({ranks})" if ranks else "")


def convert(source: str, target: str) -> int:
    """Write the plan in ``source`` as ``target``.

    Raises UsageError for a suffix that is not that of a plan file, PlanError if ``source`` cannot
    be read.
    """
    if not target.endswith(PLAN_SUFFIXES):
        raise UsageError(
            f"{target}: a plan is written as {' or '.join(PLAN_SUFFIXES)}; name the target so"
        )
    write_plan(read(source), Path(target))
    return 0


def make(file: str, directory: str, assignments: Sequence[str]) -> int:
    """Write both plans of a configuration into ``directory``.

    Raises PlanError for a configuration that cannot run, UsageError for a wrong argument.
    """
    if not CONFIGURATIONS.recognises(file):
        raise UsageError(
            f"{file}: plans are made from a configuration, a .toml file; a plan file is "
            f"one plan already"
        )
    write_pair(
        lambda: read_pair(file, assignments),
        directory,
        Path(file).name.removesuffix(CONFIGURATION_SUFFIX),
    )
    return 0


def _description(plan: Plan) -> Iterator[str]:
    sizes = {axis.name: axis.size for axis in plan.mesh}
    if plan.name:
        yield f"name           {plan.name}"
    ranks = prod(sizes.values())
    yield (
        f"mesh           "
        f"{' '.join(f'{axis}={size}' for axis, size in sizes.items()) or 'one device'} ({ranks} "
        f"{'rank' if ranks == 1 else 'ranks'})"
    )
    yield f"micro-batches  {plan.microbatches}"
    yield f"tensors        {len(plan.tensors)}: {_counts(tensor.role for tensor in plan.tensors)}"
    yield f"operators      {len(plan.operators)}"
    for kind, number in sorted(Counter(operator.kind for operator in plan.operators).items()):
        yield f"  {number:>6}  {kind}"
    tensors = {tensor.name: tensor for tensor in plan.tensors}
    yield f"outputs        {len(plan.outputs)}"
    for output in plan.outputs:
        named = (
            f" = {output.reference}"
            if output.reference and output.reference != output.tensor
            else ""
        )
        yield f"  {output.tensor}{named}{_shape(tensors.get(output.tensor))}"
    for assumption in plan.assumptions:
        yield f"assuming       {assumption}"
    for exception in () if plan.left_out is msgspec.UNSET else plan.left_out:
        yield f"exception      {exception}"


def _counts(names: Iterable[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(Counter(names).items()))


def _shape(tensor: Tensor | None) -> str:
    return "" if tensor is None else f"  {list(tensor.shape)} {tensor.dtype}"


def _print(lines: Iterable[str]) -> None:
    print_bytes("".join(printable(line) + "\n" for line in lines).encode("utf-8"))
