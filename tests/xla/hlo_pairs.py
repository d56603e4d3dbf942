"""Pairs of texts that JAX has made, and mistakes put into them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pitcheck.execution.executor import execute
from pitcheck.execution.judge import judge
from pitcheck.frontends.xla.lowering.pair import plans_of
from pitcheck.frontends.xla.text.parser import parse_hlo
from pitcheck.plan.model import Plan

HERE = Path(__file__).parent
Case = dict[str, Any]


@cache
def cases_in(file: str) -> dict[str, Case]:
    """Return the pairs in a file of the folder ``texts``, by name."""
    held = (HERE / "texts" / file).read_bytes()
    lines = (gzip.decompress(held) if file.endswith(".gz") else held).decode().splitlines()
    return {case["name"]: case for case in map(json.loads, lines)}


def plans_in(case: Case, **texts: str) -> tuple[Plan, Plan]:
    """Return the plans of a pair, or those with another text ``before`` or ``after``."""
    stated = case | texts
    return plans_of(parse_hlo(stated["before"]), parse_hlo(stated["after"]))


def is_right(reference: Plan, parallel: Plan, seeds: Sequence[int] = (1, 2, 3)) -> bool:
    """Return True if the executor, which shares no code with the check, sees no difference."""
    found = (judge(reference, parallel, seed) for seed in seeds)
    return not any(each.different or each.missing or each.error for each in found)


def assert_computes(case: Case, reference: Plan) -> None:
    """Raise AssertionError unless a reference computes what JAX has computed."""
    names = [tensor.name for tensor in reference.tensors if tensor.role == "input"]
    initial = {(n, 0, 0): np.array(x) for n, x in zip(names, case["inputs"], strict=True)}
    held = execute(reference, initial)
    for output, expected in zip(reference.outputs, case["outputs"], strict=True):
        np.testing.assert_allclose(held[output.tensor, 0, 0], expected, rtol=2e-5, atol=1e-5)


WRONG = (
    (r"all-reduce\((%[\w.-]+)\).*", r"copy(\1)"),
    (r"source_target_pairs=\{\{(\d),(\d)\},\{(\d),(\d)\}", r"source_target_pairs={{\1,\4},{\3,\2}"),
    (r"(all-gather.*replica_groups=)\S+ ?\S*, use", r"\1[2,2]<=[2,2]T(1,0), use"),
    (r"(all-gather.*replica_groups=)\S+ ?\S*, use", r"\1[2,2]<=[4], use"),
    (r"direction=LT", "direction=LE"),
    (r"direction=EQ", "direction=NE"),
    (r"subtract\((%[\w.-]+), (%[\w.-]+)\)", r"subtract(\2, \1)"),
    (r"(reduce-window.*pad=)(\d)_0", r"\g<1>0_\2"),
)
"""Mistakes: a pattern of a line, and what stands in its place."""


def edits(text: str, wrong: Sequence[tuple[str, str]] = WRONG) -> list[tuple[str, str]]:
    """Return texts that each differ in one thing that matters, with what it is."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        for pattern, replacement in wrong:
            edited = re.sub(pattern, replacement, line)
            if edited != line:
                whole = "\n".join([*lines[:number], edited, *lines[number + 1 :]])
                found.append((f"{number + 1}: {line.strip()}", whole))
    return found
