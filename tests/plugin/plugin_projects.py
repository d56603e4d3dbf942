"""Projects of the plugin's tests: their files, and the run of pytest on them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cli.cli_plans import parallel, reference

from pitcheck.plan.files import write_plan
from pitcheck.plan.model import Operator, Plan, Tensor

PLUGIN = ("-p", "pitcheck.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers")


def run(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    """Run pytest in a new process on one test file."""
    pytester.makepyfile(test_plans=text)
    return pytester.runpytest_subprocess(*PLUGIN, *options, timeout=300)


def wrong_plan() -> Plan:
    """Return the parallel plan with its product doubled before the parts are gathered."""
    right = parallel()
    linear, gather = right.operators
    doubled = Operator("twice", "add", ("h", "h"), ("h2",), source="model.py:9")
    return msgspec.structs.replace(
        right,
        tensors=(*right.tensors, Tensor("h2", (8, 5))),
        operators=(linear, doubled, msgspec.structs.replace(gather, inputs=("h2",))),
    )


def write_plans(folder: Path) -> None:
    """Write a reference, a right plan (p) and a wrong one (w)."""
    for name, plan in (("r", reference()), ("p", parallel()), ("w", wrong_plan())):
        write_plan(plan, folder / f"{name}.plan.json")


PROGRAM = """
import torch
import torch.distributed as dist
from torch import nn
from pitcheck.torch import Input, Part, Program, Rank, Spec
from scale import factor


def training(average):
    model = nn.Linear(4, 3)

    def step(batch):
        loss = model(batch["x"]).square().mean()
        loss.backward()
        average(model)
        return loss

    return Program(model, step)


def reference():
    return training(lambda model: None)


def parallel(rank: Rank):
    def average(model):
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= factor(rank)

    return training(average)


spec = Spec(
    reference,
    parallel,
    mesh={"dp": 2},
    batch={"x": Input((16, 4), split={0: "dp"})},
    outputs={"loss": Part(mean="dp")},
)
"""
"""A file of a program, which imports how its gradients are divided from the module ``scale``."""
FITS_EVERY_SIZE = "def factor(rank):\n    return rank.mesh['dp']\n"
FITS_TWO = "def factor(rank):\n    return 2\n"


def write_program(folder: Path, scale: str) -> None:
    """Write the program and the module that it imports into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(PROGRAM)
    (folder / "scale.py").write_text(scale)
