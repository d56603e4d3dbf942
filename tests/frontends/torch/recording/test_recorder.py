"""Nothing goes by the recorder: copies and conversions, other threads, memory without operators,
refusals that are caught, and chance.
"""

from __future__ import annotations

import copy
import os
import random
import signal
import tempfile
import threading
import uuid
from io import BytesIO

import numpy as np
import pytest
import torch
import torch.distributed as dist
from frontends.torch.parallelism.averaging import average, averaging, network, recorded, verdict
from frontends.torch.proving import proven
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from pitcheck.errors import PlanError, UnsupportedError

ARRAY = np.ones(5, dtype=np.float32)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        nn.utils.parametrizations.weight_norm(self.inner)

    def forward(self, x):
        return self.inner(x)


def converted() -> nn.Sequential:
    """Copied, moved, made without memory, loaded, converted there and back, and with a parameter
    that two modules share.
    """
    model = copy.deepcopy(network()).to("cpu")
    with torch.device("meta"):
        empty = network()
    empty = empty.to_empty(device="cpu")
    empty.load_state_dict(model.state_dict())
    empty = empty.double().float()
    model = nn.Sequential(empty[0], empty[1], Normed(), copy.deepcopy(empty[2]))
    model[3].bias = empty[2].bias
    return copy.deepcopy(model)


def test_copies_and_conversions() -> None:
    proven(averaging(average, converted))


def scaled_by_copy(model: nn.Sequential) -> None:
    """Copies of two parts of one tensor share memory, as the parts do."""
    average(model)
    whole = torch.ones(10)
    first, second = copy.deepcopy([whole[:5], whole[5:]])
    first.as_strided((10,), (1,), 0)[5:] = 3.0
    model[2].bias.grad.mul_(second)


def scaled_by_module(model: nn.Sequential) -> None:
    average(model)
    other = nn.Linear(5, 1)
    nn.init.constant_(other.weight, 3.0)
    model[2].bias.grad.mul_(copy.deepcopy(other).weight[0])


def scaled_without_modes(model: nn.Sequential) -> None:
    average(model)
    with torch.no_grad(), _disable_current_modes():
        model[2].bias.grad.mul_(3)


@pytest.mark.parametrize("sync", [scaled_by_copy, scaled_by_module, scaled_without_modes])
def test_what_was_not_seen_before_is_seen(sync) -> None:
    assert verdict(sync)[0] == "mismatch"


def on_a_thread(model: nn.Sequential) -> None:
    average(model)
    thread = threading.Thread(target=lambda: model[2].bias.grad.mul_(3))
    thread.start()
    thread.join()


def foreign(model: nn.Sequential) -> None:
    with FakeTensorMode():
        three = torch.full((5,), 3.0)
    model[2].bias.grad.mul_(three)


def caught(model: nn.Sequential) -> None:
    try:
        float(model[2].bias.grad.sum())
    except UnsupportedError:
        average(model)


def as_array(model: nn.Sequential) -> None:
    try:
        np.asarray(model[2].bias.grad.detach())
    except Exception:
        average(model)


def saved(model: nn.Sequential) -> None:
    average(model)
    torch.save(model[2].bias.grad, BytesIO())


def by_storage(model: nn.Sequential) -> None:
    average(model)
    model[2].bias.grad.untyped_storage().fill_(0)


def through_numpy(model: nn.Sequential) -> None:
    average(model)
    factor = torch.from_numpy(ARRAY)
    ARRAY[:] = 3
    model[2].bias.grad.mul_(factor)


def through_data(model: nn.Sequential) -> None:
    """The version goes up, and no operator has written."""
    average(model)
    gradient = model[2].bias.grad
    torch._C._autograd._unsafe_set_version_counter((gradient,), (gradient._version + 1,))
    gradient.mul_(1)


@pytest.mark.parametrize(
    ("sync", "message"),
    [
        (on_a_thread, r"mul_.Tensor runs on another thread"),
        (foreign, r"belongs to another FakeTensorMode"),
        (caught, r"the program looks at the value of a tensor"),
        (as_array, r"depends on the values of a tensor of shape \(5,\)"),
        (saved, r"a tensor is pickled or saved"),
        (by_storage, r"UntypedStorage.fill_ writes to memory without an operator"),
        (through_numpy, r"the numbers of a tensor of shape \(5,\) were changed"),
        (
            through_data,
            r"was written to before by what no operator tells of \(2 times, of which 1 are "
            r"recorded\)",
        ),
    ],
)
def test_ways_around(sync, message) -> None:
    with pytest.raises(UnsupportedError, match=rf"rank 0 .*test_recorder.py:\d+.*{message}"):
        recorded(sync)


def harmless(model: nn.Sequential) -> None:
    """Seeded draws, names that nothing depends on, sets that are asked for members, and a thread
    that touches no tensor.
    """
    random.seed(3)
    np.random.seed(4)
    drawn = [
        random.random(),
        np.random.rand(),
        np.random.default_rng(5).random(),
        random.Random(6).random(),
        uuid.uuid4(),
        tempfile.mktemp(),
    ]
    thread = threading.Thread(target=drawn.reverse)
    thread.start()
    thread.join()
    names, known = dict(model.named_parameters()), set(model.parameters())
    for name in sorted(set(names)):
        if names[name] in known:
            dist.all_reduce(names[name].grad)
            names[name].grad /= 2


def test_what_no_chance_decides() -> None:
    proven(averaging(harmless))


def over_a_set(model: nn.Sequential) -> None:
    for parameter in set(model.parameters()):
        dist.all_reduce(parameter.grad)
        parameter.grad /= 2


def over_modules(model: nn.Sequential) -> None:
    for module in {model[0], model[2]}:
        average(module)


@pytest.mark.parametrize("sync", [over_a_set, over_modules])
def test_order_of_sets(sync) -> None:
    assert verdict(sync) == ("invalid", "PIT006")


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (random.random, ""),
        (lambda: [random.random()], r"random.random draws"),
        (lambda: np.random.rand(2), r"numpy.random.rand draws"),
        (np.random.default_rng, r"a generator of numpy.random draws"),
        (lambda: (random.Random(), random.SystemRandom().random()), r"random.Random draws"),
        (lambda: [torch.seed()], r"torch.seed draws"),
        (lambda: (random.seed(1), random.seed(), random.random()), r"random.random draws"),
    ],
)
def test_unseeded_draws(draw, name) -> None:
    with pytest.raises(
        UnsupportedError,
        match=name or "a function of random that was imported by its own name draws",
    ):
        recorded(lambda model: draw())


def raising(model: nn.Sequential) -> None:
    if dist.get_rank():
        raise ValueError("no such thing")


def leaving(model: nn.Sequential) -> None:
    if dist.get_rank():
        raise SystemExit(0)


def killed(model: nn.Sequential) -> None:
    if dist.get_rank():
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("sync", "message", "note"),
    [
        (
            raising,
            r"test_recorder.py:\d+: ValueError: no such thing",
            'raise ValueError("no such thing")',
        ),
        (leaving, r"test_recorder.py:\d+: SystemExit: 0", "raise SystemExit(0)"),
        (killed, r"its process was killed by signal 9", ""),
    ],
)
def test_programs_that_end(sync, message, note) -> None:
    with pytest.raises(PlanError, match=f"rank 1 of the parallel program: .*{message}") as caught:
        recorded(sync)
    assert note in "".join(getattr(caught.value, "__notes__", [""]))
