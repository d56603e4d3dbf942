"""Short plans over two ranks and their references, for attacks by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.verdicts import AT_NIGHT

from pitcheck.base.options import Options
from pitcheck.commands.checking.pair import checked
from pitcheck.plan.model import Axis, Group, Lineage, Operator, Output, Plan, Shard, Table, Tensor

RANKS = (Axis("r", 2),)
ALL = Group(axes=("r",))
OTHER = Table(("r",), (1, 0))
NEG = Operator("neg", "neg", ("x",), ("a",))


def tensor(name: str, *shape: int, **more: Any) -> Tensor:
    return Tensor(name, shape or (4,), **more)


def given(name: str, *shape: int, role: Any = "input", **more: Any) -> Tensor:
    return Tensor(name, shape or (4,), role=role, **more)


def evenly(reference: str, *by: str) -> Lineage:
    """Rows over axes."""
    return Lineage(reference, (Shard(0, by=by or ("r",)),))


def rows(reference: str, *intervals: Any, **more: Any) -> Lineage:
    """The intervals of rows of each rank."""
    return Lineage(reference, (Shard(0, intervals=Table(("r",), intervals)),), **more)


def alone(tensors: Sequence[Tensor], operators: Sequence[Operator], *outputs: str) -> Plan:
    """A reference on one device."""
    return Plan(
        (), tuple(tensors), tuple(operators), tuple(Output(name) for name in outputs or ("y",))
    )


def spread(
    tensors: Sequence[Tensor],
    operators: Sequence[Operator],
    *outputs: Output,
    mesh: tuple[Axis, ...] = RANKS,
    **more: Any,
) -> Plan:
    """A parallel plan; its output is y if none is given."""
    return Plan(mesh, tuple(tensors), tuple(operators), outputs or (Output("y", "y"),), **more)


def found(reference: Plan, parallel: Plan, seed: int = 1) -> tuple[str, str]:
    """The verdict, and the code of the first finding. A mismatch is explained at night alone."""
    report = checked(
        [lambda: [reference], lambda: [parallel]], Options(seed=seed, jobs=1, explain=AT_NIGHT)
    )
    codes = [finding.code for finding in report.findings]
    assert "PIT900" not in codes, report.findings
    return report.verdict, codes[0] if codes else ""


NEGATED = alone([given("x"), tensor("y")], [Operator("u", "neg", ("x",), ("y",))])
"""The reference of most plans about time: y is -x."""


def against(
    tensors: Sequence[Tensor], operators: Sequence[Operator], **more: Any
) -> tuple[str, str]:
    """Return the verdict and the first code for a plan that should negate x.

    x and y need not be named among the tensors.
    """
    known = {each.name for each in tensors}
    return found(
        NEGATED,
        spread(
            [*(each for each in (given("x"), tensor("y")) if each.name not in known), *tensors],
            operators,
            **more,
        ),
    )
