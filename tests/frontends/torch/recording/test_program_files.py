"""Programs in files: what they print, how they end, and the order of their sets."""

from __future__ import annotations

import sys

import pytest

from pitcheck.errors import PlanError, UsageError
from pitcheck.frontends.torch.load import load_spec
from pitcheck.torch import Options, check

PROGRAM = """
import torch.distributed as dist
from frontends.torch.parallelism.averaging import averaging
from order import named

def chosen(model, names):
    print("a step")
    parameters = dict(model.named_parameters())
    for name in names(parameters):
        dist.all_reduce(parameters[name].grad)
    for name in named(parameters):
        parameters[name].grad /= 2

print("imported")
by_chance = averaging(lambda model: chosen(model, named))
in_order = averaging(lambda model: chosen(model, lambda parameters: sorted(named(parameters))))
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    (tmp_path / "order.py").write_text(
        "def named(parameters):\n    return [name for name in {*parameters}]\n"
    )
    yield file
    for name in ("program", "order"):
        sys.modules.pop(name, None)
    sys.path.remove(str(tmp_path))


def test_order_of_names(program, capfd) -> None:
    """In a module beside the file, too."""
    found = {
        name: check(load_spec(str(program), name), Options(seed=1))
        for name in ("by_chance", "in_order")
    }
    assert (
        found["by_chance"].verdict == "invalid" and found["by_chance"].findings[0].code == "PIT006"
    )
    assert found["in_order"].verdict == "equivalent"
    printed = capfd.readouterr()
    assert printed.out == "" and "imported" in printed.err and "a step" in printed.err


@pytest.mark.parametrize(
    "line", ["raise SystemExit(0)", "import os; os._exit(0)", "import sys; sys.exit()"]
)
def test_files_that_end(tmp_path, line) -> None:
    file = tmp_path / "ending.py"
    file.write_text(line)
    with pytest.raises(PlanError, match="it raises SystemExit"):
        load_spec(str(file), "spec")


DRAWING = """
import torch
from pitcheck.torch import Input, Part, Program, Spec

noise = torch.rand(4, 4) + 1
order = torch.randperm(4)
partly = torch.rand(4, 4)
partly[:1].expand(4, 4).fill_(0.5)
unwritten = torch.empty(4, 4)
by_name = torch.rand(4, 4, generator=torch.default_generator)
model = torch.nn.Linear(4, 4)
zeroed = torch.nn.init.zeros_(torch.randn(4, 4))
torch.manual_seed(3)
seeded = torch.randn(4, 4)

first, second = torch.arange(32.0).view(8, 4).chunk(2)
norm = torch.nn.LayerNorm(4)

def made(step, parallel=None, module=model):
    def program(step):
        return Program(module, lambda batch: {"y": step(batch["x"])})
    return Spec(lambda: program(step), lambda rank: program(parallel or step), {"dp": 2},
        {"x": Input((4, 4), split={0: "dp"})}, {"y": Part(split={0: "dp"})})

unseeded = made(lambda x: x @ noise[:, 1:])
integers = made(lambda x: x[:, order])
overlapping = made(lambda x: x @ partly)
garbage = made(lambda x: x @ unwritten)
of_the_process = made(lambda x: x @ by_name)
parameters = made(model)
numbers = made(lambda x: x @ (seeded + zeroed) + x @ first + x @ second)
twice = made(norm, lambda x: norm(x) + norm.bias, norm)
"""


@pytest.mark.parametrize(
    ("name", "verdict", "said"),
    [
        ("unseeded", "inconclusive", "drawn.py:5 of reference 0"),
        ("integers", "inconclusive", "drawn.py:6 when the file is imported, without a seed"),
        ("overlapping", "inconclusive", "drawn.py:7 of reference 0"),
        ("garbage", "inconclusive", "drawn.py:9 of reference 0"),
        ("of_the_process", "inconclusive", "drawn.py:10 of reference 0"),
        ("parameters", "equivalent", ""),
        ("numbers", "equivalent", ""),
        # A parameter may be anything, although the file leaves zeros in this one.
        ("twice", "mismatch", ""),
    ],
)
def test_numbers_drawn_by_an_import(tmp_path, monkeypatch, name, verdict, said) -> None:
    """Each process draws others, unless the file seeds the generator before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "drawn.py").write_text(DRAWING)
    spec = load_spec(str(tmp_path / "drawn.py"), name)
    sys.modules.pop("drawn")
    report = check(spec, Options(seed=1, jobs=1, explain=False))
    assert report.verdict == verdict, report.findings
    assert said in "".join(finding.title for finding in report.findings[:1])


@pytest.mark.parametrize(
    "seen",
    [
        "drawn.item()",
        "drawn.tolist()",
        "drawn.numpy()",
        "bool(drawn > 0.5)",
        "float(drawn)",
        "torch.equal(drawn, torch.zeros(()))",
        "(drawn[None] > 0.5).nonzero().shape",
        "torch.ones(1)[drawn[None] > 0.5].numel()",
        "pickle.dumps(drawn)",
        "drawn.apply_(abs)",
    ],
)
def test_numbers_drawn_by_an_import_are_not_looked_at(tmp_path, monkeypatch, seen) -> None:
    """They would be one number for all ranks, and each process draws another."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "looked.py"
    text = f"import pickle, torch\nSEED\ndrawn = torch.rand(())\nseen = {seen}\nspec = 1\n"
    for seed, error in (("", PlanError), ("torch.manual_seed(1)", UsageError)):
        sys.modules.pop("looked", None)
        file.write_text(text.replace("SEED", seed))
        with pytest.raises(error, match="without a seed" if not seed else "must be a"):
            load_spec(str(file), "spec")


@pytest.mark.parametrize(
    ("draw", "seed"),
    [
        ("random.random()", "random.seed(1)"),
        ("first()", "random.seed(1)"),
        ("random.Random().random()", ""),
        ("np.random.rand()", "np.random.seed(1)"),
        ("np.random.default_rng().normal()", ""),
        ("torch.rand(2, generator=made())", ""),
        ("random.seed(None, 2) or random.random()", ""),
        ("random.getstate()", "random.seed(1)"),
        ("np.random.get_state()", "np.random.seed(1)"),
        ("torch.initial_seed()", "torch.manual_seed(1)"),
        ("torch.get_rng_state()", "torch.manual_seed(1)"),
        ("secrets.randbelow(9)", ""),
        ("hash('layers.0')", ""),
        ("{Named('layers.0')}", None),
        ("random.Random(1).random()", None),
        ("np.random.default_rng(1).normal()", None),
        ("torch.rand(2, generator=torch.Generator())", None),
    ],
)
def test_an_import_draws_from_no_other_generator_without_a_seed(
    tmp_path, monkeypatch, draw, seed
) -> None:
    """One process imports the file for all ranks, and in training each process draws others."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    lines = [
        "import random, secrets, torch",
        "import numpy as np",
        "from random import random as first",
        "class Named:",
        "    def __init__(self, name): self.name = name",
        "    def __hash__(self): return hash(self.name)",
        "def made():",
        "    generator = torch.Generator()",
        "    generator.seed()",
        "    return generator",
    ]
    (tmp_path / "drew.py").write_text("\n".join([*lines, f"drawn = {draw}", "spec = 1"]))
    sys.modules.pop("drew", None)
    if seed is None:
        with pytest.raises(UsageError, match="must be a"):
            load_spec(str(tmp_path / "drew.py"), "spec")
        return
    with pytest.raises(PlanError, match=r"without a seed|seed the generator"):
        load_spec(str(tmp_path / "drew.py"), "spec")
    if seed:
        lines = ["import random, torch", "import numpy as np", seed, *lines]
        (tmp_path / "drew.py").write_text("\n".join([*lines, f"drawn = {draw}", "spec = 1"]))
        with pytest.raises(UsageError, match="must be a"):
            load_spec(str(tmp_path / "drew.py"), "spec")
