"""Programs that log, and that stop where numbers are not finite, in files and on some ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.averaging import average, averaging
from frontends.torch.proving import check_at_one_mesh, proven
from torch import nn

from pitcheck.errors import UnsupportedError
from pitcheck.frontends.torch.load import load_spec
from pitcheck.frontends.torch.recording.record import record

PROGRAM = """
import torch
from frontends.torch.parallelism.averaging import BATCH, network
from pitcheck.torch import Program, Spec

def program(use):
    model = network()
    kept = []
    def step(batch):
        loss = model(batch["x"]).square().mean()
        use(loss, kept)
        loss.backward()
        return loss
    return Program(model, step)

def spec(use):
    return Spec(lambda: program(use), lambda _: program(use), {"dp": 2}, BATCH)

def log(loss, kept):
    kept.append(float(loss))
    kept.append(float(loss.item()))
    print(f"{sum(kept):.3f} {float('1.5')} {float()} {float(2)} {float(torch.tensor(3.0))}")

def shadowed(loss, kept):
    float = str
    print(float("text"))

def decided(loss, kept):
    if float(loss) > 3:
        loss.mul_(2)

logged, own, wrong = spec(log), spec(shadowed), spec(decided)
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "reading_program.py"
    path.write_text(PROGRAM)
    yield str(path)
    sys.modules.pop("reading_program", None)
    sys.path.remove(str(tmp_path))


def test_a_float_of_a_tensor_in_a_file(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    (trace,) = record(load_spec(file, "logged"), "reference", 1)
    assert "unknown 1.5 0.0 2.0 3.0" in capfd.readouterr().err
    read = [sentence for sentence in trace.assumptions if "changes no result" in sentence]
    assert len(read) == 1 and "reading_program.py:20" in read[0]


def test_a_float_of_the_file_itself_is_left_alone(
    file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (trace,) = record(load_spec(file, "own"), "reference", 1)
    assert "text" in capfd.readouterr().err and not trace.assumptions


def test_a_float_that_decides_is_refused(file: str) -> None:
    with pytest.raises(UnsupportedError, match=r"reading_program.py:29: .* and it is compared"):
        record(load_spec(file, "wrong"), "reference", 1)


# --- what ranks read


def watched_on_the_first(model: nn.Sequential) -> None:
    average(model)
    if dist.get_rank() == 0:
        print("first", model[0].weight.grad.sum().item())


def averaged_for_a_log(model: nn.Sequential) -> None:
    """Ranks add up what they log, which changes nothing else."""
    average(model)
    loss = model[0].weight.grad.sum().detach().clone()
    dist.all_reduce(loss)
    print((loss / 2).item())


def left_out_if_not_finite(model: nn.Sequential) -> None:
    """Without the tests, nothing is averaged; and with them everything is."""
    if torch.isfinite(model[0].weight.grad).all():
        average(model)


def never_averaged(model: nn.Sequential) -> None:
    if torch.isnan(model[0].weight.grad).any():
        average(model)


def averaged_on_one(model: nn.Sequential) -> None:
    """Ranks test other numbers, but all of them take the way of finite ones."""
    if dist.get_rank() == 0 or torch.isnan(model[0].weight.grad).any():
        average(model)


@pytest.mark.slow
@pytest.mark.parametrize("sync", [watched_on_the_first, averaged_for_a_log, left_out_if_not_finite])
def test_what_is_read_changes_nothing(sync: Callable[[nn.Sequential], None]) -> None:
    report = proven(averaging(sync))
    assert any("test_programs_that_read.py:" in sentence for sentence in report.assumptions)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sync", "verdict"), [(never_averaged, "mismatch"), (averaged_on_one, "invalid")]
)
def test_the_ordinary_way_is_checked(sync: Callable[[nn.Sequential], None], verdict: str) -> None:
    assert check_at_one_mesh(averaging(sync)).verdict == verdict
