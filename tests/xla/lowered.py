"""Running HLO texts as plans, by the executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pitcheck.execution.executor import execute
from pitcheck.frontends.xla.lowering.arrays import Span
from pitcheck.frontends.xla.lowering.side import Side, parameters_of
from pitcheck.frontends.xla.text.module import Module
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.model import Output, Plan
from pitcheck.plan.validate import validate


def plan_of(module: Module, bounds: Mapping[int, tuple[int, int]] | None = None) -> Plan:
    """Return the plan of a program, in which each device is given whole parameters."""
    given = list(parameters_of(module))
    side = Side(module, module.header.partitions, given, bounds or {})
    return side.plan([Output(name) for name in side.named_results()], ())


def spans_of(module: Module, bounds: Mapping[int, tuple[int, int]]) -> list[Span | None]:
    """Return the span of each result; ``bounds``: the ranges of the integers that are given."""
    given = list(parameters_of(module))
    return [each.span for each in Side(module, module.header.partitions, given, bounds).results]


def outputs(
    text: str, inputs: Sequence[Sequence[Any]], bounds: Mapping[int, tuple[int, int]] | None = None
) -> list[list[Any]]:
    """Return the outputs on each device. ``inputs``: on each device those of each parameter."""
    module = parse_hlo(text)
    plan = plan_of(module, bounds)
    violations = list(validate(plan))
    assert not violations, violations[:3]
    names = [tensor.name for tensor in plan.tensors if tensor.role == "input"]
    initial = {
        (name, device, 0): np.array(value)
        for device, values in enumerate(inputs)
        for name, value in zip(names, values, strict=True)
    }
    held = execute(plan, initial)
    return [
        [held[output.tensor, device, 0].tolist() for output in plan.outputs]
        for device in range(len(inputs))
    ]
